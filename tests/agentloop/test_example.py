"""The graph of the front page, word for word: plan, parallel search, answer, verify, approve.

That this file passes the strict type checkers is part of the test.
"""

import asyncio
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel

from agentloop import END, START, Graph, Log, ask, each, llm
from agentloop.sqlite_store import sqlite_store
from agentloop.testing import ModelCall, ScriptedModel


class Plan(BaseModel):
    queries: tuple[str, ...]


class Answer(BaseModel):
    text: str


async def search(query: str) -> list[str]:
    await asyncio.sleep(0)
    return [f"{query} is known"]


# [the example]
class S(BaseModel):
    question: str
    queries: tuple[str, ...] = ()
    docs: Log[str] = []  # append-only: the reducer is the type
    answer: str = ""
    approved: bool = False


async def plan(s: S) -> None:
    s.queries = (await llm(Plan, s.question)).queries


async def retrieve(s: S, query: str) -> None:
    s.docs += await search(query)


async def answer(s: S) -> None:
    s.answer = (await llm(Answer, s.question, s.docs)).text


async def verify(s: S) -> Literal["approve", "answer"]:
    return "approve" if "known" in s.answer else "answer"


async def approve(s: S) -> None:
    s.approved = await ask(s.answer, bool)


g = Graph(S)
g.chain(START, plan, each(retrieve, over="queries"), answer, verify)
g.route(verify, approve, answer, limit=3, then=approve)
g.chain(approve, END)
# [end of the example]


def reply(call: ModelCall) -> dict[str, Any]:
    """A plan first; the first answer is not good enough."""
    if call.constraint.accepts('{"queries": []}'):
        return {"queries": ["tea", "rain"]}
    num_answers = sum("text" in str(asked.messages[0]) for asked in model.calls)
    return {"text": "hm" if num_answers == 1 else f"known: {call.prompt.count('[')} passages"}


model = ScriptedModel(reply)


def test_the_example_runs_stops_to_ask_and_goes_on(tmp_path: Path) -> None:
    """Two searches in parallel, one round of the loop, a question, and an answer to it."""
    store = tmp_path / "runs.db"

    async def main() -> None:
        result = await g.run(S(question="why?"), run="42", store=store, model=model)
        assert result.status == "waiting"
        assert result.questions == {"approve:0": "known: 2 passages"}
        num_calls = len(model.calls)
        result = await g.run(run="42", store=store, answers={result.waiting[0]: True})
        assert result.state == S(
            question="why?",
            queries=("tea", "rain"),
            docs=["tea is known", "rain is known"],
            answer="known: 2 passages",
            approved=True,
        )
        assert len(model.calls) == num_calls == 3

    asyncio.run(main())
    sqlite_store(store).close()
