"""The bytes of an array: its states are what is left to assert after each item."""

from __future__ import annotations

from decimal import Decimal

from agentloop.errors import UnsupportedSchemaError
from agentloop.model.constraint.array_assertions import (
    AllDifferent,
    Ascending,
    Distinct,
    Elements,
    NumItems,
    num_items,
)
from agentloop.model.constraint.expression import (
    FALSE,
    KINDS,
    Expr,
    Kind,
    KindIs,
    conjunction,
    conjuncts,
    leaves,
)
from agentloop.model.constraint.fragment import Builder, exit_of
from agentloop.model.constraint.machine import Asked, Outcome, final_outcome
from agentloop.model.constraint.numerals import Bounds
from agentloop.model.constraint.pieces import (
    Edge,
    Piece,
    ValueEmitter,
    after_step,
    close,
    gap,
    live_states,
    place,
)
from agentloop.model.constraint.scalar_assertions import Matches, Within

OPEN, CLOSE, COMMA = 0x5B, 0x5D, 0x2C
MAX_ANY_ORDER = 6
"""Values up to which distinct items may come in any order; beyond, they come in the schema's."""
INITIALS = ("[a-cA-C]", "[d-hD-H]", "[i-mI-M]", "[n-rN-R]", "[s-zS-Z]", "[^a-zA-Z]|$")
"""Groups of strings by how they begin; distinct strings are written with one of each at most."""
HALVES = ("[a-mA-M]", "[n-zN-Z]", "[^a-zA-Z]|$")
MAX_MIXED_ITEMS = 3
"""Most distinct items written where they may be of several kinds."""


class ArrayEmission:
    """Explores the states of one array, then writes those that can still end."""

    def __init__(self, emitter: ValueEmitter, state: Asked, depth: int) -> None:
        self.emitter = emitter
        self.start = _restricted(state, emitter)
        self.depth = depth
        self.edges: dict[Asked, Edge[Asked] | None] = {}
        self.endings: dict[Asked, Outcome | None] = {}

    def piece(self) -> Piece | None:
        """The piece of the array with its brackets, None if no array will do."""
        self._explore()
        moves = {
            state: [target for target in edge.targets if target is not None]
            for state, edge in self.edges.items()
            if edge is not None
        }
        live = live_states(moves, self.endings)
        if self.start not in live:
            return None
        return self._write(live)

    def _explore(self) -> None:
        stack = [self.start]
        while stack:
            state = stack.pop()
            if state in self.edges:
                continue
            self.endings[state] = final_outcome(state)
            step = self.emitter.machine.next_item(state)
            piece = self.emitter.nested(step.asked, self.depth)
            self.emitter.count_step(state, 0 if piece is None else len(piece.outcomes))
            if piece is None:
                self.edges[state] = None
                continue
            targets = after_step(step, piece)
            self.edges[state] = Edge(piece, targets)
            stack.extend(target for target in targets if target is not None)

    def _write(self, live: set[Asked]) -> Piece:
        return _ArrayWriter(self, live).write()


