"""Cuts an answer into canvases that follow each other: thinking first, then the answer itself."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from agentloop.model.constraint.compiled import CompiledConstraint
from agentloop.model.effort import SamplerOptions
from agentloop.model.engine import Job
from agentloop.model.forced import ForcedText
from agentloop.model.sampler import CanvasRow


class ThinkingRow(CanvasRow):
    """A canvas of free text ahead of the answer; what it says is not the answer's end.

    Attributes:
        closing: Ids that part it from the answer.
    """

    closing: tuple[int, ...] = ()

    @property
    def ended(self) -> bool:
        """Never: the answer is still to come."""
        return False

    @property
    def text_tokens(self) -> list[int]:
        """The thought, and what parts it from the answer."""
        return [*super().text_tokens, *self.closing]


@dataclass(frozen=True)
class Thinking:
    """A stretch of free text that the model writes to itself.

    Attributes:
        compiled: Free text.
        length: Tokens at most.
        closing: Ids that part it from the answer.
    """

    compiled: CompiledConstraint
    length: int
    closing: tuple[int, ...]


@dataclass
class Plan:
    """The canvases of one answer.

    Attributes:
        forced: What the constraint leaves no choice about.
        sampler: How canvases are refined.
        budget: Tokens of the answer at most, its end of text included.
        seed: Source of every draw.
        must_end: Whether the text has to be finished within the budget.
        thinking: What comes ahead of the answer.
        num_thought: Tokens ahead of the answer so far.
    """

    forced: ForcedText
    sampler: SamplerOptions
    budget: int
    seed: int
    must_end: bool
    thinking: Thinking | None = None
    num_thought: int = field(default=0, init=False)

    def start(self, prompt: list[int]) -> Job:
        """A job for the answer; it is finished where the constraint leaves no choice at all."""
        first = self._first_row()
        job = Job(prompt, self.following, first, Future())
        row = self._skip_forced(job, first)
        if row is None:
            job.future.set_result(job)
        else:
            job.row = row
        return job

    def _first_row(self) -> CanvasRow:
        if self.thinking is None:
            row = self._next_row([], 0)
            assert row is not None  # a budget is at least one token
            return row
        thought = ThinkingRow(
            self.thinking.compiled,
            self.sampler,
            self.thinking.length,
            seed=self.seed,
            room_after=self.budget,
        )
        thought.closing = self.thinking.closing
        return thought

    def following(self, job: Job) -> CanvasRow | None:
        """The canvas after the job's current one; None when the answer is complete."""
        if isinstance(job.row, ThinkingRow):
            self.num_thought = len(job.written)
            return self._skip_forced(job, self._next_row([], 0))
        answer = job.written[self.num_thought :]
        return self._skip_forced(job, self._next_row(answer, job.row.end_state))

    def _skip_forced(self, job: Job, row: CanvasRow | None) -> CanvasRow | None:
        """Take canvases that the constraint fills as finished, up to one that needs a pass."""
        while row is not None and row.done:
            job.written += row.text_tokens
            job.rows.append(row)
            answer = job.written[self.num_thought :]
            row = None if row.ended else self._next_row(answer, row.end_state)
        return row

    def _next_row(self, answer: Sequence[int], state: int) -> CanvasRow | None:
        """A canvas for what is left of the budget; None when nothing is."""
        left = self.budget - len(answer)
        if left <= 0:
            return None
        length = min(left, self.sampler.canvas_length)
        return CanvasRow(
            self.forced.compiled,
            self.sampler,
            length,
            seed=self.seed + len(answer),
            start_state=state,
            room_after=left - length if self.must_end else self.budget,
            forced=self.forced,
        )
