"""Which states can still reach the end of a canvas, whatever the model believes.

After the last committed token that is a matter of counting: a state lives if the tokens it still
needs fit the positions that are left. Only before it are states followed backward, one by one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from agentloop.model.constraint.class_weights import MASKED
from agentloop.model.constraint.segments import ragged
from agentloop.model.constraint.token_automaton import TokenAutomaton

Bools = NDArray[np.bool_]
Ints = NDArray[np.int32]
_SPARSE = 8  # below one state in so many, the ways to them are listed one by one


class Liveness:
    """The live states at each boundary of a canvas or of the open part of one."""

    def __init__(self, automaton: TokenAutomaton, tokens: NDArray[np.int64], room: int) -> None:
        """Follow the states back from the last committed token.

        Args:
            automaton: The automaton.
            tokens: (L,) token ids, -1 where masked.
            room: Tokens that may follow; the text must have ended after that many.
        """
        self._distance = automaton.distance
        self._farthest = int(automaton.distance.max())
        committed = np.flatnonzero(tokens != MASKED)
        self._num_followed = int(committed[-1]) + 1 if len(committed) else 0
        self._room = len(tokens) + room
        self._followed: list[Bools] = []
        live = self.at(self._num_followed)
        for token in tokens[: self._num_followed][::-1].tolist():
            live = _before(automaton, token, live)
            self._followed.append(live)
        self._followed.reverse()

    def at(self, boundary: int) -> Bools:
        """Whether each state (S,) is live at a boundary."""
        if boundary < len(self._followed):
            return self._followed[boundary]
        return self._distance <= self._room - boundary

    def is_live(self, boundary: int, state: int) -> bool:
        """Whether one state is live at a boundary."""
        if boundary < len(self._followed):
            return bool(self._followed[boundary][state])
        room = self._room - boundary
        return room >= self._farthest or bool(self._distance[state] <= room)

    def restricts(self, boundary: int) -> bool:
        """Whether some state is not live at a boundary."""
        return boundary < len(self._followed) or self._room - boundary < self._farthest


def _before(automaton: TokenAutomaton, token: int, live: Bools) -> Bools:
    """The states from which a token, or any token where it is masked, leads to a live state."""
    if token != MASKED:
        pairs = _pairs_of(automaton, int(automaton.token_class[token]))
        return _sources(automaton, pairs[live[automaton.pair_target[pairs]]])
    states = np.flatnonzero(live)
    if _SPARSE * len(states) < len(live):
        offsets, ways = automaton.pairs_by_target
        at, _ = ragged(offsets[states], offsets[states + 1] - offsets[states])
        return _sources(automaton, ways[at])
    onward = live.take(automaton.pair_target)
    before: Bools = np.logical_or.reduceat(onward, automaton.pair_offsets[:-1])
    return before


def _pairs_of(automaton: TokenAutomaton, token_class: int) -> Ints:
    """The pairs that a committed token crosses; an end of text may stand in the tail too."""
    pairs = automaton.pairs_of(token_class)
    if token_class == automaton.eos_class:
        return np.append(pairs, automaton.pairs_of(automaton.tail_class))
    return pairs


def _sources(automaton: TokenAutomaton, pairs: Ints) -> Bools:
    """The states (S,) that some pairs leave."""
    out = np.zeros(automaton.num_states, np.bool_)
    out[automaton.pair_source[pairs]] = True
    return out
