"""Exact inference on one canvas: what the model believes, given that the text must be accepted.

One call per refinement step. It takes the model's logits and the canvas as it stands, and gives a
joint proposal for the whole canvas with the constrained probability of each of its tokens. Which
positions to commit is not decided here: any subset of the proposal may be committed, any position
may be masked again, and the next call succeeds.

Source: forward-backward and sampling over an automaton, Dang & Ermon, arXiv 2607.07026; Viterbi,
Suresh et al. (DINGO), arXiv 2505.23061. The state-local weighting is this project's.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from agentloop.errors import CanvasTooSmallError, ConstraintError
from agentloop.model.constraint.allowed import contradiction, end_states, tokens_between
from agentloop.model.constraint.class_weights import MASKED, SMALLEST, ClassWeights
from agentloop.model.constraint.lattice import Lattice, reached_states
from agentloop.model.constraint.proposal import (
    PathScore,
    Proposal,
    best_proposal,
    drawn_proposal,
)
from agentloop.model.constraint.segments import ragged

if TYPE_CHECKING:
    import torch

    from agentloop.model.constraint.compiled import CompiledConstraint

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Weighting = Literal["local", "product"]


def infer(
    compiled: CompiledConstraint,
    logits: torch.Tensor | NDArray[Any],
    tokens: NDArray[np.integer[Any]] | list[int],
    *,
    weighting: Weighting = "local",
    locality: float | Floats = 1.0,
    temperature: float = 0.0,
    path: PathScore = "states",
    generator: np.random.Generator | int | None = None,
    start: int = 0,
    room_after: int = 0,
) -> CanvasPosterior:
    """The posterior over accepted texts on a canvas, and one joint proposal from it.

    Args:
        compiled: The constraint, compiled for the model's vocabulary.
        logits: (L, V) logits, torch on any device or numpy; rows of committed positions are not
            read. Probabilities that underflow count as 1e-300.
        tokens: (L,) token ids of the canvas, -1 where masked.
        weighting: `"product"`, the model's factorised probability of a text given that it is
            accepted; or `"local"`, where each token's probability is divided by that of all
            tokens that could stand in its place in this text so far.
        locality: Exponent of that division under `"local"`, one number or (L,): 0 is the product.
        temperature: 0 proposes the best path; above 0 the logits are divided by it and the
            proposal is one exact draw.
        path: What the best path maximises. `"states"`: the summed probability of all texts that
            pass through the same states, then the best tokens on that path. `"tokens"`: the
            probability of the text itself, which favours short texts while the model is unsure.
        generator: Source of the draw, or a seed for one.
        start: State at the canvas's left edge; that of the text so far where this canvas
            continues another.
        room_after: Tokens that may follow this canvas. Above 0 the text need not end here.

    Raises:
        CanvasTooSmallError: The shortest accepted text is longer than the canvas.
        ContradictionError: The committed tokens lie on no accepted text.
        DecodingError: The logits hold NaN.
        ConstraintError: The shapes do not fit each other or the vocabulary.
    """
    canvas = _checked_tokens(compiled, logits, tokens)
    automaton = compiled.automaton
    needed = int(automaton.distance[start])
    if needed > len(canvas) + room_after:
        raise CanvasTooSmallError(needed, len(canvas) + room_after)
    weights = ClassWeights(automaton, logits, canvas, temperature or 1.0)
    ends = end_states(automaton, room_after)
    exponent = locality if weighting == "local" else 0.0
    lattice = Lattice.build(automaton, automaton.sum_sets(weights.sums), ends, start, exponent)
    if not lattice.live[0, start]:
        raise contradiction(compiled, canvas, start=start, room_after=room_after)
    if temperature > 0:
        proposal = drawn_proposal(lattice, weights, start, np.random.default_rng(generator))
    else:
        proposal = best_proposal(lattice, weights, start, path)
    return CanvasPosterior(compiled, weights, lattice, proposal, start)


def _checked_tokens(
    compiled: CompiledConstraint,
    logits: torch.Tensor | NDArray[Any],
    tokens: NDArray[np.integer[Any]] | list[int],
) -> NDArray[np.int64]:
    canvas = np.array(tokens, np.int64)
    expected = (len(canvas), compiled.vocabulary.size)
    if canvas.ndim != 1 or tuple(logits.shape) != expected:
        raise ConstraintError(
            f"a canvas needs tokens (L,) and logits (L, V) with V = {compiled.vocabulary.size}; "
            f"got tokens {canvas.shape} and logits {tuple(logits.shape)}; give the vocabulary the "
            f"number of logits of the model (Vocabulary.from_tokenizer(..., size=V))"
        )
    outside = np.flatnonzero((canvas < MASKED) | (canvas >= compiled.vocabulary.size))
    if len(outside):
        raise ConstraintError(
            f"canvas position {outside[0]} holds {canvas[outside[0]]}; a token id is below "
            f"{compiled.vocabulary.size}, and {MASKED} is a masked position"
        )
    return canvas


class CanvasPosterior:
    """What is known about a canvas after one step.

    Attributes:
        compiled: The constraint.
        tokens: (L,) int64, the joint proposal: committed tokens as they are, an accepted text on
            the masked positions, ends of text on all positions after it.
        states: (L + 1,) int64, the state at each boundary on the proposal's path.
        end: Position of the proposal's end of text; L if the text goes on after this canvas.
        masked: (L,) bool, the positions that were masked.
    """

    def __init__(
        self,
        compiled: CompiledConstraint,
        weights: ClassWeights,
        lattice: Lattice,
        proposal: Proposal,
        start: int,
    ) -> None:
        self.compiled = compiled
        self.tokens = proposal.tokens
        self.states = proposal.states
        self.end = proposal.end
        self.masked = weights.masked
        self._weights = weights
        self._lattice = lattice
        self._start = start

    @cached_property
    def p_states(self) -> Floats:
        """(L + 1, S) posterior of the state at each boundary.

        A boundary with one likely state is settled whatever its neighbours become.
        """
        return self._lattice.state_marginals(self._start)

    @cached_property
    def p_end(self) -> Floats:
        """(L,) posterior of the position of the end of text."""
        return np.diff(self.p_states[:, self.compiled.automaton.done])

    @cached_property
    def p_exit(self) -> Floats:
        """(S,) posterior of the state in which the text ends."""
        automaton = self.compiled.automaton
        exits = np.flatnonzero(automaton.pair_target[:-1] == automaton.done)
        sources = automaton.pair_source[exits]
        out = np.zeros(automaton.num_states)
        out[sources] = (self.p_states[:-1, sources] * self._lattice.steps[:, exits]).sum(axis=0)
        return out

    @cached_property
    def log_p_valid(self) -> float:
        """Log-probability that text drawn from the model's factorised belief is accepted.

        Given the committed tokens, and counting texts that end within the canvas.
        """
        lattice = self._lattice
        ends = lattice.live[-1]
        return Lattice.build(lattice.automaton, lattice.set_sums, ends, self._start, 0.0).log_total

    @cached_property
    def confidence(self) -> Floats:
        """(L,) posterior probability of each proposed token at its position; 1 where committed."""
        automaton = self._lattice.automaton
        out = np.ones(len(self.tokens))
        classes = automaton.token_class[self.tokens]
        ended = self.masked & (classes == automaton.eos_class)
        out[ended] = self.p_states[1:, automaton.done][ended]
        text = np.flatnonzero(self.masked & ~ended)
        if len(text):
            within = self._weights.shares(text, self.tokens[text])
            out[text] = self._class_probabilities(text, classes[text]) * within
        return np.minimum(out, 1.0)

    def _class_probabilities(
        self, positions: NDArray[np.int64], classes: NDArray[np.int32]
    ) -> Floats:
        """Posterior of one class at each of some positions."""
        lattice, automaton = self._lattice, self._lattice.automaton
        offsets, crossed = automaton.pairs_by_class
        at, owners = ragged(offsets[classes], offsets[classes + 1] - offsets[classes])
        pairs, rows = crossed[at], positions[owners]
        reached: Floats = self.p_states[rows, automaton.pair_source[pairs]]
        flows = reached * lattice.steps[rows, pairs]
        flows = flows / lattice.set_sums[rows, automaton.pair_set[pairs]]
        sums = np.bincount(owners, flows, len(positions))
        return sums * self._weights.sums[positions, classes]

    @cached_property
    def class_marginals(self) -> Floats:
        """(L, C) posterior of every class at every position; the last is the end of text."""
        lattice, automaton = self._lattice, self._lattice.automaton
        out = np.empty((len(self.tokens), automaton.num_classes + 1))
        owners = np.repeat(np.arange(automaton.num_sets), np.diff(automaton.set_offsets))
        for i, steps in enumerate(lattice.steps):
            flow = steps * self.p_states[i].take(automaton.pair_source)
            flows = np.bincount(automaton.pair_set, flow, automaton.num_sets)
            per_set = flows / np.where(lattice.set_sums[i] > 0, lattice.set_sums[i], 1.0)
            out[i] = np.bincount(automaton.set_classes, per_set[owners], automaton.num_classes + 1)
        out *= self._weights.sums
        out[:, automaton.eos_class] += out[:, automaton.tail_class]
        return out[:, : automaton.tail_class]

    @cached_property
    def entropy(self) -> Floats:
        """(L,) entropy in nats of the posterior of each position's token; 0 where committed.

        The ends of text count as one token.
        """
        marginals = self.class_marginals
        eos = self.compiled.automaton.eos_class
        sums, moments = self._weights.sums[:, :eos], self._weights.moments[:, :eos]
        with np.errstate(divide="ignore", invalid="ignore"):
            within = np.where(sums > SMALLEST, np.log(sums) - moments / sums, 0.0)
            between = np.where(marginals > 0, -marginals * np.log(marginals), 0.0)
        within = (marginals[:, :eos] * np.maximum(within, 0.0)).sum(axis=1)
        return np.where(self.masked, between.sum(axis=1) + within, 0.0)

    @cached_property
    def _reached(self) -> tuple[Bools, NDArray[np.int32]]:
        lattice = self._lattice
        return reached_states(lattice.automaton, lattice.set_sums > 0, lattice.live, self._start)

    @cached_property
    def forced(self) -> Bools:
        """(L,) whether the constraint and the committed tokens leave one token only.

        True where committed, and where nothing but an end of text can stand.
        """
        _, sole = self._reached
        sizes = self.compiled.automaton.class_sizes
        forced: Bools = ~self.masked | ((sole >= 0) & (sizes[sole] == 1))
        return forced

    def allowed(self, position: int) -> NDArray[np.int64]:
        """Ids of all tokens that some accepted text holds at a position, ascending."""
        if not self.masked[position]:
            return self.tokens[position : position + 1]
        lattice = self._lattice
        return tokens_between(
            lattice.automaton, self._reached[0][position], lattice.live[position + 1]
        )
