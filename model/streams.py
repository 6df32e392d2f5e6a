"""From the engine's thread to whoever reads: bounded, and never waited for.

The engine serves all callers, so it does not stop for one that reads slowly. What such a reader
has not taken yet is joined or replaced instead: of drafts the latest are kept, since each is whole;
of text nothing is lost, since unread pieces become one.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator
from typing import Generic, TypeVar

T = TypeVar("T")
UNREAD_DRAFTS = 64


class Mailbox(Generic[T]):
    """Takes items from one thread and gives them to one event loop.

    Args:
        limit: Unread items that are kept; older ones are dropped.
    """

    def __init__(self, limit: int = UNREAD_DRAFTS) -> None:
        self._items: deque[T] = deque(maxlen=limit)
        self._lock = threading.Lock()
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self._closed = False

    def put(self, item: T) -> None:
        """Add an item, from any thread."""
        with self._lock:
            self._items.append(item)
        self._wake()

    def close(self) -> None:
        """No item follows; from any thread."""
        self._closed = True
        self._wake()

    def _wake(self) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._news.set)

    async def __aiter__(self) -> AsyncIterator[T]:
        """The items until it is closed."""
        while True:
            await self._news.wait()
            self._news.clear()
            closed = self._closed  # before the items, so that none is missed
            with self._lock:
                items = list(self._items)
                self._items.clear()
            for item in items:
                yield item
            if closed:
                return


class SettledText:
    """Text that will not change any more, handed out piece by piece.

    Args:
        stops: Texts of which none may be handed out, not even its beginning.
    """

    def __init__(self, stops: tuple[str, ...] = ()) -> None:
        self._stops = stops
        self._num_given = 0

    def more(self, text: str, *, is_final: bool) -> str:
        """What of a longer beginning of the answer was not handed out yet.

        Args:
            text: The settled beginning; with `is_final` the whole answer.
            is_final: Whether nothing follows.
        """
        ready = text if is_final else text[: len(text) - self._num_held_back(text)]
        piece, self._num_given = ready[self._num_given :], max(len(ready), self._num_given)
        return piece

    def _num_held_back(self, text: str) -> int:
        """Characters at the end that may be the beginning of a stop text, or all of one."""
        held = [
            size
            for stop in self._stops
            for size in range(1, len(stop) + 1)
            if text.endswith(stop[:size])
        ]
        return max(held, default=0)
