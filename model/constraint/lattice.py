"""Sums, marginals and best paths over an automaton unrolled along a canvas.

A path is at the start state at boundary 0, crosses position i from boundary i to i + 1 by one edge,
and is at an end state at boundary L. Everything here works on pairs of states, whose weight is the
sum over the classes that join them; it knows nothing of tokens.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from agentloop.model.constraint.liveness import Liveness
from agentloop.model.constraint.segments import sum_by_place
from agentloop.model.constraint.token_automaton import TokenAutomaton

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int32]
_BLOCK = 1 << 15  # numbers of all pairs at several positions that fit the cache
TRUSTED_NATS = 575.0  # 1e-250: beyond it a scaled sum may have lost the paths that matter


def reached_states(
    automaton: TokenAutomaton, open_sets: Bools, live: Bools | None, start: int
) -> tuple[Bools, Ints]:
    """What can be reached from the start, through live states only if these are given.

    Returns:
        Whether each state (L + 1, S) is reached, and the only class (L,) that crosses each
        position, -1 where several do; end of text and tail count as one.
    """
    length = len(open_sets)
    reached = np.zeros((length + 1, automaton.num_states), np.bool_)
    reached[0, start] = True
    sole = np.empty(length, np.int32)
    source, target = automaton.pair_source, automaton.pair_target
    for rows in _blocks(length, automaton.num_pairs):
        crossed = open_sets[rows].take(automaton.pair_set, axis=1)
        if live is not None:
            crossed &= live[1:][rows].take(target, axis=1)
        for i, row in zip(range(rows.start, rows.stop), crossed, strict=True):
            row &= reached[i].take(source)
            reached[i + 1][target[row]] = True
        lowest = np.where(crossed, automaton.pair_sole_class, automaton.num_classes).min(axis=1)
        highest = np.where(crossed, automaton.pair_sole_class, -1).max(axis=1)
        sole[rows] = np.where(lowest == highest, lowest, -1)
    return reached, sole


@dataclass(frozen=True, eq=False)
class Lattice:
    """All paths that reach an end, weighted, as a Markov chain over states.

    Attributes:
        automaton: The automaton that is unrolled.
        start: State at boundary 0.
        set_sums: (L, U) float64, weight of every class set.
        live: (L + 1, S) bool, states that can reach an end.
        norms: (L, S) float64, what the weights of the pairs that leave a state are divided by.
        steps: (L, P) float64, probability of each pair given its source, over all completions.
        log_total: Log of the summed weight of all paths; -inf if there is none.
    """

    automaton: TokenAutomaton
    start: int
    set_sums: Floats
    live: Bools
    norms: Floats
    steps: Floats
    log_total: float

    @classmethod
    def build(
        cls,
        automaton: TokenAutomaton,
        set_sums: Floats,
        ends: Bools,
        start: int,
        locality: float | Floats,
    ) -> Lattice:
        """Weigh the paths: `prod_i w_i / (live weight leaving the state) ** locality`.

        Args:
            automaton: The automaton.
            set_sums: (L, U) weights of the class sets; those that leave a state sum to at most 1.
            ends: (S,) the states allowed at boundary L.
            start: State at boundary 0.
            locality: 0 is the plain product, 1 the state-local weighting; or (L,) one a position.
        """
        exponents = np.broadcast_to(np.asarray(locality, np.float64), len(set_sums))
        if (exponents == 1.0).all():
            return _local_backward(automaton, set_sums, ends, start)
        lattice, log_highest = _scaled_backward(automaton, set_sums, ends, start, exponents)
        if lattice.live[0, start] and lattice.log_total < log_highest - TRUSTED_NATS:
            return _log_backward(lattice)
        return lattice

    @cached_property
    def _marginals(self) -> Floats:
        """(L + 1, S) probability of every state at every boundary."""
        automaton = self.automaton
        marginals = np.zeros(self.live.shape)
        marginals[0, self.start] = 1.0
        source, target, size = automaton.pair_source, automaton.pair_target, automaton.num_states
        for i, steps in enumerate(self.steps):
            flow = marginals[i].take(source)
            flow *= steps
            marginals[i + 1] = sum_by_place(target, flow, size)
        return marginals

    def p_states(self, boundary: int) -> Floats:
        """Probability (S,) of every state at a boundary."""
        row: Floats = self._marginals[boundary]
        return row

    def p_sets(self, position: int) -> Floats:
        """Probability (U,) that each class set crosses a position."""
        automaton = self.automaton
        flow = self._marginals[position].take(automaton.pair_source) * self.steps[position]
        return sum_by_place(automaton.pair_set, flow, automaton.num_sets)

    def per_weight(self, position: int, pairs: Ints) -> Floats:
        """Probability (n,) that each of some pairs crosses a position, over its positive weight."""
        automaton = self.automaton
        sources = automaton.pair_source[pairs]
        flow: Floats = self._marginals[position, sources] * self.steps[position, pairs]
        weights: Floats = self.set_sums[position, automaton.pair_set[pairs]]
        return flow / weights

    def p_exit(self, position: int) -> Floats:
        """Probability (S,) that the text ends at a position, from each state."""
        automaton = self.automaton
        exits = np.flatnonzero(automaton.pair_target[:-1] == automaton.done)
        sources = automaton.pair_source[exits]
        out = np.zeros(automaton.num_states)
        out[sources] = self._marginals[position, sources] * self.steps[position, exits]
        return out

    def leaving(self, position: int, state: int) -> Floats:
        """Weights, up to a factor, of the pairs that leave a state."""
        offsets = self.automaton.pair_offsets
        row: Floats = self.steps[position, offsets[state] : offsets[state + 1]]
        return row

    def best_pairs(self, log_set_weights: Floats) -> list[int]:
        """The pairs (L) of the best path, by weights (L, U) of class sets over `norms`.

        Ties go to the path whose pairs come first.
        """
        automaton = self.automaton
        log_norms = np.log(self.norms)
        values = np.where(self.live[-1], 0.0, -np.inf)
        scores = np.empty(self.steps.shape)
        for i in range(len(scores) - 1, -1, -1):
            row = log_set_weights[i].take(automaton.pair_set, out=scores[i], mode="clip")
            row += values.take(automaton.pair_target)
            values = np.maximum.reduceat(row, automaton.pair_offsets[:-1])
            values -= log_norms[i]
        offsets, pairs, state = automaton.pair_offsets.tolist(), list[int](), self.start
        for row in scores:
            first = offsets[state]
            pair = first + int(row[first : offsets[state + 1]].argmax())
            pairs.append(pair)
            state = int(automaton.pair_target[pair])
        return pairs


def log_plain_total(
    automaton: TokenAutomaton, set_sums: Floats, liveness: Liveness, start: int
) -> float:
    """Log of the summed weight of all paths under the plain product of `set_sums` (L, U).

    By sums of logs: nothing is lost, however improbable it is.
    """
    length = len(set_sums)
    live = np.array([liveness.at(boundary) for boundary in range(length + 1)])
    norms = np.ones((length, automaton.num_states))
    steps = np.empty((length, automaton.num_pairs))
    return _log_backward(Lattice(automaton, start, set_sums, live, norms, steps, 0.0)).log_total


def _local_backward(
    automaton: TokenAutomaton, set_sums: Floats, ends: Bools, start: int
) -> Lattice:
    """Normalised at every state, all completions of a live state weigh 1: no sum to carry."""
    length = len(set_sums)
    steps = np.empty((length, automaton.num_pairs))
    live = np.empty((length + 1, automaton.num_states), np.bool_)
    norms = np.empty((length, automaton.num_states))
    live[length] = ends
    onward = ends.astype(np.float64)
    target, starts = automaton.pair_target, automaton.pair_offsets[:-1]
    for rows in reversed(_blocks(length, automaton.num_pairs)):
        block = set_sums[rows].take(automaton.pair_set, axis=1, out=steps[rows], mode="clip")
        for i in range(rows.stop - 1, rows.start - 1, -1):
            steps[i] *= onward.take(target)
            np.add.reduceat(steps[i], starts, out=norms[i])
            np.greater(norms[i], 0.0, out=live[i])
            onward = live[i].astype(np.float64)
        norms[rows][~live[:-1][rows]] = 1.0
        block /= norms[rows].take(automaton.pair_source, axis=1)
    log_total = 0.0 if live[0, start] else float(-np.inf)
    return Lattice(automaton, start, set_sums, live, norms, steps, log_total)


def _blocks(length: int, num_pairs: int) -> list[slice]:
    """Stretches of positions worked on together: few calls if small, cached if large."""
    height = max(1, _BLOCK // num_pairs)
    return [slice(i, min(i + height, length)) for i in range(0, length, height)]


def _normalise(
    automaton: TokenAutomaton, set_sums: Floats, live: Bools, sums: Floats, out: Floats
) -> None:
    """Weights of the pairs with a live target into `out`, their sums by source into `sums`."""
    set_sums.take(automaton.pair_set, out=out, mode="clip")
    out *= live.astype(np.float64).take(automaton.pair_target)
    np.add.reduceat(out, automaton.pair_offsets[:-1], out=sums)


def _scaled_backward(
    automaton: TokenAutomaton, set_sums: Floats, ends: Bools, start: int, exponents: Floats
) -> tuple[Lattice, float]:
    """Sums of completions, scaled to at most 1 at each boundary, and the log of the largest.

    Weights are at most 1, so the completions that scaling loses weigh less than 1e-300 of the
    largest sum at their boundary.
    """
    length, source = len(set_sums), automaton.pair_source
    starts = automaton.pair_offsets[:-1]
    steps = np.empty((length, automaton.num_pairs))
    live = np.empty((length + 1, automaton.num_states), np.bool_)
    norms = np.ones((length, automaton.num_states))
    live[length] = ends
    onward = ends.astype(np.float64)
    log_scale = log_highest = 0.0
    for i in range(length - 1, -1, -1):
        row = steps[i]
        leaving = np.empty(automaton.num_states)
        _normalise(automaton, set_sums[i], live[i + 1], leaving, row)
        np.greater(leaving, 0.0, out=live[i])
        if exponents[i]:
            norms[i] = np.where(live[i], leaving, 1.0) ** exponents[i]
        row *= onward.take(automaton.pair_target)
        sums = np.add.reduceat(row, starts)
        row /= np.where(sums > 0, sums, 1.0).take(source)
        onward = sums / norms[i]
        highest = float(onward.max())
        if highest > 0:
            onward /= highest
            log_scale += float(np.log(highest))
            log_highest = max(log_highest, log_scale)
    with np.errstate(divide="ignore"):
        log_total = float(np.log(onward[start])) + log_scale
    return Lattice(automaton, start, set_sums, live, norms, steps, log_total), log_highest


def _log_backward(lattice: Lattice) -> Lattice:
    """The same sums by logs: slower, and no completion is ever lost."""
    automaton, live = lattice.automaton, lattice.live
    source, target = automaton.pair_source, automaton.pair_target
    starts = automaton.pair_offsets[:-1]
    with np.errstate(divide="ignore"):
        log_sums = np.log(lattice.set_sums)
    steps, log_norms = np.empty_like(lattice.steps), np.log(lattice.norms)
    onward = np.where(live[-1], 0.0, -np.inf)
    for i in range(len(steps) - 1, -1, -1):
        row = log_sums[i].take(automaton.pair_set) + onward.take(target)
        highest = np.maximum.reduceat(row, starts)
        highest[~live[i]] = 0.0
        np.exp(row - highest.take(source), out=steps[i])
        sums = np.add.reduceat(steps[i], starts)
        steps[i] /= np.where(live[i], sums, 1.0).take(source)
        with np.errstate(divide="ignore"):
            onward = np.log(sums) + highest - log_norms[i]
    return replace(lattice, steps=steps, log_total=float(onward[lattice.start]))
