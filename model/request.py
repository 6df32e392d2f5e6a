"""One call on its way: the jobs that its options ask for, and the answer of finished jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agentloop.model.call_options import Choose, ParsedConstraint, Settings
from agentloop.model.constraint.vocabulary import Vocabulary
from agentloop.model.engine import Job
from agentloop.model.generation import Draft, Generation, mean_probability, pieces_of
from agentloop.model.packed import PackedNetwork
from agentloop.model.plan import Plan, ThinkingRow
from agentloop.model.sampler import CanvasRow, Mark
from agentloop.model.verification import log_p_left_to_right

Ints = NDArray[np.int64]
SAMPLE_TEMPERATURE = 0.7
"""What further samples of a call at temperature 0 are drawn at."""


@dataclass
class Candidate:
    """One of the answers that a call makes side by side.

    Attributes:
        job: Its way through the engine.
        plan: Its canvases.
        log_p_verified: As in `Generation`.
    """

    job: Job
    plan: Plan
    log_p_verified: tuple[float, ...] | None = None

    @property
    def tokens(self) -> list[int]:
        """Ids of the finished canvases' text, without thoughts."""
        return self.job.written[self.plan.num_thought :]

    @property
    def rows(self) -> list[CanvasRow]:
        """The finished canvases of the answer."""
        return [row for row in self.job.rows if not isinstance(row, ThinkingRow)]

    def verify(self, network: PackedNetwork) -> None:
        """Score the finished answer left to right; not where there was nothing to choose."""
        if self.job.keys is None:
            return
        before = [*self.job.prompt, *self.job.written[: self.plan.num_thought]]
        last = self.rows[-1]
        end = [int(last.tokens[len(last.text_tokens)])] if last.ended else []
        keys = self.job.keys.prefix(len(before) - 1)
        scores = log_p_left_to_right(network, keys, before[-1], [*self.tokens, *end])
        self.log_p_verified = tuple(scores)


@dataclass
class Request:
    """A call and its candidates.

    Attributes:
        settings: How it is to be answered.
        constraint: What the text satisfies; None for free text.
        candidates: At least one.
        vocabulary: What tokens spell.
    """

    settings: Settings
    constraint: ParsedConstraint | None
    candidates: list[Candidate]
    vocabulary: Vocabulary

    @property
    def open_jobs(self) -> list[Job]:
        """The jobs that the engine has to do."""
        return [c.job for c in self.candidates if not c.job.future.done()]

    def verify(self, network: PackedNetwork) -> None:
        """Score the finished answers, if the call asks for it."""
        if self.settings.verify:
            for candidate in self.candidates:
                candidate.verify(network)

    def generation(self) -> Generation:
        """The answer, once all jobs are finished."""
        made = [self._generation(candidate) for candidate in self.candidates]
        best, num_agreeing = chosen(made, self.settings.choose)
        return replace(made[best], num_samples=len(made), num_agreeing=num_agreeing)

    def _generation(self, candidate: Candidate) -> Generation:
        job, rows = candidate.job, candidate.rows
        decoded = self.vocabulary.text(candidate.tokens).decode(
            "utf-8", errors="strict" if self.settings.constraint else "replace"
        )
        value: Any = self.constraint.parse(decoded) if self.constraint else decoded
        is_free = self.settings.constraint is None
        ended = not is_free or rows[-1].ended or value != decoded
        trace = [step for row in job.rows for step in row.trace]
        thought = self.vocabulary.text(job.written[: candidate.plan.num_thought])
        return Generation(
            text=value if is_free else decoded,
            value=value,
            token_ids=tuple(candidate.tokens),
            num_steps=job.num_steps,
            num_prompt_tokens=len(job.prompt),
            num_cached_tokens=job.cached_tokens,
            p_valid=tuple(step.p_valid for step in trace),
            finish_reason="stop" if ended else "length",
            seed=self.settings.seed,
            timings=job.timings,
            num_computed=sum(step.num_computed for step in trace),
            thinking=thought.decode("utf-8", errors="replace").strip(),
            log_p=tuple(p for row in rows for p in row.log_p[: len(row.text_tokens)].tolist()),
            log_p_verified=candidate.log_p_verified,
        )

    def draft(self, candidate: Candidate) -> Draft:
        """The answer as it stands; the canvas may still be one of thoughts."""
        row = candidate.job.row
        return self.draft_of(candidate, row.tokens, row.marks())

    def draft_of(self, candidate: Candidate, tokens: Ints, marks: Sequence[Mark]) -> Draft:
        """The answer with other tokens (L,) and marks on its current canvas."""
        job, row = candidate.job, candidate.job.row
        is_thought = isinstance(row, ThinkingRow)
        written = [] if is_thought else candidate.tokens
        text: list[int] = []
        if not is_thought and not any(finished is row for finished in job.rows):
            text = up_to_end(tokens, self.vocabulary)
        is_full = len(written) + len(text) >= candidate.plan.budget
        before: list[Mark] = ["committed"] * len(written)
        return Draft(
            step=job.num_steps,
            pieces=pieces_of(self.vocabulary, [*written, *text]),
            marks=(*before, *marks[: len(text)]),
            p_valid=row.trace[-1].p_valid if row.trace else 1.0,
            final=job.future.done() or (not is_thought and row.done and (row.ended or is_full)),
        )


def up_to_end(tokens: Ints, vocabulary: Vocabulary) -> list[int]:
    """The ids ahead of the first end of text, -1 where masked."""
    eos = np.isin(tokens, vocabulary.eos_ids)
    return [int(token) for token in (tokens[: eos.argmax()] if eos.any() else tokens)]


def chosen(made: Sequence[Generation], choose: Choose) -> tuple[int, int]:
    """Which of some answers to give, and how many have its value.

    `"verified"` takes the likeliest left to right; `"majority"` the likeliest of the largest group
    of equal values. Ties go to the first.
    """
    votes = [sum(other.value == one.value for other in made) for one in made]

    def rank(i: int) -> tuple[int, float]:
        one = made[i]
        score = mean_probability(one.log_p if one.log_p_verified is None else one.log_p_verified)
        return (votes[i] if choose == "majority" else 0, score)

    best = max(range(len(made)), key=rank)
    return best, votes[best]
