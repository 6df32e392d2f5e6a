"""Text between a beginning and an end that are given, of a length that is not.

Slots have places, so each length is a canvas of its own: some are filled side by side, and the one
is given that reads best from left to right, its end included. The constraint is about the text that
is filled in, or about the whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from agentloop.errors import CanvasTooSmallError, ContradictionError, ModelError
from agentloop.model.call_options import CallOptions, ParsedConstraint, settings_of
from agentloop.model.constraint.allowed import allowed_tokens, contradiction
from agentloop.model.constraint.compiled import CompiledConstraint
from agentloop.model.engine import Job
from agentloop.model.generation import Generation, mean_probability
from agentloop.model.packed import PackedNetwork
from agentloop.model.prompts import Message
from agentloop.model.request_builder import RequestBuilder
from agentloop.model.sampler import MASKED, CanvasRow
from agentloop.model.verification import log_p_left_to_right

Ints = NDArray[np.int64]
COMPLETE: Sequence[Message] = ({"role": "user", "content": "Complete the text."},)
MAX_TOKENS = 32
"""Tokens that are filled in at most, where the caller does not say."""
LENGTHS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
MAX_CANVASES = 6
SEEN_AFTER = 64
"""Tokens of what follows that the model sees."""


class GapRow(CanvasRow):
    """A canvas between a beginning and an end; the constraint is about the gap alone.

    Its last slot is the end of the gap's text, which the network sees as what follows.

    Attributes:
        after: Ids of what follows.
    """

    after: Ints

    @property
    def shown(self) -> Ints:
        """The gap's slots and what follows them."""
        return np.concatenate([super().shown[:-1], self.after])

    def advance(self, logits: Tensor) -> None:
        """Refine by the gap's rows of logits (L, V); the end of text has none and needs none."""
        gap = logits[: self.length - 1]
        super().advance(torch.cat([gap, gap.new_zeros(1, gap.shape[1])]))


@dataclass
class Gap:
    """A text to be filled in, and its canvases.

    Attributes:
        before: What stands ahead of the gap.
        after: What follows it.
        constraint: What the gap's text satisfies.
        whole: What the whole text satisfies.
        prompt: Ids of the prompt, `before` included.
        after_ids: Ids of what follows.
        jobs: A canvas for each length that is tried.
        seed: Source of every draw.
    """

    before: str
    after: str
    constraint: ParsedConstraint | None
    whole: ParsedConstraint | None
    prompt: list[int]
    after_ids: list[int]
    jobs: list[Job]
    seed: int

    @property
    def open_jobs(self) -> list[Job]:
        """The jobs that the engine has to do."""
        return [job for job in self.jobs if not job.future.done()]

    def generation(self, builder: RequestBuilder, network: PackedNetwork) -> Generation:
        """The gap's text that reads best, once all jobs are finished.

        Its numbers are those of its own canvas; `num_samples` says how many were filled.
        """
        scored = [(self.score(job, network), job) for job in self.jobs]
        log_p, job = max(scored, key=lambda pair: mean_probability(pair[0]))
        length = self._length(job)
        text = builder.vocabulary.text(job.row.tokens[:length].tolist()).decode()
        value: object = text
        if self.whole is not None:
            value = self.whole.parse(self.before + text + self.after)
        elif self.constraint is not None:
            value = self.constraint.parse(text)
        return Generation(
            text=text,
            value=value,
            token_ids=tuple(job.row.tokens[:length].tolist()),
            num_steps=job.num_steps,
            num_prompt_tokens=len(job.prompt),
            num_cached_tokens=job.cached_tokens,
            p_valid=tuple(step.p_valid for step in job.row.trace),
            finish_reason="stop",
            seed=self.seed,
            timings=job.timings,
            num_computed=sum(step.num_computed for step in job.row.trace),
            log_p=tuple(job.row.log_p[:length].tolist()),
            log_p_verified=tuple(log_p),
            num_samples=len(self.jobs),
        )

    def _length(self, job: Job) -> int:
        """Slots of a job's gap."""
        is_gap = isinstance(job.row, GapRow)
        return job.row.length - 1 - (0 if is_gap else len(self.after_ids))

    def score(self, job: Job, network: PackedNetwork) -> list[float]:
        """Log-probabilities, left to right, of a job's gap and what follows; nothing if given."""
        if job.keys is None:
            return []
        read = [*job.row.tokens[: self._length(job)].tolist(), *self.after_ids]
        return log_p_left_to_right(network, job.keys, self.prompt[-1], read)


