"""The syntax of regular expressions: an ECMA-262 subset, parsed to a small tree.

What has no exact automaton here (back references, look-behind, word boundaries, flags) is refused
with its position. Meaning is left to `pattern`.
"""

from __future__ import annotations

from dataclasses import dataclass

from agentloop.errors import ConstraintError
from agentloop.model.constraint.characters import NUM_CODE_POINTS, Ranges
from agentloop.model.constraint.code_points import (
    CLASSES,
    CONTROL,
    NARROW,
    NEWLINES,
    OPPOSITE,
    WIDE,
    Reading,
    category,
    inverse,
    union,
)

MAX_REPEAT = 5_000
"""Largest bound of a quantifier; larger ones need too many states to be worth building."""


class PatternError(ConstraintError):
    """A regular expression is malformed, or uses what has no exact automaton here."""


@dataclass(frozen=True)
class Chars:
    """One code point out of a set."""

    ranges: Ranges


@dataclass(frozen=True)
class Sequence:
    """Parts one after the other; no parts is the empty text."""

    parts: tuple[Node, ...]


@dataclass(frozen=True)
class Choice:
    """Any one of the options."""

    options: tuple[Node, ...]


@dataclass(frozen=True)
class Repeat:
    """A part lo to hi times; hi None is without bound."""

    part: Node
    lo: int
    hi: int | None


@dataclass(frozen=True)
class Edge:
    """The start of the text, or its end."""

    at_end: bool


@dataclass(frozen=True)
class Look:
    """A look-ahead: what follows must, or must not, begin with the part."""

    part: Node
    is_negative: bool


Node = Chars | Sequence | Choice | Repeat | Edge | Look


