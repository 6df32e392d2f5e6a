"""One joint text for the whole canvas: the best one, or an exact draw."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from agentloop.model.constraint.class_weights import ClassWeights
from agentloop.model.constraint.lattice import Lattice
from agentloop.model.constraint.segments import draw

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
PathScore = Literal["greedy", "states", "tokens"]


@dataclass(frozen=True, eq=False)
class Proposal:
    """A text on the canvas and its path.

    Attributes:
        tokens: (L,) int64; the end of text is repeated after it.
        states: (L + 1,) int64, the state at each boundary.
    """

    tokens: NDArray[np.int64]
    states: NDArray[np.int64]


def best_proposal(lattice: Lattice, weights: ClassWeights, start: int, path: PathScore) -> Proposal:
    """The path that `path` asks for, with the best tokens on it."""
    automaton = lattice.automaton
    if path == "greedy":
        maxima = automaton.max_sets(weights.log_maxima).take(automaton.pair_set, axis=1)
        chosen = lattice.trace(np.where(lattice.steps > 0, maxima, -np.inf), start)
    elif path == "states":
        with np.errstate(divide="ignore"):
            chosen = lattice.best_pairs(np.log(lattice.set_sums), start)
    else:
        chosen = lattice.best_pairs(automaton.max_sets(weights.log_maxima), start)

    pairs = np.array(chosen, np.int64)
    states = np.append([start], automaton.pair_target[pairs]).astype(np.int64)
    tokens = weights.tokens.copy()
    open_positions = np.flatnonzero(weights.masked & (states[:-1] != automaton.done))
    sets = automaton.pair_set[pairs[open_positions]]
    tokens[open_positions] = weights.best_tokens(open_positions, sets)
    return _ended(lattice, weights, tokens, states)


def drawn_proposal(
    lattice: Lattice, weights: ClassWeights, start: int, uniforms: Floats
) -> Proposal:
    """An exact draw from the posterior, by uniform numbers (3, L) in [0, 1)."""
    automaton = lattice.automaton
    for_pair, for_class, for_token = uniforms

    pairs = np.array(lattice.draw_pairs(for_pair, start), np.int64)
    states = np.append([start], automaton.pair_target[pairs]).astype(np.int64)
    tokens = weights.tokens.copy()
    for i in np.flatnonzero(weights.masked & (states[:-1] != automaton.done)).tolist():
        classes = automaton.classes_of(int(pairs[i]))
        chosen = classes[draw(weights.sums[i, classes], float(for_class[i]))]
        tokens[i] = weights.draw_token(i, int(chosen), float(for_token[i]))
    return _ended(lattice, weights, tokens, states)


def _ended(lattice: Lattice, weights: ClassWeights, tokens: Ints, states: Ints) -> Proposal:
    """Repeat the end of text on the masked positions after it."""
    automaton = lattice.automaton
    ended = states == automaton.done
    end = int(np.argmax(ended)) - 1
    if ended[-1] and end >= 0:
        tokens[weights.masked & ended[:-1]] = tokens[end]
    return Proposal(tokens, states)
