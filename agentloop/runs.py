"""Starting runs: one, many, streamed, or from synchronous code; and what a run gives back."""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from os import PathLike
from time import perf_counter
from types import TracebackType
from typing import Any, Generic, NamedTuple, TypedDict, TypeVar

from pydantic import BaseModel

from agentloop.context import here
from agentloop.errors import GraphError, LimitError, StateError
from agentloop.events import Event, EventLog
from agentloop.flow import Flow
from agentloop.journal import Journal
from agentloop.model_calls import Model
from agentloop.runner import Run, Suspended
from agentloop.stores import Store
from agentloop.walk import Branch, walk

S = TypeVar("S", bound=BaseModel)
T = TypeVar("T")
_numbers = itertools.count(1)


class Timing(NamedTuple):
    """How often a node ran and how long in all, in seconds of wall time."""

    num: int
    seconds: float


@dataclass(slots=True)
class RunResult(Generic[S]):
    """What a run gives back.

    Attributes:
        state: The state at the end; after a failure, with everything that was committed.
        run: The run's name.
        events: What happened, in order; empty if the run was told to keep none.
        timings: Per node name.
        seconds: Wall time of the run.
        error: What the run failed with, if it failed.
        waiting: The paths of questions that have no answer yet.
        questions: What is asked at each of them.
    """

    state: S
    run: str
    events: list[Event] = field(repr=False)
    timings: dict[str, Timing] = field(repr=False)
    seconds: float
    error: Exception | None = None
    waiting: tuple[str, ...] = ()
    questions: dict[str, Any] = field(default_factory=lambda: {})

    @property
    def status(self) -> str:
        """`done`, `waiting` or `failed`."""
        if self.error is not None:
            return "failed"
        return "waiting" if self.waiting else "done"


class RunOptions(TypedDict, total=False):
    """What `Graph.run` takes beside the state and the name; described there."""

    store: Store | str | PathLike[str] | None
    answers: Mapping[str, Any] | None
    model: Model | None
    max_steps: int | None
    max_calls: int | None
    timeout_s: float | None
    concurrency: int | None
    on_event: Callable[[Event], object] | None
    check: bool
    migrate: bool