class Parser:
    """A recursive descent parser of one pattern."""

    def __init__(self, pattern: str, reading: Reading = "exact") -> None:
        self.text = pattern
        self.at = 0
        self.reading: Reading = reading

    def refuse(self, reason: str) -> PatternError:
        """The error for what stands at the current position."""
        return PatternError(f"pattern {self.text!r} at character {self.at}: {reason}")

    def parse(self) -> Node:
        """The tree of the whole pattern."""
        node = self.choice()
        if self.at < len(self.text):
            raise self.refuse("unbalanced ')'")
        return node

    def take(self, prefix: str) -> bool:
        """Step over a prefix if it is next."""
        if self.text.startswith(prefix, self.at):
            self.at += len(prefix)
            return True
        return False

    def next_char(self) -> str:
        """The next character, stepped over."""
        if self.at >= len(self.text):
            raise self.refuse("the pattern ends too early")
        self.at += 1
        return self.text[self.at - 1]

    def choice(self) -> Node:
        """Alternatives up to the end of the group."""
        options = [self.sequence()]
        while self.take("|"):
            options.append(self.sequence())
        return options[0] if len(options) == 1 else Choice(tuple(options))

    def sequence(self) -> Node:
        """Quantified parts up to the end of the alternative."""
        parts: list[Node] = []
        while self.at < len(self.text) and self.text[self.at] not in "|)":
            parts.append(self.quantified(self.part()))
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def part(self) -> Node:
        """One part without its quantifier."""
        char = self.next_char()
        if char in "^$":
            return Edge(char == "$")
        if char == "(":
            return self.group()
        if char == "[":
            return Chars(self.char_class())
        if char == ".":
            return Chars(inverse(NEWLINES))
        if char == "\\":
            return Chars(self.escape(in_class=False))
        if char in "*+?":
            self.at -= 1
            raise self.refuse(f"nothing to repeat before {char!r}")
        return Chars(((ord(char), ord(char)),))

    def group(self) -> Node:
        """What follows an opening parenthesis."""
        wrap: bool | None = None
        if self.take("?"):
            if self.take("=") or self.take("!"):
                wrap = self.text[self.at - 1] == "!"
            elif self.take("<=") or self.take("<!"):
                raise self.refuse("look-behind is not supported")
            elif self.take("<") or self.take("P<"):  # a name, which changes nothing
                end = self.text.find(">", self.at)
                if end < 0:
                    raise self.refuse("the group name does not end")
                self.at = end + 1
            elif not self.take(":"):
                raise self.refuse("flags and other (?...) groups are not supported")
        if wrap:
            self.reading = OPPOSITE[self.reading]
        inner = self.choice()
        if wrap:
            self.reading = OPPOSITE[self.reading]
        if not self.take(")"):
            raise self.refuse("missing ')'")
        return inner if wrap is None else Look(inner, wrap)

    def quantified(self, part: Node) -> Node:
        """A part with the quantifier that follows it, if one does."""
        bounds = self.bounds()
        if bounds is None:
            return part
        lo, hi = bounds
        self.take("?")  # laziness changes which match is found, not which texts match
        if self.bounds() is not None:
            raise self.refuse("multiple repeat")
        if isinstance(part, Edge | Look):
            raise self.refuse("an assertion cannot be repeated")
        if max(lo, hi or 0) > MAX_REPEAT:
            raise self.refuse(f"a repeat bound over {MAX_REPEAT:,} is not supported")
        return Repeat(part, lo, hi)

    def bounds(self) -> tuple[int, int | None] | None:
        """A quantifier's bounds, if one stands here."""
        for sign, found in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self.take(sign):
                return found
        end = self.text.find("}", self.at)
        if end < 0 or not self.text.startswith("{", self.at):
            return None
        lo, comma, hi = self.text[self.at + 1 : end].partition(",")
        if not (lo.isascii() and lo.isdigit()) or (hi and not (hi.isascii() and hi.isdigit())):
            return None  # a literal brace
        self.at = end + 1
        least = int(lo)
        most = (int(hi) if hi else None) if comma else least
        if most is not None and most < least:
            raise self.refuse("repeat bounds out of order")
        return least, most

    def char_class(self) -> Ranges:
        """What follows an opening bracket."""
        negated = self.take("^")
        if negated:
            self.reading = OPPOSITE[self.reading]
        found = self.class_items()
        ranges = union(*found)
        if negated:
            self.reading = OPPOSITE[self.reading]
        return inverse(ranges) if negated else ranges

    def class_items(self) -> list[Ranges]:
        """The members of a class up to its closing bracket."""
        found: list[Ranges] = []
        while not self.take("]"):
            lo = self.class_item()
            if self.text.startswith("-", self.at) and not self.text.startswith("-]", self.at):
                self.at += 1
                hi = self.class_item()
                if _is_single(lo) and _is_single(hi):
                    if lo[0][0] > hi[0][0]:
                        raise self.refuse("range out of order in a class")
                    found.append(((lo[0][0], hi[0][0]),))
                    continue
                found += [((0x2D, 0x2D),), hi]  # as [\w-.] is read without the unicode flag
            found.append(lo)
        return found

    def class_item(self) -> Ranges:
        """One member of a class."""
        char = self.next_char()
        if char == "\\":
            return self.escape(in_class=True)
        return ((ord(char), ord(char)),)

    def escape(self, in_class: bool) -> Ranges:
        """What follows a backslash."""
        char = self.next_char()
        if char.lower() in CLASSES:
            reading = self.reading if char.islower() else OPPOSITE[self.reading]
            ranges = {"exact": CLASSES, "narrow": NARROW, "wide": WIDE}[reading][char.lower()]
            return ranges if char.islower() else inverse(ranges)
        if char in "pP":
            return self.unicode_property(negated=char == "P")
        if char == "b" and in_class:
            return ((0x08, 0x08),)
        point = self.escaped_point(char)
        return ((point, point),)

    def escaped_point(self, char: str) -> int:
        """The code point of an escape that stands for one."""
        if char in CONTROL:
            return CONTROL[char]
        if char == "x":
            return self.hexadecimal(2)
        if char == "u":
            return self.unicode_escape()
        if char == "c":
            letter = self.next_char()
            if letter.isascii() and letter.isalpha():
                return ord(letter) % 32
            raise self.refuse("malformed control escape")
        if char == "0" and not self.text[self.at : self.at + 1].isdigit():
            return 0
        if char.isalnum():
            self.at -= 1
            raise self.refuse(f"the escape '\\{char}' is not supported")
        return ord(char)

    def unicode_escape(self) -> int:
        """What follows a backslash and u, surrogate pairs joined."""
        if self.take("{"):
            end = self.text.find("}", self.at)
            digits = self.text[self.at : max(end, self.at)]
            self.at = end + 1
            return self._code_point(digits)
        high = self.hexadecimal(4)
        rest = self.text[self.at : self.at + 6]
        if 0xD800 <= high < 0xDC00 and rest.startswith("\\u"):
            low = self._code_point(rest[2:])
            if 0xDC00 <= low < 0xE000:
                self.at += 6
                return 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00)
        return high

    def hexadecimal(self, length: int) -> int:
        """A number of so many hexadecimal digits."""
        digits = self.text[self.at : self.at + length]
        if len(digits) < length:
            raise self.refuse("malformed hexadecimal escape")
        self.at += length
        return self._code_point(digits)

    def _code_point(self, digits: str) -> int:
        try:
            point = int(digits, 16)
        except ValueError:
            raise self.refuse("malformed hexadecimal escape") from None
        if point >= NUM_CODE_POINTS:
            raise self.refuse("an escape beyond U+10FFFF")
        return point

    def unicode_property(self, negated: bool) -> Ranges:
        """What follows a backslash and p."""
        end = self.text.find("}", self.at)
        if not self.take("{") or end < 0:
            raise self.refuse("malformed property escape")
        name = self.text[self.at : end].removeprefix("General_Category=").removeprefix("gc=")
        whole: dict[str, Ranges] = {"Any": ((0, NUM_CODE_POINTS - 1),), "ASCII": ((0, 0x7F),)}
        ranges = whole[name] if name in whole else category(name)
        if ranges is None:
            raise self.refuse(f"the property {name!r} is not a general category")
        self.at = end + 1
        return inverse(ranges) if negated else ranges


def _is_single(ranges: Ranges) -> bool:
    return len(ranges) == 1 and ranges[0][0] == ranges[0][1]
