"""Sums, marginals and best paths over an automaton unrolled along a canvas.

A path is at the start state at boundary 0, crosses position i from boundary i to i + 1 by one edge,
and is at an end state at boundary L. Everything here works on pairs of states, whose weight is the
sum over the classes that join them; it knows nothing of tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agentloop.model.constraint.segments import draw
from agentloop.model.constraint.token_automaton import TokenAutomaton

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
_CHUNK = 1 << 18  # edge weights gathered at a time
_TRUSTED_NATS = 575.0  # 1e-250: beyond it a scaled sum may have lost the paths that matter


def pair_sums(automaton: TokenAutomaton, class_weights: Floats) -> Floats:
    """Weights (L, P) of all pairs: the sum of their classes' weights (L, C + 2)."""
    return _reduce_pairs(automaton, class_weights, np.add)


def pair_maxima(automaton: TokenAutomaton, class_weights: Floats) -> Floats:
    """Weights (L, P) of all pairs: the largest of their classes' weights (L, C + 2)."""
    return _reduce_pairs(automaton, class_weights, np.maximum)


def _reduce_pairs(automaton: TokenAutomaton, weights: Floats, reduce: np.ufunc) -> Floats:
    out = np.empty((len(weights), automaton.num_pairs))
    height = max(1, _CHUNK // automaton.num_edges)
    for first in range(0, len(weights), height):
        rows = slice(first, first + height)
        edges = weights[rows].take(automaton.edge_class, axis=1)
        reduce.reduceat(edges, automaton.edge_offsets[:-1], axis=1, out=out[rows])
    return out


def live_states(automaton: TokenAutomaton, passable: Bools, ends: Bools) -> Bools:
    """Whether each state at each boundary (L + 1, S) can still reach an end.

    Args:
        automaton: The automaton.
        passable: (L, P) whether a pair can be crossed at a position.
        ends: (S,) the states allowed at boundary L.
    """
    length = len(passable)
    live = np.empty((length + 1, automaton.num_states), np.bool_)
    live[length] = ends
    target, starts = automaton.pair_target, automaton.pair_offsets[:-1]
    for i in range(length - 1, -1, -1):
        onward = live[i + 1].take(target)
        onward &= passable[i]
        np.maximum.reduceat(onward, starts, out=live[i])
    return live


def reached_states(automaton: TokenAutomaton, passable: Bools, start: int) -> Bools:
    """Whether each state at each boundary (L + 1, S) can be reached from the start."""
    length = len(passable)
    reached = np.zeros((length + 1, automaton.num_states), np.bool_)
    reached[0, start] = True
    source, target = automaton.pair_source, automaton.pair_target
    for i in range(length):
        crossed = reached[i].take(source)
        crossed &= passable[i]
        reached[i + 1][target[crossed]] = True
    return reached


@dataclass(frozen=True, eq=False)
class Lattice:
    """The weights of all paths that reach an end, as a Markov chain over states.

    Attributes:
        automaton: The automaton that is unrolled.
        sums: (L, P) float64, plain weights of the pairs.
        live: (L + 1, S) bool, states that can reach an end.
        scored: (L, P) float64, weights under the chosen weighting; 0 where the target is not live.
        steps: (L, P) float64, probability of each pair given its source, over all completions.
        log_total: Log of the summed weight of all paths.
    """

    automaton: TokenAutomaton
    sums: Floats
    live: Bools
    scored: Floats
    steps: Floats
    log_total: float

    @classmethod
    def build(
        cls,
        automaton: TokenAutomaton,
        sums: Floats,
        live: Bools,
        start: int,
        locality: float | Floats,
    ) -> Lattice:
        """Weigh the paths: `prod_i w_i / (live weight leaving the state) ** locality`.

        Args:
            automaton: The automaton.
            sums: (L, P) plain weights of the pairs, each at most 1, as are their sums by source.
            live: (L + 1, S) from `live_states`, true for the start.
            start: State at boundary 0.
            locality: 0 is the plain product, 1 the state-local weighting; or (L,) one a position.
        """
        starts, source = automaton.pair_offsets[:-1], automaton.pair_source
        scored = sums * live[1:].take(automaton.pair_target, axis=1)
        exponent = np.broadcast_to(np.asarray(locality, np.float64), len(sums))
        if exponent.any():
            leaving = np.add.reduceat(scored, starts, axis=1)
            leaving[leaving == 0] = 1.0
            if not (exponent == 1.0).all():
                leaving **= exponent[:, None]
            scored /= leaving.take(source, axis=1)
        if (exponent == 1.0).all():
            return cls(automaton, sums, live, scored, scored, 0.0)
        steps, log_total = _conditional_steps(automaton, scored, live, start)
        return cls(automaton, sums, live, scored, steps, log_total)

    def state_marginals(self, start: int) -> Floats:
        """Probability (L + 1, S) of every state at every boundary."""
        automaton = self.automaton
        marginals = np.zeros(self.live.shape)
        marginals[0, start] = 1.0
        source, target, size = automaton.pair_source, automaton.pair_target, automaton.num_states
        for i, steps in enumerate(self.steps):
            flow = marginals[i].take(source)
            flow *= steps
            marginals[i + 1] = np.bincount(target, flow, size)
        return marginals

    def best_pairs(self, log_weights: Floats, start: int) -> list[int]:
        """The pairs (L) of the path with the largest sum of log-weights (L, P); ties go first."""
        automaton = self.automaton
        scores = log_weights.copy()
        values = np.where(self.live[-1], 0.0, -np.inf)
        target, starts = automaton.pair_target, automaton.pair_offsets[:-1]
        for i in range(len(scores) - 1, -1, -1):
            scores[i] += values.take(target)
            values = np.maximum.reduceat(scores[i], starts)
        return self._trace(scores, start)

    def _trace(self, scores: Floats, start: int) -> list[int]:
        offsets, pairs, state = self.automaton.pair_offsets.tolist(), list[int](), start
        for row in scores:
            first = offsets[state]
            pair = first + int(row[first : offsets[state + 1]].argmax())
            pairs.append(pair)
            state = int(self.automaton.pair_target[pair])
        return pairs

    def draw_pairs(self, uniforms: Floats, start: int) -> list[int]:
        """The pairs (L) of a path drawn from the posterior by one number in [0, 1) a position."""
        offsets, pairs, state = self.automaton.pair_offsets.tolist(), list[int](), start
        for row, uniform in zip(self.steps, uniforms.tolist(), strict=True):
            first = offsets[state]
            pair = first + draw(row[first : offsets[state + 1]], uniform)
            pairs.append(pair)
            state = int(self.automaton.pair_target[pair])
        return pairs


def _conditional_steps(
    automaton: TokenAutomaton, scored: Floats, live: Bools, start: int
) -> tuple[Floats, float]:
    """Each pair's probability given its source, and the log of the total weight.

    Plain scaled sums first. Weights are at most 1, so the paths that a scaled sum can lose weigh
    less than 1e-300 of the largest sum at their boundary; if that might matter, sums of logs.
    """
    steps, log_total, log_highest = _scaled_backward(automaton, scored, live, start)
    if log_total < log_highest - _TRUSTED_NATS:
        return _log_backward(automaton, scored, live, start)
    return steps, log_total


def _scaled_backward(
    automaton: TokenAutomaton, scored: Floats, live: Bools, start: int
) -> tuple[Floats, float, float]:
    target, source = automaton.pair_target, automaton.pair_source
    starts = automaton.pair_offsets[:-1]
    steps, onward = np.empty_like(scored), live[-1].astype(np.float64)
    log_scale, log_highest = 0.0, 0.0
    for i in range(len(scored) - 1, -1, -1):
        np.multiply(scored[i], onward.take(target), out=steps[i])
        leaving = np.add.reduceat(steps[i], starts)
        highest = float(leaving.max())
        if highest == 0.0:
            return steps, -np.inf, 0.0
        divisor = leaving.copy()
        divisor[divisor == 0] = 1.0
        steps[i] /= divisor.take(source)
        onward = leaving / highest
        log_scale += float(np.log(highest))
        log_highest = max(log_highest, log_scale)
    with np.errstate(divide="ignore"):
        log_total = float(np.log(onward[start])) + log_scale
    return steps, log_total, log_highest


def _log_backward(
    automaton: TokenAutomaton, scored: Floats, live: Bools, start: int
) -> tuple[Floats, float]:
    target, source = automaton.pair_target, automaton.pair_source
    starts = automaton.pair_offsets[:-1]
    with np.errstate(divide="ignore"):
        steps = np.log(scored)
    onward = np.where(live[-1], 0.0, -np.inf)
    for i in range(len(scored) - 1, -1, -1):
        steps[i] += onward.take(target)
        highest = np.maximum.reduceat(steps[i], starts)
        highest[np.isneginf(highest)] = 0.0
        steps[i] = np.exp(steps[i] - highest.take(source))
        leaving = np.add.reduceat(steps[i], starts)
        divisor = np.where(leaving == 0, 1.0, leaving)
        steps[i] /= divisor.take(source)
        with np.errstate(divide="ignore"):
            onward = np.log(leaving) + highest
    return steps, float(onward[start])
