"""Refinement of one canvas: which positions to commit, which to take back, and when it is done.

A row knows its constraint and its canvas; it is handed logits and asks for nothing. All policies
work on constrained marginals, ties go to the earlier position, and every step commits at least one
position, so a row always ends. Nothing here depends on other rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from agentloop.errors import ModelError
from agentloop.model.constraint.compiled import CompiledConstraint
from agentloop.model.constraint.inference import CanvasPosterior, Weighting, infer
from agentloop.model.constraint.proposal import PathScore
from agentloop.model.tensors import from_array

Ints = NDArray[np.int64]
MASKED = -1

Effort = Literal["instant", "low", "medium", "high"]
Mark = Literal["masked", "committed", "revised", "fixed"]


@dataclass(frozen=True)
class SamplerOptions:
    """How a canvas is refined.

    Attributes:
        max_steps: Passes of the network at most, per canvas.
        threshold: Commit positions whose constrained marginal is at least this.
        window: Commit only within this many positions of the first masked one; None is everywhere.
        left_first: Commit without gaps, up to the first position that is not sure: a gap's length
            is a guess, and what fills it later has to fit.
        temperature: 0 follows the best joint path; above 0 each step draws a joint text.
        edit_threshold: Take a committed token back when the model's own probability for it falls
            below this; 0 never does.
        max_revisions: Positions taken back at most, per canvas.
        weighting: Weights of the constraint's inference.
        path: Which joint path temperature 0 follows.
    """

    max_steps: int = 32
    threshold: float = 0.9
    window: int | None = 8
    left_first: bool = True
    temperature: float = 0.0
    edit_threshold: float = 0.0
    max_revisions: int = 0
    weighting: Weighting = "local"
    path: PathScore = "greedy"


EFFORTS: dict[Effort, SamplerOptions] = {
    "instant": SamplerOptions(max_steps=4, threshold=0.5, window=None),
    "low": SamplerOptions(max_steps=12, threshold=0.7, window=16),
    "medium": SamplerOptions(max_steps=32, threshold=0.8),
    "high": SamplerOptions(max_steps=64, threshold=0.95, edit_threshold=0.02, max_revisions=8),
}


def options_for(effort: Effort, temperature: float) -> SamplerOptions:
    """The options of an effort level.

    Raises:
        ModelError: The level is unknown or the temperature is not a number of at least 0.
    """
    if effort not in EFFORTS:
        raise ModelError(f"effort is {effort!r}, expected one of {', '.join(EFFORTS)}")
    if not (math.isfinite(temperature) and temperature >= 0):
        raise ModelError(f"temperature is {temperature!r}, expected a finite number of at least 0")
    return replace(EFFORTS[effort], temperature=temperature)


@dataclass
class StepTrace:
    """What one step did.

    Attributes:
        p_valid: Probability that text drawn position by position would have been accepted.
        num_committed: Positions committed.
        num_revised: Positions taken back.
    """

    p_valid: float
    num_committed: int
    num_revised: int


@dataclass
class CanvasRow:
    """One canvas while it is refined.

    Attributes:
        compiled: The constraint.
        options: How to refine.
        length: L, slots.
        seed: Source of every draw of this row.
        start_state: The constraint's state at the left edge.
        room_after: Tokens that may follow this canvas.
        fixed: (L,) ids given by the caller, -1 elsewhere.
    """

    compiled: CompiledConstraint
    options: SamplerOptions
    length: int
    seed: int
    start_state: int = 0
    room_after: int = 0
    fixed: Ints | None = None
    tokens: Ints = field(init=False)
    trace: list[StepTrace] = field(init=False, default_factory=list[StepTrace])
    states: Ints | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        """Begin with every slot masked that the caller did not fix."""
        if self.fixed is None:
            self.fixed = np.full(self.length, MASKED, np.int64)
        self.tokens = self.fixed.copy()
        self._rng = np.random.default_rng(self.seed)
        self._revised = np.zeros(self.length, np.bool_)
        self._revisions_left = self.options.max_revisions

    @property
    def done(self) -> bool:
        """Whether no slot is masked."""
        return not bool((self.tokens == MASKED).any())

    @property
    def ended(self) -> bool:
        """Whether an end of text is on the canvas."""
        return bool(np.isin(self.tokens, self.compiled.vocabulary.eos_ids).any())

    @property
    def end_state(self) -> int:
        """The constraint's state at the right edge of a finished canvas."""
        assert self.states is not None
        return int(self.states[-1])

    @property
    def text_tokens(self) -> list[int]:
        """The ids up to the first end of text."""
        eos = np.isin(self.tokens, self.compiled.vocabulary.eos_ids)
        stop = int(eos.argmax()) if eos.any() else self.length
        return [int(token) for token in self.tokens[:stop]]

    def marks(self) -> list[Mark]:
        """What each slot is."""
        assert self.fixed is not None
        return [
            "masked"
            if token == MASKED
            else ("fixed" if given != MASKED else ("revised" if revised else "committed"))
            for token, given, revised in zip(self.tokens, self.fixed, self._revised, strict=True)
        ]

    def advance(self, logits: Tensor) -> None:
        """One refinement step.

        Args:
            logits: (L, V) float32.
        """
        taken_back = self._doubtful(logits)
        canvas = self.tokens.copy()
        canvas[taken_back] = MASKED
        if len(taken_back) and taken_back.max() == len(self.text_tokens):
            canvas[taken_back.max() :] = MASKED  # the end of text itself is in doubt
        posterior = infer(
            self.compiled,
            logits,
            canvas,
            weighting=self.options.weighting,
            path=self.options.path,
            temperature=self.options.temperature,
            generator=self._rng,
            start=self.start_state,
            room_after=self.room_after,
        )
        chosen = self._choose(posterior, canvas)
        before = self.tokens
        self.tokens = canvas
        self.tokens[chosen] = posterior.tokens[chosen]
        if posterior.end < self.length and posterior.end in chosen:
            self.tokens[posterior.end :] = posterior.tokens[posterior.end :]
        self.states = posterior.states
        changed = taken_back[self.tokens[taken_back] != before[taken_back]]
        self._revised[changed] = True
        self.trace.append(
            StepTrace(math.exp(min(posterior.log_p_valid, 0.0)), len(chosen), len(changed))
        )

    def _doubtful(self, logits: Tensor) -> Ints:
        """Committed positions whose token the model no longer believes, the worst first."""
        options = self.options
        assert self.fixed is not None
        if options.edit_threshold <= 0 or self._revisions_left <= 0:
            return np.empty(0, np.int64)
        committed = np.flatnonzero((self.tokens != MASKED) & (self.fixed == MASKED))
        committed = committed[committed <= len(self.text_tokens)]
        if not len(committed):
            return committed
        scores = torch.log_softmax(logits[from_array(committed)], dim=-1)
        ids = from_array(self.tokens[committed])
        own = scores.gather(1, ids[:, None])[:, 0].exp().numpy()
        order = np.argsort(own, kind="stable")
        doubtful = committed[order[own[order] < options.edit_threshold]][: self._revisions_left]
        self._revisions_left -= len(doubtful)
        return doubtful

    def _choose(self, posterior: CanvasPosterior, canvas: Ints) -> Ints:
        """Masked positions to commit now, up to the proposal's end of text."""
        options = self.options
        masked = np.flatnonzero(canvas == MASKED)
        open_ = masked[masked <= posterior.end]
        if not len(open_):
            return masked
        steps_left = max(1, options.max_steps - len(self.trace))
        quota = -(-len(open_) // steps_left)
        near = open_
        if options.window is not None and steps_left > 1:
            near = open_[open_ < open_[0] + max(options.window, quota)]
        confidence = posterior.confidence[near]
        if options.left_first:
            doubtful = confidence < options.threshold
            sure = int(doubtful.argmax()) if doubtful.any() else len(near)
            return near[: max(quota, sure)]
        order = np.argsort(-confidence, kind="stable")
        count = max(quota, int((confidence >= options.threshold).sum()))
        return np.sort(near[order[:count]])
