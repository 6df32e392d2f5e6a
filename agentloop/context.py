"""Where code is: the node that runs here, and the calls it makes.

Everything a node does to the outside world (`llm`, a tool, `ask`) goes through `make_call`, which
numbers the call at the moment it is made. Together with a node's patch this is all that a journal
needs to hold.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Generic, Literal, Protocol, TypeVar

T = TypeVar("T")
Effect = Literal["none", "once", "idempotent"]


def _same(value: Any) -> Any:
    return value


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """A call that a node makes.

    Attributes:
        kind: `llm`, `tool`, `step`, `ask`, ...
        name: What is called.
        request: What it is asked, as data.
        make: Makes the call.
        effect: Whether making it again would do something again.
        encode: Makes JSON data of a result.
        decode: Makes a result of JSON data.
        cost: What it costs, in the unit of a run's `max_cost`; models tell with their answer.
        limit: How many calls of this name one run may make.
    """

    kind: str
    name: str
    request: object
    make: Callable[[], Awaitable[T]]
    effect: Effect = "none"
    encode: Callable[[Any], Any] = _same
    decode: Callable[[Any], Any] = _same
    cost: float = 0.0
    limit: int | None = None


class CallKeeper(Protocol):
    """The part of a run that calls inside nodes go through."""

    @property
    def name(self) -> str:
        """The run's name."""
        ...

    @property
    def model(self) -> Any:
        """The model given to the run."""
        ...

    @property
    def wants_drafts(self) -> bool:
        """Whether models are to tell the drafts of their answers."""
        ...

    def emit(self, path: str, kind: str, data: object) -> None:
        """Add an event."""
        ...

    async def call(self, place: Here, path: str, call: Call[T]) -> T:
        """Make a call, or give what it gave when it was recorded."""
        ...

    async def ask(self, place: Here, path: str, call: Call[T]) -> T:
        """The answer to a question, or the end of the node until there is one."""
        ...


@dataclass(slots=True)
class _Strand:
    """The calls that one task makes for a node."""

    place: Here
    task: asyncio.Task[Any] | None
    prefix: str
    num_calls: int = 0

    def next(self) -> str:
        self.num_calls += 1
        return f"{self.prefix}{self.num_calls - 1}"


_strand: ContextVar[_Strand | None] = ContextVar("agentloop.strand", default=None)


class Here:
    """The node that is running: its run, its path, and the calls it has made.

    Attributes:
        run: Its run.
        path: Its place in the run.
        attempt: Which try of the node this is, from 1.
    """

    __slots__ = ("_idle", "_num_open", "_strand", "_task", "attempt", "path", "run")

    def __init__(self, run: CallKeeper, path: str, attempt: int = 1) -> None:
        self.run = run
        self.path = path
        self.attempt = attempt
        self._task = asyncio.current_task()
        self._strand: _Strand | None = None  # most nodes make no call
        self._num_open = 0
        self._idle: list[asyncio.Future[None]] | None = None  # most nodes never wait for this

    def next_path(self, is_effect: bool) -> str:
        """The path of a call that is being made.

        Calls are numbered in the order in which they are made. A task that the node has started,
        as `asyncio.gather` does, takes one number with its first call and counts its further ones
        below it: which of several tasks goes on first does not matter.

        Every try of a node makes its pure calls anew; effects have the same place in all of them.
        """
        number = self._number(asyncio.current_task())
        if is_effect or self.attempt == 1:
            return f"{self.path}:{number}"
        return f"{self.path}~{self.attempt}:{number}"

    def _number(self, task: asyncio.Task[Any] | None) -> str:
        if self._strand is None:
            self._strand = _Strand(self, self._task, "")
        found = _strand.get()
        parent = found if found is not None and found.place is self else self._strand
        if parent.task is task:
            return parent.next()
        own = _Strand(self, task, f"{parent.next()}.")
        own.next()  # its first call has the number itself
        _strand.set(own)
        return own.prefix[:-1]

    def begin(self) -> None:
        """A call begins."""
        self._num_open += 1

    def finish(self) -> None:
        """A call is over."""
        self._num_open -= 1
        if not self._num_open and self._idle is not None:
            idle, self._idle = self._idle, None
            for future in idle:
                if not future.done():
                    future.set_result(None)

    async def quiet(self) -> None:
        """Wait until no call of this node is going on, so that none is cut off."""
        num_turns = 0
        while num_turns < 3:  # what a finished call wakes may make another
            if self._num_open:
                future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._idle = [*(self._idle or ()), future]
                await future
                num_turns = 0
            await asyncio.sleep(0)
            num_turns += 1


class Retry(Enum):
    """The type of `RETRY`."""

    RETRY = "retry"


RETRY: Final = Retry.RETRY
"""The answer to an interrupted effect that did not happen: run it."""

here: ContextVar[Here | None] = ContextVar("agentloop.here", default=None)
key: ContextVar[str] = ContextVar("agentloop.key", default="")


async def make_call(call: Call[T]) -> T:
    """Make a call as part of the node that runs here; outside a run, just make it."""
    place = here.get()
    if place is None:
        return await call.make()
    path = place.next_path(call.effect != "none")
    place.begin()
    try:
        return await place.run.call(place, path, call)
    finally:
        place.finish()


def idempotency_key() -> str:
    """Inside a tool: the same text on every try of the same call, another for any other call.

    Hand it to a service that sorts out repeats. Empty outside a run.
    """
    return key.get()


def emit(kind: str, data: object = None) -> None:
    """Add an event of the user's own to the run, from inside a node. Outside a run, do nothing.

    Args:
        kind: What happened, such as `progress`.
        data: Anything that says more about it.
    """
    place = here.get()
    if place is not None:
        place.run.emit(place.path, kind, data)