def open_gap(
    builder: RequestBuilder,
    messages: Sequence[Message],
    before: str,
    after: str,
    options: CallOptions,
    whole: ParsedConstraint | None,
) -> Gap:
    """The canvases that fill a gap, one for each of a few lengths.

    Raises:
        ContradictionError: No text in the gap makes the whole acceptable.
        CanvasTooSmallError: The shortest text of the constraint is longer than `max_tokens`.
        ContextLengthError: Prompt and text are longer than the model's context.
        ModelError: An option is unknown or out of its range.
    """
    settings = settings_of(options)
    most = settings.max_tokens or MAX_TOKENS
    compiled = builder.compile(whole or settings.constraint)
    before_ids, after_ids = builder.text_ids(before), builder.text_ids(after)
    prompt = [*builder.prompt_ids(messages), *before_ids]
    seen = after_ids if whole else after_ids[:SEEN_AFTER]
    builder.check_context(len(prompt), most + len(seen) + 1)
    start = _state_after(compiled, before_ids, most + len(after_ids) + 1) if whole else 0
    eos = compiled.vocabulary.eos_ids[0]
    tail = np.array([*(after_ids if whole else ()), eos], np.int64)
    forced = builder.forced_text(compiled)
    jobs: list[Job] = []
    for length in _lengths(compiled, start, tail, most):
        fixed = np.concatenate([np.full(length, MASKED, np.int64), tail])
        kind = CanvasRow if whole else GapRow
        sampler = replace(settings.sampler, canvas_length=len(fixed))
        row = kind(compiled, sampler, len(fixed), settings.seed, start, fixed=fixed, forced=forced)
        if isinstance(row, GapRow):
            row.after = np.array(seen, np.int64)
        job = Job(prompt, lambda _: None, row, Future())
        job.priority, job.deadline_s = settings.priority, settings.deadline_s
        if row.done:
            job.rows.append(row)
            job.future.set_result(job)
        jobs.append(job)
    return Gap(before, after, settings.constraint, whole, prompt, after_ids, jobs, settings.seed)


def _state_after(compiled: CompiledConstraint, ids: Sequence[int], room: int) -> int:
    """The constraint's state after a beginning."""
    automaton, state = compiled.automaton, 0
    for token in ids:
        state = automaton.follow(state, int(automaton.token_class[token]))
        if state < 0:
            canvas = np.array(ids, np.int64)
            raise contradiction(compiled, canvas, start=0, room_after=room)
    return state


def _lengths(compiled: CompiledConstraint, start: int, tail: Ints, most: int) -> list[int]:
    """Some lengths of the gap, spread over those that an accepted text can have."""
    spread = [n for n in LENGTHS if n <= most and _can_fill(compiled, start, tail, n)]
    if not spread:
        spread = [n for n in range(1, most + 1) if _can_fill(compiled, start, tail, n)]
    if spread:
        picked = np.linspace(0, len(spread) - 1, min(len(spread), MAX_CANVASES)).round()
        return [spread[int(i)] for i in picked]
    if compiled.min_tokens > most + len(tail):
        raise CanvasTooSmallError(compiled.min_tokens, most + len(tail))
    canvas = np.concatenate([np.full(most, MASKED, np.int64), tail])
    raise contradiction(compiled, canvas, start=start, room_after=0)


def _can_fill(compiled: CompiledConstraint, start: int, tail: Ints, length: int) -> bool:
    """Whether some accepted text has so many tokens in the gap."""
    canvas = np.concatenate([np.full(length, MASKED, np.int64), tail])
    try:
        allowed_tokens(compiled, canvas, 0, start=start)
    except ContradictionError:
        return False
    return True


def rewriting(
    text: str, region: tuple[int, int], instruction: str
) -> tuple[str, str, list[Message]]:
    """What stands before and after a region of a text, and the messages that ask for another.

    Raises:
        ModelError: The region does not lie in the text.
    """
    start, stop = region
    if not 0 <= start <= stop <= len(text):
        raise ModelError(f"the region is {region}, expected characters from 0 to {len(text)}")
    asked = f"{instruction}\n\n{text[:start]}[{text[start:stop]}]{text[stop:]}"
    return text[:start], text[stop:], [{"role": "user", "content": asked}]
