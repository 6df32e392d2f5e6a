"""Many runs of one graph."""

import asyncio
import csv
import gc
import os
import tracemalloc
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from agentloop import END, START, Graph, Log, each, llm
from agentloop.model.quiet import QuietLoop
from agentloop.sqlite_store import SQLiteStore, sqlite_store
from agentloop.testing import ScriptedGeneration
from tests.agentloop.running import Meter, S, lasting
from tests.model.tiny import tiny_lm


def test_map_keeps_the_order_of_its_inputs_and_bounds_what_runs_at_once() -> None:
    """Results come in input order whatever finished first; inputs are drawn as needed."""
    meter = Meter()

    async def work(s: S) -> None:
        for _ in range(10 - s.n):
            await asyncio.sleep(0)
        await meter.work()
        s.total += s.n

    graph = Graph(S).chain(START, work, END)
    results = lasting(lambda: graph.map((S(n=i) for i in range(10)), concurrency=4))
    assert [result.state.total for result in results] == list(range(10))
    assert meter.most == 4
    assert lasting(lambda: graph.map([])) == []


def test_map_raises_the_first_failure_or_returns_all_of_them() -> None:
    """With `check` the others are cancelled; without, each result has its own error."""

    async def work(s: S) -> None:
        if s.n == 2:
            raise ValueError("two is bad")

    graph = Graph(S).chain(START, work, END)
    states = [S(n=i) for i in range(4)]
    with pytest.raises(ValueError, match="two is bad"):
        lasting(lambda: graph.map(states))
    results = lasting(lambda: graph.map(states, check=False))
    assert [result.error is not None for result in results] == [False, False, True, False]


class Small(BaseModel):
    n: int = 0
    words: tuple[str, ...] = ("a", "b", "c")
    log: Log[str] = []


async def ask_one(s: Small) -> None:
    s.log += [await llm(str, f"plan {s.n}", effort="instant", max_tokens=4)]


async def ask_each(s: Small, word: str) -> None:
    s.log += [await llm(str, f"{word} {s.n}", effort="instant", max_tokens=4)]


async def ask_last(s: Small) -> None:
    s.log += [await llm(str, f"answer {s.n}", effort="instant", max_tokens=4)]


