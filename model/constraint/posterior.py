"""What is known about a canvas after one step, worked out as far as it is asked for."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from agentloop.model.constraint.allowed import open_sets, tokens_between
from agentloop.model.constraint.beliefs import Beliefs
from agentloop.model.constraint.class_weights import MASKED, SMALLEST
from agentloop.model.constraint.compiled import CompiledConstraint
from agentloop.model.constraint.lattice import reached_states
from agentloop.model.constraint.proposal import Proposal
from agentloop.model.constraint.segments import sum_by_place
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
        beliefs: Beliefs,
        proposal: Proposal,
    ) -> None:
        done = compiled.automaton.done
        self.compiled = compiled
        self.masked = canvas == MASKED
        self._window = window
        self._weights = beliefs.weights
        self._beliefs = beliefs
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
    def p_states(self) -> Floats:
        """(L + 1, S) posterior of the state at each boundary.

        A boundary with one likely state is settled whatever its neighbours become.
        """
        out = np.zeros((len(self.states), self.compiled.num_states))
        out[np.arange(len(self.states)), self.states] = 1.0
        for boundary in range(self._window.length + 1):
            out[self._window.first + boundary] = self._beliefs.chain.p_states(boundary)
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
        for position in range(self._window.length):
            out += self._beliefs.chain.p_exit(position)
        return out

    @cached_property
    def log_p_valid(self) -> float:
        """Log-probability that text drawn from the model's factorised belief is accepted.

        Given the committed tokens, and counting texts that end within the canvas.
        """
        return self._beliefs.log_plain_total

    def log_p_valid_until(self, position: int) -> float:
        """Log-probability that text drawn like that up to a position can still be completed.

        At most 0, and `log_p_valid` at the right edge. Costs only what lies left of `position`.
        """
        inner = max(position - self._window.first, 0)
        if inner >= self._window.length:
            return self.log_p_valid
        self._weights.sums_until(inner)
        return self._beliefs.forward.log_p_valid(inner)

    @cached_property
    def confidence(self) -> Floats:
        """(L,) posterior probability of each proposed token at its position; 1 where committed."""
        return self.confidence_at(np.arange(len(self.tokens)))

    def confidence_at(self, positions: Ints) -> Floats:
        """Posterior probability (n,) of the proposed token at some positions; 1 where committed.

        Under state-local weights it costs only what lies left of them.
        """
        automaton = self.compiled.automaton
        out = np.ones(len(positions))
        inner = positions - self._window.first
        open_ = self.masked[positions] & (inner >= 0) & (inner < self._window.length)
        classes = automaton.token_class[self.tokens[positions]]
        ended = open_ & (classes == automaton.eos_class)
        text = np.flatnonzero(open_ & ~ended)
        self._weights.sums_until(int(inner[open_].max(initial=-1)) + 1)
        out[ended] = [
            self._beliefs.chain.p_states(i + 1)[automaton.done] for i in inner[ended].tolist()
        ]
        within = self._weights.shares(inner[text], self.tokens[positions[text]])
        for n, share in zip(text.tolist(), within.tolist(), strict=True):
            out[n] = self._p_class(int(inner[n]), int(classes[n])) * share
        return np.minimum(out, 1.0)

    def _p_class(self, inner: int, token_class: int) -> float:
        """Posterior of a class at a position of the window."""
        pairs = self.compiled.automaton.pairs_of(token_class)
        per_weight = self._beliefs.chain.per_weight(inner, pairs).sum()
        return float(per_weight * self._weights.sums_until(inner + 1)[inner, token_class])

    @cached_property
    def class_marginals(self) -> Floats:
        """(L, C) posterior of every class at every position; the last is the end of text."""
        out = np.zeros((len(self.tokens), self.compiled.num_classes))
        out[np.arange(len(self.tokens)), self.compiled.automaton.token_class[self.tokens]] = 1.0
        for inner in range(self._window.length):
            out[self._window.first + inner] = self._p_classes(inner)
        return out

    @cached_property
    def entropy(self) -> Floats:
        """(L,) entropy in nats of the posterior of each position's token; 0 where committed."""
        return self.entropy_at(np.arange(len(self.tokens)))

    def entropy_at(self, positions: Ints) -> Floats:
        """Entropy (n,) in nats of the posterior of the token at some positions; 0 if committed.

        The ends of text count as one token. Costs what `confidence_at` does.
        """
        inner = positions - self._window.first
        open_ = self.masked[positions] & (inner >= 0) & (inner < self._window.length)
        out = np.zeros(len(positions))
        self._weights.sums_until(int(inner[open_].max(initial=-1)) + 1)
        for n in np.flatnonzero(open_).tolist():
            out[n] = self._entropy(int(inner[n]))
        return out

    def _entropy(self, inner: int) -> float:
        """The entropy of a masked position of the window."""
        eos = self.compiled.automaton.eos_class
        marginals = self._p_classes(inner)
        sums = self._weights.sums_until(inner + 1)[inner, :eos]
        moments = self._weights.moments(inner)[:eos]
        with np.errstate(divide="ignore", invalid="ignore"):
            within = np.where(sums > SMALLEST, np.log(sums) - moments / sums, 0.0)
            between = np.where(marginals > 0, -marginals * np.log(marginals), 0.0)
        return float(between.sum() + (marginals[:eos] * np.maximum(within, 0.0)).sum())

    def _p_classes(self, inner: int) -> Floats:
        """(C,) posterior of every class at a position of the window."""
        automaton = self.compiled.automaton
        sums = self._weights.set_sums_until(inner + 1)[inner]
        per_weight = self._beliefs.chain.p_sets(inner) / np.where(sums > 0, sums, 1.0)
        per_class = sum_by_place(
            automaton.set_classes, per_weight[automaton.set_owners], automaton.num_classes + 1
        )
        per_class *= self._weights.sums_until(inner + 1)[inner]
        per_class[automaton.eos_class] += per_class[automaton.tail_class]
        return per_class[: automaton.tail_class]

    @cached_property
    def _reached(self) -> tuple[Bools, NDArray[np.int32]]:
        automaton, liveness = self.compiled.automaton, self._beliefs.liveness
        passable = open_sets(automaton, self._weights.tokens)
        live = np.array([liveness.at(boundary) for boundary in range(len(passable) + 1)])
        return reached_states(automaton, passable, live, self._window.start)

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
        return tokens_between(automaton, reached[inner], self._beliefs.liveness.at(inner + 1))
