"""One compilation as work that can be given up, has a time limit and knows what cost most.

The long loops of the compiler call `check_work`, and the emitter notes what each subschema costs.
Code that runs outside `doing` is free of all this.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Literal

from agentloop.errors import CompileCancelledError, CompileLimitError

_LOOK_EVERY_S = 0.002


@dataclass
class Cost:
    """What a subschema costs.

    Attributes:
        steps: Steps of exploring its own items and properties.
        seconds: Time spent on it, that of its parts excluded.
    """

    steps: int = 0
    seconds: float = 0.0


class Work:
    """One compilation.

    Attributes:
        max_seconds: Processor time it may take, None for any.
        costs: By JSON pointer; `""` is the root and all that is spent outside of schemas.
    """

    def __init__(self, max_seconds: float | None = None) -> None:
        self.max_seconds = max_seconds
        self.costs: dict[str, Cost] = {"": Cost()}
        self._is_given_up = threading.Event()
        self._path = [""]
        self.begin()

    def begin(self) -> None:
        """Count processor time from now on, of the thread that calls this."""
        self._begun = time.thread_time()
        self._since = time.perf_counter()
        self._next_look = 0.0  # the clock of a thread is dear to read, so it is not read each time

    def give_up(self) -> None:
        """Have the compilation end at its next check; from any thread."""
        self._is_given_up.set()

    def check(self) -> None:
        """End the compilation if it is to end.

        Raises:
            CompileCancelledError: It was given up.
            CompileLimitError: It took longer than it may.
        """
        if self._is_given_up.is_set():
            raise CompileCancelledError("the compilation of a constraint was given up")
        if self.max_seconds is not None and self._is_over(self.max_seconds):
            self._account()
            raise CompileLimitError(
                self.costliest("seconds"),
                f"the constraint takes more than {self.max_seconds:g} s of processor time to"
                " compile, most of it here",
                limit="seconds",
            )

    def _is_over(self, max_seconds: float) -> bool:
        now = time.perf_counter()
        if now < self._next_look:
            return False
        self._next_look = now + _LOOK_EVERY_S
        return time.thread_time() - self._begun > max_seconds

    @contextmanager
    def at(self, pointer: str | None) -> Generator[None]:
        """Count what follows as spent on a subschema, None for the one around it."""
        self._account()
        self._path.append(self._path[-1] if pointer is None else pointer)
        try:
            yield
        finally:
            self._account()
            self._path.pop()

    def cost_of(self, pointer: str | None) -> Cost:
        """The cost of a subschema, None for the one being worked on."""
        return self.costs.setdefault(self._path[-1] if pointer is None else pointer, Cost())

    def _account(self) -> None:
        now = time.perf_counter()
        self.cost_of(None).seconds += now - self._since
        self._since = now

    def costliest(self, by: Literal["steps", "seconds"]) -> str:
        """The pointer of the subschema that costs most without its parts."""
        amounts: dict[str, float] = {p: getattr(cost, by) for p, cost in self.costs.items()}
        return max(amounts, key=lambda pointer: amounts[pointer])


_current: ContextVar[Work | None] = ContextVar("work", default=None)


@contextmanager
def doing(work: Work) -> Generator[Work]:
    """Make some work the current one of this thread."""
    token = _current.set(work)
    work.begin()
    try:
        yield work
    finally:
        _current.reset(token)


def current_work() -> Work | None:
    """The work this thread is doing."""
    return _current.get()


def check_work() -> None:
    """End the current compilation if it is to end.

    Raises:
        CompileCancelledError: It was given up.
        CompileLimitError: It took longer than it may.
    """
    work = _current.get()
    if work is not None:
        work.check()
