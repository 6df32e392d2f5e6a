"""One joint text for the whole canvas: the best one, or an exact draw."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from agentloop.model.constraint.class_weights import ClassWeights
from agentloop.model.constraint.lattice import Lattice
from agentloop.model.constraint.segments import draw

PathScore = Literal["states", "tokens"]


@dataclass(frozen=True, eq=False)
class Proposal:
    """A text on the canvas and its path.

    Attributes:
        tokens: (L,) int64, ends of text from `end` on.
        states: (L + 1,) int64, the state at each boundary.
        end: Position of the end of text; L if there is none.
    """

    tokens: NDArray[np.int64]
    states: NDArray[np.int64]
    end: int


def best_proposal(lattice: Lattice, weights: ClassWeights, start: int, path: PathScore) -> Proposal:
    """The most probable path of states with the best tokens on it, or the most probable text."""
    automaton = lattice.automaton
    if path == "states":
        with np.errstate(divide="ignore"):
            scores = np.log(lattice.set_sums)
    else:
        scores = automaton.max_sets(weights.log_maxima)

    def choose(position: int, pair: int) -> int:
        return weights.best_token(position, automaton.classes_of(pair).tolist())

    return _spell(lattice, weights, lattice.best_pairs(scores, start), choose)


def drawn_proposal(
    lattice: Lattice, weights: ClassWeights, start: int, generator: np.random.Generator
) -> Proposal:
    """An exact draw from the posterior; three uniform numbers a position, whatever it holds."""
    automaton = lattice.automaton
    for_pair, for_class, for_token = generator.random((3, len(weights.tokens)))

    def choose(position: int, pair: int) -> int:
        classes = automaton.classes_of(pair)
        shares = weights.sums[position, classes]
        chosen = int(classes[draw(shares, float(for_class[position]))])
        return weights.draw_token(position, chosen, float(for_token[position]))

    return _spell(lattice, weights, lattice.draw_pairs(for_pair, start), choose)


def _spell(
    lattice: Lattice,
    weights: ClassWeights,
    pairs: list[int],
    choose: Callable[[int, int], int],
) -> Proposal:
    automaton = lattice.automaton
    states = np.append(automaton.pair_source[pairs], automaton.pair_target[pairs[-1:]])
    tail = int(automaton.tokens_of(automaton.eos_class)[0])
    tokens = weights.tokens.copy()
    for position in np.flatnonzero(weights.masked).tolist():
        ended = states[position] == automaton.done
        tokens[position] = tail if ended else choose(position, pairs[position])
    end = int(np.searchsorted(states == automaton.done, True)) - 1
    return Proposal(tokens, states.astype(np.int64), min(end, len(tokens)))
