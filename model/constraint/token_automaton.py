"""An automaton over token classes: what every step of decoding under a constraint reads.

Tokens that move every state alike are one class, so an automaton has a few hundred symbols and
not fifty thousand. Two classes are added to those of text: the end of text, which leads from an
accepting state to `done`, and the tail, which keeps `done` where it is and stands for no token.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from agentloop.model.constraint.segments import offsets_of, ragged

Ints = NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class TokenAutomaton:
    """States 0 (start) to S - 1 (`done`), all reachable and all able to reach `done`.

    The states two tokens may join are a pair; pairs are sorted by (source, target). The classes
    that join them are a class set, of which there are far fewer than pairs. Classes: 0 to C - 1
    text, C end of text, C + 1 tail.

    Attributes:
        token_class: (V,) int32, class of each token id; -1 where it is allowed nowhere.
        class_offsets: (C + 2,) int32, tokens of each class but the tail in `class_tokens`.
        class_tokens: (V',) int32, token ids, ascending within a class.
        pair_offsets: (S + 1,) int32, the pairs that leave each state.
        pair_source: (P,) int32.
        pair_target: (P,) int32.
        pair_set: (P,) int32, the class set of each pair.
        set_offsets: (U + 1,) int32, classes of each set in `set_classes`.
        set_classes: int32, ascending within a set.
        distance: (S,) int32, the fewest tokens from each state to `done`, end of text included.
        byte_state: (S,) int32, the state of the byte automaton each state is; -1 for `done`.
    """

    token_class: Ints
    class_offsets: Ints
    class_tokens: Ints
    pair_offsets: Ints
    pair_source: Ints
    pair_target: Ints
    pair_set: Ints
    set_offsets: Ints
    set_classes: Ints
    distance: Ints
    byte_state: Ints

    @cached_property
    def num_states(self) -> int:
        """Number of states S, `done` included."""
        return len(self.distance)

    @cached_property
    def num_classes(self) -> int:
        """Number of token classes, the end of text included and the tail not."""
        return len(self.class_offsets) - 1

    @property
    def num_pairs(self) -> int:
        """Number of joined pairs of states P."""
        return len(self.pair_target)

    @cached_property
    def num_sets(self) -> int:
        """Number of class sets U."""
        return len(self.set_offsets) - 1

    @property
    def num_edges(self) -> int:
        """Number of (source, class, target) edges."""
        return int(np.diff(self.set_offsets)[self.pair_set].sum())

    @cached_property
    def done(self) -> int:
        """The state after the end of text."""
        return self.num_states - 1

    @cached_property
    def eos_class(self) -> int:
        """The class of the ends of text."""
        return self.num_classes - 1

    @cached_property
    def tail_class(self) -> int:
        """The class of positions after the end of text."""
        return self.num_classes

    @cached_property
    def class_sizes(self) -> Ints:
        """(C + 2,) int32, number of tokens of each class; end of text and tail count as one."""
        sizes = np.ones(self.num_classes + 1, np.int32)
        sizes[: self.eos_class] = np.diff(self.class_offsets)[:-1]
        return sizes

    @cached_property
    def pair_counts(self) -> Ints:
        """(S,) int32, number of pairs that leave each state; at least one."""
        return np.diff(self.pair_offsets)

    @cached_property
    def num_exits(self) -> NDArray[np.int64]:
        """(S,) int64, number of tokens that may follow each state."""
        sizes = np.append(np.diff(self.class_offsets), 0)
        per_set = np.add.reduceat(sizes[self.set_classes], self.set_offsets[:-1])
        return np.add.reduceat(per_set[self.pair_set], self.pair_offsets[:-1])

    @cached_property
    def pair_sole_class(self) -> Ints:
        """(P,) int32, the class of each pair that has just one (the tail: end of text), else -1."""
        sole = np.where(np.diff(self.set_offsets) == 1, self.set_classes[self.set_offsets[:-1]], -1)
        return np.minimum(sole, self.eos_class)[self.pair_set].astype(np.int32)

    @cached_property
    def set_owners(self) -> Ints:
        """The class set that each entry of `set_classes` belongs to."""
        return np.repeat(np.arange(self.num_sets, dtype=np.int32), np.diff(self.set_offsets))

    @cached_property
    def _sets_by_class(self) -> tuple[Ints, Ints]:
        order = np.argsort(self.set_classes, kind="stable")
        return offsets_of(self.set_classes, self.num_classes + 1), self.set_owners[order]

    @cached_property
    def _pairs_by_set(self) -> tuple[Ints, Ints]:
        order = np.argsort(self.pair_set, kind="stable").astype(np.int32)
        return offsets_of(self.pair_set, self.num_sets), order

    @cached_property
    def _pairs_by_class(self) -> dict[int, Ints]:
        return {}

    def pairs_of(self, token_class: int) -> Ints:
        """The pairs that a class crosses, in no order."""
        known = self._pairs_by_class.get(token_class)
        if known is None:
            offsets, pairs = self._pairs_by_set
            sets = self.sets_of(token_class)
            at, _ = ragged(offsets[sets], offsets[sets + 1] - offsets[sets])
            known = self._pairs_by_class[token_class] = pairs[at]
        return known

    @cached_property
    def pairs_by_target(self) -> tuple[Ints, Ints]:
        """Offsets (S + 1,) and pairs (P,) int32: the pairs that lead to each state."""
        order = np.argsort(self.pair_target, kind="stable").astype(np.int32)
        return offsets_of(self.pair_target, self.num_states), order

    def sets_of(self, token_class: int) -> Ints:
        """The class sets that hold a class, ascending; none for class -1."""
        offsets, sets = self._sets_by_class
        if token_class < 0:
            return sets[:0]
        return sets[offsets[token_class] : offsets[token_class + 1]]

    @cached_property
    def _set_keys(self) -> NDArray[np.int64]:
        return self.set_owners.astype(np.int64) * (self.num_classes + 1) + self.set_classes

    def has_class(self, sets: Ints, classes: Ints) -> NDArray[np.bool_]:
        """Whether each class set (n,) holds the class (n,) beside it; class -1 never."""
        wanted = sets.astype(np.int64) * (self.num_classes + 1) + classes
        at = np.minimum(np.searchsorted(self._set_keys, wanted), len(self._set_keys) - 1)
        found: NDArray[np.bool_] = (self._set_keys[at] == wanted) & (classes >= 0)
        return found

    @cached_property
    def _targets(self) -> dict[tuple[int, int], int]:
        return {}

    def follow(self, state: int, token_class: int) -> int:
        """The state that a class leads to from a state; -1 if it is not allowed there."""
        known = self._targets.get((state, token_class))
        if known is None:
            lo, hi = int(self.pair_offsets[state]), int(self.pair_offsets[state + 1])
            pairs = np.arange(lo, hi, dtype=np.int32)
            classes = np.full(len(pairs), token_class, np.int32)
            found = pairs[self.has_class(self.pair_set[pairs], classes)]
            known = int(self.pair_target[found[0]]) if len(found) else -1
            self._targets[state, token_class] = known
        return known

    @cached_property
    def _exits(self) -> dict[int, tuple[NDArray[np.int64], Ints]]:
        return {}

    def exits(self, state: int) -> tuple[NDArray[np.int64], Ints]:
        """The tokens (n,) int64 that may follow a state, and the state (n,) each leads to.

        Worked out once: ask only for states that few tokens may follow.
        """
        known = self._exits.get(state)
        if known is None:
            pairs = slice(self.pair_offsets[state], self.pair_offsets[state + 1])
            parts = [self.tokens_of_set(class_set) for class_set in self.pair_set[pairs].tolist()]
            targets = np.repeat(self.pair_target[pairs], [len(part) for part in parts])
            known = np.concatenate(parts).astype(np.int64), targets
            self._exits[state] = known
        return known

    def classes_between(self, state: int, live: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Whether each class (C + 2,) leads from a state to a live one."""
        pairs = slice(self.pair_offsets[state], self.pair_offsets[state + 1])
        sets = self.pair_set[pairs][live[self.pair_target[pairs]]]
        starts = self.set_offsets[sets]
        at, _ = ragged(starts, self.set_offsets[sets + 1] - starts)
        out = np.zeros(self.num_classes + 1, np.bool_)
        out[self.set_classes[at]] = True
        return out

    def tokens_of_set(self, class_set: int) -> Ints:
        """Token ids of all classes of a set."""
        lo, hi = self.set_offsets[class_set : class_set + 2]
        classes = self.set_classes[lo:hi]
        if len(classes) == 1:
            return self.tokens_of(int(classes[0]))
        starts = self.class_offsets[classes]
        at, _ = ragged(starts, self.class_offsets[classes + 1] - starts)
        return self.class_tokens[at]

    def classes_of(self, pair: int) -> Ints:
        """The classes that join a pair, ascending."""
        lo, hi = self.set_offsets[self.pair_set[pair] : self.pair_set[pair] + 2]
        return self.set_classes[lo:hi]

    def sum_sets(self, class_weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """(L, U) sum over the classes of each set of weights (L, C + 2)."""
        edges = class_weights.take(self.set_classes, axis=1)
        return np.add.reduceat(edges, self.set_offsets[:-1], axis=1)

    def max_sets(self, class_weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """(L, U) largest over the classes of each set of weights (L, C + 2)."""
        edges = class_weights.take(self.set_classes, axis=1)
        return np.maximum.reduceat(edges, self.set_offsets[:-1], axis=1)

    def tokens_of(self, token_class: int) -> Ints:
        """Token ids of a class, ascending; none for the tail."""
        if token_class == self.tail_class:
            return self.class_tokens[:0]
        lo, hi = self.class_offsets[token_class : token_class + 2]
        return self.class_tokens[lo:hi]

    @property
    def num_bytes(self) -> int:
        """Memory of the arrays."""
        return sum(int(getattr(self, f.name).nbytes) for f in fields(self))
