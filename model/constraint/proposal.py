"""One joint text for the whole canvas: the best one, or an exact draw."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from agentloop.model.constraint.beliefs import Chain
from agentloop.model.constraint.class_weights import MASKED, ClassWeights
from agentloop.model.constraint.lattice import Lattice
from agentloop.model.constraint.liveness import Liveness
from agentloop.model.constraint.segments import draw

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
_AHEAD = 8  # positions whose logits are summed together; a text may end before the canvas
_MANY = 2048  # tokens that may follow a state, from which all are looked at
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


def greedy_proposal(weights: ClassWeights, liveness: Liveness, start: int) -> Proposal:
    """From left to right, the likeliest token that leads to a state which can still be completed.

    Unlike the best path as a whole it does not favour short texts: a step is taken on its own
    merit, not on that of the single best text that goes on from it.
    """
    automaton = weights.automaton
    tokens, states, state = weights.tokens.tolist(), [start], start
    for position, token in enumerate(tokens):
        if state == automaton.done:
            states += [state] * (len(tokens) - position)
            break
        if token == MASKED:
            tokens[position], state = _likeliest(weights, liveness, position, state)
        else:
            state = automaton.follow(state, int(automaton.token_class[token]))
        states.append(state)
    return _ended(weights, np.array(tokens, np.int64), np.array(states, np.int64))


def _likeliest(
    weights: ClassWeights, liveness: Liveness, position: int, state: int
) -> tuple[int, int]:
    """The likeliest token that leads from a state to a live one, and that one."""
    automaton = weights.automaton
    token = weights.best_token(position)
    target = automaton.follow(state, int(automaton.token_class[token]))
    if target >= 0 and liveness.is_live(position + 1, target):
        return token, target
    live = liveness.at(position + 1)
    if automaton.num_exits[state] > _MANY:
        token = weights.best_in(position, automaton.classes_between(state, live))
        return token, automaton.follow(state, int(automaton.token_class[token]))
    tokens, targets = automaton.exits(state)
    open_ = live[targets].nonzero()[0]
    chosen = open_[weights.gathered(position, tokens[open_]).argmax()]
    return int(tokens[chosen]), int(targets[chosen])


def best_proposal(lattice: Lattice, weights: ClassWeights, path: PathScore) -> Proposal:
    """The best path as a whole, by its states or by its tokens, with the best tokens on it."""
    automaton = lattice.automaton
    if path == "states":
        with np.errstate(divide="ignore"):
            chosen = lattice.best_pairs(np.log(lattice.set_sums))
    else:
        chosen = lattice.best_pairs(automaton.max_sets(weights.log_maxima))
    pairs = np.array(chosen, np.int64)
    states = np.append([lattice.start], automaton.pair_target[pairs]).astype(np.int64)
    tokens = weights.tokens.copy()
    for i in np.flatnonzero(weights.masked & (states[:-1] != automaton.done)).tolist():
        class_set = int(automaton.pair_set[pairs[i]])
        tokens[i] = weights.best_token(i)
        if automaton.token_class[tokens[i]] not in automaton.classes_of(int(pairs[i])):
            members = automaton.tokens_of_set(class_set)
            tokens[i] = members[weights.gathered(i, members).argmax()]
    return _ended(weights, tokens, states)


def drawn_proposal(weights: ClassWeights, chain: Chain, start: int, uniforms: Floats) -> Proposal:
    """An exact draw from the posterior, by uniform numbers (3, L) in [0, 1)."""
    automaton = weights.automaton
    tokens, states = weights.tokens.copy(), [start]
    for i, (for_pair, for_class, for_token) in enumerate(uniforms.T.tolist()):
        if states[-1] == automaton.done:
            states += [automaton.done] * (len(tokens) - i)
            break
        if i % _AHEAD == 0:
            weights.sums_until(min(i + _AHEAD, len(tokens)))
        first = int(automaton.pair_offsets[states[-1]])
        pair = first + draw(chain.leaving(i, states[-1]), for_pair)
        states.append(int(automaton.pair_target[pair]))
        if tokens[i] == MASKED:
            classes = automaton.classes_of(pair)
            sums = weights.sums_until(i + 1)[i, classes]
            chosen = int(classes[draw(sums, for_class)])
            tokens[i] = weights.draw_token(i, chosen, for_token)
    return _ended(weights, tokens, np.array(states, np.int64))


def _ended(weights: ClassWeights, tokens: Ints, states: Ints) -> Proposal:
    """Repeat the end of text on the masked positions after it."""
    ended = states == weights.automaton.done
    end = int(np.argmax(ended)) - 1
    if ended[-1] and end >= 0:
        tokens[weights.masked & ended[:-1]] = tokens[end]
    return Proposal(tokens, states)
