"""From an automaton over bytes to one over tokens, for all states and all tokens at once.

The move of a token is the set of (origin, current) pairs of states it joins. A node of the
vocabulary's trie has the move of its parent followed by one byte, so equal moves have equal
children: each (move, byte) is worked out once however many nodes share it. Moves are stored
sparsely, dead origins dropped, which keeps automata of tens of thousands of states with one arc
each as cheap as small ones with many.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from agentloop.errors import CompileLimitError
from agentloop.model.constraint.assembly import Edges, assemble
from agentloop.model.constraint.dfa import Dfa
from agentloop.model.constraint.segments import Growing, offsets_of, ragged, sum_segments
from agentloop.model.constraint.token_automaton import TokenAutomaton
from agentloop.model.constraint.trie import ByteTrie
from agentloop.model.constraint.vocabulary import Vocabulary
from agentloop.model.constraint.work import check_work

Ints = NDArray[np.int64]
_MAX_TABLE = 1 << 24  # entries of a dense (state, byte class) table, 128 MB
_MAX_PAIRS = 1 << 21  # pairs expanded at a time
MAX_MOVED = 6_000_000
"""Pairs of states that all moves together may join: each takes some 60 bytes on the way."""
_SORT_COST = 6  # how much dearer a pair is when the result must be sorted


def lift(dfa: Dfa, vocabulary: Vocabulary) -> TokenAutomaton:
    """The automaton over token classes that accepts the tokenizations of what `dfa` accepts.

    Raises:
        CompileLimitError: It would take too much memory.
        ConstraintError: No sequence of tokens spells an accepted text.
    """
    moves = Moves(dfa)
    node_move = _walk(moves, vocabulary.trie)
    string_nodes = vocabulary.trie.string_nodes
    token_move = np.where(string_nodes >= 0, node_move[string_nodes], -1)
    used, symbol_of = np.unique(token_move, return_inverse=True)
    if len(used) and used[0] < 0:
        used, symbol_of = used[1:], symbol_of - 1
    at, owners = ragged(moves.starts[used], moves.counts[used])
    edges = Edges(
        offsets_of(owners, len(used)).astype(np.int64),
        moves.origins[at].astype(np.int32),
        moves.currents[at].astype(np.int32),
        symbol_of.astype(np.int32),
    )
    return assemble(edges, dfa.accepting, vocabulary.eos_ids)


def _walk(moves: Moves, trie: ByteTrie) -> Ints:
    """The move of every trie node; -1 where it leads every state to the dead one."""
    node_move = np.full(trie.num_nodes, -1, np.int64)
    node_move[0] = 0
    symbols = moves.byte_class[trie.node_bytes]
    for depth in range(1, trie.depth + 1):
        check_work()
        nodes = slice(int(trie.level_offsets[depth]), int(trie.level_offsets[depth + 1]))
        parents = node_move[trie.parents[nodes]]
        alive = np.flatnonzero((parents >= 0) & (symbols[nodes] >= 0))
        if len(alive) == 0:
            break
        keys = parents[alive] * moves.num_symbols + symbols[nodes][alive]
        node_move[nodes.start + alive] = moves.follow(keys)
    return node_move


class Moves:
    """Distinct moves, found so far, of an automaton's states by strings.

    Attributes:
        byte_class: (256,) symbol of each byte; -1 where no state reads it.
        num_symbols: Number of byte classes.
        starts: (N,) first pair of each move.
        counts: (N,) number of pairs of each move.
    """

    def __init__(self, dfa: Dfa) -> None:
        self._num_states = dfa.num_states
        sources = np.repeat(np.arange(dfa.num_states), np.diff(dfa.offsets))
        generator = np.random.default_rng(0x5EED)
        # Two independent 64-bit sums identify a move; a dead target, -1, reads the last row: zero.
        self._origin_mix = generator.integers(1, 2**64, (2, dfa.num_states), np.uint64)
        self._current_mix = generator.integers(1, 2**64, (2, dfa.num_states + 1), np.uint64)
        self._current_mix[:, -1] = 0
        self.byte_class, kept = self._byte_classes(dfa, sources)
        self.num_symbols = int(self.byte_class.max(initial=-1)) + 1
        self._arc_offsets = offsets_of(sources[kept], dfa.num_states)
        self._arc_symbols = self.byte_class[dfa.arc_bytes[kept]]
        self._arc_targets = dfa.arc_targets[kept]
        self._arc_keys = sources[kept] * self.num_symbols + self._arc_symbols
        self._table: Ints | None = None
        states = np.arange(dfa.num_states)
        self._origins, self._currents = Growing(states), Growing(states)
        self.starts, self.counts = np.zeros(1, np.int64), np.array([dfa.num_states])
        self._arcs = np.array([len(self._arc_keys)])
        self._known = {self._identity(states, states, np.zeros(1, np.int64))[0]: 0}
        self._children: dict[int, int] = {}

    def _byte_classes(self, dfa: Dfa, sources: Ints) -> tuple[Ints, Ints]:
        """Symbol of each byte, and one arc for each (state, symbol), in arc order."""
        columns = np.zeros((256, 2), np.uint64)
        for row in range(2):
            mixed = self._origin_mix[row][sources] * self._current_mix[row][dfa.arc_targets]
            order = np.argsort(dfa.arc_bytes, kind="stable")
            present, starts = np.unique(dfa.arc_bytes[order], return_index=True)
            columns[present, row] = sum_segments(mixed[order], starts)
        ids: dict[tuple[int, int], int] = {}
        byte_class = np.full(256, -1, np.int64)
        first = np.zeros(256, np.bool_)
        for byte in np.flatnonzero(np.bincount(dfa.arc_bytes, minlength=256)):
            column = (int(columns[byte, 0]), int(columns[byte, 1]))
            first[byte] = column not in ids
            byte_class[byte] = ids.setdefault(column, len(ids))
        return byte_class, np.flatnonzero(first[dfa.arc_bytes])

    @property
    def origins(self) -> Ints:
        """Origin state of each pair, ascending within a move."""
        return self._origins.values

    @property
    def currents(self) -> Ints:
        """State that the origin of each pair is led to."""
        return self._currents.values

    def follow(self, keys: Ints) -> Ints:
        """Moves reached by `move * num_symbols + symbol`; -1 where every origin dies."""
        distinct, which = np.unique(keys, return_inverse=True)
        wanted = distinct.tolist()
        missing = np.array([k for k in wanted if k not in self._children], np.int64)
        if len(missing):
            self._expand(missing)
        return np.array([self._children[k] for k in wanted], np.int64)[which]

    def _expand(self, keys: Ints) -> None:
        moves = keys // self.num_symbols
        dense = int(self.counts[moves].sum())
        sparse = int(self._arcs[np.unique(moves)].sum()) * _SORT_COST
        by_arcs = sparse < dense
        sizes = self.counts[moves] if not by_arcs else self._arcs[moves]
        groups = np.cumsum(sizes) // _MAX_PAIRS
        for group in np.split(keys, np.flatnonzero(np.diff(groups)) + 1):
            check_work()
            self._record(group, *(self._by_arcs(group) if by_arcs else self._by_states(group)))

    def _by_states(self, keys: Ints) -> tuple[Ints, Ints, Ints]:
        """Read each key's symbol from every current state of its move."""
        moves, symbols = np.divmod(keys, self.num_symbols)
        at, owners = ragged(self.starts[moves], self.counts[moves])
        return owners, self.origins[at], self._step(self.currents[at], symbols[owners])

    def _by_arcs(self, keys: Ints) -> tuple[Ints, Ints, Ints]:
        """Follow every arc of every current state, keep those whose key is wanted."""
        moves = np.unique(keys // self.num_symbols)
        at, owners = ragged(self.starts[moves], self.counts[moves])
        lo = self._arc_offsets[self.currents[at]]
        arcs, pairs = ragged(lo, self._arc_offsets[self.currents[at] + 1] - lo)
        reached = moves[owners[pairs]] * self.num_symbols + self._arc_symbols[arcs]
        owner = np.searchsorted(keys, reached)
        found = keys[np.minimum(owner, len(keys) - 1)] == reached
        owner, pairs, arcs = owner[found], pairs[found], arcs[found]
        order = np.argsort(owner, kind="stable")
        targets = self._arc_targets[arcs[order]].astype(np.int64)
        return owner[order], self.origins[at[pairs[order]]], targets

    def _step(self, states: Ints, symbols: Ints) -> Ints:
        if self._num_states * self.num_symbols <= _MAX_TABLE:
            if self._table is None:
                self._table = np.full(self._num_states * self.num_symbols, -1, np.int64)
                self._table[self._arc_keys] = self._arc_targets
            found: Ints = self._table[states * self.num_symbols + symbols]
            return found
        keys = states * self.num_symbols + symbols
        at = np.minimum(np.searchsorted(self._arc_keys, keys), len(self._arc_keys) - 1)
        return np.where(self._arc_keys[at] == keys, self._arc_targets[at], -1).astype(np.int64)

    def _identity(self, origins: Ints, targets: Ints, starts: Ints) -> list[tuple[int, int]]:
        first, second = (
            sum_segments(self._origin_mix[row][origins] * self._current_mix[row][targets], starts)
            for row in range(2)
        )
        return list(zip(first.tolist(), second.tolist(), strict=True))

    def _record(self, keys: Ints, owners: Ints, origins: Ints, targets: Ints) -> None:
        """Number the moves of `keys`; `owners` (sorted) says which key each pair belongs to."""
        self._children.update(dict.fromkeys(keys.tolist(), -1))
        present, starts = np.unique(owners, return_index=True)
        new: list[int] = []
        identities = self._identity(origins, targets, starts)
        for segment, (key, identity) in enumerate(
            zip(keys[present].tolist(), identities, strict=True)
        ):
            if identity == (0, 0):
                continue
            known = self._known.get(identity)
            if known is None:
                known = self._known[identity] = len(self.starts) + len(new)
                new.append(segment)
            self._children[key] = known
        if new:
            ends = np.append(starts[1:], len(owners))
            chosen = np.array(new)
            at, _ = ragged(starts[chosen], (ends - starts)[chosen])
            self._append(owners[at], origins[at], targets[at])

    def _append(self, owners: Ints, origins: Ints, targets: Ints) -> None:
        alive = targets >= 0
        if len(self.origins) + int(alive.sum()) > MAX_MOVED:
            raise CompileLimitError(
                "",
                f"the tokens of the vocabulary join more than {MAX_MOVED:,} pairs of states of the "
                f"automaton, which has {self._num_states:,} states; give long strings a smaller "
                f"maxLength or simpler patterns, or arrays a smaller maxItems",
                limit="states",
            )
        owners, origins, targets = owners[alive], origins[alive], targets[alive]
        _, starts = np.unique(owners, return_index=True)
        arcs = self._arc_offsets[targets + 1] - self._arc_offsets[targets]
        self.starts = np.concatenate([self.starts, starts + len(self._origins.values)])
        self.counts = np.concatenate([self.counts, np.diff(np.append(starts, len(owners)))])
        self._arcs = np.concatenate([self._arcs, sum_segments(arcs, starts)])
        self._origins.extend(origins)
        self._currents.extend(targets)
