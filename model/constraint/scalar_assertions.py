"""Assertions about strings and numbers, each an automaton over code points.

Nothing here knows JSON Schema or bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import ClassVar

from typing_extensions import override

from agentloop.model.constraint import numerals
from agentloop.model.constraint.characters import CharDfa, of_length, of_words
from agentloop.model.constraint.code_points import Reading
from agentloop.model.constraint.expression import Atom, Kind
from agentloop.model.constraint.formats import format_automaton
from agentloop.model.constraint.numerals import Bounds
from agentloop.model.constraint.pattern import compile_pattern


@dataclass(frozen=True, eq=False)
class ScalarAtom(Atom):
    """An assertion about a text: a string's value, or a number in its canonical spelling."""

    def accepts(self, text: str) -> bool:
        """Whether it holds for a text."""
        return self.automaton().accepts(text)

    def accepts_number(self, number: Decimal) -> bool:
        """Whether it holds for a number as it was written."""
        return self.accepts(numerals.spell(number))

    def automaton(self) -> CharDfa:
        """The texts it holds for; for numbers, canonical spellings only."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class Words(ScalarAtom):
    """The string is one of a finite set."""

    kind: ClassVar[Kind] = "string"
    words: frozenset[str]

    @override
    def accepts(self, text: str) -> bool:
        return text in self.words

    @override
    def automaton(self) -> CharDfa:
        return of_words(sorted(self.words))


@dataclass(frozen=True, eq=False)
class Matches(ScalarAtom):
    """Some part of the string, or the whole of it, matches a regular expression."""

    kind: ClassVar[Kind] = "string"
    pattern: str
    is_full_match: bool = False
    is_narrow: bool = False
    """Whether only texts that match in every engine count; for what is generated only."""

    @override
    def automaton(self) -> CharDfa:
        reading: Reading = "narrow" if self.is_narrow else "exact"
        return compile_pattern(self.pattern, is_full_match=self.is_full_match, reading=reading)


@dataclass(frozen=True, eq=False)
class HasFormat(ScalarAtom):
    """The string is of a known format."""

    kind: ClassVar[Kind] = "string"
    name: str

    @override
    def automaton(self) -> CharDfa:
        return format_automaton(self.name)


@dataclass(frozen=True, eq=False)
class Length(ScalarAtom):
    """The string has lo to hi code points."""

    kind: ClassVar[Kind] = "string"
    lo: int
    hi: int | None

    @override
    def accepts(self, text: str) -> bool:
        return self.lo <= len(text) and (self.hi is None or len(text) <= self.hi)

    @override
    def automaton(self) -> CharDfa:
        return of_length(self.lo, self.hi)


@dataclass(frozen=True, eq=False)
class Numbers(ScalarAtom):
    """The number is one of a finite set, given by canonical spellings."""

    kind: ClassVar[Kind] = "number"
    words: frozenset[str]

    @override
    def accepts(self, text: str) -> bool:
        return text in self.words

    @override
    def automaton(self) -> CharDfa:
        return of_words(sorted(self.words))


@dataclass(frozen=True, eq=False)
class Integral(ScalarAtom):
    """The number has no fraction; as written, if `is_literal`, else in value."""

    kind: ClassVar[Kind] = "number"
    is_literal: bool = False

    @override
    def accepts(self, text: str) -> bool:
        return "." not in text

    @override
    def accepts_number(self, number: Decimal) -> bool:
        if self.is_literal:
            return int(number.as_tuple().exponent) >= 0
        return number == number.to_integral_value()

    @override
    def automaton(self) -> CharDfa:
        return numerals.any_integer()


@dataclass(frozen=True, eq=False)
class ReadExactly(ScalarAtom):
    """The number is compared as a float as it is as a decimal; for what is generated only."""

    kind: ClassVar[Kind] = "number"

    @override
    def automaton(self) -> CharDfa:
        return numerals.read_exactly()


@dataclass(frozen=True, eq=False)
class Within(ScalarAtom):
    """The number lies in an interval."""

    kind: ClassVar[Kind] = "number"
    bounds: Bounds

    @override
    def accepts(self, text: str) -> bool:
        return self.bounds.holds(Decimal(text))

    @override
    def automaton(self) -> CharDfa:
        return numerals.in_bounds(self.bounds)


@dataclass(frozen=True, eq=False)
class MultipleOf(ScalarAtom):
    """The number is an integer times a step."""

    kind: ClassVar[Kind] = "number"
    step: Decimal

    @override
    def automaton(self) -> CharDfa:
        return numerals.multiples(self.step)
