"""Gathers what an event loop asks for at once, and hands it over when the loop goes quiet.

Quiet means: one tick passed in which nothing was added. Branches of a graph and runs side by side
each reach their model call within a few ticks of each other, so their calls arrive as one batch,
and a lone call waits for one tick and no timer.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


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
        self._local.gathered = None
        self._hand_over(gathered)
