"""Runs cut short, replayed and scheduled otherwise, to show that a graph survives all of it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextvars import Context
from typing import Any, NoReturn, Protocol, TypeVar, Unpack, cast

from pydantic import BaseModel

from agentloop.replay import cassette
from agentloop.runs import RunOptions, RunResult
from agentloop.stores import MemoryStore, Row, RunInfo, RunLog, Store

S = TypeVar("S", bound=BaseModel)
T = TypeVar("T")


class Runnable(Protocol[S]):
    """A graph, as far as it is run here."""

    def run(
        self, state: S | None = None, *, run: str | None = None, **options: Unpack[RunOptions]
    ) -> Coroutine[Any, Any, RunResult[S]]:
        """As `Graph.run`."""
        ...


class Crashed(BaseException):
    """The crash that `crash_at` makes; not an `Exception`, so that nothing handles it."""


def _crash() -> NoReturn:
    raise Crashed


class _CrashingLog:
    def __init__(self, log: RunLog, store: _CrashingStore) -> None:
        self.rows: Sequence[Row] = log.rows
        self.status = log.status
        self._log = log
        self._store = store

    def append(self, row: Row) -> None:
        if self._store.num_left > 0:
            self._log.append(row)
            self._store.num_left -= 1
        if self._store.num_left <= 0:
            self._store.crash()

    async def flush(self) -> None:
        await self._log.flush()

    async def close(self, status: str) -> None:
        await self._log.close(status if self._store.num_left > 0 else "running")


class _CrashingStore:
    def __init__(self, store: Store, num_rows: int, crash: Callable[[], object]) -> None:
        self.num_left = num_rows
        self._store = store
        self._crash = crash
        self._run = ""

    def crash(self) -> None:
        self._store.rows(self._run)  # waits until the store has written what it was given
        self._crash()

    async def open(self, run: str) -> RunLog:
        self._run = run
        return _CrashingLog(await self._store.open(run), self)

    def runs(self) -> list[RunInfo]:
        return self._store.runs()

    def rows(self, run: str) -> list[Row]:
        return self._store.rows(run)

    def delete(self, run: str) -> None:
        self._store.delete(run)


def crash_at(store: Store, num_rows: int, crash: Callable[[], object] = _crash) -> Store:
    """A store that crashes its run right after so many rows of it are safe.

    The run ends with `Crashed`; the store underneath holds what a killed process would have left,
    so that running the graph on it resumes.

    Args:
        store: The store underneath.
        num_rows: Rows to write before the crash, 1 or more; counted over all openings.
        crash: What to do then, for example `lambda: os.kill(os.getpid(), signal.SIGKILL)`.
    """
    return _CrashingStore(store, num_rows, crash)


async def killed_after(store: Store, run: str, num_rows: int) -> MemoryStore:
    """A store in which a run stands as if it had been killed after so many of its rows.

    For tests that resume a run from everywhere: `for i in range(1, len(store.rows(run)))`.
    """
    copy = MemoryStore()
    log = await copy.open(run)
    for row in store.rows(run)[:num_rows]:
        log.append(row)
    await log.close("running")
    return copy


class Replay:
    """A recorded run as a test of its graph: nodes run, everything outside is the record.

    `await Replay(store, "42").run(graph)` calls every node again; models, tools and people give
    what they gave, and a node that asks something else raises `DeterminismError`.

    Args:
        store: Where the run is recorded.
        run: Its name.
    """

    def __init__(self, store: Store, run: str) -> None:
        self._store = store
        self._run = run

    async def run(self, graph: Runnable[S], **options: Any) -> RunResult[S]:
        """Run the graph on the record; options are those of `Graph.run`.

        Raises:
            JournalError: There is no such run, or it was made with another graph.
            DeterminismError: A node makes another call than the one recorded.
        """
        tape = await cassette(self._store, self._run)
        return await _run(graph, None, self._run, tape, options)

    def run_sync(self, graph: Runnable[S], **options: Any) -> RunResult[S]:
        """`run` for synchronous code without a running event loop."""
        return asyncio.run(self.run(graph, **options))


class ShuffledLoop(asyncio.SelectorEventLoop):
    """An event loop on which what was waited for is over in a random order.

    Tasks begin in the order in which they were made, as asyncio promises; of those that wait, any
    may go on first. The same seed gives the same order.

    Example:
        >>> with asyncio.Runner(loop_factory=lambda: ShuffledLoop(seed=3)) as runner:
        ...     runner.run(asyncio.sleep(0, "done"))
        'done'
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._chance = random.Random(seed)

    def call_soon(  # type: ignore[override]  # the types of arguments are the callback's business
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """As asyncio's; the wake-up of a task may wait for a few turns."""
        if "wakeup" in f"{type(callback).__name__} {getattr(callback, '__name__', '')}".lower():
            return self._later(self._chance.randrange(4), callback, args, context)
        return super().call_soon(callback, *args, context=context)

    def _later(
        self,
        num_turns: int,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: Context | None,
    ) -> asyncio.Handle:
        if not num_turns:
            return super().call_soon(callback, *args, context=context)
        return super().call_soon(self._later, num_turns - 1, callback, args, context)


def _on(seed: int, main: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=lambda: ShuffledLoop(seed)) as runner:
        return runner.run(main)


def _run(
    graph: Runnable[S], state: S | None, run: str, store: Store, options: Mapping[str, Any]
) -> Coroutine[Any, Any, RunResult[S]]:
    given = cast(RunOptions, {**options, "store": store})
    return graph.run(state, run=run, **given)


def assert_deterministic(
    graph: Runnable[S],
    state: S,
    *,
    answers: Mapping[str, Any] | None = None,
    num_schedules: int = 5,
    **options: Any,
) -> S:
    """Check that a graph gives the same whatever finishes first and wherever it is killed.

    It is run and recorded under several schedules, replayed from its record, and resumed after
    every row of it.

    Args:
        graph: The graph.
        state: What it starts with.
        answers: Answers to every question that it asks, by path.
        num_schedules: How many schedules to try.
        options: Others of `Graph.run`, such as a `model` that answers by what it is asked.

    Returns:
        The state at its end.

    Raises:
        AssertionError: Two states differ; says which field and where the run was killed.
        Exception: Whatever the graph raises.
    """

    def finish(seed: int, store: MemoryStore, start: S | None) -> S:
        given = dict(answers or {})
        result = _on(seed, _run(graph, start, "run", store, options))
        while result.waiting:
            missing = [path for path in result.waiting if path not in given]
            assert not missing, f"give answers to {missing}: {dict(result.questions)}"
            now = {path: given[path] for path in result.waiting}
            result = _on(seed, _run(graph, None, "run", store, {**options, "answers": now}))
        return result.state

    store = MemoryStore()
    whole = finish(0, store, state)
    for seed in range(1, num_schedules):
        _assert_same(whole, finish(seed, MemoryStore(), state), f"in schedule {seed}")
    replayed = _on(0, Replay(store, "run").run(graph, **options))
    _assert_same(whole, replayed.state, "when replayed")
    for num_rows in range(1, len(store.rows("run"))):
        killed = _on(0, killed_after(store, "run", num_rows))
        _assert_same(whole, finish(num_rows, killed, None), f"when killed after row {num_rows}")
    return whole


def _assert_same(expected: BaseModel, got: BaseModel, where: str) -> None:
    for (name, one), (_, other) in zip(expected, got, strict=True):
        assert one == other, f"{type(expected).__name__}.{name} is {other!r} {where}, not {one!r}"
