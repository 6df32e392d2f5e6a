"""One run from its start to its end, and what it gives back."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from time import perf_counter
from typing import Any, Generic, NamedTuple, TypedDict, TypeVar

from pydantic import BaseModel

from agentloop.context import here
from agentloop.definition import LimitDefinition
from agentloop.errors import GraphError, LimitError, StateError
from agentloop.events import Event, Listener, RunEvents, TraceKeeper
from agentloop.flow import Arc, Flow
from agentloop.journal import Journal
from agentloop.model.quiet import about_to_ask
from agentloop.model_calls import Model
from agentloop.runner import Run, Suspended
from agentloop.spending import Limits
from agentloop.sqlite_store import sqlite_store
from agentloop.stores import Store
from agentloop.walk import Branch, walk

S = TypeVar("S", bound=BaseModel)
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
        num_calls: Calls made, those of its earlier sessions included.
        num_tokens: What its calls took, likewise.
        cost: What its calls cost, likewise.
    """

    state: S
    run: str
    events: list[Event] = field(repr=False)
    timings: dict[str, Timing] = field(repr=False)
    seconds: float
    error: Exception | None = None
    waiting: tuple[str, ...] = ()
    questions: dict[str, Any] = field(default_factory=lambda: {})
    num_calls: int = 0
    num_tokens: int = 0
    cost: float = 0.0

    @property
    def status(self) -> str:
        """`done`, `waiting` or `failed`."""
        if self.error is not None:
            return "failed"
        return "waiting" if self.waiting else "done"


class MapOptions(TypedDict, total=False):
    """What `Graph.map` and `Graph.run` take beside the states and the name.

    Attributes:
        store: Where the run is recorded, a file name for a SQLite file. A run of this name that is
            there already is continued: what is recorded does not run again.
        model: The model that `llm` calls inside nodes go to.
        max_steps: Nodes that the run may start in all.
        max_calls: Calls (`llm`, tools, steps) that the run may make in all.
        max_tokens: Tokens that its model calls may take in all. Checked before each call: one that
            has begun is finished.
        max_cost: What its calls may cost in all, in the unit that the tools and the model use.
        timeout_s: Seconds that the run may take, questions not counted.
        on_event: A function called with every event, or several; what it raises is logged and
            ignored.
        drafts: Whether models tell every draft of their answers, as events of the kind `draft`.
        check: Raise what a node raises (the default); if not, it is in the result's `error`, next
            to a state with everything that was committed.
        migrate: Go on with a recorded run although the graph has changed since.
    """

    store: Store | str | PathLike[str] | None
    model: Model | None
    max_steps: int | None
    max_calls: int | None
    max_tokens: int | None
    max_cost: float | None
    timeout_s: float | None
    on_event: Listener | Sequence[Listener] | None
    drafts: bool
    check: bool
    migrate: bool


class RunOptions(MapOptions, total=False):
    """What `Graph.run` takes beside the state and the name: also what `MapOptions` has.

    Attributes:
        answers: Answers to the questions a recorded run waits for, by the paths in its result's
            `waiting`.
        concurrency: Nodes that may be working at once.
    """

    answers: Mapping[str, Any] | None
    concurrency: int | None


