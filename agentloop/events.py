"""What happens in a run, as one ordered stream that consumers can only read.

A run appends; consumers follow at their own pace with a cursor into the same list. So a slow
consumer lags, a gone one costs nothing, and neither can hold up a run.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any, NamedTuple, Protocol, Self, TypeAlias, runtime_checkable

logger = logging.getLogger("agentloop")


class Event(NamedTuple):
    """One thing that happened.

    Attributes:
        run: The run's name.
        path: Where: the step's path, such as `plan`, `retrieve[2]` or `answer#3` (third visit);
            `""` for the run itself.
        kind: What: `run.start`, `run.end`, `run.error`, `node.start`, `node.end`, `node.error`,
            `node.retry`, `node.replay`, `skip`, `route`, `limit`, `call.start`,
            `call.end`, `call.error`, `call.replay`, `draft`, `ask`, `answer`, `run.waiting`,
            or whatever a node emits.
        data: The patch of `node.end`, the target of `route`, the error of `*.error`, ...
        at_s: Seconds since the run started.
    """

    run: str
    path: str
    kind: str
    data: Any
    at_s: float


Listener: TypeAlias = Callable[[Event], object]
"""Called with every event, from whatever thread it happens in. It should be quick, see `Aside`."""


class Aside:
    """A listener that may be slow: it is called in a thread of its own, and the run goes on.

    Events come in their order, and all of them: `close` waits for the last one. Also a context
    manager.

    Example:
        >>> seen: list[str] = []
        >>> with Aside(lambda event: seen.append(event.kind)) as listener:
        ...     listener(Event("r", "", "run.start", None, 0.0))
        >>> seen
        ['run.start']

    Args:
        listener: What to call; what it raises is logged and ignored.
    """

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._events: SimpleQueue[Event | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="agentloop-aside", daemon=True)
        self._thread.start()

    def __call__(self, event: Event) -> None:
        """Hand an event over; never waits."""
        self._events.put(event)

    def close(self) -> None:
        """Wait until the listener has had every event."""
        self._events.put(None)
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _work(self) -> None:
        while (event := self._events.get()) is not None:
            call_listener(self._listener, event)


def call_listener(listener: Listener, event: Event) -> None:
    """Call a listener; a consumer's fault is not the run's."""
    try:
        listener(event)
    except Exception:
        logger.exception("an event listener failed at %s %s", event.kind, event.path)


@runtime_checkable
class TraceKeeper(Protocol):
    """A listener that goes on with the trace of a recorded run when the run is resumed."""

    def begin(self, run: str, earlier: str | None) -> str:
        """A run begins or goes on: what was recorded for it before, and what to record now."""
        ...


class RunEvents:
    """The events of one run, in order, and those who wait for the next."""

    def __init__(self, listeners: Sequence[Listener] = (), is_kept: bool = True) -> None:
        self.events: list[Event] = []
        self.is_closed = False
        self._listeners = listeners
        self._is_kept = is_kept
        self._waiters: list[asyncio.Future[None]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.get_ident()

    def append(self, event: Event) -> None:
        """Add an event; never waits for anybody."""
        if self._is_kept:
            self.events.append(event)
        for listener in self._listeners:
            call_listener(listener, event)
        if self._waiters:
            self._wake_from_anywhere()

    def close(self) -> None:
        """No more events will come."""
        self.is_closed = True
        if self._waiters:
            self._wake_from_anywhere()

    async def wait(self, num_seen: int) -> bool:
        """Wait until there are more events than have been seen. False if no more will come."""
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        while True:
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._waiters.append(waiter)  # before looking: a thread may append in between
            if len(self.events) > num_seen:
                return True
            if self.is_closed:
                return False
            await waiter

    def _wake_from_anywhere(self) -> None:
        if threading.get_ident() == self._thread:
            self._wake()
        elif self._loop is not None and not self._loop.is_closed():  # a sync node, in its thread
            self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
