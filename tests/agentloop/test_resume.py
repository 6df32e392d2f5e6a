"""Recorded runs: killed anywhere they go on as if nothing had happened."""

import asyncio
import itertools
from collections import Counter
from pathlib import Path
from typing import Any, Literal

import pytest

from agentloop import END, START, Graph, both, each, llm, node, tool
from agentloop.asking import ask, now, random, sleep, step
from agentloop.errors import DeterminismError, ToolError
from agentloop.sqlite_store import SQLiteStore, sqlite_store
from agentloop.stores import MemoryStore
from agentloop.testing import ScriptedModel
from tests.agentloop.recorded import Item, S, go, nothing, resumed


def test_a_finished_run_gives_its_result_again_without_running_anything() -> None:
    """Every value comes back as its own type, and no node is called."""
    calls: list[str] = []

    async def work(s: S) -> None:
        calls.append("work")
        s.n = 3
        s.limit = float("inf")
        s.log += ["a"]
        s.total += 2
        s.facts["k"] = Item(name="x", size=2.5)
        s.found = Item(name="y")

    graph = Graph(S).chain(START, work, END)
    store = MemoryStore()
    first = go(graph, store, S())
    again = go(graph, store)
    assert again.state == first.state
    assert again.state.facts == {"k": Item(name="x", size=2.5)}
    assert calls == ["work"]
    assert [info.status for info in store.runs()] == ["done"]
    assert "node.replay" in [event.kind for event in again.events]


def test_a_run_killed_after_any_row_ends_the_same_and_repeats_nothing_recorded() -> None:
    """Loops, parallel branches and sub-graphs all resume from their last recorded patch."""
    calls: Counter[str] = Counter()

    async def first(s: S) -> None:
        calls["first"] += 1
        s.total += 1

    async def work(s: S, i: int) -> None:
        calls[f"work{i}"] += 1
        await asyncio.sleep(0)
        s.log += [f"{i}.{s.total}"]

    async def inner(s: S) -> None:
        calls["inner"] += 1
        s.total += 10

    async def verify(s: S) -> Literal["first", "END"]:
        calls["verify"] += 1
        return "first" if s.total < 30 else "END"

    sub = Graph(S, name="sub").chain(START, inner, END)
    graph = Graph(S).chain(START, first, both(each(work, over="items"), sub), verify)
    graph.route(verify, first, END, limit=9)
    store = MemoryStore()
    whole = go(graph, store, S())
    assert whole.state.total == 33
    rows = store.rows("r")
    steps_in_all = sum(calls.values())
    for kept in range(1, len(rows) + 1):
        calls.clear()
        result = go(graph, resumed(rows[:kept]))
        assert result.state == whole.state
        num_recorded = sum(row.kind == "patch" for row in rows[:kept])
        assert sum(calls.values()) == steps_in_all - num_recorded


def test_a_node_that_was_interrupted_gets_its_recorded_calls_again() -> None:
    """Calls that ended are not made again, even when they were gathered and ended out of order."""
    calls: Counter[str] = Counter()

    @tool
    async def look(turns: int) -> Item:
        calls[f"look{turns}"] += 1
        for _ in range(turns):
            await asyncio.sleep(0)
        return Item(name=f"{turns}")

    def size(of: str) -> float:
        calls["size"] += 1
        return len(of) / 2

    async def work(s: S) -> None:
        answer = await llm(Item, "which?")
        found = await asyncio.gather(look(9), look(1), look(5))
        when, chance = await now(), await random()
        assert when == await step(lambda: when)
        s.log += [answer.name, *(item.name for item in found), f"{await step(size, 'abc')}"]
        s.log += [f"{when} {chance}"]

    graph = Graph(S).chain(START, work, END)
    store = MemoryStore()
    whole = go(graph, store, S(), model=ScriptedModel([Item(name="first")]))
    rows = store.rows("r")
    kinds = [row.kind for row in rows]
    assert kinds == ["start", *["call"] * 8, "patch", "end"]
    for kept in range(2, len(rows)):
        calls.clear()
        again = go(graph, resumed(rows[:kept]), model=ScriptedModel([]))
        num_tools = sum("tool" in row.data.decode() for row in rows[:kept])
        assert again.state.log[:5] == whole.state.log[:5]
        if kept > 7:
            assert again.state == whole.state
        if kept < 9:
            assert calls["look9"] + calls["look1"] + calls["look5"] == max(0, 3 - num_tools)


