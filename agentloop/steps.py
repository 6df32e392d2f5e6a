"""What a graph is made of: nodes, `each`, `both`, and the two ends.

These are descriptions that a user writes; `agentloop.flow` turns them into something that runs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Generic, Literal, TypeAlias, TypeVar, cast

from pydantic import BaseModel

from agentloop.errors import GraphBuildError

S = TypeVar("S", bound=BaseModel)
T = TypeVar("T")


@dataclass(frozen=True)
class End:
    """One of the two ends of a graph: `START` or `END`."""

    name: str

    def __repr__(self) -> str:
        return self.name


START: Final = End("START")
END: Final = End("END")


class SubGraph(ABC):
    """A graph, as far as one that holds it as a step needs to know it."""

    name: str

    @property
    @abstractmethod
    def flow(self) -> Any:
        """The graph checked and made ready to run."""

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """A hash of what recorded runs depend on."""


@dataclass(frozen=True, eq=False)
class NodeStep:
    """A function as a step.

    Attributes:
        call: The function: takes a draft (and an item, inside `each`).
        name: What events, errors and routes call it.
        timeout_s: Seconds after which the node fails with `TimeoutError`, leaving no patch.
        num_retries: How often a failing node is tried again, each time on a fresh draft.
        on_error: What happens when it has failed for good.
    """

    call: Callable[..., Any]
    name: str
    timeout_s: float | None = None
    num_retries: int = 0
    on_error: Literal["raise", "skip"] | Callable[..., object] = "raise"


@dataclass(frozen=True, eq=False)
class EachStep:
    """A body run once for every item of a field, all at the same time."""

    body: tuple[object, ...]
    over: str
    into: str | None
    limit: int | None
    on_error: Literal["raise", "skip"] | Callable[..., object]
    name: str


@dataclass(frozen=True, eq=False)
class BothStep:
    """Bodies run at the same time on the same state."""

    branches: tuple[tuple[object, ...], ...]
    name: str


class Node(NodeStep, Generic[S]):
    """A node on a state of class `S`, for type checkers."""


class Each(EachStep, Generic[S]):
    """An `each` on a state of class `S`, for type checkers."""


class Both(BothStep, Generic[S]):
    """A `both` on a state of class `S`, for type checkers."""


Step: TypeAlias = Callable[[S], object] | Node[S] | Each[S] | Both[S] | SubGraph
Body: TypeAlias = Step[S] | list[Step[S]] | tuple[Step[S], ...]
Target: TypeAlias = Step[S] | End
OnError: TypeAlias = Literal["raise", "skip"] | Callable[[S, Any, Exception], object]


def step_name(step: object) -> str:
    """What errors, events and routes call a step."""
    name = getattr(step, "name", None) or getattr(step, "__name__", None)
    return str(name) if name else type(step).__name__


def checked_name(name: str) -> str:
    """A name that a user chose for a step.

    Raises:
        GraphBuildError: It is empty, or has a character that means something in paths.
    """
    found = sorted(set(name) & set("/[]#:~!"))
    if found or not name.strip():
        raise GraphBuildError(
            f"a step cannot be called {name!r}: paths such as draft[2] or verify#3:0 need the "
            f"characters / [ ] # : ~ ! for themselves; use letters, digits, _ or -"
        )
    return name


def node(
    call: Callable[[S], object],
    *,
    name: str | None = None,
    timeout_s: float | None = None,
    retries: int = 0,
    on_error: Literal["raise", "skip"] | Callable[[S, Exception], object] = "raise",
) -> Node[S]:
    """A function as a step with options.

    Args:
        call: The node's function.
        name: Another name than the function's, so that it can stand in a graph twice.
        timeout_s: Seconds after which it fails with `TimeoutError`, leaving no patch.
        retries: How often it is tried again when it fails, each time on a fresh draft.
        on_error: What to do when it has failed for good: `"raise"` ends the run, `"skip"` goes on
            without it, a function `async def f(s: S, error: Exception)` runs in its place.

    Raises:
        GraphBuildError: An option makes no sense.
    """
    label = checked_name(name) if name is not None else step_name(call)
    if retries < 0 or (timeout_s is not None and timeout_s <= 0):
        raise GraphBuildError(
            f"node({label}) has retries={retries} and timeout_s={timeout_s}; use 0 or more retries "
            "and a positive time, or None"
        )
    return Node(call, label, timeout_s, retries, on_error)


def _as_body(body: object, where: str) -> tuple[object, ...]:
    steps: tuple[object, ...] = (
        tuple(cast(Iterable[object], body)) if isinstance(body, list | tuple) else (body,)
    )
    for step in steps:
        if isinstance(step, End):
            raise GraphBuildError(f"{where} has {step!r} inside; it starts and ends by itself")
    if not steps:
        raise GraphBuildError(f"{where} has an empty sequence; give it at least one node")
    return steps


def each(
    body: Callable[[S, Any], object] | Body[S],
    *,
    over: str,
    into: str | None = None,
    limit: int | None = None,
    on_error: OnError[S] = "raise",
    name: str | None = None,
) -> Each[S]:
    """A step that runs its body once for every item of a field, all at the same time.

    Items keep their order: what branches append to a `Log` comes out in the order of the items,
    whichever finished first. With no items the graph simply goes on.

    Args:
        body: A node `async def f(s: S, item: T)`; or, with `into`, any step or list of steps.
        over: The field whose items are worked on.
        into: The field that holds the item in each branch, for a body that takes only the state.
            What a branch writes to it stays in the branch.
        limit: How many items are worked on at once, `None` for all.
        on_error: What to do when the body fails for an item: `"raise"` ends the run, `"skip"`
            leaves the item out, a function `async def f(s: S, item: T, error: Exception)` runs in
            its place.
        name: The step's name, by default the body's.

    Raises:
        GraphBuildError: The limit is below one or the body is not one.
    """
    steps = _as_body(body, "each()")
    label = checked_name(name) if name is not None else "-".join(map(step_name, steps))
    if limit is not None and limit < 1:
        raise GraphBuildError(f"each({label}) has limit={limit}; use 1 or more, or None for all")
    return Each(steps, over, into, limit, on_error, label)


def both(*branches: Body[S], name: str | None = None) -> Both[S]:
    """A step that runs several bodies at the same time on the same state.

    Every branch goes at its own pace; the graph goes on when all are through. A branch of several
    steps is a list: `both(search, [draft, polish])`.

    Args:
        branches: A step or a list of steps each.
        name: The step's name, by default the branches' names joined with `+`.

    Raises:
        GraphBuildError: There are fewer than two branches or one is empty.
    """
    if len(branches) < 2:
        raise GraphBuildError(f"both() has {len(branches)} branches; give it two or more")
    bodies = tuple(_as_body(branch, "both()") for branch in branches)
    joined = "+".join("-".join(map(step_name, body)) for body in bodies)
    label = checked_name(name) if name is not None else joined
    return Both(bodies, label)
