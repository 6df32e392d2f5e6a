"""The suffix automaton of sequences of symbols: every run of symbols that occurs in some of them.

Source: Blumer et al., The smallest automaton recognizing the subwords of a text, 1985.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Generic, TypeVar

from agentloop.model.constraint.work import check_work

Symbol = TypeVar("Symbol", bound=Hashable)


class SuffixAutomaton(Generic[Symbol]):
    """Deterministic; from state 0 it can read exactly the runs that occur.

    Attributes:
        moves: By state, the target of each symbol.
    """

    def __init__(self, sequences: Iterable[Sequence[Symbol]]) -> None:
        self.moves: list[dict[Symbol, int]] = [{}]
        self._links = [-1]
        self._lengths = [0]
        for sequence in sequences:
            last = 0
            for symbol in sequence:
                check_work()
                last = self._extend(last, symbol)

    def _extend(self, last: int, symbol: Symbol) -> int:
        known = self.moves[last].get(symbol)
        if known is not None:  # the run occurred in an earlier sequence
            if self._lengths[known] == self._lengths[last] + 1:
                return known
            return self._split(last, symbol, known)
        state = self._state(self._lengths[last] + 1, {})
        while last >= 0 and symbol not in self.moves[last]:
            self.moves[last][symbol] = state
            last = self._links[last]
        if last < 0:
            self._links[state] = 0
            return state
        target = self.moves[last][symbol]
        if self._lengths[target] != self._lengths[last] + 1:
            target = self._split(last, symbol, target)
        self._links[state] = target
        return state

    def _split(self, last: int, symbol: Symbol, target: int) -> int:
        """Give the shorter runs that end in `target` a state of their own."""
        clone = self._state(self._lengths[last] + 1, dict(self.moves[target]))
        self._links[clone] = self._links[target]
        self._links[target] = clone
        while last >= 0 and self.moves[last].get(symbol) == target:
            self.moves[last][symbol] = clone
            last = self._links[last]
        return clone

    def _state(self, length: int, moves: dict[Symbol, int]) -> int:
        self.moves.append(moves)
        self._links.append(0)
        self._lengths.append(length)
        return len(self.moves) - 1