@dataclass(frozen=True, slots=True)
class Options:
    """How to run.

    Attributes:
        model: The model that `llm` calls inside nodes go to.
        max_steps: Nodes that a run may start in all.
        limits: What a run's calls may take in all.
        timeout_s: Seconds that a run may take.
        concurrency: Nodes of one run that may be working at once.
        listeners: Called with every event; what they raise is logged and ignored.
        wants_drafts: Whether models are to tell the drafts of their answers.
        is_kept: Whether the result holds the events.
        store: Where the run is recorded, if it is.
        answers: Answers to what the run waits for, by path.
        is_migrating: Whether to go on although the graph has changed.
        fingerprint: Of the graph, for recorded runs.
    """

    model: Model | None = None
    max_steps: int | None = None
    limits: Limits = field(default_factory=Limits)
    timeout_s: float | None = None
    concurrency: int | None = None
    listeners: Sequence[Listener] = ()
    wants_drafts: bool = False
    is_kept: bool = True
    store: Store | None = None
    answers: Mapping[str, Any] | None = None
    is_migrating: bool = False
    fingerprint: str = ""

    def __post_init__(self) -> None:
        for name in ("max_steps", "concurrency"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise GraphError(f"{name} is {value}; use 1 or more, or None for no limit")
        if self.timeout_s is not None and self.timeout_s <= 0:
            raise GraphError(f"timeout_s is {self.timeout_s}; use more than 0, or None")


def make_options(given: RunOptions, graph: LimitDefinition, fingerprint: str) -> Options:
    """The options that a caller gave, and the limits of the graph where they are tighter."""
    store, listeners = given.get("store"), given.get("on_event")
    return Options(
        model=given.get("model"),
        max_steps=_tighter(given.get("max_steps"), graph.steps),
        limits=Limits(
            _tighter(given.get("max_calls"), graph.calls),
            _tighter(given.get("max_tokens"), graph.tokens),
            _tighter(given.get("max_cost"), graph.cost),
        ),
        timeout_s=_tighter(given.get("timeout_s"), graph.seconds),
        concurrency=given.get("concurrency"),
        listeners=(listeners,) if callable(listeners) else listeners or (),
        wants_drafts=given.get("drafts", False),
        store=sqlite_store(store) if isinstance(store, str | PathLike) else store,
        answers=given.get("answers"),
        is_migrating=given.get("migrate", False),
        fingerprint=fingerprint,
    )


N = TypeVar("N", int, float)


def _tighter(first: N | None, second: N | None) -> N | None:
    return min((value for value in (first, second) if value is not None), default=None)


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
    flow: Flow, state: S | None, options: Options, name: str | None, log: RunEvents | None = None
) -> RunResult[S]:
    """Run a flow to its end or failure; a failure is in the result.

    Raises:
        StateError: The state is not of the graph's class.
        JournalError: The run cannot be recorded, resumed or started.
        asyncio.CancelledError: The caller's task was cancelled.
    """
    log = log if log is not None else RunEvents(options.listeners, options.is_kept)
    try:
        values = None if state is None else _start_values(flow, state)
        if options.store is None:
            if values is None:
                raise GraphError("a run needs a state to start with, or a store to resume it from")
            return await _execute(flow, values, options, name or _next_name(), log, None)
        if name is None:
            raise GraphError("a recorded run needs a name to resume it by: g.run(..., run='name')")
        with about_to_ask():  # so that runs which begin at once share their first batch
            run_log = await options.store.open(name)
        status = run_log.status  # until this run has got somewhere
        try:
            journal = Journal(name, run_log)
            values = journal.start(flow.spec, values, options.fingerprint, options.is_migrating)
            status = "running"
            _begin_traces(options.listeners, name, journal)
            result: RunResult[S] = await _execute(flow, values, options, name, log, journal)
            if result.error is not None:
                journal.record_error(result.error)
            elif not result.waiting:
                journal.end()
            status = result.status
        finally:
            await run_log.close(status)
        return result
    finally:
        log.close()


def _begin_traces(listeners: Sequence[Listener], run: str, journal: Journal) -> None:
    """Let listeners that keep traces find the one of this run's earlier sessions."""
    for listener in listeners:
        if isinstance(listener, TraceKeeper):
            journal.record_trace(listener.begin(run, journal.trace))


def _next_name() -> str:
    return f"run-{next(_numbers)}"


async def _execute(
    flow: Flow,
    values: dict[str, Any],
    options: Options,
    name: str,
    log: RunEvents,
    journal: Journal | None,
) -> RunResult[Any]:
    run = Run(
        name,
        log,
        options.model,
        options.max_steps,
        options.limits,
        options.concurrency,
        journal,
        options.answers,
        options.wants_drafts,
    )
    started = perf_counter()
    outer = here.set(None)
    run.emit("", "run.start", flow.name)
    root = Branch(flow.spec, values, is_root=True)
    try:
        error = await _main_line(run, flow, root, options.timeout_s)
        if flow.way_out is not None and (run.is_over or run.is_stopped):
            error = await _way_out(run, flow, root, flow.way_out, error)
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
        run.spending.num_calls,
        run.spending.num_tokens,
        run.spending.cost,
    )


async def _main_line(
    run: Run, flow: Flow, root: Branch, timeout_s: float | None
) -> Exception | None:
    """Walk the flow until it ends, fails or waits; what it failed with."""
    limit = asyncio.timeout(timeout_s)
    try:
        async with limit:
            await walk(run, flow, root)
        return run.unasked()
    except Suspended:
        return run.unasked()
    except TimeoutError as failure:
        if not limit.expired():
            return failure
        run.is_over = True
        return LimitError(
            f"run {run.name!r} took longer than its timeout_s of {timeout_s} s; raise it, "
            "or continue a recorded run"
        )
    except Exception as failure:
        return failure


async def _way_out(
    run: Run, flow: Flow, root: Branch, arc: Arc, error: Exception | None
) -> Exception | None:
    """After a limit of the whole run, walk from the step that the graph names for it."""
    if not (run.is_stopped or isinstance(error, LimitError)):
        return error
    if run.journal is not None and error is not None:
        run.journal.record_limit(error)
    reason = run.journal.reached_limit if run.journal is not None else str(error)
    run.lift_limits()
    root.reset_all()
    run.emit("", "limit", {"asked": reason, "then": arc.name})
    try:
        if arc.target >= 0:
            await walk(run, flow, root, arc.target)
        return run.unasked()
    except Suspended:
        return run.unasked()
    except Exception as failure:
        return failure


async def execute_checked(
    flow: Flow, state: S | None, options: Options, name: str | None, check: bool
) -> RunResult[S]:
    """Run a flow; with `check`, a failure is raised instead of returned."""
    result = await execute(flow, state, options, name)
    if check and result.error is not None:
        raise result.error
    return result
