"""Work that several callers ask for at the same time is done once, and dropped if all leave.

It knows nothing of what the work is.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from typing import Generic, TypeVar

from agentloop.errors import CompileCancelledError
from agentloop.model.constraint.work import Work, doing

Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result")
_NUM_THREADS = 2


class _Flight(Generic[Result]):
    """One piece of work on its way, and how many wait for it."""

    def __init__(self, max_seconds: float | None) -> None:
        self.work = Work(max_seconds)
        self.future = Future[Result]()
        self.num_waiting = 1


class Flights(Generic[Key, Result]):
    """The work that is on its way, by key."""

    def __init__(self) -> None:
        self._by_key: dict[Key, _Flight[Result]] = {}
        self._lock = threading.Lock()

    def run(self, key: Key, make: Callable[[], Result], max_seconds: float | None) -> Result:
        """The result of some work: made by this thread, or by the one that is at it already."""
        while True:
            flight, is_new = self._join(key, max_seconds)
            if is_new:
                self._fly(key, flight, make)
            with contextlib.suppress(CompileCancelledError):  # its thread was interrupted
                return flight.future.result()
            if is_new:
                raise CompileCancelledError("the compilation of a constraint was interrupted")

    async def run_aside(
        self, key: Key, make: Callable[[], Result], max_seconds: float | None
    ) -> Result:
        """As `run`, in a thread of its own; cancelling ends the work if nobody else waits."""
        while True:
            flight, is_new = self._join(key, max_seconds)
            if is_new:
                _workers().submit(self._fly, key, flight, make)
            try:
                await _landed(flight.future)
            except asyncio.CancelledError:
                self._leave(key, flight)
                raise
            with contextlib.suppress(CompileCancelledError):  # the thread at it was interrupted
                return flight.future.result()

    def _join(self, key: Key, max_seconds: float | None) -> tuple[_Flight[Result], bool]:
        with self._lock:
            flight = self._by_key.get(key)
            if flight is not None:
                flight.num_waiting += 1
                return flight, False
            flight = self._by_key[key] = _Flight[Result](max_seconds)
            return flight, True

    def _leave(self, key: Key, flight: _Flight[Result]) -> None:
        with self._lock:
            flight.num_waiting -= 1
            if flight.num_waiting > 0:
                return
            self._forget(key, flight)
        flight.work.give_up()

    def _forget(self, key: Key, flight: _Flight[Result]) -> None:
        if self._by_key.get(key) is flight:
            del self._by_key[key]

    def _fly(self, key: Key, flight: _Flight[Result], make: Callable[[], Result]) -> None:
        try:
            with doing(flight.work) as work:
                work.check()  # it may have been given up while it waited for a thread
                result = make()
        except Exception as error:
            self._land(key, flight)
            flight.future.set_exception(error)
        except BaseException:  # a signal is for this thread alone
            self._land(key, flight)
            flight.future.set_exception(CompileCancelledError("its thread was interrupted"))
            raise
        else:
            self._land(key, flight)
            flight.future.set_result(result)

    def _land(self, key: Key, flight: _Flight[Result]) -> None:
        with self._lock:
            self._forget(key, flight)


async def _landed(future: Future[Result]) -> None:
    """Wait for a result; leaving does not touch it, nor is its error reported as lost."""
    loop, landed = asyncio.get_running_loop(), asyncio.Event()

    def tell(_: Future[Result]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed by now
            loop.call_soon_threadsafe(landed.set)

    future.add_done_callback(tell)
    await landed.wait()


@lru_cache(maxsize=1)
def _workers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_NUM_THREADS, thread_name_prefix="agentloop-compile")
