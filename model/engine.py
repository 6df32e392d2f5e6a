"""The engine: one thread that refines the canvases of all callers together.

Requests join and leave between refinement steps. A step is one pass of the network over every
active canvas and then one constrained commit per canvas. Prompts are read in passes of bounded size
between steps, so that a long prompt does not hold up those who are being answered. Nothing a row
computes depends on the others, so a call gives the same tokens alone and in any batch.

Calls made at once by one event loop are handed over together, when the loop has gone quiet: a tick
passed in which no further call came. There is no timer.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass

import torch
from torch import Tensor

from agentloop.errors import ModelError
from agentloop.model.jobs import MAX_WAITING, Job, JobQueue, Timings
from agentloop.model.network import Transformer
from agentloop.model.packed import PackedNetwork, Span
from agentloop.model.products import Precision
from agentloop.model.prompt_cache import PromptCache, Reading
from agentloop.model.sampler import MASKED

__all__ = ["Engine", "EngineStatistics", "Job", "Timings"]

MAX_BATCH = 64
MAX_KEY_BYTES = 2 * 2**30
MAX_WAVES = 4
"""Further passes of reading before the first step of calls that came together."""


@dataclass
class EngineStatistics:
    """Counts since the engine was made.

    Attributes:
        num_steps: Passes of the writing network.
        num_rows: Canvases in all passes together.
        num_positions: Positions in all passes together.
        num_committed: Positions committed in all passes together.
        num_finished: Calls answered.
        num_failed: Calls that ended in an error, given up ones included.
        peak_waiting: Most calls that ever waited.
        queue_s: Seconds that calls waited for their first step, all together.
        step_s: Seconds of passes and commits.
    """

    num_steps: int = 0
    num_rows: int = 0
    num_positions: int = 0
    num_committed: int = 0
    num_finished: int = 0
    num_failed: int = 0
    peak_waiting: int = 0
    queue_s: float = 0.0
    step_s: float = 0.0


@dataclass
class _Warming:
    tokens: list[int]
    future: Future[int]
    reading: Reading | None = None


class Engine:
    """Runs jobs in a thread of its own until closed.

    Args:
        reader: The network that reads prompts.
        writer: The network that refines canvases.
        max_batch: Canvases in one pass at most.
        max_waiting: Calls that may wait; one more is an error.
        cache_bytes: Memory for prompts that were read.
        key_bytes: Memory for the prompts of calls that are being answered; those that do not fit
            wait.
        precision: Of the writer's products; by default the fastest that is native to the processor.
            The reader keeps 16 bits: prompts are read once, and what is lost in their keys is lost
            in every step.
        sample: As in `PackedNetwork`.
    """

    def __init__(
        self,
        reader: Transformer,
        writer: Transformer,
        *,
        max_batch: int = MAX_BATCH,
        max_waiting: int = MAX_WAITING,
        cache_bytes: int = 512 * 2**20,
        key_bytes: int = MAX_KEY_BYTES,
        precision: Precision | None = None,
        sample: Sequence[int] = (),
    ) -> None:
        if writer.config.mask_id is None:
            raise ModelError("the network has no mask id: it was never adapted to diffusion")
        self.writer = PackedNetwork(writer, precision, sample)
        reads_in: Precision = self.writer.precision
        if reads_in == "int8":
            reads_in = "bfloat16"
        self.reader = PackedNetwork(reader, reads_in)
        self.mask_id = writer.config.mask_id
        self.max_batch = max_batch
        self.key_bytes = key_bytes
        self.cache = PromptCache(self.reader, cache_bytes)
        self.statistics = EngineStatistics()
        self._queue = JobQueue(max_waiting)
        self._warming: deque[_Warming] = deque()
        self._active: list[Job] = []
        self._wake = threading.Condition()
        self._closed = False
        self._thread: threading.Thread | None = None

    @property
    def num_waiting(self) -> int:
        """Calls that wait for their first step."""
        return len(self._queue)

    @property
    def num_active(self) -> int:
        """Calls that are being answered."""
        return len(self._active)

    def submit(self, jobs: Sequence[Job]) -> None:
        """Hand jobs over; those handed over together start in one step.

        Raises:
            ModelError: The engine is closed.
            QueueFullError: Too many calls wait.
        """
        with self._wake:
            self._check_open()
            self._queue.add(jobs)
            peak = max(self.statistics.peak_waiting, len(self._queue))
            self.statistics.peak_waiting = peak
            self._wake.notify()

    def offer(self, jobs: Sequence[Job]) -> None:
        """As `submit`, for those who cannot be told at once: a job that is not taken fails."""
        with self._wake:
            for job in jobs:
                try:
                    self._check_open()
                    self._queue.add([job])
                except ModelError as error:
                    job.fail(error)
            peak = max(self.statistics.peak_waiting, len(self._queue))
            self.statistics.peak_waiting = peak
            self._wake.notify()

    def warm(self, prompts: Sequence[Sequence[int]]) -> list[Future[int]]:
        """Read prompts into the cache when there is time; each future gets how many were new.

        Raises:
            ModelError: The engine is closed.
        """
        warming = [_Warming(list(tokens), Future()) for tokens in prompts]
        with self._wake:
            self._check_open()
            self._warming.extend(warming)
            self._wake.notify()
        return [each.future for each in warming]

    def close(self) -> None:
        """Finish no further step; jobs that are not done fail."""
        with self._wake:
            self._closed = True
            self._wake.notify()
        if self._thread is not None:
            self._thread.join()

    def metrics(self) -> dict[str, float]:
        """Counts and shares, by name: fill, waits, depth of the queue, use of the prompt cache."""
        s, c = self.statistics, self.cache.statistics
        steps, started = max(s.num_steps, 1), max(s.num_finished + s.num_failed, 1)
        return {
            "num_waiting": float(self.num_waiting),
            "peak_waiting": float(s.peak_waiting),
            "num_active": float(self.num_active),
            "num_finished": float(s.num_finished),
            "num_failed": float(s.num_failed),
            "num_steps": float(s.num_steps),
            "rows_per_step": s.num_rows / steps,
            "positions_per_step": s.num_positions / steps,
            "tokens_per_step": s.num_committed / steps,
            "fill": s.num_rows / steps / self.max_batch,
            "mean_queue_s": s.queue_s / started,
            "mean_step_s": s.step_s / steps,
            "cache_hit_rate": c.hit_rate,
            "cache_bytes": float(c.bytes),
            "cache_evicted_bytes": float(c.evicted_bytes),
            "cache_passes": float(c.num_passes),
        }

    def _check_open(self) -> None:
        if self._closed:
            raise ModelError("the model is closed; load it again")
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="agentloop-engine", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        fit_threads()
        while self._admit():
            self._active = [job for job in self._active if job.is_wanted()]
            self._read_prompts()
            for _ in range(MAX_WAVES):
                if all(job.keys is not None for job in self._active) or self._has_begun():
                    break
                self._read_prompts()
            self._step([job for job in self._active if job.keys is not None])
        error = ModelError("the model was closed before the call was answered")
        for job in [*self._active, *self._queue.take_all()]:
            job.fail(error)
        for warming in self._warming:
            with suppress(InvalidStateError):
                warming.future.set_exception(error)
        self._active.clear()
        self._warming.clear()

    def _admit(self) -> bool:
        """Wait for work and take calls in, as far as there is room; False when closed."""
        with self._wake:
            while not (self._queue or self._active or self._warming or self._closed):
                self._wake.wait()
            if self._closed:
                return False
            held = sum(self.reader.num_key_bytes(len(job.prompt)) for job in self._active)
            while len(self._active) < self.max_batch and held < self.key_bytes:
                job = self._queue.take()
                if job is None:
                    break
                self._active.append(job)
                held += self.reader.num_key_bytes(len(job.prompt))
            return True

    def _has_begun(self) -> bool:
        """Whether a call is held up by reading further prompts."""
        return any(job.num_steps for job in self._active)

    def _read_prompts(self) -> None:
        """One pass over what was not read yet of the active jobs' prompts; then what is warmed."""
        began = time.perf_counter()
        jobs = [job for job in self._active if job.keys is None and self._begin_reading(job)]
        readings = [job.reading for job in jobs if job.reading is not None]
        unread = [reading for reading in readings if not reading.is_done]
        warming = None if self._active else self._next_warming()
        if warming is not None and warming.reading is not None:
            unread.append(warming.reading)
        try:
            if unread:
                self.cache.go_on(unread)
        except Exception as error:  # the callers must hear of it, whatever it is
            self._fail(jobs, error)
            if warming is not None:
                warming.future.set_exception(error)
            return
        spent = time.perf_counter() - began
        for job in jobs:
            job.timings.prompt_s += spent
            if job.reading is not None and job.reading.is_done:
                job.keys = job.reading.keys
                if not job.rows:
                    job.cached_tokens = job.reading.cached_tokens
                job.reading = None
        self._end_warming(warming)

    def _begin_reading(self, job: Job) -> bool:
        """Begin with the text ahead of a job's canvas, if that was not done."""
        if job.reading is not None:
            return True
        if not job.timings.queue_s:
            job.timings.queue_s = job.age_s
            self.statistics.queue_s += job.age_s
        try:
            job.reading = self.cache.begin([*job.prompt, *job.written][:-1])
        except Exception as error:  # as above
            self._fail([job], error)
            return False
        return True

    def _next_warming(self) -> _Warming | None:
        while self._warming and self._warming[0].future.cancelled():
            self._warming.popleft()
        if not self._warming:
            return None
        warming = self._warming[0]
        if warming.reading is None:
            warming.reading = self.cache.begin(warming.tokens)
        return warming

    def _end_warming(self, warming: _Warming | None) -> None:
        if warming is None or warming.reading is None or not warming.reading.is_done:
            return
        self._warming.popleft()
        with suppress(InvalidStateError):
            warming.future.set_result(len(warming.tokens) - warming.reading.cached_tokens)

    def _step(self, ready: list[Job]) -> None:
        """One step of some active jobs; those that are finished leave."""
        if not ready:
            return
        began = time.perf_counter()
        try:
            logits = self.forward(ready)
        except Exception as error:  # as above
            self._fail(ready, error)
            return
        spent = time.perf_counter() - began
        self.statistics.num_steps += 1
        self.statistics.num_rows += len(ready)
        finished: set[int] = set()
        for job, scores in zip(ready, logits, strict=True):
            job.timings.network_s += spent
            if not self._advance(job, scores):
                finished.add(id(job))
        self._active = [job for job in self._active if id(job) not in finished]
        self.statistics.step_s += time.perf_counter() - began

    @torch.inference_mode()
    def forward(self, jobs: Sequence[Job]) -> list[Tensor]:
        """Float32 logits (L, V) of every job's canvas."""
        ids: list[int] = []
        spans: list[Span] = []
        for job in jobs:
            assert job.keys is not None
            start, past = len(ids), job.keys.length
            ids.append(job.anchor)
            ids += [self.mask_id if t == MASKED else t for t in job.row.shown.tolist()]
            if past + len(ids) - start > job.keys.capacity:
                job.keys = job.keys.copied(0, past, len(ids) - start)
            spans.append(Span(start, len(ids), job.keys, past))
        self.statistics.num_positions += len(ids)
        stream = self.writer.run(ids, spans)
        shift = int(self.writer.config.shift)
        return [self._scores(stream[s.start + 1 - shift : s.stop - shift]) for s in spans]

    def _scores(self, stream: Tensor) -> Tensor:
        scores = self.writer.logits(stream)
        scores[:, self.mask_id] = float("-inf")
        return scores.cpu()

    def _advance(self, job: Job, logits: Tensor) -> bool:
        """Commit on a job's canvas; True while it goes on."""
        began = time.perf_counter()
        try:
            job.row.advance(logits)
            job.timings.constraint_s += time.perf_counter() - began
            self.statistics.num_committed += job.row.trace[-1].num_committed
            if job.on_step is not None:
                job.on_step(job)
            return not job.row.done or self._next_canvas(job)
        except Exception as error:  # as above
            self._fail([job], error)
            return False

    def _next_canvas(self, job: Job) -> bool:
        """Go on with a further canvas, or finish the job."""
        job.written += job.row.text_tokens
        job.rows.append(job.row)
        following = None if job.row.ended else job.make_row(job)
        if following is not None:
            job.row = following
            job.keys = None
            return True
        self.statistics.num_finished += 1
        job.succeed()
        return False

    def _fail(self, jobs: Sequence[Job], error: Exception) -> None:
        for job in jobs:
            job.fail(error)
        self.statistics.num_failed += len(jobs)
        failed = {id(job) for job in jobs}
        self._active = [job for job in self._active if id(job) not in failed]


def fit_threads() -> None:
    """Let torch use no more threads than this process may run on processors.

    Two threads that wait for each other on one processor are many times slower than one.
    """
    affinity = getattr(os, "sched_getaffinity", None)
    if affinity is not None and torch.get_num_threads() > len(affinity(0)):
        torch.set_num_threads(len(affinity(0)))