class Batching:
    """A model that answers a batch at once when it is handed over, and notes the sizes."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self._quiet = QuietLoop[asyncio.Future[str]](self._answer)

    def _answer(self, batch: Sequence[asyncio.Future[str]]) -> None:
        self.sizes.append(len(batch))
        for future in batch:
            future.set_result("x")

    async def generate(self, messages: Any, **_: Any) -> ScriptedGeneration:
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._quiet.add(future)
        text = await future
        return ScriptedGeneration(text, text, 1, 1)


@pytest.mark.parametrize("is_recorded", [False, True])
def test_calls_of_all_runs_and_branches_share_batches(is_recorded: bool, tmp_path: Path) -> None:
    """64 runs of 1 + 3 + 1 model calls make exactly 3 batches, recorded or not."""
    graph = Graph(Small).chain(START, ask_one, each(ask_each, over="words"), ask_last, END)
    model = Batching()
    store = SQLiteStore(tmp_path / "runs.db") if is_recorded else None
    states = [Small(n=n) for n in range(64)]
    results = lasting(lambda: graph.map(states, run="m", store=store, concurrency=64, model=model))
    if store is not None:
        store.close()
    assert model.sizes == [64, 192, 64]
    assert (results.num_calls, results.num_tokens) == (64 * 5, 64 * 5)


def test_a_stopped_map_goes_on_where_it_was(tmp_path: Path) -> None:
    """What is recorded does not run again, what failed is tried again, and the sums are whole."""
    calls: Counter[int] = Counter()
    broken = {7}

    async def work(s: S) -> None:
        calls[s.n] += 1
        if s.n in broken:
            raise ValueError("seven")
        s.total += s.n

    graph = Graph(S).chain(START, work, END)
    path = tmp_path / "runs.db"

    def go(num: int) -> Any:
        states = [S(n=n) for n in range(num)]
        return lasting(lambda: graph.map(states, run="m", store=path, check=False))

    first = go(10)
    assert first.counts == {"done": 9, "waiting": 0, "failed": 1}
    assert [result.run for result in first.failed()] == ["m-7"]
    broken.clear()
    second = go(20)
    assert second.counts == {"done": 20, "waiting": 0, "failed": 0}
    assert [result.state.total for result in second] == list(range(20))
    assert calls == Counter({n: 2 if n == 7 else 1 for n in range(20)})
    sqlite_store(path).close()


def test_results_are_a_table(tmp_path: Path) -> None:
    """One row per run with its state; as CSV, where no cell becomes a formula."""

    async def work(s: S) -> None:
        if s.n == 1:
            raise ValueError('=bad, "worse"')
        s.log += ["=1+1", "ü"]

    graph = Graph(S).chain(START, work, END)
    states = [S(n=0), S(n=1)]
    results = lasting(lambda: graph.map(states, run="=m", check=False))
    rows = list(results.rows())
    assert [row["status"] for row in rows] == ["done", "failed"]
    assert rows[0]["state.log"] == '["=1+1","ü"]'
    assert rows[1]["error"] == 'ValueError: =bad, "worse"'
    results.to_csv(tmp_path / "runs.csv")
    with (tmp_path / "runs.csv").open(encoding="utf-8", newline="") as file:
        read = list(csv.DictReader(file))
    assert [row["run"] for row in read] == ["'=m-0", "'=m-1"]
    assert read[0]["state.log"] == '["=1+1","ü"]'
    lasting(lambda: graph.map([])).to_csv(tmp_path / "empty.csv")
    assert (tmp_path / "empty.csv").read_text() == "run\n"


def test_progress_is_told_after_every_run(capsys: pytest.CaptureFixture[str]) -> None:
    """Runs over, runs in all where that is known, and failures; a bar only on a terminal."""

    async def work(s: S) -> None:
        if s.n == 2:
            raise ValueError("two")

    graph = Graph(S).chain(START, work, END)
    told: list[tuple[int, int | None, int]] = []
    seen: dict[int, str] = {}

    def report(done: int, num_all: int | None, failed: int) -> None:
        told.append((done, num_all, failed))

    states = [S(n=n) for n in range(4)]
    lasting(
        lambda: graph.map(
            states,
            check=False,
            progress=report,
            on_result=lambda index, result: seen.update({index: result.status}),
        )
    )
    assert [(done, num_all) for done, num_all, _ in told] == [(n, 4) for n in range(1, 5)]
    assert told[-1][2] == 1
    assert seen == {0: "done", 1: "done", 2: "failed", 3: "done"}
    lasting(lambda: graph.map(iter(states), check=False, progress=report))
    assert told[-1][:2] == (4, None)
    lasting(lambda: graph.map(states, check=False, progress=True))
    assert capsys.readouterr().out == ""


def test_memory_does_not_grow_with_the_number_of_runs() -> None:
    """Runs whose results are not kept leave nothing behind; `make runs` shows it for 10,000."""

    async def work(s: S, item: int) -> None:
        s.log += [f"{item}" * 20]

    graph = Graph(S).chain(START, each(work, over="items"), END)
    start = S(items=(1, 2, 3))

    def grown(num: int) -> int:
        gc.collect()
        tracemalloc.start()
        asyncio.run(graph.map((start for _ in range(num)), keep=False))
        gc.collect()
        current, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return current

    num = int(os.environ.get("MAP_RUNS", "100"))
    grown(50)
    few, many = grown(num // 10), grown(num)
    assert many - few < 20_000, (few, many)


def test_models_tell_their_drafts_as_events() -> None:
    """With `drafts=True` every step's draft is an event of its node; the answer is the same."""
    graph = Graph(Small).chain(START, ask_one, END)
    with tiny_lm() as lm:
        plain = lasting(lambda: graph.run(Small(), model=lm))
        drafted = lasting(lambda: graph.run(Small(), model=lm, drafts=True))
    drafts = [event for event in drafted.events if event.kind == "draft"]
    assert drafted.state == plain.state
    assert drafts
    assert {event.path for event in drafts} == {"ask_one"}
    assert drafts[-1].data["text"] == drafted.state.log[0]
    assert [event.kind for event in plain.events].count("draft") == 0
    assert "Drafts" in graph.report(drafted)
