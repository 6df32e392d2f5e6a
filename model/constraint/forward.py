"""The posterior under state-local weights, followed from the left as far as it is asked for.

Divided by the weight of all that may leave its state, every completion of a live state weighs 1. So
what is believed up to a position does not depend on the logits after it, and only the states that
the text can have reached by then are looked at.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agentloop.model.constraint.class_weights import ClassWeights
from agentloop.model.constraint.liveness import Liveness
from agentloop.model.constraint.segments import ragged, sum_by_place

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

    def __init__(
        self, weights: ClassWeights, liveness: Liveness, start: int, *, is_local: bool = True
    ) -> None:
        """Begin at a live state at boundary 0.

        Args:
            weights: Weights of the classes.
            liveness: The states that can still reach an end; the chain visits no others.
            start: State at boundary 0.
            is_local: Whether weights are divided by that of all that may leave their state. If not,
                the chain is the plain product of weights, given only that the text so far can go
                on to an accepted one, and `log_p` says how probable that is.
        """
        self._automaton = weights.automaton
        self._weights = weights
        self._liveness = liveness
        p_start = np.zeros(self._automaton.num_states)
        p_start[start] = 1.0
        self._is_local = is_local
        self._p_states = [p_start]
        self._log_p = [0.0]
        self._crossings: list[Crossing] = []

    def p_states(self, boundary: int) -> Floats:
        """Probability (S,) of every state at a boundary."""
        self._follow(boundary)
        return self._p_states[boundary]

    def log_p(self, boundary: int) -> float:
        """Log-probability that text drawn by weight up to a boundary can still be completed.

        0 under local weights.
        """
        self._follow(boundary)
        return self._log_p[boundary]

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
            crossing = self._cross(len(self._crossings))
            targets = self._automaton.pair_target[crossing.pairs]
            arrived = sum_by_place(targets, crossing.p_pairs, self._automaton.num_states)
            total = 1.0 if self._is_local else float(arrived.sum())
            self._crossings.append(crossing)
            self._p_states.append(arrived / total)
            self._log_p.append(self._log_p[-1] + math.log(total))

    def _cross(self, position: int) -> Crossing:
        """Share what is believed of each state out among the pairs that may leave it."""
        automaton, p_states = self._automaton, self._p_states[position]
        active = np.flatnonzero(p_states)
        first, stop = int(active[0]), int(active[-1]) + 1
        states: slice | Ints = active
        if stop - first < max(2 * len(active), _FEW):
            states = slice(first, stop)
            pairs: slice | Ints = slice(*automaton.pair_offsets[[first, stop]].tolist())
            starts = automaton.pair_offsets[states] - automaton.pair_offsets[first]
        else:
            pairs, _ = ragged(automaton.pair_offsets[states], automaton.pair_counts[states])
            starts = np.cumsum(automaton.pair_counts[states]) - automaton.pair_counts[states]
        weights = self._set_sums(position).take(automaton.pair_set[pairs])
        if self._liveness.restricts(position + 1):
            weights *= self._liveness.at(position + 1).take(automaton.pair_target[pairs])
        per_weight = p_states[states]
        if self._is_local:
            norms = np.add.reduceat(weights, starts)
            per_weight = np.divide(per_weight, norms, out=np.zeros_like(norms), where=norms > 0)
        weights *= np.repeat(per_weight, automaton.pair_counts[states])
        return Crossing(pairs, weights, states, per_weight)
