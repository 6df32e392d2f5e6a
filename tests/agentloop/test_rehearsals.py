"""The testing aids: crashes, replays, other schedules, kept events."""

import asyncio
import os
import time
from collections import Counter
from functools import partial

import pytest

from agentloop import END, START, Graph, ask, both, each, llm, tool
from agentloop.errors import DeterminismError, JournalError
from agentloop.sqlite_store import SQLiteStore
from agentloop.stores import MemoryStore, Store
from agentloop.testing import (
    Crashed,
    EventLog,
    Replay,
    ScriptedModel,
    ShuffledLoop,
    assert_deterministic,
    crash_at,
)
from tests.agentloop.recorded import S, go

calls: Counter[str] = Counter()


async def first(s: S) -> None:
    calls["first"] += 1
    s.log += [await llm(str, "first")]


async def work(s: S, item: int) -> None:
    calls["work"] += 1
    s.log += [await llm(str, f"item {item}")]


async def approve(s: S) -> None:
    s.log += [await ask("fine?", str)]


def graph() -> Graph[S]:
    return Graph(S).chain(START, first, each(work, over="items"), approve, END)


def echo() -> ScriptedModel:
    return ScriptedModel(lambda call: call.prompt)


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: os.PathLike[str]) -> Store:
    return MemoryStore() if request.param == "memory" else SQLiteStore(f"{tmp_path}/runs.db")


def test_a_crash_leaves_what_a_killed_process_would(store: Store) -> None:
    """Exactly so many rows are there; the run goes on from them and repeats no finished node."""
    calls.clear()
    with pytest.raises(Crashed):
        go(graph(), crash_at(store, 3), S(), model=echo())
    assert [row.kind for row in store.rows("r")] == ["start", "call", "patch"]
    assert store.runs()[0].status == "running"
    assert go(graph(), store, model=echo()).waiting == ("approve:0",)
    assert calls == {"first": 1, "work": 3}
    assert go(graph(), store, answers={"approve:0": "yes"}).state.log[-1] == "yes"


def test_a_crash_may_be_any_action() -> None:
    """Such as a signal to the own process; here it is noted, once per row from then on."""
    noted: list[str] = []
    store = crash_at(MemoryStore(), 2, lambda: noted.append("crash"))
    go(graph(), store, S(), model=echo())
    assert noted
    assert len(store.rows("r")) == 2


def test_a_replay_needs_nothing_outside_and_finds_changed_nodes(store: Store) -> None:
    """The journal is the cassette: no model is given, no question is asked."""
    go(graph(), store, S(), model=echo())
    whole = go(graph(), store, answers={"approve:0": "yes"}).state
    assert Replay(store, "r").run_sync(graph()).state == whole

    async def approve(s: S) -> None:
        s.log += [await ask("all fine?", str)]

    changed = Graph(S).chain(START, first, each(work, over="items"), approve, END)
    with pytest.raises(DeterminismError, match=r"fine\?.*all fine\?"):
        Replay(store, "r").run_sync(changed)
    with pytest.raises(JournalError, match="there is no run 'q'"):
        Replay(store, "q").run_sync(graph())


def test_sequences_that_are_gathered_have_places_of_their_own() -> None:
    """Whichever of them goes on first, each gets its own recorded calls again."""

    async def twice(name: str) -> str:
        return await llm(str, f"{name} 1") + await llm(str, f"{name} 2")

    async def gathers(s: S) -> None:
        alone = await llm(str, "alone")
        pairs = await asyncio.gather(twice("a"), twice("b"), llm(str, "c"), twice("d"))
        s.log += [alone, *pairs, await llm(str, "last")]

    class Slow(ScriptedModel):
        async def generate(self, *args: object, **kwargs: object) -> object:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride] - passes all on
            for _ in range(len(self.calls) % 3):
                await asyncio.sleep(0)
            return await super().generate(*args, **kwargs)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - as above

    g = Graph(S).chain(START, gathers, END)
    model = Slow(lambda call: call.prompt)
    state = assert_deterministic(g, S(), model=model, num_schedules=8)
    assert state.log == ["alone", "a 1a 2", "b 1b 2", "c", "d 1d 2", "last"]
    store = MemoryStore()
    go(g, store, S(), model=Slow(lambda call: call.prompt))
    paths = sorted(row.path for row in store.rows("r") if row.kind == "call")
    assert paths == [
        f"gathers:{number}" for number in ("0", "1", "1.1", "2", "2.1", "3", "4", "4.1", "5")
    ]


def test_a_deterministic_graph_passes_from_everywhere() -> None:
    """Parallel branches, questions and loops; the state at the end is given."""
    g = Graph(S).chain(START, both(each(work, over="items"), first), approve, END)
    state = assert_deterministic(g, S(), answers={"approve:0": "yes"}, model=echo())
    assert state.log == ["item 1", "item 2", "item 3", "first", "yes"]
    with pytest.raises(AssertionError, match=r"give answers to \['approve:0'\]"):
        assert_deterministic(g, S(), model=echo())


def test_a_graph_that_depends_on_the_schedule_is_found_out() -> None:
    """So is one that reads a clock."""
    order: list[int] = []

    @tool
    async def look(number: int) -> int:
        return number

    async def races(s: S, item: int) -> None:
        await look(item)
        await asyncio.sleep(0)
        order.append(item)
        s.log += [f"{len(order)}"]

    with pytest.raises(AssertionError, match=r"S\.log is \[.*in schedule 1"):
        assert_deterministic(Graph(S).chain(START, each(races, over="items"), END), S())

    async def clock(s: S) -> None:
        s.log += [f"{time.perf_counter()}"]

    with pytest.raises(AssertionError, match="in schedule 1"):
        assert_deterministic(Graph(S).chain(START, clock, END), S())


def test_schedules_differ_by_seed_and_begin_tasks_in_order() -> None:
    """What waits may go on in any order; what begins, begins in its order."""

    async def main() -> tuple[list[int], list[int]]:
        begun: list[int] = []
        over: list[int] = []

        async def one(number: int) -> None:
            begun.append(number)
            for _ in range(3):
                future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                asyncio.get_running_loop().call_soon(future.set_result, None)
                await future
            over.append(number)

        await asyncio.gather(*map(one, range(6)))
        return begun, over

    seen: set[tuple[int, ...]] = set()
    for seed in (0, 1, 2, 2):
        with asyncio.Runner(loop_factory=partial(ShuffledLoop, seed)) as runner:
            begun, over = runner.run(main())
        assert begun == sorted(over)
        seen.add(tuple(over))
    assert len(seen) == 3


def test_an_event_log_keeps_what_happened() -> None:
    """By kind and path, in order; it is a list of events."""
    log = EventLog()
    go(graph(), MemoryStore(), S(), model=echo(), on_event=log)
    assert log.paths("node.end") == ["first", "work[0]", "work[1]", "work[2]"]
    assert [event.data for event in log.of("ask", "approve:0")] == ["fine?"]
    assert (log[0].kind, log[-1].kind) == ("run.start", "run.waiting")
