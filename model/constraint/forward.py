"""The posterior under state-local weights, followed from the left as far as it is asked for.

Divided by the weight of all that may leave its state, every completion of a live state weighs 1. So
what is believed up to a position does not depend on the logits after it, and only the states that
the text can have reached by then are looked at. The plain product of weights is followed beside it,
given that the text so far can be completed: how often it can is P(valid) up to there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agentloop.model.constraint.class_weights import ClassWeights
from agentloop.model.constraint.liveness import Liveness
from agentloop.model.constraint.segments import ragged, sum_by_place
from agentloop.model.constraint.token_automaton import TokenAutomaton

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
_FEW = 512  # a stretch of so many states is not worth picking from


@dataclass(frozen=True, eq=False)
class Crossing:
    """The pairs that may cross one position, from the states that may be reached before it.

    Attributes:
        pairs: The pairs (m,), a stretch of them or their numbers.
        p_pairs: (m,) float64, probability of each.
        states: The states (n,) they leave, a stretch or their numbers.
        per_weight: (n,) float64, probability of the pairs of each state over their weight.
    """

    pairs: slice | Ints
    p_pairs: Floats
    states: slice | Ints
    per_weight: Floats


class Forward:
    """A Markov chain over states; boundaries are worked out in order, when first asked for."""

    def __init__(self, weights: ClassWeights, liveness: Liveness, start: int) -> None:
        """Begin at a live state at boundary 0."""
        self._automaton = weights.automaton
        self._weights = weights
        self._liveness = liveness
        p_start = np.zeros(self._automaton.num_states)
        p_start[start] = 1.0
        self._p_states = [p_start]
        self._p_drawn = p_start
        self._log_p_valid = [0.0]
        self._crossings: list[Crossing] = []

    def p_states(self, boundary: int) -> Floats:
        """Probability (S,) of every state at a boundary."""
        self._follow(boundary)
        return self._p_states[boundary]

    def log_p_valid(self, boundary: int) -> float:
        """Log-probability that text drawn by weight up to a boundary can still be completed.

        Exact above -575; below, what underflowed on the way may weigh more.
        """
        self._follow(boundary)
        return self._log_p_valid[boundary]

    def p_sets(self, position: int) -> Floats:
        """Probability (U,) that each class set crosses a position."""
        self._follow(position + 1)
        crossing, automaton = self._crossings[position], self._automaton
        sets = automaton.pair_set[crossing.pairs]
        return sum_by_place(sets, crossing.p_pairs, automaton.num_sets)

    def per_weight(self, position: int, pairs: NDArray[np.int32]) -> Floats:
        """Probability (n,) that each of some pairs crosses a position, over its positive weight."""
        self._follow(position + 1)
        crossing, automaton = self._crossings[position], self._automaton
        per_weight = np.zeros(automaton.num_states)
        per_weight[crossing.states] = crossing.per_weight
        live = self._liveness.at(position + 1)[automaton.pair_target[pairs]]
        return per_weight[automaton.pair_source[pairs]] * live

    def p_exit(self, position: int) -> Floats:
        """Probability (S,) that the text ends at a position, from each state."""
        self._follow(position + 1)
        crossing, automaton = self._crossings[position], self._automaton
        ends = automaton.pair_target[crossing.pairs] == automaton.done
        sources = automaton.pair_source[crossing.pairs][ends]
        out = sum_by_place(sources, crossing.p_pairs[ends], automaton.num_states)
        out[automaton.done] = 0.0
        return out

    def leaving(self, position: int, state: int) -> Floats:
        """Weights, up to a factor, of the pairs that leave a state."""
        automaton = self._automaton
        pairs = slice(automaton.pair_offsets[state], automaton.pair_offsets[state + 1])
        weights: Floats = self._set_sums(position)[automaton.pair_set[pairs]]
        return weights * self._liveness.at(position + 1)[automaton.pair_target[pairs]]

    def _set_sums(self, position: int) -> Floats:
        row: Floats = self._weights.set_sums_until(position + 1)[position]
        return row

    def _follow(self, boundary: int) -> None:
        while len(self._crossings) < boundary:
            self._cross(len(self._crossings))

    def _cross(self, position: int) -> None:
        """Share what is believed of each state out among the pairs that may leave it."""
        automaton, p_states = self._automaton, self._p_states[position]
        states, pairs, starts = _reach(automaton, p_states + self._p_drawn)
        counts, targets = automaton.pair_counts[states], automaton.pair_target[pairs]
        weights = self._set_sums(position).take(automaton.pair_set[pairs])
        if self._liveness.restricts(position + 1):
            weights *= self._liveness.at(position + 1).take(targets)
        norms = np.add.reduceat(weights, starts)
        norms[norms == 0.0] = 1.0  # states that are passed over
        per_weight = p_states[states] / norms
        drawn = weights * self._p_drawn[states].repeat(counts)
        weights *= per_weight.repeat(counts)
        self._crossings.append(Crossing(pairs, weights, states, per_weight))
        self._p_states.append(sum_by_place(targets, weights, automaton.num_states))
        arrived = sum_by_place(targets, drawn, automaton.num_states)
        total = float(arrived.sum())
        self._p_drawn = arrived / (total or 1.0)
        log_total = math.log(total) if total else -math.inf
        self._log_p_valid.append(self._log_p_valid[position] + log_total)


def _reach(automaton: TokenAutomaton, mass: Floats) -> tuple[slice | Ints, slice | Ints, Ints]:
    """The states (n,) with mass, the pairs (m,) that leave them, and where each state's begin.

    As a stretch if the states lie close together: views are cheaper than copies.
    """
    active = mass.nonzero()[0]
    first, stop = int(active[0]), int(active[-1]) + 1
    if stop - first < max(2 * len(active), _FEW):
        offsets = automaton.pair_offsets[first : stop + 1].astype(np.int64)
        begin = int(offsets[0])
        return slice(first, stop), slice(begin, int(offsets[-1])), offsets[:-1] - begin
    counts = automaton.pair_counts[active]
    pairs, _ = ragged(automaton.pair_offsets[active], counts)
    return active, pairs, np.cumsum(counts) - counts