@dataclass(frozen=True, slots=True)
class Options:
    """How to run.

    Attributes:
        model: The model that `llm` calls inside nodes go to.
        max_steps: Nodes that a run may start in all.
        max_calls: Calls that a run may make in all.
        timeout_s: Seconds that a run may take.
        concurrency: Nodes of one run that may be working at once.
        on_event: Called with every event; what it raises is logged and ignored.
        is_kept: Whether the result holds the events.
        store: Where the run is recorded, if it is.
        answers: Answers to what the run waits for, by path.
        is_migrating: Whether to go on although the graph has changed.
        fingerprint: Of the graph, for recorded runs.
    """

    model: Model | None = None
    max_steps: int | None = None
    max_calls: int | None = None
    timeout_s: float | None = None
    concurrency: int | None = None
    on_event: Callable[[Event], object] | None = None
    is_kept: bool = True
    store: Store | None = None
    answers: Mapping[str, Any] | None = None
    is_migrating: bool = False
    fingerprint: str = ""

    def __post_init__(self) -> None:
        for name in ("max_steps", "max_calls", "concurrency"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise GraphError(f"{name} is {value}; use 1 or more, or None for no limit")
        if self.timeout_s is not None and self.timeout_s <= 0:
            raise GraphError(f"timeout_s is {self.timeout_s}; use more than 0, or None")


def _start_values(flow: Flow, state: BaseModel) -> dict[str, Any]:
    expected = flow.spec.state
    if not isinstance(state, expected):
        raise StateError(
            f"graph {flow.name!r} runs on {expected.__name__}, got {type(state).__name__}; "
            f"start it with {expected.__name__}(...)",
            expected=expected.__name__,
            got=type(state).__name__,
        )
    fields = expected.model_fields
    values: dict[str, Any] = {}
    for name in fields:
        value = state.__dict__[name]
        if name in flow.spec.reducers and isinstance(value, list | dict):
            value = value.copy()  # pyright: ignore[reportUnknownVariableType] - of the field's type
        values[name] = value
    return values


async def execute(
    flow: Flow, state: S | None, options: Options, name: str | None, log: EventLog | None = None
) -> RunResult[S]:
    """Run a flow to its end or failure; a failure is in the result.

    Raises:
        StateError: The state is not of the graph's class.
        JournalError: The run cannot be recorded, resumed or started.
        asyncio.CancelledError: The caller's task was cancelled.
    """
    log = log if log is not None else EventLog(options.on_event, options.is_kept)
    try:
        values = None if state is None else _start_values(flow, state)
        if options.store is None:
            if values is None:
                raise GraphError("a run needs a state to start with, or a store to resume it from")
            return await _execute(flow, values, options, name or _next_name(), log, None)
        if name is None:
            raise GraphError("a recorded run needs a name to resume it by: g.run(..., run='name')")
        run_log = await options.store.open(name)
        status = run_log.status  # until this run has got somewhere
        try:
            journal = Journal(name, run_log)
            values = journal.start(flow.spec, values, options.fingerprint, options.is_migrating)
            status = "running"
            result: RunResult[S] = await _execute(flow, values, options, name, log, journal)
            if result.error is None and not result.waiting:
                journal.end()
            status = result.status
        finally:
            await run_log.close(status)
        return result
    finally:
        log.close()


def _next_name() -> str:
    return f"run-{next(_numbers)}"


async def _execute(
    flow: Flow,
    values: dict[str, Any],
    options: Options,
    name: str,
    log: EventLog,
    journal: Journal | None,
) -> RunResult[Any]:
    run = Run(
        name,
        log,
        options.model,
        options.max_steps,
        options.max_calls,
        options.concurrency,
        journal,
        options.answers,
    )
    limit = asyncio.timeout(options.timeout_s)
    started = perf_counter()
    error: Exception | None = None
    outer = here.set(None)
    run.emit("", "run.start", flow.name)
    try:
        async with limit:
            await walk(run, flow, Branch(flow.spec, values, is_root=True))
        error = run.unasked()
    except Suspended:
        error = run.unasked()
    except TimeoutError as failure:
        error = failure
        if limit.expired():
            error = LimitError(
                f"run {name!r} took longer than its timeout_s of {options.timeout_s} s; raise it, "
                "or continue a recorded run"
            )
    except Exception as failure:
        error = failure
    except BaseException as failure:
        run.emit("", "run.error", failure)
        raise
    finally:
        here.reset(outer)
    final: Any = flow.spec.build(values)
    if error is not None:
        run.emit("", "run.error", error)
    elif run.waiting:
        run.emit("", "run.waiting", dict(run.waiting))
    else:
        run.emit("", "run.end", final)
    timings = {node: Timing(int(num), total) for node, (num, total) in run.timings.items()}
    return RunResult(
        final,
        name,
        log.events,
        timings,
        perf_counter() - started,
        error,
        tuple(run.waiting),
        run.waiting,
    )


async def execute_checked(
    flow: Flow, state: S | None, options: Options, name: str | None, check: bool
) -> RunResult[S]:
    """Run a flow; with `check`, a failure is raised instead of returned."""
    result = await execute(flow, state, options, name)
    if check and result.error is not None:
        raise result.error
    return result


async def execute_all(
    flow: Flow,
    states: Iterable[S],
    options: Options,
    concurrency: int,
    name: str | None,
    check: bool,
) -> list[RunResult[S]]:
    """Run a flow on many states, some at once. Results in the order of the states."""
    if concurrency < 1:
        raise GraphError(f"concurrency is {concurrency}; use 1 or more")
    results: dict[int, RunResult[S]] = {}
    inputs = enumerate(states)

    async def work() -> None:
        for index, state in inputs:  # shared: every worker takes the next one
            own = f"{name}-{index}" if name is not None else None
            results[index] = await execute_checked(flow, state, options, own, check)

    first: BaseException
    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(concurrency):
                group.create_task(work())
        return [results[index] for index in range(len(results))]
    except BaseExceptionGroup as failed:
        first = failed.exceptions[0]
    raise first


def run_blocking(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end from synchronous code, whether or not a loop is running here.

    Where one is running (a notebook), the coroutine gets a loop of its own in a thread, in a copy
    of the caller's context, and the caller waits.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(main)
    outcome: list[T] = []
    failure: list[BaseException] = []

    def work() -> None:
        try:
            outcome.append(asyncio.run(main))
        except BaseException as error:
            failure.append(error)

    context = contextvars.copy_context()
    thread = threading.Thread(target=context.run, args=(work,), name="agentloop-run-sync")
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return outcome[0]


class EventStream(Generic[S]):
    """The events of a run while it goes on: `async for event in g.stream(...)`.

    The run never waits for the reader. The stream ends when the run does, and then raises the
    run's error if there is one. A reader that just stops lets the run go on to its end; leaving
    `async with g.stream(...) as events:` early cancels it.
    """

    def __init__(self, flow: Flow, state: S | None, options: Options, name: str | None) -> None:
        self._log = EventLog(options.on_event)
        self._num_seen = 0
        self._start: Callable[[], Coroutine[Any, Any, RunResult[S]]] = lambda: execute(
            flow, state, options, name, self._log
        )
        self._task: asyncio.Task[RunResult[S]] | None = None

    def _running(self) -> asyncio.Task[RunResult[S]]:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._start())
            _streaming.add(self._task)
            self._task.add_done_callback(_streaming.discard)
        return self._task

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        task = self._running()
        events = self._log.events
        while await self._log.wait(self._num_seen):
            if self._num_seen < len(events):  # another reader of this stream may have been first
                self._num_seen += 1
                return events[self._num_seen - 1]
        result = await task
        if result.error is not None:
            raise result.error
        raise StopAsyncIteration

    async def result(self) -> RunResult[S]:
        """Wait for the run's end and give its result; a failure is in it."""
        return await asyncio.shield(self._running())

    async def __aenter__(self) -> EventStream[S]:
        self._running()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        task = self._running()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


_streaming: set[asyncio.Task[Any]] = set()  # the loop itself holds tasks only weakly
