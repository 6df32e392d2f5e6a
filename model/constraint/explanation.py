"""Why a JSON text is rejected, found by reading the value beside what is asked of it.

The verdict is that of `Machine.run`; here the part of the expression that fails is followed down to
the part of the value where it fails. Of several things that must hold the one that fails first is
told, of several alternatives those that get furthest. A text that stops being JSON is read as far
as it goes, and what could have followed comes from what is asked there.
"""

from __future__ import annotations

from dataclasses import replace

from agentloop.model.constraint.array_assertions import (
    AllDifferent,
    ArrayAtom,
    Contains,
    Elements,
)
from agentloop.model.constraint.character_wording import MAX_LISTED, quoted
from agentloop.model.constraint.expression import (
    FALSE,
    TRUE,
    And,
    Constant,
    ExactlyOne,
    Expr,
    Or,
    Reference,
    Truth,
    negation,
)
from agentloop.model.constraint.json_reader import Child, Node, Reading, escaped, read_json
from agentloop.model.constraint.machine import Asked, Machine, NamedKey, settled
from agentloop.model.constraint.object_assertions import KeysAre, ObjectAtom, Required, Shape
from agentloop.model.constraint.rejection import (
    END_OF_TEXT,
    PROPERTY,
    Rejection,
    continuation,
)
from agentloop.model.constraint.unfinished import Unfinished
from agentloop.model.constraint.wording import allowed_values, phrase

END_OF_STRING = "the end of the string"
END_OF_ARRAY = "the end of the array"
END_OF_OBJECT = "the end of the object"


def explain_json(expr: Expr, text: str) -> Rejection:
    """Why a text is no JSON value that satisfies an expression; it is known not to be."""
    reading = read_json(text)
    search = Search(text)
    try:
        found = _search(search, expr, reading)
    except RecursionError:  # a value nested as deep as Python's stack: the deepest part seen
        found = search.deepest
    return found.located_in(text)


def _search(search: Search, expr: Expr, reading: Reading) -> Rejection:
    root, stop = reading.root, reading.stop
    if stop is None or (root is not None and root.is_whole):
        assert root is not None
        if search.fails(expr, root):
            return search.value(expr, root, "")
        assert stop is not None
        return Rejection(stop.offset, "", quoted(search.text[stop.offset]), (END_OF_TEXT,))
    return Unfinished(search, stop).value(Asked(expr), root, "")


