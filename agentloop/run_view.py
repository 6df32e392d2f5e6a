"""A run as a person reads it: its steps, their writes and calls, and when all of it happened.

Made from the rows of a store or from the events of a result, without the graph. Nothing is taken on
trust: what cannot be read is told as such.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from pydantic_core import from_json, to_jsonable_python

from agentloop.events import Event
from agentloop.json_data import as_array, as_object
from agentloop.runs import RunResult
from agentloop.stores import Row, Store


@dataclass
class CallView:
    """A call inside a node.

    Attributes:
        path: Its place.
        kind: `llm`, `tool`, `step`, `ask`, ...
        name: What was called.
        request: What was asked, as text or data.
        result: What came, as data.
        began_s: When it began, in seconds on the clock of its run; `None` where that is not known.
        took_s: How long it took, in seconds.
        num_tokens: Tokens of the answer and, where the model tells, of the prompt.
        cost: What it cost.
        error: What it failed with.
    """

    path: str
    kind: str
    name: str
    request: Any = None
    result: Any = None
    began_s: float | None = None
    took_s: float = 0.0
    num_tokens: int = 0
    cost: float = 0.0
    error: str = ""


@dataclass
class StepView:
    """A visit of a node.

    Attributes:
        path: Its place.
        status: `done`, `failed`, `waiting`, `skipped`, `replayed`, or `open` if it was cut off.
        patch: What it wrote, as data.
        choice: What it chose to follow.
        began_s: As in `CallView`.
        took_s: As in `CallView`.
        calls: Its calls, in order.
        error: What it failed with.
        drafts: The drafts of its answers, in order.
        notes: Events of its own: kind and data.
    """

    path: str
    status: str = "open"
    patch: Any = None
    choice: str = ""
    began_s: float | None = None
    took_s: float = 0.0
    calls: list[CallView] = field(default_factory=lambda: [])
    error: str = ""
    drafts: list[str] = field(default_factory=lambda: [])
    notes: list[tuple[str, Any]] = field(default_factory=lambda: [])


@dataclass
class RunView:
    """A run.

    Attributes:
        name: Its name.
        status: `running`, `waiting`, `failed`, `done`.
        start: The state it began with, as data.
        end: The state as it is, as data; `None` where only the rows are known.
        steps: Visits of nodes in the order in which they began.
        questions: What it waits for, by path.
        errors: What it failed with, each time.
        limit: The limit at which it took its way out.
        damaged: Rows that could not be read.
    """

    name: str
    status: str = "running"
    start: Any = None
    end: Any = None
    steps: dict[str, StepView] = field(default_factory=lambda: {})
    questions: dict[str, Any] = field(default_factory=lambda: {})
    errors: list[str] = field(default_factory=lambda: [])
    limit: str = ""
    damaged: list[str] = field(default_factory=lambda: [])

    @property
    def calls(self) -> list[CallView]:
        """The calls of all steps."""
        return [call for step in self.steps.values() for call in step.calls]

    @property
    def num_tokens(self) -> int:
        """Tokens of all calls."""
        return sum(call.num_tokens for call in self.calls)

    @property
    def cost(self) -> float:
        """Cost of all calls."""
        return sum(call.cost for call in self.calls)

    @property
    def busy_s(self) -> float:
        """Seconds in which at least one step was going on."""
        return sum(end - start for start, end in self.intervals())

    def intervals(self) -> list[tuple[float, float]]:
        """When at least one step was going on, as (start, end), in order."""
        found: list[tuple[float, float]] = []
        spans = [(s.began_s, s.began_s + s.took_s) for s in self.steps.values() if s.began_s]
        for start, end in sorted(spans):
            if found and start <= found[-1][1]:
                found[-1] = found[-1][0], max(end, found[-1][1])
            else:
                found.append((start, end))
        return found

    def step(self, path: str) -> StepView:
        """The step at a path, or of a call's path; made if it is new."""
        own = path.partition(":")[0].partition("~")[0]
        return self.steps.setdefault(own, StepView(own))


# ------------------------------------------------------------------ from a store


def view_recorded(store: Store, run: str) -> RunView:
    """A recorded run, whether or not it is being written.

    Raises:
        JournalError: There is no such run, or the store cannot read it.
    """
    statuses = {info.name: info.status for info in store.runs()}
    view = RunView(run, statuses.get(run, "running"))
    for row in store.rows(run):
        try:
            entry = as_object(from_json(row.data))
        except ValueError:
            entry = None
        if entry is None:
            view.damaged.append(f"{row.kind} at {row.path or 'the start'}")
        else:
            _add_row(view, row, entry)
    for step in view.steps.values():
        if step.began_s is None and step.calls:
            step.began_s = step.calls[0].began_s
            step.took_s = (
                max(c.began_s + c.took_s for c in step.calls if c.began_s) - (step.began_s or 0.0)
                if step.began_s
                else 0.0
            )
    view.questions = {p: q for p, q in view.questions.items() if _is_open(view, p)}
    for path in view.questions:
        view.step(path).status = "waiting"
    return view


