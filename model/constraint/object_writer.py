"""Writes the bytes of an object whose places and moves are known."""

from __future__ import annotations

from collections.abc import Mapping

from agentloop.model.constraint.fragment import Builder, Fragment, exit_of
from agentloop.model.constraint.machine import Outcome
from agentloop.model.constraint.object_places import Moves, Place
from agentloop.model.constraint.options import CompileOptions
from agentloop.model.constraint.pieces import Edge, Piece, close, gap, place
from agentloop.model.constraint.spelling import QUOTE, escape
from agentloop.model.constraint.work import check_work

OPEN, CLOSE, COMMA, COLON = 0x7B, 0x7D, 0x2C, 0x3A


class KeyTrie:
    """The known keys of an object as a trie of their spellings.

    Attributes:
        children: By node, the arcs to its children.
        ends: By node, the index of the key that ends there, -1 for none.
        below: By node, the indexes of the keys that pass through or end there.
    """

    def __init__(self, keys: tuple[str, ...]) -> None:
        self.children: list[dict[int, int]] = [{}]
        self.ends = [-1]
        self.below: list[list[int]] = [list(range(len(keys)))]
        for index, key in enumerate(keys):
            node = 0
            for byte in escape(key):
                if byte not in self.children[node]:
                    self.children[node][byte] = len(self.children)
                    self.children.append({})
                    self.ends.append(-1)
                    self.below.append([])
                node = self.children[node][byte]
                self.below[node].append(index)
            self.ends[node] = index


class _Others:
    """A copy of the automaton of unnamed keys, whose states the trie runs alongside."""

    def __init__(self, fragment: Fragment, renamed: list[int], exits: list[int]) -> None:
        self.fragment = fragment
        self.renamed = renamed
        self.exits = exits
        arc_bytes, targets = fragment.by_state
        self._bytes: list[int] = arc_bytes.tolist()
        self._targets: list[int] = targets.tolist()
        self._offsets: list[int] = fragment.offsets.tolist()

    def arcs(self, state: int) -> dict[int, int]:
        """The arcs of one of the fragment's states, targets as the fragment numbers them."""
        span = slice(self._offsets[state], self._offsets[state + 1])
        return dict(zip(self._bytes[span], self._targets[span], strict=True))

    def target(self, target: int) -> int:
        """A target as the builder numbers it."""
        return self.renamed[target] if target >= 0 else self.exits[-1 - target]


class ObjectWriter:
    """Writes one object."""

    def __init__(
        self,
        keys: tuple[str, ...],
        moves: Mapping[Place, Moves],
        endings: Mapping[Place, Outcome | None],
        options: CompileOptions,
    ) -> None:
        self.moves = moves
        self.endings = endings
        self.options = options
        self.live: set[Place] = set()
        self.builder = Builder(options.max_states)
        self.trie = KeyTrie(keys)
        self.outcomes: dict[Outcome, int] = {}
        self.hubs: dict[Place, int] = {}
        self.closings: dict[int, int] = {}
        self.key_starts: dict[Place, int | None] = {}
        self.values: dict[object, int | None] = {}
        self.others: dict[object, _Others | None] = {}
        self.nodes: dict[object, int | None] = {}
        self.todo: list[Place] = []

    def write(self, start: Place, live: set[Place]) -> Piece:
        """The piece of the object with its braces, of the places from which it can end."""
        self.live = live
        inside = self.builder.state()
        self.builder.arc(0, OPEN, inside)
        after = gap(self.builder, self.options, inside, b"")
        label = self._ending(start)
        if label is not None:
            self.builder.arc(after, CLOSE, exit_of(label))
        first = self._keys(start)
        if first is not None:
            self.builder.arc(after, QUOTE, first)
        while self.todo:
            check_work()
            self._write_hub(self.todo.pop())
        return Piece(self.builder.finish(), tuple(self.outcomes))

    def _ending(self, at: Place) -> int | None:
        """The exit through which the object may end, None if it may not."""
        ending = self.endings[at]
        return None if ending is None else self.outcomes.setdefault(ending, len(self.outcomes))

    def _write_hub(self, at: Place) -> None:
        source = self.hubs[at]
        label = self._ending(at)
        if label is not None:
            close(self.builder, self.options, source, CLOSE, exit_of(label), self.closings)
        first = self._keys(at)
        if first is not None:
            comma = self.builder.state()
            self.builder.arc(source, COMMA, comma)
            self.builder.arc(gap(self.builder, self.options, comma, b" "), QUOTE, first)

    def _hub(self, at: Place | None) -> int | None:
        """Where a property has just ended."""
        if at is None or at not in self.live:
            return None
        if at not in self.hubs:
            self.hubs[at] = self.builder.state()
            self.todo.append(at)
        return self.hubs[at]

    def _value(self, edge: Edge[Place]) -> int | None:
        """Where a key's closing quote has just been read and a value is to follow."""
        exits = [self._hub(target) for target in edge.targets]
        if all(target is None for target in exits):
            return None
        key = (id(edge.piece), tuple(exits))
        if key not in self.values:
            begin, colon = self.builder.state(), self.builder.state()
            self.builder.arc(begin, COLON, colon)
            value = gap(self.builder, self.options, colon, b" ", breaks=False)
            is_written = place(self.builder, edge.piece.fragment, value, exits)
            self.values[key] = begin if is_written else None
        return self.values[key]

    def _keys(self, at: Place) -> int | None:
        """Where a key's opening quote has just been read."""
        if at not in self.key_starts:
            moves = self.moves[at]
            named = {i: s for i, e in moves.named.items() if (s := self._value(e)) is not None}
            others = self._placed_others(moves)
            self.key_starts[at] = self._node(0, named, others, 0 if others else -1)
        return self.key_starts[at]

    def _placed_others(self, moves: Moves) -> _Others | None:
        if moves.keys is None:
            return None
        found = [None if edge is None else self._value(edge) for edge in moves.unnamed]
        if all(target is None for target in found):
            return None
        key = (id(moves.keys), tuple(found))
        if key not in self.others:
            dropped = {label for label, target in enumerate(found) if target is None}
            fragment = moves.keys.without(dropped) if dropped else moves.keys
            if fragment is None:
                self.others[key] = None
            else:
                exits = [-1 if target is None else target for target in found]
                start = self.builder.state()
                renamed = self.builder.place(fragment, start, exits)
                self.others[key] = _Others(fragment, renamed.tolist(), exits)
        return self.others[key]

    def _node(
        self, node: int, named: dict[int, int], others: _Others | None, other_state: int
    ) -> int | None:
        """The state at a node of the trie while unnamed keys are in `other_state`, -1 for dead."""
        below = self.trie.below[node]
        chosen = tuple((i, named[i]) for i in below if i in named)
        if not chosen and (others is None or other_state < 0):
            return None
        if not below:
            assert others is not None
            return others.renamed[other_state]
        key = (node, chosen, id(others), other_state)
        if key not in self.nodes:
            state = self.nodes[key] = self.builder.state()
            arcs = others.arcs(other_state) if others and other_state >= 0 else {}
            index = self.trie.ends[node]
            if index >= 0:
                arcs.pop(QUOTE, None)
                if index in named:
                    self.builder.arc(state, QUOTE, named[index])
            for byte, child in self.trie.children[node].items():
                after = self._node(child, named, others, arcs.pop(byte, -1))
                if after is not None:
                    self.builder.arc(state, byte, after)
            if others is not None:
                for byte, target in arcs.items():
                    self.builder.arc(state, byte, others.target(target))
        return self.nodes[key]
