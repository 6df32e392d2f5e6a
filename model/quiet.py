"""Gathers what an event loop asks for at once, and hands it over when the loop goes quiet.

Quiet means: one tick passed in which nothing was added. Branches of a graph and runs side by side
each reach their model call within a few ticks of each other, so their calls arrive as one batch,
and a lone call waits for one tick and no timer. Who is about to ask, but has to wait for something
first, says so with `about_to_ask`; the loop is not taken for quiet as long as there is somebody.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")


class _Askers:
    """Of one event loop: how many are about to ask, and who waits for them."""

    def __init__(self) -> None:
        self.num = 0
        self.waiting: list[Callable[[], object]] = []


_by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, _Askers] = WeakKeyDictionary()


def _askers() -> _Askers:
    return _by_loop.setdefault(asyncio.get_running_loop(), _Askers())


@contextmanager
def about_to_ask() -> Generator[None]:
    """Within this block the caller waits for something short, after which it may well ask.

    Not for a wait that depends on an answer of the model: that would never come.
    """
    loop, askers = asyncio.get_running_loop(), _askers()
    askers.num += 1
    try:
        yield
    finally:
        askers.num -= 1
        if not askers.num and not loop.is_closed():
            waiting, askers.waiting = askers.waiting, []
            for look in waiting:
                look()


class QuietLoop(Generic[T]):
    """One gathering per event loop; safe to use from several loops in several threads."""

    def __init__(self, hand_over: Callable[[Sequence[T]], None]) -> None:
        self._hand_over = hand_over
        self._local = threading.local()

    def add(self, item: T) -> None:
        """Add from within a running event loop; handed over when the loop is quiet."""
        gathered: list[T] | None = getattr(self._local, "gathered", None)
        if gathered is None:
            self._local.gathered = gathered = []
            asyncio.get_running_loop().call_soon(self._look, gathered, 0)
        gathered.append(item)

    def _look(self, gathered: list[T], seen: int) -> None:
        if len(gathered) > seen:
            asyncio.get_running_loop().call_soon(self._look, gathered, len(gathered))
            return
        askers = _askers()
        if askers.num:  # not len(gathered): another tick has to pass once they are through
            loop = asyncio.get_running_loop()
            askers.waiting.append(lambda: loop.call_soon(self._look, gathered, 0))
            return
        self._local.gathered = None
        self._hand_over(gathered)
