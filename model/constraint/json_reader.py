"""JSON text with the place of every part, and where it stops being JSON.

`jsontext` gives the value alone and is what judges a text; this reads the same language, slower, to
say where something is. A text that breaks off is read as far as it goes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from agentloop.model.constraint.expression import Kind
from agentloop.model.constraint.jsontext import MAX_NESTING, JsonTextError, read_number
from agentloop.model.constraint.machine import JsonValue

Place = Literal["value", "item", "key", "first key", "colon", "comma", "inside", "end"]
"""Where a text stops being JSON: what should have followed, or inside a scalar."""

HALF_PAIR = "half a pair of surrogates is no text"
_BLANK = re.compile(r"[ \t\n\r]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_ESCAPE = re.compile(r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})')
_UNESCAPED = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_LITERALS: dict[str, tuple[Kind, bool | None]] = {
    "null": ("null", None),
    "true": ("true", True),
    "false": ("false", False),
}


@dataclass
class Node:
    """A value in a text.

    Attributes:
        kind: Of the value.
        start: Offset of its first character.
        end: Offset after its last one.
        scalar: The value, where it is no container.
        children: Items, or properties with their keys.
        is_whole: Whether the value was read to its end.
        offsets: For a string, the offset of each of its characters and of the closing quote.
    """

    kind: Kind
    start: int
    end: int = -1
    scalar: JsonValue = None
    children: list[Child] = field(default_factory=list["Child"])
    is_whole: bool = True
    offsets: list[int] = field(default_factory=list[int])

    @cached_property
    def value(self) -> JsonValue:
        """The value, of a container what was read to its end."""
        whole = [child for child in self.children if child.node and child.node.is_whole]
        if self.kind == "array":
            return [child.node.value for child in whole if child.node]
        if self.kind == "object":
            return {child.key: child.node.value for child in whole if child.node}
        return self.scalar


@dataclass
class Child:
    """An item, or a property of which at least the key was read.

    Attributes:
        key: The property's key, `""` for an item.
        start: Offset of the key, or of the item.
        node: The value; None if the text breaks off before it.
    """

    key: str
    start: int
    node: Node | None = None


@dataclass(frozen=True)
class Stop:
    """Where a text stops being JSON.

    Attributes:
        offset: Of the first character that cannot stand there; the text's length if it is the end.
        place: What should have followed.
        reason: What is wrong, where it is not simply what stands there.
    """

    offset: int
    place: Place
    reason: str = ""


@dataclass(frozen=True)
class Reading:
    """What was read of a text: the outermost value, and where it stops being JSON, if it does."""

    root: Node | None
    stop: Stop | None


class _StopError(Exception):
    def __init__(self, offset: int, place: Place, reason: str = "") -> None:
        self.stop = Stop(offset, place, reason)
        super().__init__(reason)


def read_json(text: str) -> Reading:
    """Read a text as far as it is JSON.

    Example:
        >>> read_json('{"a": 1,').stop
        Stop(offset=8, place='key', reason='')
    """
    return _Reader(text).read()


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.root: Node | None = None

    def read(self) -> Reading:
        try:
            self._blank()
            self._value(None, "value", 0)
            self._blank()
            if self.at < len(self.text):
                raise _StopError(self.at, "end")
        except _StopError as error:
            return Reading(self.root, error.stop)
        return Reading(self.root, None)

    def _blank(self) -> None:
        found = _BLANK.match(self.text, self.at)
        assert found is not None
        self.at = found.end()

    def _char(self) -> str:
        return self.text[self.at : self.at + 1]

    def _value(self, owner: Child | None, place: Place, depth: int) -> None:
        """Read a value into its owner, so that it is there even if the text breaks off in it."""
        node = Node(_kind_at(self._char()), self.at, is_whole=False)
        if not self._char() or self._char() not in '{["-0123456789tfn':
            raise _StopError(self.at, place)
        if depth > MAX_NESTING:
            raise _StopError(self.at, place, f"the text nests more than {MAX_NESTING} deep")
        if owner is None:
            self.root = node
        else:
            owner.node = node
        if node.kind == "array":
            self._items(node, depth)
        elif node.kind == "object":
            self._properties(node, depth)
        elif node.kind == "string":
            node.scalar = self._string(node.offsets)
        elif node.kind == "number":
            node.scalar = self._number()
        else:
            node.scalar = self._literal(node)
        node.end = self.at
        node.is_whole = True

    def _number(self) -> JsonValue:
        found = _NUMBER.match(self.text, self.at)
        if found is None:
            raise _StopError(self.at + 1, "inside")
        try:
            number = read_number(found[0])
        except JsonTextError as error:
            raise _StopError(self.at, "inside", str(error)) from None
        self.at = found.end()
        return number

    def _literal(self, node: Node) -> JsonValue:
        word = next(word for word in _LITERALS if word[0] == self._char())
        for char in word:
            if self._char() != char:
                raise _StopError(self.at, "inside")
            self.at += 1
        return _LITERALS[word][1]

    def _string(self, offsets: list[int]) -> str:
        begun = self.at
        self.at += 1
        parts: list[str] = []
        while (char := self._char()) != '"':
            if not char or char < " ":
                raise _StopError(self.at, "inside", f"{char!r} must be escaped" if char else "")
            if "\ud800" <= char <= "\udfff":
                raise _StopError(self.at, "inside", HALF_PAIR)
            offsets.append(self.at)
            parts.append(self._escape() if char == "\\" else char)
            self.at += 1
        offsets.append(self.at)
        self.at += 1
        text = _paired(parts, offsets)
        try:
            text.encode()
        except UnicodeEncodeError as error:
            at = offsets[error.start] if error.start < len(offsets) else begun
            raise _StopError(at, "inside", HALF_PAIR) from None
        return text

    def _escape(self) -> str:
        found = _ESCAPE.match(self.text, self.at)
        if found is None:
            following = self.at + 1 + (self.text[self.at + 1 : self.at + 2] == "u")
            while self.text[following : following + 1] in set("0123456789abcdefABCDEF"):
                following += 1
            raise _StopError(min(following, len(self.text)), "inside", "an unfinished escape")
        self.at = found.end() - 1
        escape = found[0][1:]
        return chr(int(escape[1:], 16)) if escape[0] == "u" else _UNESCAPED.get(escape, escape)

    def _is_empty(self, close: str) -> bool:
        """Read a container's opening bracket, and its closing one if it follows."""
        self.at += 1
        self._blank()
        if self._char() != close:
            return False
        self.at += 1
        return True

    def _is_over(self, close: str) -> bool:
        """Read what follows a part of a container: its closing bracket, or a comma."""
        self._blank()
        found = self._char()
        if not found or found not in (close, ","):
            raise _StopError(self.at, "comma")
        self.at += 1
        if found == ",":
            self._blank()
        return found == close

    def _items(self, node: Node, depth: int) -> None:
        if self._is_empty("]"):
            return
        place: Place = "item"
        while True:
            child = Child("", self.at)
            node.children.append(child)
            try:
                self._value(child, place, depth + 1)
            finally:
                if child.node is None:
                    node.children.pop()
            if self._is_over("]"):
                return
            place = "value"

    def _properties(self, node: Node, depth: int) -> None:
        if self._is_empty("}"):
            return
        seen: set[str] = set()
        place: Place = "first key"
        while True:
            if self._char() != '"':
                raise _StopError(self.at, place)
            start = self.at
            key = self._string([])
            if key in seen:
                raise _StopError(start, place, f"the key {key!r} comes twice in one object")
            seen.add(key)
            child = Child(key, start)
            node.children.append(child)
            self._blank()
            if self._char() != ":":
                raise _StopError(self.at, "colon")
            self.at += 1
            self._blank()
            self._value(child, "value", depth + 1)
            if self._is_over("}"):
                return
            place = "key"


def _kind_at(char: str) -> Kind:
    kinds: dict[str, Kind] = {"{": "object", "[": "array", '"': "string"}
    literals: dict[str, Kind] = {word[0]: kind for word, (kind, _) in _LITERALS.items()}
    return kinds.get(char) or literals.get(char) or "number"


def _paired(parts: list[str], offsets: list[int]) -> str:
    """The text of escaped units, pairs of surrogates joined and their offsets with them."""
    joined: list[str] = []
    kept: list[int] = []
    for part, offset in zip(parts, offsets, strict=False):
        high = joined[-1] if joined else ""
        if "\ud800" <= high <= "\udbff" and "\udc00" <= part <= "\udfff":
            pair = 0x10000 + ((ord(high) - 0xD800) << 10) + (ord(part) - 0xDC00)
            joined[-1] = chr(pair)
        else:
            joined.append(part)
            kept.append(offset)
    offsets[:] = [*kept, offsets[-1]]
    return "".join(joined)


def escaped(name: str) -> str:
    """A name as a part of a JSON pointer."""
    return name.replace("~", "~0").replace("/", "~1")
