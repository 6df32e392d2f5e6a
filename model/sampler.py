"""Refinement of one canvas: what to commit, what to take back, and when it is done.

A row knows its constraint and its canvas; it is handed logits and asks for nothing. All policies
work on constrained marginals, ties go to the earlier position, and every step commits at least one
position, so a row always ends. Nothing here depends on other rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from agentloop.model.constraint.compiled import CompiledConstraint
from agentloop.model.constraint.inference import CanvasPosterior, infer
from agentloop.model.effort import EFFORTS, Effort, SamplerOptions
from agentloop.model.forced import ForcedText, Stretch
from agentloop.model.nucleus import keep_nucleus
from agentloop.model.policies import Beliefs, divergence, has_gap
from agentloop.model.tensors import from_array

__all__ = ["EFFORTS", "MASKED", "CanvasRow", "Effort", "Mark", "SamplerOptions", "StepTrace"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
MASKED = -1
ADAPT_THRESHOLD = 0.1
"""Below this probability a committed token gives way after somebody changed the canvas."""

_GLANCE = 8  # positions looked at first, from the left

Mark = Literal["masked", "committed", "revised", "fixed"]


@dataclass
class StepTrace:
    """What one step did.

    Attributes:
        p_valid: Probability that text drawn position by position, as far as this step looked, could
            have been completed to an accepted one.
        num_committed: Positions committed.
        num_revised: Positions taken back.
        num_computed: Positions that the network worked on.
    """

    p_valid: float
    num_committed: int
    num_revised: int
    num_computed: int = 0


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
        forced: What the constraint leaves no choice about; None looks for none.
        tokens: (L,) ids as they stand, -1 where masked.
        log_p: (L,) log-probability that each token had when it was committed; 0 where it was given
            or forced.
        trace: What each step did.
        num_frozen: Slots at the beginning that somebody has read and that may not change.
    """

    compiled: CompiledConstraint
    options: SamplerOptions
    length: int
    seed: int
    start_state: int = 0
    room_after: int = 0
    fixed: Ints | None = None
    forced: ForcedText | None = None
    tokens: Ints = field(init=False)
    log_p: Floats = field(init=False)
    trace: list[StepTrace] = field(init=False, default_factory=list[StepTrace])
    num_frozen: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        """Begin with every slot masked that neither the caller nor the constraint fixes."""
        if self.fixed is None:
            self.fixed = np.full(self.length, MASKED, np.int64)
        self.tokens = self.fixed.copy()
        self.log_p = np.zeros(self.length)
        self._rng = np.random.default_rng(self.seed)
        self._revised = np.zeros(self.length, np.bool_)
        self._edit_threshold = self.options.edit_threshold
        self._revisions_left = self.options.max_revisions
        self._reviews_left = self.options.review_rounds
        self._proposed = np.full(self.length, MASKED, np.int64)
        self._num_stable = np.zeros(self.length, np.int64)
        self._confidence = np.zeros(self.length)
        self._settle()
        if self._is_full:
            self._reviews_left = 0  # nothing on it is the model's

    @property
    def _is_full(self) -> bool:
        return not bool((self.tokens == MASKED).any())

    @property
    def done(self) -> bool:
        """Whether no slot is masked and no review is due."""
        return self._is_full and self._reviews_left == 0

    @property
    def ended(self) -> bool:
        """Whether an end of text is on the canvas."""
        return bool(np.isin(self.tokens, self.compiled.vocabulary.eos_ids).any())

    @property
    def end_state(self) -> int:
        """The constraint's state at the right edge of a finished canvas."""
        return self._state_at(self.tokens, self.length)

    @property
    def text_tokens(self) -> list[int]:
        """The ids up to the first end of text."""
        return [int(token) for token in self.tokens[: self._text_length]]

    @property
    def _text_length(self) -> int:
        eos = np.isin(self.tokens, self.compiled.vocabulary.eos_ids)
        return int(eos.argmax()) if eos.any() else self.length

    @property
    def shown(self) -> Ints:
        """The ids that the network is shown, -1 where masked; logits come for each.

        The first pass is not shown what was forced: a short beginning that stands alone tells a
        canvas model that the answer is short, and nothing about the prompt does.
        """
        assert self.fixed is not None
        return self.tokens if self.trace else self.fixed

    def marks(self) -> list[Mark]:
        """What each slot is."""
        assert self.fixed is not None
        return [
            "masked"
            if token == MASKED
            else ("fixed" if given != MASKED else ("revised" if revised else "committed"))
            for token, given, revised in zip(self.tokens, self.fixed, self._revised, strict=True)
        ]

    def restate(self, tokens: Ints, fixed: Ints) -> None:
        """Go on from another canvas, as somebody changed it; what is not fixed is in doubt.

        The model may then take back what no longer fits, each slot about once.
        """
        self.tokens, self.fixed = tokens, fixed
        self._edit_threshold = max(self._edit_threshold, ADAPT_THRESHOLD)
        self._revisions_left += int(((tokens != MASKED) & (fixed == MASKED)).sum())
        self._reviews_left = max(self._reviews_left, 1)
        self._settle()

    def advance(self, logits: Tensor) -> None:
        """One refinement step.

        Args:
            logits: (L, V) float32.
        """
        is_review = self._is_full
        taken_back = self._doubtful(logits)
        canvas = self.tokens.copy()
        canvas[taken_back] = MASKED
        if len(taken_back) and taken_back.max() == self._text_length:
            canvas[taken_back.max() :] = MASKED  # the end of text itself is in doubt
        if is_review:
            self._reviews_left = self._reviews_left - 1 if len(taken_back) else 0
        posterior = self._posterior(logits, canvas)
        looked_at, chosen = self._choose(posterior, canvas)
        before = self.tokens
        self.tokens = canvas
        self.tokens[chosen] = posterior.tokens[chosen]
        self.log_p[chosen] = np.log(np.maximum(posterior.confidence_at(chosen), 1e-300))
        if posterior.end < self.length and posterior.end in chosen:
            self.tokens[posterior.end :] = posterior.tokens[posterior.end :]
        changed = taken_back[self.tokens[taken_back] != before[taken_back]]
        self._revised[changed] = True
        log_p_valid = posterior.log_p_valid_until(int(looked_at.max(initial=-1)) + 1)
        p_valid = math.exp(min(log_p_valid, 0.0))
        self.trace.append(StepTrace(p_valid, len(chosen), len(changed), len(logits)))
        self._settle()

    def _posterior(self, logits: Tensor, canvas: Ints) -> CanvasPosterior:
        temperature = self._temperature()
        if temperature > 0 and self.options.top_p < 1.0:
            logits = keep_nucleus(
                logits,
                np.flatnonzero(canvas == MASKED),
                self.options.top_p,
                temperature,
                allowed=self.compiled.automaton.token_class >= 0,
            )
        return infer(
            self.compiled,
            logits,
            canvas,
            weighting=self.options.weighting,
            path=self.options.path,
            temperature=temperature,
            generator=self._rng,
            start=self.start_state,
            room_after=self.room_after,
        )

    def _temperature(self) -> float:
        """The temperature of this step: from the first to the final one as the canvas fills."""
        first, final = self.options.temperature, self.options.final_temperature
        if final is None:
            return first
        return first + (final - first) * float((self.tokens != MASKED).mean())

    def _doubtful(self, logits: Tensor) -> Ints:
        """Committed positions whose token the model no longer believes, the worst first."""
        assert self.fixed is not None
        if self._edit_threshold <= 0 or self._revisions_left <= 0:
            return np.empty(0, np.int64)
        committed = np.flatnonzero((self.tokens != MASKED) & (self.fixed == MASKED))
        committed = committed[(committed <= self._text_length) & (committed >= self.num_frozen)]
        if not len(committed):
            return committed
        scores = torch.log_softmax(logits[from_array(committed)], dim=-1)
        ids = from_array(self.tokens[committed])
        own = scores.gather(1, ids[:, None])[:, 0].exp().numpy()
        order = np.argsort(own, kind="stable")
        doubtful = committed[order[own[order] < self._edit_threshold]][: self._revisions_left]
        self._revisions_left -= len(doubtful)
        return doubtful

    def _candidates(self, open_: Ints) -> Ints:
        """The open positions, masked and not after the end, that this step may commit."""
        if self.options.window is None or self._steps_left <= 1:
            return open_
        near: Ints = open_[open_ < open_[0] + max(self.options.window, self._quota(open_))]
        return near

    @property
    def _steps_left(self) -> int:
        return max(1, self.options.max_steps - len(self.trace))

    def _quota(self, open_: Ints) -> int:
        """How many of the open positions this step must commit, to be done in time."""
        return -(-len(open_) // self._steps_left)

    def _choose(self, posterior: CanvasPosterior, canvas: Ints) -> tuple[Ints, Ints]:
        """The positions that were looked at, and the masked ones to commit now.

        From the left it looks a few positions at a time, until one is not sure: what is believed
        further right is not worked out.
        """
        options = self.options
        masked = np.flatnonzero(canvas == MASKED)
        open_ = masked[masked <= posterior.end]
        if not len(open_):
            return open_, masked
        self._num_stable = np.where(posterior.tokens == self._proposed, self._num_stable + 1, 1)
        candidates = self._candidates(open_)
        size = max(self._quota(open_), _GLANCE) if options.left_first else len(candidates)
        near, count = self._sure(posterior, candidates[:size])
        while count == len(near) < len(candidates):
            size *= 2
            near, count = self._sure(posterior, candidates[:size])
        self._proposed = posterior.tokens
        self._confidence = np.full(self.length, np.nan)
        self._confidence[near] = confidence = posterior.confidence_at(near)
        gap = options.early_gap
        if has_gap(confidence, gap) and has_gap(posterior.confidence_at(open_), gap):
            return open_, open_
        return near, np.sort(near[: max(self._quota(open_), count)])

    def _sure(self, posterior: CanvasPosterior, positions: Ints) -> tuple[Ints, int]:
        """Some positions in the order in which they may go, and how many of them are sure."""
        confidence = posterior.confidence_at(positions)
        if not self.options.left_first:
            order = np.argsort(-confidence, kind="stable")
            positions, confidence = positions[order], confidence[order]
        shift = divergence(self._confidence[positions], confidence)
        known = (self._num_stable[positions] > 1) & ~np.isnan(shift)
        beliefs = Beliefs(
            confidence,
            self._num_stable[positions],
            np.where(known, shift, np.inf),
            lambda: posterior.entropy_at(positions),
        )
        return positions, self.options.policy.count(beliefs)

    def _settle(self) -> None:
        """Commit what must follow the text that stands without a gap."""
        masked = np.flatnonzero(self.tokens == MASKED)
        if self.forced is None or not len(masked):
            return
        first = int(masked[0])
        stretch = self.forced.after(self._state_at(self.tokens, first))
        if len(masked) < self.length - first:
            self._fill_gap(first, masked, stretch)
            return
        fits = self._num_that_fit(first, stretch.states)
        self.tokens[first : first + fits] = stretch.tokens[:fits]
        if fits and stretch.states[fits - 1] == self.compiled.automaton.done:
            self.tokens[first + fits :] = stretch.tokens[fits - 1]

    def _fill_gap(self, first: int, masked: Ints, stretch: Stretch) -> None:
        """Fill the only gap ahead of text that stands, if what must follow fits it exactly.

        Otherwise what stands there was placed for another spelling, and inference decides.
        """
        size = len(masked)
        if int(masked[-1]) - first + 1 != size or len(stretch.tokens) < size:
            return
        filled = self.tokens.copy()
        filled[masked] = stretch.tokens[:size]
        state = self._state_at(filled, self.length)
        if state >= 0 and self.compiled.automaton.distance[state] <= self.room_after:
            self.tokens = filled

    def _num_that_fit(self, first: int, states: tuple[int, ...]) -> int:
        """How many of some tokens can stand from a position on, so that the text can still end."""
        distance = self.compiled.automaton.distance
        room = self.length - first + self.room_after
        for count in range(min(len(states), self.length - first), 0, -1):
            if distance[states[count - 1]] <= room - count:
                return count
        return 0

    def _state_at(self, tokens: Ints, position: int) -> int:
        """The constraint's state after the tokens ahead of a position; -1 if it allows them not."""
        automaton, state = self.compiled.automaton, self.start_state
        for token in tokens[:position].tolist():
            if state in (automaton.done, -1):
                break
            state = automaton.follow(state, int(automaton.token_class[token]))
        return state
