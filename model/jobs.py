"""Calls on their way through the engine, and the queue in which they wait.

The queue is ordered by the time of the call, moved forward by AGE_S for each level of priority: a
call of priority 1 goes before one of priority 0 that was made up to AGE_S earlier, and no priority
keeps a call waiting for ever.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field

from agentloop.errors import DeadlineError, QueueFullError
from agentloop.model.keys import Keys
from agentloop.model.prompt_cache import Reading
from agentloop.model.sampler import CanvasRow

AGE_S = 10.0
MAX_WAITING = 10_000


@dataclass
class Timings:
    """Where a call's time went, in seconds.

    Attributes:
        queue_s: From the call until its first step began.
        prompt_s: Reading the prompt, shared passes counted whole.
        network_s: Passes of the network, shared ones counted whole.
        constraint_s: Constrained inference and commits of this row.
        total_s: From the call to the answer.
    """

    queue_s: float = 0.0
    prompt_s: float = 0.0
    network_s: float = 0.0
    constraint_s: float = 0.0
    total_s: float = 0.0


@dataclass
class Job:
    """One call on its way through the engine.

    Attributes:
        prompt: Token ids of the prompt, at least one.
        make_row: Makes the next canvas from the constraint's state, the tokens written so far; None
            when the answer is finished.
        row: The canvas being refined.
        future: Gets the job itself when it is finished, or the error; cancelling it drops the job.
        on_step: Called in the engine's thread after every step.
        priority: Higher goes first.
        deadline_s: Seconds from the call by which it is given up; None waits for ever.
        written: Tokens of finished canvases.
        rows: Finished canvases.
        keys: Keys of the text ahead of the canvas, but for its last token.
        reading: The text ahead of the canvas while it is read.
        cached_tokens: Tokens of the prompt whose keys were in the cache.
        timings: Where the time went.
        began: When the call was made, in seconds of `time.perf_counter`.
    """

    prompt: list[int]
    make_row: Callable[[Job], CanvasRow | None]
    row: CanvasRow
    future: Future[Job]
    on_step: Callable[[Job], None] | None = None
    priority: int = 0
    deadline_s: float | None = None
    written: list[int] = field(default_factory=list[int])
    rows: list[CanvasRow] = field(default_factory=list[CanvasRow])
    keys: Keys | None = None
    reading: Reading | None = None
    cached_tokens: int = 0
    timings: Timings = field(default_factory=Timings)
    began: float = field(default_factory=time.perf_counter)

    @property
    def anchor(self) -> int:
        """The token before the canvas; its slot reads what the first slot predicts."""
        return self.written[-1] if self.written else self.prompt[-1]

    @property
    def num_steps(self) -> int:
        """Passes of the network so far."""
        current = 0 if self.rows and self.rows[-1] is self.row else len(self.row.trace)
        return sum(len(row.trace) for row in self.rows) + current

    @property
    def age_s(self) -> float:
        """Seconds since the call."""
        return time.perf_counter() - self.began

    def succeed(self) -> None:
        """Hand the answer over; not where the call was cancelled."""
        self.timings.total_s = self.age_s
        with suppress(InvalidStateError):
            self.future.set_result(self)

    def fail(self, error: Exception) -> None:
        """Hand an error over; not where the call was cancelled or answered."""
        with suppress(InvalidStateError):
            self.future.set_exception(error)

    def is_wanted(self) -> bool:
        """Whether anybody still waits; gives the call up where its deadline has passed."""
        if self.future.done():
            return False
        if self.deadline_s is not None and self.age_s > self.deadline_s:
            self.fail(DeadlineError(self.age_s, self.num_steps))
            return False
        return True


class JobQueue:
    """Calls that wait, bounded in number; not safe for use by several threads at once."""

    def __init__(self, limit: int = MAX_WAITING) -> None:
        self.limit = limit
        self._heap: list[tuple[float, int, Job]] = []
        self._count = 0

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, jobs: Sequence[Job]) -> None:
        """Let some calls wait.

        Raises:
            QueueFullError: There is no room for all of them; none is taken.
        """
        if len(self._heap) + len(jobs) > self.limit:
            self._drop_unwanted()
        if len(self._heap) + len(jobs) > self.limit:
            raise QueueFullError(len(self._heap), len(jobs), self.limit)
        for job in jobs:
            self._count += 1
            heapq.heappush(self._heap, (job.began - AGE_S * job.priority, self._count, job))

    def take(self) -> Job | None:
        """The next call that is still wanted; None if there is none."""
        while self._heap:
            job = heapq.heappop(self._heap)[2]
            if job.is_wanted():
                return job
        return None

    def take_all(self) -> list[Job]:
        """All calls, in no order."""
        jobs = [entry[2] for entry in self._heap]
        self._heap.clear()
        return jobs

    def _drop_unwanted(self) -> None:
        self._heap = [entry for entry in self._heap if entry[2].is_wanted()]
        heapq.heapify(self._heap)
