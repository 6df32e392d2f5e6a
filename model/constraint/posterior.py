"""What is known about a canvas after one step, worked out as far as it is asked for."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from agentloop.model.constraint.allowed import tokens_between
from agentloop.model.constraint.class_weights import MASKED, SMALLEST, ClassWeights
from agentloop.model.constraint.compiled import CompiledConstraint
from agentloop.model.constraint.lattice import Lattice, reached_states
from agentloop.model.constraint.proposal import Proposal
from agentloop.model.constraint.segments import ragged
from agentloop.model.constraint.window import Window

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
_CERTAIN = 1.0 - 1e-6  # a forced token has probability 1 up to rounding


class CanvasPosterior:
    """The posterior over the accepted texts on a canvas, and one joint proposal from it.

    Attributes:
        compiled: The constraint.
        tokens: (L,) int64, the joint proposal: committed tokens as they are, an accepted text on
            the masked positions, ends of text on all positions after it.
        states: (L + 1,) int64, the state at each boundary on the proposal's path.
        masked: (L,) bool, the positions that were masked.
        end: Position of the proposal's end of text; L if the text goes on after this canvas, -1
            if it ended before it.
    """

    def __init__(
        self,
        compiled: CompiledConstraint,
        canvas: Ints,
        window: Window,
        weights: ClassWeights,
        lattice: Lattice,
        proposal: Proposal,
    ) -> None:
        done = compiled.automaton.done
        self.compiled = compiled
        self.masked = canvas == MASKED
        self._window = window
        self._weights = weights
        self._lattice = lattice
        after = np.full(len(canvas) - window.last, done)
        self.states = np.concatenate([window.states[:-1], proposal.states, after])
        ended = self.states == done
        self.end = int(np.argmax(ended)) - 1 if ended[-1] else len(canvas)
        self.tokens = canvas.copy()
        self.tokens[window.first : window.last] = proposal.tokens
        tail = self.masked & ended[:-1]
        if tail.any():
            eos = compiled.automaton.tokens_of(compiled.automaton.eos_class)
            self.tokens[tail] = self.tokens[self.end] if self.end >= 0 else eos[0]

    def _widen(self, inner: NDArray[np.generic], outer: NDArray[np.generic]) -> None:
        """Write what holds inside the window into an array over the whole canvas."""
        outer[self._window.first : self._window.first + len(inner)] = inner

    @cached_property
    def _p_inner(self) -> Floats:
        return self._lattice.state_marginals(self._window.start)

    @cached_property
    def p_states(self) -> Floats:
        """(L + 1, S) posterior of the state at each boundary.

        A boundary with one likely state is settled whatever its neighbours become.
        """
        out = np.zeros((len(self.states), self.compiled.num_states))
        out[np.arange(len(self.states)), self.states] = 1.0
        self._widen(self._p_inner, out)
        return out

    @cached_property
    def p_end(self) -> Floats:
        """(L,) posterior of the position of the end of text."""
        return np.diff(self.p_states[:, self.compiled.automaton.done])

    @cached_property
    def p_exit(self) -> Floats:
        """(S,) posterior of the state in which the text ends."""
        automaton = self.compiled.automaton
        out = np.zeros(automaton.num_states)
        if self._window.start == automaton.done:
            out[self.states[max(self.end, 0)]] = 1.0
            return out
        exits = np.flatnonzero(automaton.pair_target[:-1] == automaton.done)
        sources = automaton.pair_source[exits]
        flows = self._p_inner[:-1, sources] * self._lattice.steps[:, exits]
        out[sources] = flows.sum(axis=0)
        return out

    @cached_property
    def log_p_valid(self) -> float:
        """Log-probability that text drawn from the model's factorised belief is accepted.

        Given the committed tokens, and counting texts that end within the canvas.
        """
        return self._lattice.log_plain_total(self._window.start)

    @cached_property
    def confidence(self) -> Floats:
        """(L,) posterior probability of each proposed token at its position; 1 where committed."""
        automaton = self.compiled.automaton
        rows = slice(self._window.first, self._window.last)
        tokens, masked = self.tokens[rows], self.masked[rows]
        classes = automaton.token_class[tokens]
        ended = masked & (classes == automaton.eos_class)
        inner = np.ones(len(tokens))
        inner[ended] = self._p_inner[1:, automaton.done][ended]
        text = np.flatnonzero(masked & ~ended)
        if len(text):
            within = self._weights.shares(text, tokens[text])
            inner[text] = self._class_probabilities(text, classes[text]) * within
        out = np.ones(len(self.tokens))
        self._widen(np.minimum(inner, 1.0), out)
        return out

    def _class_probabilities(self, positions: Ints, classes: NDArray[np.int32]) -> Floats:
        """Posterior of one class at each of some positions of the window."""
        lattice, automaton = self._lattice, self.compiled.automaton
        offsets, crossed = automaton.pairs_by_class
        at, owners = ragged(offsets[classes], offsets[classes + 1] - offsets[classes])
        pairs, rows = crossed[at], positions[owners]
        reached: Floats = self._p_inner[rows, automaton.pair_source[pairs]]
        flows = reached * lattice.steps[rows, pairs]
        flows = flows / lattice.set_sums[rows, automaton.pair_set[pairs]]
        sums = np.bincount(owners, flows, len(positions))
        return sums * self._weights.sums[positions, classes]

    @cached_property
    def class_marginals(self) -> Floats:
        """(L, C) posterior of every class at every position; the last is the end of text."""
        lattice, automaton = self._lattice, self.compiled.automaton
        inner = np.empty((self._window.length, automaton.num_classes + 1))
        owners = np.repeat(np.arange(automaton.num_sets), np.diff(automaton.set_offsets))
        for i, steps in enumerate(lattice.steps):
            flow = steps * self._p_inner[i].take(automaton.pair_source)
            flows = np.bincount(automaton.pair_set, flow, automaton.num_sets)
            per_set = flows / np.where(lattice.set_sums[i] > 0, lattice.set_sums[i], 1.0)
            inner[i] = np.bincount(
                automaton.set_classes, per_set[owners], automaton.num_classes + 1
            )
        inner *= self._weights.sums
        inner[:, automaton.eos_class] += inner[:, automaton.tail_class]
        out = np.zeros((len(self.tokens), automaton.num_classes))
        out[np.arange(len(self.tokens)), automaton.token_class[self.tokens]] = 1.0
        self._widen(inner[:, : automaton.tail_class], out)
        return out

    @cached_property
    def entropy(self) -> Floats:
        """(L,) entropy in nats of the posterior of each position's token; 0 where committed.

        The ends of text count as one token.
        """
        eos = self.compiled.automaton.eos_class
        rows = slice(self._window.first, self._window.last)
        marginals = self.class_marginals[rows]
        sums, moments = self._weights.sums[:, :eos], self._weights.moments[:, :eos]
        with np.errstate(divide="ignore", invalid="ignore"):
            within = np.where(sums > SMALLEST, np.log(sums) - moments / sums, 0.0)
            between = np.where(marginals > 0, -marginals * np.log(marginals), 0.0)
        within = (marginals[:, :eos] * np.maximum(within, 0.0)).sum(axis=1)
        out = np.zeros(len(self.tokens))
        self._widen(np.where(self.masked[rows], between.sum(axis=1) + within, 0.0), out)
        return out

    @cached_property
    def _reached(self) -> tuple[Bools, NDArray[np.int32]]:
        lattice = self._lattice
        return reached_states(
            lattice.automaton, lattice.set_sums > 0, lattice.live, self._window.start
        )

    @cached_property
    def forced(self) -> Bools:
        """(L,) whether the constraint and the committed tokens leave one token only.

        True where committed, and where nothing but an end of text can stand.
        """
        out = np.ones(len(self.tokens), np.bool_)
        rows = slice(self._window.first, self._window.last)
        inner = ~self.masked[rows]
        certain = self.confidence[rows] >= _CERTAIN
        if (certain & ~inner).any():
            _, sole = self._reached
            sizes = self.compiled.automaton.class_sizes
            inner |= (sole >= 0) & (sizes[sole] == 1)
        self._widen(inner, out)
        return out

    def allowed(self, position: int) -> Ints:
        """Ids of all tokens that some accepted text holds at a position, ascending."""
        automaton = self.compiled.automaton
        if not self.masked[position]:
            return self.tokens[position : position + 1]
        inner = position - self._window.first
        if not 0 <= inner < self._window.length:
            return automaton.tokens_of(automaton.eos_class).astype(np.int64)
        reached, _ = self._reached
        return tokens_between(automaton, reached[inner], self._lattice.live[inner + 1])
