"""What could follow where a text stops being JSON."""

from __future__ import annotations

from typing import Protocol

from agentloop.model.constraint.character_wording import MAX_LISTED, quoted
from agentloop.model.constraint.expression import FALSE, Expr, conjuncts
from agentloop.model.constraint.json_reader import Child, Node, Stop, escaped
from agentloop.model.constraint.machine import (
    Asked,
    Machine,
    NamedKey,
    UnnamedKey,
    final_outcome,
    known_keys,
    settled,
)
from agentloop.model.constraint.object_assertions import Required
from agentloop.model.constraint.rejection import END_OF_TEXT, PROPERTY, Rejection
from agentloop.model.constraint.wording import allowed_values

REQUIRED = " (required)"


class ValueSearch(Protocol):
    """What follows the failing part of a value that was read to its end."""

    text: str
    machine: Machine

    def value(self, expr: Expr, node: Node, pointer: str) -> Rejection:
        """Why a value does not satisfy an expression; it is known not to."""
        ...


class Unfinished:
    """Reads the values that a text breaks off in, from the outermost to the innermost."""

    def __init__(self, search: ValueSearch, stop: Stop | None) -> None:
        assert stop is not None
        self.search = search
        self.machine = search.machine
        self.stop = stop

    def value(self, asked: Asked, node: Node | None, pointer: str) -> Rejection:
        """What is wrong in a value that breaks off, or stands where it should have begun."""
        allowed = allowed_values(self.machine, asked.must)
        if node is None:
            return self._stopped(pointer, allowed)
        state = self.machine.asked_at(asked, node.kind)
        if state is None:
            node.end = len(self.search.text)
            return self.search.value(asked.must, node, pointer)
        if node.kind == "array":
            return self._array(asked.must, state, node, pointer)
        if node.kind == "object":
            return self._object(asked.must, state, node, pointer)
        return self._stopped(pointer, self._inside(node), " or ".join(allowed))

    def _stopped(self, pointer: str, allowed: tuple[str, ...], rule: str = "") -> Rejection:
        at, text = self.stop.offset, self.search.text
        found = quoted(text[at]) if at < len(text) else END_OF_TEXT
        if self.stop.reason:
            found = f"{found} ({self.stop.reason})"
        return Rejection(at, pointer, found, allowed, rule)

    def _inside(self, node: Node) -> tuple[str, ...]:
        if node.kind == "string":
            escape = ("a character or an escape of JSON",)
            return escape if self.stop.reason else ("more of the string", "its closing quote")
        if node.kind == "number":
            return ("a shorter number",) if self.stop.reason else ("a digit",)
        word = str(node.kind)
        return (quoted(word[self.stop.offset - node.start :]),)

    def _closed(self, node: Node, index: int) -> Node:
        """The container as if it ended after one of its parts."""
        children = node.children[: index + 1]
        last = children[-1].node
        assert last is not None
        return Node(node.kind, node.start, last.end + 1, children=children)

    def _array(self, must: Expr, state: Asked, node: Node, pointer: str) -> Rejection:
        done = [child.node.value for child in node.children if child.node and child.node.is_whole]
        before = settled(state, done)
        if before.must == FALSE:
            return self.search.value(must, self._closed(node, len(done) - 1), pointer)
        state = before
        for index, child in enumerate(node.children):
            assert child.node is not None
            step = self.machine.next_item(state)
            if not child.node.is_whole:
                return self.value(step.asked, child.node, f"{pointer}/{index}")
            outcome = self.machine.run(step.asked, child.node.value)
            after = None if outcome is None else step.finish(outcome)
            if after is None or after.must == FALSE:
                return self.search.value(must, self._closed(node, index), pointer)
            state = after
        items = allowed_values(self.machine, self.machine.next_item(state).asked.must)
        ends = ('"]"',) if final_outcome(state) is not None else ()
        if self.stop.place == "comma":
            return self._stopped(pointer, (*(('","',) if items else ()), *ends))
        return self._stopped(
            f"{pointer}/{len(node.children)}",
            (*items, *(ends if self.stop.place == "item" else ())),
        )

    def _object(self, must: Expr, state: Asked, node: Node, pointer: str) -> Rejection:
        for index, child in enumerate(node.children):
            step = self.machine.next_property(state, NamedKey(child.key, self.machine))
            here = f"{pointer}/{escaped(child.key)}"
            possible = allowed_values(self.machine, step.asked.must)
            if not possible:
                return self._key(state, child, node, here)
            if child.node is None:
                return self._stopped(here, ('":"',) if self.stop.place == "colon" else possible)
            if not child.node.is_whole:
                return self.value(step.asked, child.node, here)
            outcome = self.machine.run(step.asked, child.node.value)
            after = None if outcome is None else step.finish(outcome)
            if after is None or after.must == FALSE:
                return self.search.value(must, self._closed(node, index), pointer)
            state = after
        names = self._names(state, {child.key for child in node.children})
        ends = ('"}"',) if final_outcome(state) is not None else ()
        if self.stop.place == "comma":
            needed = [name for name in names if name.endswith(REQUIRED)]
            more = ('","',) if names else ()
            return self._stopped(pointer, (*more, *ends), " and ".join(needed))
        return self._stopped(pointer, (*names, *(ends if self.stop.place == "first key" else ())))

    def _key(self, state: Asked, child: Child, node: Node, pointer: str) -> Rejection:
        names = self._names(state, {other.key for other in node.children})
        found = f"{PROPERTY}{quoted(child.key)}"
        return Rejection(child.start, pointer, found, names or ('"}"',))

    def _names(self, state: Asked, seen: set[str]) -> tuple[str, ...]:
        """The properties that may follow, those that must first."""
        needed = {
            key for part in conjuncts(state.must) if isinstance(part, Required) for key in part.keys
        }
        possible = [
            key
            for key in known_keys(state)
            if key not in seen and self._is_possible(state, NamedKey(key, self.machine))
        ]
        possible.sort(key=lambda key: key not in needed)
        named = [
            f"{PROPERTY}{quoted(key)}" + (REQUIRED if key in needed else "")
            for key in possible[:MAX_LISTED]
        ]
        if len(possible) > len(named):
            named.append(f"{len(possible) - len(named)} more properties")
        if self._is_possible(state, UnnamedKey(frozenset())):
            named.append("any other property" if named else "any property")
        return tuple(named)

    def _is_possible(self, state: Asked, key: NamedKey | UnnamedKey) -> bool:
        step = self.machine.next_property(state, key)
        return bool(allowed_values(self.machine, step.asked.must))