def test_another_call_at_a_recorded_place_is_an_error_that_shows_both() -> None:
    """A node whose calls depend on something unrecorded is found out, not mixed up."""
    words = iter(["one", "two"])

    async def work(s: S) -> None:
        s.log += [await llm(str, next(words))]
        raise ValueError("stop")

    graph = Graph(S).chain(START, work, END)
    store = MemoryStore()
    go(graph, store, S(), model=ScriptedModel(["a"]), check=False)
    with pytest.raises(DeterminismError) as caught:
        go(graph, store, model=ScriptedModel(["b"]))
    assert "the call at work:0 was llm str" in str(caught.value)
    assert '"content":"one"' in str(caught.value)
    assert '"content":"two"' in str(caught.value)


def test_a_failed_run_goes_on_at_the_node_that_failed() -> None:
    """What was committed stays committed; the failing node runs again."""
    fails = [True]
    calls: list[str] = []

    async def first(s: S) -> None:
        calls.append("first")
        s.log += ["first"]

    async def second(s: S) -> None:
        calls.append("second")
        if fails:
            raise OSError("no network")
        s.log += ["second"]

    graph = Graph(S).chain(START, first, second, END)
    store = MemoryStore()
    with pytest.raises(OSError, match="no network"):
        go(graph, store, S())
    assert store.runs()[0].status == "failed"
    fails.clear()
    assert go(graph, store).state.log == ["first", "second"]
    assert calls == ["first", "second", "second"]


def test_skipped_items_stay_skipped() -> None:
    """An item that failed and was left out is not tried again; what took its place stays."""
    calls: Counter[int] = Counter()

    async def work(s: S, i: int) -> None:
        calls[i] += 1
        if i == 2:
            raise ValueError("two")
        s.log += [f"{i}"]

    async def instead(s: S, i: int, error: Exception) -> None:
        s.log += [f"{error}"]

    async def last(s: S) -> None:
        await ask("?", bool)

    for on_error, log in (("skip", ["1", "3"]), (instead, ["1", "two", "3"])):
        calls.clear()
        body: Any = each(work, over="items", on_error=on_error)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - both kinds
        graph = Graph(S).chain(START, body, last, END)
        store = MemoryStore()
        assert go(graph, store, S()).waiting
        assert go(graph, store, answers={"last:0": True}).state.log == log
        assert calls == {1: 1, 2: 1, 3: 1}


def test_a_path_is_a_sqlite_file_that_many_runs_share(tmp_path: Path) -> None:
    """`map` with a store records every run; those there already are not run again."""
    calls = itertools.count()

    async def work(s: S) -> None:
        next(calls)
        s.total += s.n

    graph = Graph(S).chain(START, work, END)
    path = tmp_path / "runs.db"
    states = [S(n=i) for i in range(20)]

    async def main(num: int) -> list[int]:
        results = await graph.map(states[:num], run="batch", store=path)
        return [result.state.total for result in results]

    assert asyncio.run(main(10)) == list(range(10))
    assert asyncio.run(main(20)) == list(range(20))
    assert next(calls) == 20
    assert {info.status for info in sqlite_store(path).runs()} == {"done"}
    sqlite_store(path).close()


def test_a_cancelled_run_can_be_continued(tmp_path: Path) -> None:
    """Its writer lets go of it, and what was committed is there."""
    store = SQLiteStore(tmp_path / "runs.db")

    async def first(s: S) -> None:
        s.log += ["first"]

    async def waits(s: S) -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        task = asyncio.create_task(
            Graph(S).chain(START, first, waits, END).run(S(), run="r", store=store)
        )
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert [row.path for row in store.rows("r")] == ["", "first"]
    assert store.runs()[0].status == "running"
    again = Graph(S).chain(START, first, node(nothing, name="waits"), END)
    assert go(again, store).state.log == ["first"]


def test_sleep_is_over_when_its_time_has_passed() -> None:
    """A resumed run waits only for what is left."""

    async def work(s: S) -> None:
        await sleep(0.01)
        await ask("?", bool)

    graph = Graph(S).chain(START, work, END)
    store = MemoryStore()
    go(graph, store, S())
    rows = store.rows("r")
    assert [row.kind for row in rows] == ["start", "call", "ask"]
    assert go(graph, store, answers={"work:1": True}).status == "done"


def test_a_failing_step_is_not_recorded() -> None:
    """It is made again on resume, since it gave nothing."""
    calls = itertools.count()

    async def flaky(limit: int) -> int:
        if next(calls) < limit:
            raise ToolError("not yet")
        return limit

    async def work(s: S) -> None:
        s.total += await step(flaky, 1)

    graph = Graph(S).chain(START, work, END)
    store = MemoryStore()
    assert isinstance(go(graph, store, S(), check=False).error, ToolError)
    assert go(graph, store).state.total == 1