class Search:
    """Follows what fails in one text.

    Attributes:
        text: The text.
        machine: Judges the parts of the value.
        deepest: Says of the deepest value seen that it is to blame.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.machine = Machine()
        self.deepest = Rejection(0, "", "", ())

    def fails(self, expr: Expr, node: Node) -> bool:
        """Whether an expression does not hold for a value."""
        return self.machine.run(Asked(expr), node.value) is None

    def shown(self, node: Node) -> str:
        """A value as it stands in the text, shortened."""
        spelt = self.text[node.start : node.end]
        return spelt if len(spelt) <= 40 else f"{spelt[:39]}…"

    def value(self, expr: Expr, node: Node, pointer: str) -> Rejection:
        """Why a value does not satisfy an expression; it is known not to."""
        whole = self._whole(expr, node, pointer)
        self.deepest = whole
        at_kind = self.machine.at_kind(expr, node.kind)
        if at_kind == FALSE or node.kind in ("null", "true", "false", "number"):
            return replace(whole, schema_pointer=self._blamed(expr, node))
        if node.kind == "string":
            return self._string(expr, at_kind, node, whole)
        found = self._part(expr, node, pointer)
        if found.allowed:
            return found
        return replace(found, allowed=whole.allowed)

    def _whole(self, expr: Expr, node: Node, pointer: str) -> Rejection:
        """The value is wrong as a whole."""
        allowed = allowed_values(self.machine, expr)
        return Rejection(node.start, pointer, self.shown(node), allowed)

    def _blamed(self, expr: Expr, node: Node) -> str | None:
        """The pointer of the innermost subschema that is followed without a choice and fails."""
        found: str | None = None
        while True:
            if isinstance(expr, Reference):
                found = getattr(expr, "pointer", found)
                expr = expr.expand()
            elif isinstance(expr, And):
                expr = next((arg for arg in expr.args if self.fails(arg, node)), TRUE)
            else:
                return found

    def _string(self, expr: Expr, at_kind: Expr, node: Node, whole: Rejection) -> Rejection:
        assert isinstance(node.scalar, str)
        length, allowed = continuation(at_kind, node.scalar)
        if not allowed:
            return replace(whole, schema_pointer=self._blamed(expr, node))
        found = self.shown(node)
        if length < len(node.scalar):
            found = f"{quoted(node.scalar[length])} in {found}"
        else:
            found = f"the end of {found}"
        return replace(
            whole,
            offset=node.offsets[length],
            found=found,
            allowed=tuple(END_OF_STRING if said == END_OF_TEXT else said for said in allowed),
            rule=" or ".join(whole.allowed),
            schema_pointer=self._blamed(expr, node),
        )

    def _part(self, expr: Expr, node: Node, pointer: str) -> Rejection:
        """Follow the part of an expression about a container that fails.

        What it finds has no `allowed` where the container is wrong as a whole.
        """
        whole = Rejection(node.start, pointer, self.shown(node), ())
        match expr:
            case Reference():
                found = self._part(expr.expand(), node, pointer)
                if found.schema_pointer is None:
                    return replace(found, schema_pointer=getattr(expr, "pointer", None))
                return found
            case And(args):
                failing = [arg for arg in args if self.fails(arg, node)]
                faults = [self._part(arg, node, pointer) for arg in failing]
                return min(faults, key=lambda fault: fault.offset, default=whole)
            case Or(args) | ExactlyOne(args):
                return self._choice(args, node, pointer)
            case ArrayAtom() if node.kind == "array":
                return self._array(expr, node, pointer)
            case ObjectAtom() if node.kind == "object":
                return self._object(expr, node, pointer)
            case _:
                return whole

    def _choice(self, args: tuple[Expr, ...], node: Node, pointer: str) -> Rejection:
        """Of some alternatives none holds, or more than the one that should."""
        failing = [arg for arg in args if self.fails(arg, node)]
        num_holding = len(args) - len(failing)
        if num_holding:
            rule = "a value that exactly one of the alternatives accepts"
            found = f"{self.shown(node)}, which {num_holding} alternatives accept"
            return Rejection(node.start, pointer, found, (rule,))
        found_all = [self._part(arg, node, pointer) for arg in failing]
        furthest = max(fault.offset for fault in found_all)
        same = [fault for fault in found_all if fault.offset == furthest]
        if len(same) == 1 or any(fault.pointer != same[0].pointer for fault in same):
            return same[0]
        if not all(fault.allowed for fault in same):
            return Rejection(furthest, same[0].pointer, same[0].found, ())
        allowed = dict.fromkeys(text for fault in same for text in fault.allowed)
        rules = dict.fromkeys(fault.rule for fault in same if fault.rule)
        return replace(
            same[0], allowed=tuple(allowed), rule=" or ".join(rules), schema_pointer=None
        )

    def _truth(self, node: Node) -> Truth:
        return lambda ask: not self.fails(ask, node)

    def _array(self, atom: ArrayAtom, node: Node, pointer: str) -> Rejection:
        values = [child.node.value for child in node.children if child.node]
        rule = phrase("an array", atom)
        state: Expr = atom
        for index, child in enumerate(node.children):
            assert child.node is not None
            here = f"{pointer}/{index}"
            if isinstance(state, AllDifferent):
                left = settled(Asked(state), values[: index + 1]).must
                after: Expr = FALSE if left == FALSE else state
            elif isinstance(state, ArrayAtom):
                after = state.after(self._truth(child.node))
            else:
                break
            if after == FALSE:
                return self._item(state, child.node, here, rule)
            state = after
        allowed: tuple[str, ...] = ("another item",)
        if isinstance(state, Contains):
            allowed = allowed_values(self.machine, state.item) or allowed
        return Rejection(node.end - 1, pointer, END_OF_ARRAY, allowed, rule)

    def _item(self, state: ArrayAtom, node: Node, pointer: str, rule: str) -> Rejection:
        """An item after which the array cannot be completed."""
        allowed: tuple[str, ...] = (END_OF_ARRAY,)
        if isinstance(state, Elements):
            ask = state.asks()[0]
            if allowed_values(self.machine, ask):
                return self.value(ask, node, pointer)
        elif isinstance(state, Contains):
            allowed = allowed_values(self.machine, negation(state.item)) or allowed
        elif state.asks() or isinstance(state, AllDifferent):
            allowed = ("an item that differs from those before it",)
        return Rejection(node.start, pointer, self.shown(node), allowed, rule)

    def _object(self, atom: ObjectAtom, node: Node, pointer: str) -> Rejection:
        rule = phrase("an object", atom)
        state: Expr = atom
        for child in node.children:
            if not isinstance(state, ObjectAtom):
                break
            assert child.node is not None
            key = NamedKey(child.key, self.machine)
            after = state.after(key, self._truth(child.node))
            if after == FALSE:
                return self.property(state, child, node, f"{pointer}/{escaped(child.key)}", rule)
            state = after
        allowed: tuple[str, ...] = ("another property",)
        if isinstance(state, Required):
            allowed = tuple(f"{PROPERTY}{quoted(key)}" for key in state.keys[:MAX_LISTED])
        return Rejection(node.end - 1, pointer, END_OF_OBJECT, allowed, rule)

    def property(
        self, state: ObjectAtom, child: Child, node: Node, pointer: str, rule: str
    ) -> Rejection:
        """A property after which the object cannot be completed."""
        asks = state.asks(NamedKey(child.key, self.machine))
        if isinstance(state, Shape) and child.node and allowed_values(self.machine, asks[0]):
            return self.value(asks[0], child.node, pointer)
        allowed: tuple[str, ...] = (END_OF_OBJECT,)
        if isinstance(state, Shape):
            allowed = self.names(state, {other.key for other in node.children}) or allowed
        elif isinstance(state, KeysAre):
            allowed = allowed_values(self.machine, state.key) or allowed
        found = f"{PROPERTY}{quoted(child.key)}"
        return Rejection(child.start, pointer, found, allowed, rule)

    def names(self, shape: Shape, seen: set[str]) -> tuple[str, ...]:
        """The properties that an object may have beside those it has, as phrases."""
        possible = [
            key
            for key, expr in shape.properties
            if key not in seen and allowed_values(self.machine, expr)
        ]
        named = [f"{PROPERTY}{quoted(key)}" for key in possible[:MAX_LISTED]]
        if len(possible) > len(named):
            named.append(f"{len(possible) - len(named)} more properties")
        for condition, expr in shape.patterns:
            if allowed_values(self.machine, expr):
                about_key = self.machine.at_kind(condition, "string")
                if not isinstance(about_key, Constant):
                    named.append(phrase("a property", about_key))
        return tuple(named)
