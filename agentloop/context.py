"""Where code is: the node that runs here, and the calls it makes.

Everything a node does to the outside world (`llm`, a tool) goes through `keyed`, which numbers the
call at the moment it is made. Together with a node's patch this is all a recorder ever needs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class CallKeeper(Protocol):
    """The part of a run that calls inside nodes go through."""

    @property
    def model(self) -> Any:
        """The model given to the run."""
        ...

    def emit(self, path: str, kind: str, data: object) -> None:
        """Add an event."""
        ...

    async def call(
        self, path: str, kind: str, name: str, request: object, make: Callable[[], Awaitable[T]]
    ) -> T:
        """Make a call, or give what it gave when it was recorded."""
        ...


class Here:
    """The node that is running: its run, its path, and how many calls it has made."""

    __slots__ = ("num_calls", "path", "run")

    def __init__(self, run: CallKeeper, path: str) -> None:
        self.run = run
        self.path = path
        self.num_calls = 0


here: ContextVar[Here | None] = ContextVar("agentloop.here", default=None)


async def keyed(kind: str, name: str, request: object, make: Callable[[], Awaitable[T]]) -> T:
    """Make a call as part of the node that runs here; outside a run, just make it.

    Args:
        kind: `llm`, `tool`, ...
        name: What is called.
        request: What it is asked, as data.
        make: Makes the call.
    """
    place = here.get()
    if place is None:
        return await make()
    path = f"{place.path}:{place.num_calls}"
    place.num_calls += 1
    return await place.run.call(path, kind, name, request, make)


def emit(kind: str, data: object = None) -> None:
    """Add an event of the user's own to the run, from inside a node. Outside a run, do nothing.

    Args:
        kind: What happened, such as `progress`.
        data: Anything that says more about it.
    """
    place = here.get()
    if place is not None:
        place.run.emit(place.path, kind, data)
