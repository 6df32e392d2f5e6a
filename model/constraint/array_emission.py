"""The bytes of an array: its states are what is left to assert after each item."""

from __future__ import annotations

from agentloop.model.constraint.assertions import Ascending, Distinct, NumItems, num_items
from agentloop.model.constraint.expression import Expr, conjunction, conjuncts
from agentloop.model.constraint.fragment import Builder, exit_of
from agentloop.model.constraint.machine import Asked, Outcome, final_outcome
from agentloop.model.constraint.options import CompileOptions
from agentloop.model.constraint.pieces import (
    Edge,
    Piece,
    ValueEmitter,
    after_step,
    gap,
    live_states,
    place,
)

OPEN, CLOSE, COMMA = 0x5B, 0x5D, 0x2C
MAX_ANY_ORDER = 6
"""Values up to which distinct items may come in any order; beyond, they come in the schema's."""


class ArrayEmission:
    """Explores the states of one array, then writes those that can still end."""

    def __init__(self, emitter: ValueEmitter, state: Asked, depth: int) -> None:
        self.emitter = emitter
        self.start = _restricted(state, emitter.options)
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
            if piece is None:
                self.edges[state] = None
                continue
            targets = after_step(step, piece)
            self.edges[state] = Edge(piece, targets)
            stack.extend(target for target in targets if target is not None)

    def _write(self, live: set[Asked]) -> Piece:
        options = self.emitter.options
        builder = Builder(options.max_states)
        outcomes: dict[Outcome, int] = {}
        hubs: dict[Asked, int] = {}
        items: dict[Asked, int] = {}
        todo: list[Asked] = []

        def close(source: int, state: Asked) -> None:
            ending = self.endings[state]
            if ending is not None:
                label = outcomes.setdefault(ending, len(outcomes))
                builder.arc(gap(builder, options, source, b""), CLOSE, exit_of(label))

        def hub(state: Asked | None) -> int | None:
            """Where an item has just ended."""
            if state is None or state not in live:
                return None
            if state not in hubs:
                hubs[state] = builder.state()
                todo.append(state)
            return hubs[state]

        def item(state: Asked) -> int | None:
            """Where an item begins."""
            if state not in items:
                edge = self.edges[state]
                begin = builder.state()
                exits = [hub(target) for target in edge.targets] if edge else []
                written = edge is not None and place(builder, edge.piece.fragment, begin, exits)
                items[state] = begin if written else -1
            return items[state] if items[state] >= 0 else None

        inside = builder.state()
        builder.arc(0, OPEN, inside)
        after = gap(builder, options, inside, b"")
        ending = self.endings[self.start]
        if ending is not None:
            label = outcomes.setdefault(ending, len(outcomes))
            builder.arc(after, CLOSE, exit_of(label))
        first = item(self.start)
        if first is not None:
            builder.end(after, first)
        while todo:
            state = todo.pop()
            source = hubs[state]
            close(source, state)
            if item(state) is not None:
                comma = builder.state()
                builder.arc(source, COMMA, comma)
                begin = item(state)
                assert begin is not None
                builder.end(gap(builder, options, comma, b" "), begin)
        return Piece(builder.finish(), tuple(outcomes))


def _restricted(state: Asked, options: CompileOptions) -> Asked:
    """The state with what would cost many states narrowed: a subset of what must hold."""
    parts: list[Expr] = []
    for part in conjuncts(state.must):
        if isinstance(part, NumItems) and part.hi is not None:
            part = num_items(part.lo, max(part.lo, min(part.hi, options.max_counted_items)))
        elif isinstance(part, Distinct) and len(part.left) > MAX_ANY_ORDER:
            part = Ascending(part.left)
        parts.append(part)
    return Asked(conjunction(*parts), state.goals)
