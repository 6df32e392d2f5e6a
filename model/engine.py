"""The engine: one thread that refines the canvases of all callers together.

Requests join and leave between refinement steps. A step is one pass of the network over every
active canvas and then one constrained commit per canvas. Matrix products take all rows at once;
nothing a row computes depends on the others, so a call gives the same tokens alone and in any
batch.

Calls made at once by one event loop are handed over together, when the loop has gone quiet: a tick
passed in which no further call came. There is no timer.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field

import torch
from torch import Tensor

from agentloop.errors import ModelError
from agentloop.model.network import PackedRow, PromptKeys, Transformer
from agentloop.model.prompt_cache import PromptCache
from agentloop.model.sampler import MASKED, CanvasRow

MAX_BATCH = 64


@dataclass
class Timings:
    """Where a call's time went, in seconds.

    Attributes:
        queue_s: From the call until its first step began.
        prompt_s: Reading the prompt.
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
        on_step: Called in the engine's thread after every step.
        future: Gets the job itself when it is finished, or the error; cancelling it drops the job.
        written: Tokens of finished canvases.
        rows: Finished canvases.
    """

    prompt: list[int]
    make_row: Callable[[Job], CanvasRow | None]
    row: CanvasRow
    future: Future[Job]
    on_step: Callable[[Job], None] | None = None
    written: list[int] = field(default_factory=list[int])
    rows: list[CanvasRow] = field(default_factory=list[CanvasRow])
    keys: PromptKeys | None = None
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


class Engine:
    """Runs jobs in a thread of its own until closed."""

    def __init__(
        self,
        reader: Transformer,
        writer: Transformer,
        *,
        max_batch: int = MAX_BATCH,
        cache_bytes: int = 512 * 2**20,
    ) -> None:
        if writer.config.mask_id is None:
            raise ModelError("the network has no mask id: it was never adapted to diffusion")
        self.reader = reader
        self.writer = writer
        self.mask_id = writer.config.mask_id
        self.max_batch = max_batch
        self.cache = PromptCache(reader, cache_bytes)
        self.num_batches = 0
        self._waiting: deque[Job] = deque()
        self._wake = threading.Condition()
        self._closed = False
        self._thread: threading.Thread | None = None

    def submit(self, jobs: Sequence[Job]) -> None:
        """Hand jobs over; those handed over together start in one step.

        Raises:
            ModelError: The engine is closed.
        """
        with self._wake:
            if self._closed:
                raise ModelError("the model is closed; load it again")
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="agentloop-engine", daemon=True
                )
                self._thread.start()
            self._waiting.extend(jobs)
            self._wake.notify()

    def close(self) -> None:
        """Finish no further step; jobs that are not done fail."""
        with self._wake:
            self._closed = True
            self._wake.notify()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        active: list[Job] = []
        while True:
            with self._wake:
                while not (self._waiting or active or self._closed):
                    self._wake.wait()
                if self._closed:
                    abandoned = [*active, *self._waiting]
                    self._waiting.clear()
                    break
                while self._waiting and len(active) < self.max_batch:
                    active.append(self._waiting.popleft())
            active = self._round(active)
        for job in abandoned:
            _fail(job, ModelError("the model was closed before the call was answered"))

    def _round(self, active: list[Job]) -> list[Job]:
        """One step of every active job; gives those that go on."""
        ready = [job for job in active if self._prepare(job)]
        if not ready:
            return []
        try:
            began = time.perf_counter()
            logits = self.forward(ready)
            spent = time.perf_counter() - began
        except Exception as error:  # the callers must hear of it, whatever it is
            for job in ready:
                _fail(job, error)
            return []
        self.num_batches += 1
        going_on: list[Job] = []
        for job, scores in zip(ready, logits, strict=True):
            job.timings.network_s += spent
            if self._advance(job, scores):
                going_on.append(job)
        return going_on

    def _prepare(self, job: Job) -> bool:
        """Drop a cancelled job; read the prompt of a new one."""
        if job.future.cancelled():
            return False
        if job.keys is not None:
            return True
        began = time.perf_counter()
        job.timings.queue_s = began - job.began
        try:
            read = self.cache.read([*job.prompt, *job.written][:-1])
        except Exception as error:  # as above
            _fail(job, error)
            return False
        job.keys, job.cached_tokens = read.keys, read.cached_tokens
        job.timings.prompt_s += time.perf_counter() - began
        return True

    @torch.inference_mode()
    def forward(self, jobs: Sequence[Job]) -> list[Tensor]:
        """Float32 logits (L, V) of every job's canvas."""
        ids: list[int] = []
        places: list[int] = []
        rows: list[PackedRow] = []
        for job in jobs:
            assert job.keys is not None
            start = len(ids)
            ids.append(job.anchor)
            ids += [self.mask_id if t == MASKED else t for t in job.row.shown.tolist()]
            places += range(job.keys.length, job.keys.length + len(ids) - start)
            rows.append(PackedRow(start, len(ids), job.keys))
        device = self.writer.embed_tokens.weight.device
        embedded = self.writer.embed_tokens(torch.tensor(ids, device=device))
        hidden = self.writer.refine_packed(embedded, torch.tensor(places, device=device), rows)
        shift = int(self.writer.config.shift)
        return [self._scores(hidden[row.start + 1 - shift : row.stop - shift]) for row in rows]

    def _scores(self, hidden: Tensor) -> Tensor:
        scores = self.writer.logits(hidden)
        scores[:, self.mask_id] = float("-inf")
        return scores.cpu()

    def _advance(self, job: Job, logits: Tensor) -> bool:
        """Commit on a job's canvas; True while it goes on."""
        began = time.perf_counter()
        try:
            job.row.advance(logits)
            job.timings.constraint_s += time.perf_counter() - began
            if job.on_step is not None:
                job.on_step(job)
            return not job.row.done or self._next_canvas(job)
        except Exception as error:  # as above
            _fail(job, error)
            return False

    def _next_canvas(self, job: Job) -> bool:
        """Go on with a further canvas, or finish the job."""
        job.written += job.row.text_tokens
        job.rows.append(job.row)
        following = None if job.row.ended else job.make_row(job)
        if following is not None:
            job.row = following
            read = self.cache.read([*job.prompt, *job.written][:-1])
            job.keys = read.keys
            return True
        job.timings.total_s = time.perf_counter() - job.began
        with suppress(InvalidStateError):  # cancelled this moment
            job.future.set_result(job)
        return False


def _fail(job: Job, error: Exception) -> None:
    with suppress(InvalidStateError):  # cancelled, or answered before
        job.future.set_exception(error)
