"""A deterministic finite automaton over bytes, stored sparsely.

Every constraint ends as one of these; the lift to tokens reads nothing else. States are numbered
from 0, the start state is 0, and a missing arc leads to the dead state, written -1.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int32]
DEAD = -1


@dataclass(frozen=True, eq=False)
class Dfa:
    """Arcs sorted by (state, byte); `offsets[s]:offsets[s + 1]` are those of state s.

    Attributes:
        offsets: (S + 1,) int32, start of each state's arcs.
        arc_bytes: (A,) uint8, ascending within a state.
        arc_targets: (A,) int32.
        accepting: (S,) bool.
    """

    offsets: Ints
    arc_bytes: NDArray[np.uint8]
    arc_targets: Ints
    accepting: NDArray[np.bool_]

    @classmethod
    def from_arcs(
        cls,
        sources: NDArray[np.integer],
        arc_bytes: NDArray[np.integer],
        targets: NDArray[np.integer],
        accepting: NDArray[np.bool_],
    ) -> Self:
        """Sort loose arcs, at most one per (source, byte), into an automaton."""
        order = np.argsort(sources.astype(np.int64) * 256 + arc_bytes, kind="stable")
        counts = np.bincount(sources, minlength=len(accepting))
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        return cls(
            offsets,
            arc_bytes[order].astype(np.uint8),
            targets[order].astype(np.int32),
            accepting,
        )

    @property
    def num_states(self) -> int:
        """Number of states S."""
        return len(self.accepting)

    @cached_property
    def _keys(self) -> NDArray[np.int64]:
        states = np.repeat(np.arange(self.num_states, dtype=np.int64), np.diff(self.offsets))
        return states * 256 + self.arc_bytes

    def step(self, states: Ints, byte: NDArray[np.uint8] | int) -> Ints:
        """Targets (n,) of reading one byte from each of n states; DEAD in, DEAD out."""
        if len(self._keys) == 0:
            return np.full(len(states), DEAD, np.int32)
        wanted = states.astype(np.int64) * 256 + byte
        at = np.minimum(np.searchsorted(self._keys, wanted), len(self._keys) - 1)
        found = (self._keys[at] == wanted) & (states >= 0)
        return np.where(found, self.arc_targets[at], DEAD).astype(np.int32)

    def accepts(self, text: bytes) -> bool:
        """Whether the whole of `text` leads from the start to an accepting state."""
        state = 0
        for byte in text:
            lo, hi = int(self.offsets[state]), int(self.offsets[state + 1])
            at = lo + int(np.searchsorted(self.arc_bytes[lo:hi], byte))
            if at == hi or self.arc_bytes[at] != byte:
                return False
            state = int(self.arc_targets[at])
        return bool(self.accepting[state])
