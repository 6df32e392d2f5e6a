"""Forking a recorded run from a step, and replaying one offline."""

import asyncio
from collections import Counter
from typing import Literal

import pytest
from pydantic import BaseModel

from agentloop import END, START, Graph, Log, ask, each, llm, tool
from agentloop.errors import DeterminismError, JournalError
from agentloop.replay import cassette, fork
from agentloop.stores import MemoryStore
from agentloop.testing import ScriptedModel


class S(BaseModel):
    words: tuple[str, ...] = ("a", "b")
    log: Log[str] = []


calls: Counter[str] = Counter()


@tool(effect="once")
async def send(text: str) -> str:
    calls["send"] += 1
    return f"sent {text}"


async def draft(s: S, word: str) -> None:
    calls["draft"] += 1
    s.log += [await llm(str, f"draft {word}")]


async def check(s: S) -> Literal["check", "finish"]:
    calls["check"] += 1
    s.log += [await ask("again?", str)]
    return "check" if s.log[-1] == "yes" else "finish"


async def finish(s: S) -> None:
    calls["finish"] += 1
    s.log += [await send(s.log[0])]


def graph() -> Graph[S]:
    g = Graph(S).chain(START, each(draft, over="words"), check)
    return g.route(check, check, finish, limit=5).chain(finish, END)


def recorded() -> MemoryStore:
    """A finished run `r` with two model calls, two questions and one effect."""
    store = MemoryStore()
    model = ScriptedModel(lambda call: call.prompt.upper())
    graph().run_sync(S(), run="r", store=store, model=model)
    graph().run_sync(run="r", store=store, answers={"check:0": "yes"})
    graph().run_sync(run="r", store=store, answers={"check#2:0": "no"})
    calls.clear()
    return store


WHOLE = ["DRAFT A", "DRAFT B", "yes", "no", "sent DRAFT A"]


def test_a_fork_goes_on_from_its_step_and_leaves_the_run_alone() -> None:
    """What came before the step is kept; the step and all after it run again."""
    store = recorded()
    asyncio.run(fork(store, "r", "new", before="check#2"))
    result = graph().run_sync(run="new", store=store)
    assert result.waiting == ("check#2:0",)
    result = graph().run_sync(run="new", store=store, answers={"check#2:0": "perhaps"})
    assert result.state.log == ["DRAFT A", "DRAFT B", "yes", "perhaps", "sent DRAFT A"]
    assert calls == {"check": 2, "finish": 1, "send": 1}
    assert graph().run_sync(run="r", store=store).state.log == WHOLE


def test_a_fork_before_a_parallel_step_runs_all_of_it() -> None:
    """A step's branches belong to it."""
    store = recorded()
    asyncio.run(fork(store, "r", "new", before="draft"))
    model = ScriptedModel(lambda call: "new")
    result = graph().run_sync(run="new", store=store, model=model)
    assert result.state.log == ["new", "new"]
    assert calls["draft"] == 2


def test_a_fork_goes_on_with_new_code() -> None:
    """Code may change as it is; a changed graph has to be accepted, and the old run stays."""

    async def finish(s: S) -> None:
        s.log += ["new code"]

    async def last(s: S) -> None:
        s.log += ["new step"]

    store = recorded()
    g = Graph(S).chain(START, each(draft, over="words"), check)
    g.route(check, check, finish, limit=5).chain(finish, END)
    asyncio.run(fork(store, "r", "code", before="finish"))
    assert g.run_sync(run="code", store=store).state.log == [*WHOLE[:-1], "new code"]
    longer = Graph(S).chain(START, each(draft, over="words"), check)
    longer.route(check, check, finish, limit=5).chain(finish, last, END)
    asyncio.run(fork(store, "r", "graph", before="finish"))
    with pytest.raises(JournalError, match="recorded with another graph"):
        longer.run_sync(run="graph", store=store)
    state = longer.run_sync(run="graph", store=store, migrate=True).state
    assert state.log == [*WHOLE[:-1], "new code", "new step"]
    assert graph().run_sync(run="r", store=store).state.log == WHOLE


def test_a_fork_needs_a_step_and_a_free_name() -> None:
    """The errors name the steps there are, and the name that is taken."""
    store = recorded()
    with pytest.raises(JournalError, match=r"no step 'chek'; it has draft\[0\], draft\[1\], check"):
        asyncio.run(fork(store, "r", "new", before="chek"))
    with pytest.raises(JournalError, match="run 'r' is there already"):
        asyncio.run(fork(store, "r", "r", before="check"))
    with pytest.raises(JournalError, match="there is no run 'q'"):
        asyncio.run(fork(store, "q", "new", before="check"))


def test_a_replay_calls_every_node_and_nothing_outside() -> None:
    """Nodes run as written now; models, tools and people give what they gave."""
    store = recorded()
    result = graph().run_sync(run="r", store=asyncio.run(cassette(store, "r")))
    assert result.state.log == WHOLE
    assert calls == {"draft": 2, "check": 2, "finish": 1}


def test_a_replay_of_nodes_that_ask_something_else_is_an_error() -> None:
    """The journal is a test of the code: a changed prompt is found and shown beside the old."""

    async def draft(s: S, word: str) -> None:
        s.log += [await llm(str, f"Draft: {word}")]

    g = Graph(S).chain(START, each(draft, over="words"), check)
    g.route(check, check, finish, limit=5).chain(finish, END)
    tape = asyncio.run(cassette(recorded(), "r"))
    with pytest.raises(DeterminismError, match=r"draft a.*but now it is .*Draft: a"):
        g.run_sync(run="r", store=tape)