def _is_open(view: RunView, path: str) -> bool:
    return view.step(path).status == "open" and path not in [c.path for c in view.calls]


def _add_row(view: RunView, row: Row, entry: dict[str, Any]) -> None:
    if row.kind == "start":
        view.start = entry.get("state")
    elif row.kind == "patch":
        step = view.step(row.path)
        step.status, step.patch = "done", entry.get("patch")
        step.choice = str(entry.get("choice") or "")
        step.began_s, step.took_s = _when(entry)
    elif row.kind == "call":
        view.step(row.path).calls.append(_recorded_call(row.path, entry))
    elif row.kind == "skip":
        step = view.step(row.path)
        step.status, step.error = "skipped", str(entry.get("error"))
    elif row.kind == "ask":
        view.questions[row.path] = entry.get("question")
    elif row.kind == "intent":
        view.questions.setdefault(row.path, "was it done before the interruption?")
    elif row.kind == "error":
        view.errors.append(str(entry.get("error")))
    elif row.kind == "limit":
        view.limit = str(entry.get("limit"))


def _recorded_call(path: str, entry: dict[str, Any]) -> CallView:
    kind, _, rest = str(entry.get("asked")).partition(" ")
    name, _, request = rest.partition(" ")
    call = CallView(path, kind, name, request, entry.get("result"))
    call.began_s, call.took_s = _when(entry)
    match entry.get("spent"):
        case [int(num_tokens), int(cost) | float(cost)]:
            call.num_tokens, call.cost = num_tokens, cost
        case _:
            pass
    return call


def _when(entry: dict[str, Any]) -> tuple[float | None, float]:
    match as_array(entry.get("when")):
        case [int(began) | float(began), int(took) | float(took)]:
            return float(began), float(took)
        case _:
            return None, 0.0


# ------------------------------------------------------------------ from events


def view_result(result: RunResult[Any]) -> RunView:
    """A run that has just been made, with what is not recorded: drafts and own events."""
    view = RunView(result.run, result.status, end=_data(result.state))
    view.questions = {path: _data(question) for path, question in result.questions.items()}
    for event in result.events:
        _add_event(view, event)
    if result.error is not None:
        view.errors.append(f"{type(result.error).__name__}: {result.error}")
    return view


def view_events(name: str, events: Iterable[Event]) -> RunView:
    """A run as far as its events go."""
    view = RunView(name)
    for event in events:
        _add_event(view, event)
    return view


def _add_event(view: RunView, event: Event) -> None:
    kind, _, rest = event.kind.partition(".")
    if not event.path:
        if event.kind == "limit":
            view.limit = str(event.data["asked"])
    elif kind == "node":
        _add_node_event(view.step(event.path), rest, event)
    elif kind == "call":
        _add_call_event(view, view.step(event.path), rest, event)
    elif event.kind == "route":
        view.step(event.path).choice = str(event.data)
    elif event.kind == "skip":
        step = view.step(event.path)
        step.status, step.error = "skipped", f"{type(event.data).__name__}: {event.data}"
    elif event.kind == "ask":
        view.step(event.path).status = "waiting"
    elif event.kind == "draft":
        view.step(event.path).drafts.append(str(event.data["text"]))
    elif event.kind != "limit":
        view.step(event.path).notes.append((event.kind, _data(event.data)))


def _add_node_event(step: StepView, what: str, event: Event) -> None:
    if what == "start":
        step.status, step.error = "open", ""
        step.began_s = event.at_s if step.began_s is None else step.began_s
    elif what == "end":
        step.status, step.patch = "done", _data(event.data)
    elif what == "replay":
        step.status, step.patch, step.began_s = "replayed", _data(event.data), event.at_s
    elif what == "error":
        step.status, step.error = "failed", f"{type(event.data).__name__}: {event.data}"
    step.took_s = event.at_s - (step.began_s or 0.0)


def _add_call_event(view: RunView, step: StepView, what: str, event: Event) -> None:
    open_calls = [call for call in step.calls if call.path == event.path]
    if what == "start":
        asked: dict[str, Any] = event.data
        step.calls.append(
            CallView(event.path, asked["kind"], asked["name"], _data(asked["request"]))
        )
        step.calls[-1].began_s = event.at_s
        return
    if what == "replay" or not open_calls:
        step.calls.append(CallView(event.path, "replayed", "", None, _data(event.data), event.at_s))
        return
    call = open_calls[-1]
    call.took_s = event.at_s - (call.began_s or 0.0)
    if what == "error":
        call.error = f"{type(event.data).__name__}: {event.data}"
        return
    call.result = _data(event.data)
    if call.kind == "llm":
        call.num_tokens = getattr(event.data, "num_tokens", 0) or 0
        call.cost = getattr(event.data, "cost", 0.0) or 0.0


def _data(value: object) -> Any:
    return to_jsonable_python(value, fallback=repr, inf_nan_mode="strings")