class _ArrayWriter:
    """Writes one array whose states are explored."""

    def __init__(self, emission: ArrayEmission, live: set[Asked]) -> None:
        self.emission = emission
        self.live = live
        self.options = emission.emitter.options
        self.builder = Builder(self.options.max_states)
        self.outcomes: dict[Outcome, int] = {}
        self.hubs: dict[Asked, int] = {}
        self.closings: dict[int, int] = {}
        self.items: dict[Asked, int | None] = {}
        self.todo: list[Asked] = []

    def write(self) -> Piece:
        """The piece of the array with its brackets."""
        start, builder = self.emission.start, self.builder
        inside = builder.state()
        builder.arc(0, OPEN, inside)
        after = gap(builder, self.options, inside, b"")
        label = self._ending(start)
        if label is not None:
            builder.arc(after, CLOSE, exit_of(label))
        first = self._item(start)
        if first is not None:
            builder.end(after, first)
        while self.todo:
            self._write_hub(self.todo.pop())
        return Piece(builder.finish(), tuple(self.outcomes))

    def _ending(self, state: Asked) -> int | None:
        """The exit through which the array may end, None if it may not."""
        ending = self.emission.endings[state]
        return None if ending is None else self.outcomes.setdefault(ending, len(self.outcomes))

    def _write_hub(self, state: Asked) -> None:
        source, builder = self.hubs[state], self.builder
        label = self._ending(state)
        if label is not None:
            close(builder, self.options, source, CLOSE, exit_of(label), self.closings)
        begin = self._item(state)
        if begin is not None:
            comma = builder.state()
            builder.arc(source, COMMA, comma)
            builder.end(gap(builder, self.options, comma, b" "), begin)

    def _hub(self, state: Asked | None) -> int | None:
        """Where an item has just ended."""
        if state is None or state not in self.live:
            return None
        if state not in self.hubs:
            self.hubs[state] = self.builder.state()
            self.todo.append(state)
        return self.hubs[state]

    def _item(self, state: Asked) -> int | None:
        """Where an item begins, None if none may follow."""
        if state not in self.items:
            edge = self.emission.edges[state]
            begin = self.builder.state()
            exits = [self._hub(target) for target in edge.targets] if edge else []
            written = edge is not None and place(self.builder, edge.piece.fragment, begin, exits)
            self.items[state] = begin if written else None
        return self.items[state]


def _restricted(state: Asked, emitter: ValueEmitter) -> Asked:
    """The state with what would cost many states narrowed: a subset of what must hold."""
    most = emitter.options.max_counted_items
    parts: list[Expr] = []
    for part in conjuncts(state.must):
        if isinstance(part, NumItems) and part.hi is not None:
            part = num_items(part.lo, max(part.lo, min(part.hi, most)))
        elif isinstance(part, Distinct) and len(part.left) > MAX_ANY_ORDER:
            part = Ascending(part.left)
        elif isinstance(part, AllDifferent):
            part = _in_groups(state, emitter)
        parts.append(part)
    narrowed = Asked(conjunction(*parts), state.goals)
    for expr in (narrowed.must, *narrowed.goals):
        for leaf in leaves(expr):
            if isinstance(leaf, AllDifferent):
                raise UnsupportedSchemaError(
                    leaf.pointer,
                    "uniqueItems",
                    "items that cannot be listed, where it is negated or one of several options",
                )
    return narrowed


def _in_groups(state: Asked, emitter: ValueEmitter) -> Expr:
    """A way for items to differ that takes few states: at most one of each of some groups.

    Containers are written only where nothing else can be, and then one of a kind.
    """
    rests = [part.rest for part in conjuncts(state.must) if isinstance(part, Elements)]
    item = conjunction(*rests)
    kinds: list[Kind] = [kind for kind in KINDS if emitter.machine.at_kind(item, kind) != FALSE]
    if kinds == ["string"]:
        return Distinct(tuple(map(_begins_with, INITIALS)))
    if not set(kinds) - {"array", "object"}:
        return Distinct(tuple(KindIs(frozenset((kind,))) for kind in kinds))
    literals: list[Kind] = ["null", "true", "false"]
    others = [KindIs(frozenset((kind,))) for kind in literals]
    number = KindIs(frozenset({"number"}))
    below, above = Bounds(hi=Decimal(0), is_hi_open=True), Bounds(lo=Decimal(10))
    digits = Bounds(Decimal(0), Decimal(10), is_hi_open=True)
    numbers = [conjunction(number, Within(bounds)) for bounds in (below, digits, above)]
    strings = map(_begins_with, HALVES)
    return conjunction(Distinct((*strings, *numbers, *others)), num_items(0, MAX_MIXED_ITEMS))


def _begins_with(initials: str) -> Expr:
    return conjunction(KindIs(frozenset({"string"})), Matches(f"^(?:{initials})"))
