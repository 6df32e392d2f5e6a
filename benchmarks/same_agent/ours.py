"""The agent in agentloop: journaled, resumable, its question waits in the store."""

from typing import Any, Literal

from pydantic import BaseModel

from agentloop import END, START, Graph, Log, ask, each
from benchmarks.same_agent import world


# agent
class State(BaseModel):
    question: str
    queries: tuple[str, ...] = ()
    passages: Log[str] = []
    answer: str = ""
    is_approved: bool = False


async def plan(s: State) -> None:
    s.queries = await world.plan(s.question)


async def look(s: State, query: str) -> None:
    s.passages += await world.search(query)


async def write(s: State) -> None:
    s.answer = await world.answer(s.question, s.passages)


async def verify(s: State) -> Literal["approve", "write"]:
    return "approve" if await world.is_good(s.answer) else "write"


async def approve(s: State) -> None:
    s.is_approved = await ask(s.answer, bool)


graph = Graph(State).chain(START, plan, each(look, over="queries"), write, verify)
graph.route(verify, approve, write, limit=3, then=approve)
graph.chain(approve, END)
# end


async def main(question: str, folder: str) -> dict[str, Any]:
    """Run it until it asks, then go on from the file."""
    store = f"{folder}/ours.db"
    waiting = await graph.run(State(question=question), run="1", store=store)
    answers = {path: world.approves(text) for path, text in waiting.questions.items()}
    state = (await graph.run(run="1", store=store, answers=answers)).state
    return {"answer": state.answer, "is_approved": state.is_approved}
