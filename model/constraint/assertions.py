"""Assertions about strings, numbers, arrays and objects: how each is read, step by step.

Scalars have an automaton. Containers have a step instead: what they ask of the next item or
property, and what is left of them once the answer is known. Nothing here knows JSON Schema or bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import ClassVar, Protocol

from typing_extensions import override

from agentloop.model.constraint import numerals
from agentloop.model.constraint.characters import CharDfa, of_length, of_words
from agentloop.model.constraint.expression import (
    FALSE,
    TRUE,
    Atom,
    Expr,
    Kind,
    conjunction,
    disjunction,
)
from agentloop.model.constraint.formats import format_automaton
from agentloop.model.constraint.numerals import Bounds
from agentloop.model.constraint.pattern import compile_pattern

Truth = Callable[[Expr], bool]
"""Whether an expression that was asked about holds for the item or property just read."""


@dataclass(frozen=True, eq=False)
class ScalarAtom(Atom):
    """An assertion about a text: a string's value, or a number in its canonical spelling."""

    def accepts(self, text: str) -> bool:
        """Whether it holds for a text."""
        return self.automaton().accepts(text)

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

    @override
    def automaton(self) -> CharDfa:
        return compile_pattern(self.pattern, is_full_match=self.is_full_match)


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
    """The number has no fraction."""

    kind: ClassVar[Kind] = "number"

    @override
    def accepts(self, text: str) -> bool:
        return "." not in text

    @override
    def automaton(self) -> CharDfa:
        return numerals.any_integer()


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


class KeyFact(Protocol):
    """What is known about a key: its name, or only which conditions it meets."""

    @property
    def name(self) -> str | None:
        """The key itself, None for one that no assertion names."""

    def meets(self, condition: Expr) -> bool:
        """Whether the key as a string satisfies an expression."""


@dataclass(frozen=True, eq=False)
class ArrayAtom(Atom):
    """An assertion about an array, of which some items have been read."""

    kind: ClassVar[Kind] = "array"
    is_strict: ClassVar[bool] = False
    """Whether it fails as soon as anything it asks about does not hold."""

    def asks(self) -> tuple[Expr, ...]:
        """What must be found out about the next item."""
        return ()

    def after(self, truth: Truth) -> Expr:
        """What is left to assert once the next item has been read."""
        raise NotImplementedError

    def holds_at_end(self) -> bool:
        """Whether it holds if no item follows."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class Elements(ArrayAtom):
    """The next items satisfy `prefix` one by one, all later ones `rest`."""

    is_strict: ClassVar[bool] = True
    prefix: tuple[Expr, ...]
    rest: Expr

    @override
    def asks(self) -> tuple[Expr, ...]:
        return (self.prefix[0] if self.prefix else self.rest,)

    @override
    def after(self, truth: Truth) -> Expr:
        if not truth(self.asks()[0]):
            return FALSE
        return elements(self.prefix[1:], self.rest) if self.prefix else self

    @override
    def holds_at_end(self) -> bool:
        return True


def elements(prefix: tuple[Expr, ...], rest: Expr) -> Expr:
    """The assertion that items satisfy `prefix`, then `rest`."""
    while prefix and prefix[-1] == rest:
        prefix = prefix[:-1]
    return TRUE if not prefix and rest == TRUE else Elements(prefix, rest)


@dataclass(frozen=True, eq=False)
class NumItems(ArrayAtom):
    """Between lo and hi more items follow."""

    lo: int
    hi: int | None

    @override
    def after(self, truth: Truth) -> Expr:
        return num_items(self.lo - 1, None if self.hi is None else self.hi - 1)

    @override
    def holds_at_end(self) -> bool:
        return self.lo <= 0


def num_items(lo: int, hi: int | None) -> Expr:
    """The assertion that lo to hi items follow."""
    if hi is not None and (hi < 0 or hi < lo):
        return FALSE
    return TRUE if lo <= 0 and hi is None else NumItems(max(lo, 0), hi)


@dataclass(frozen=True, eq=False)
class Contains(ArrayAtom):
    """Between lo and hi of the items that follow satisfy an expression."""

    item: Expr
    lo: int
    hi: int | None

    @override
    def asks(self) -> tuple[Expr, ...]:
        return (self.item,)

    @override
    def after(self, truth: Truth) -> Expr:
        if not truth(self.item):
            return self
        return contains(self.item, self.lo - 1, None if self.hi is None else self.hi - 1)

    @override
    def holds_at_end(self) -> bool:
        return self.lo <= 0


def contains(item: Expr, lo: int, hi: int | None) -> Expr:
    """The assertion that lo to hi of the items that follow satisfy `item`."""
    if hi is not None and (hi < 0 or hi < lo):
        return FALSE
    return TRUE if lo <= 0 and hi is None else Contains(item, max(lo, 0), hi)


@dataclass(frozen=True, eq=False)
class Distinct(ArrayAtom):
    """The items are of a finite set, given by expressions that no two values share, and differ."""

    left: tuple[Expr, ...]

    @override
    def asks(self) -> tuple[Expr, ...]:
        return self.left

    @override
    def after(self, truth: Truth) -> Expr:
        rest = tuple(value for value in self.left if not truth(value))
        return Distinct(rest) if len(rest) == len(self.left) - 1 else FALSE

    @override
    def holds_at_end(self) -> bool:
        return True


@dataclass(frozen=True, eq=False)
class Ascending(ArrayAtom):
    """The items are of a finite set and come in its order, which makes them differ too."""

    left: tuple[Expr, ...]

    @override
    def asks(self) -> tuple[Expr, ...]:
        return self.left

    @override
    def after(self, truth: Truth) -> Expr:
        found = [i for i, value in enumerate(self.left) if truth(value)]
        return Ascending(self.left[found[0] + 1 :]) if found else FALSE

    @override
    def holds_at_end(self) -> bool:
        return True


@dataclass(frozen=True, eq=False)
class ObjectAtom(Atom):
    """An assertion about an object, of which some properties have been read."""

    kind: ClassVar[Kind] = "object"
    is_strict: ClassVar[bool] = False
    """Whether it fails as soon as anything it asks about does not hold."""

    def known_keys(self) -> tuple[str, ...]:
        """The keys it names, in the order they are to be written."""
        return ()

    def conditions(self) -> tuple[Expr, ...]:
        """What must be found out about a key that nothing names."""
        return ()

    def offers(self) -> Expr | None:
        """The keys beyond the known ones that it asks for, as an expression about the key."""
        return None

    def asks(self, key: KeyFact) -> tuple[Expr, ...]:
        """What must be found out about the value of a key."""
        return ()

    def after(self, key: KeyFact, truth: Truth) -> Expr:
        """What is left to assert once the key and its value have been read."""
        raise NotImplementedError

    def without(self, key: str) -> Expr:
        """What is left to assert once it is known that a key is absent."""
        return self

    def holds_at_end(self) -> bool:
        """Whether it holds if no property follows."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class Shape(ObjectAtom):
    """Every property satisfies what its key says.

    Attributes:
        properties: Keys with the expressions of their values.
        patterns: Conditions on the key, with the expression of the value where they are met.
        additional: The expression of the values that no key or pattern covers.
        is_open: Whether other keys are asked for, instead of only permitted.
    """

    is_strict: ClassVar[bool] = True
    properties: tuple[tuple[str, Expr], ...]
    patterns: tuple[tuple[Expr, Expr], ...]
    additional: Expr
    is_open: bool

    @override
    def known_keys(self) -> tuple[str, ...]:
        return tuple(key for key, _ in self.properties)

    @override
    def conditions(self) -> tuple[Expr, ...]:
        return tuple(condition for condition, _ in self.patterns)

    @override
    def offers(self) -> Expr | None:
        if self.is_open:
            return TRUE
        return disjunction(*self.conditions()) if self.patterns else None

    @override
    def asks(self, key: KeyFact) -> tuple[Expr, ...]:
        found = [value for name, value in self.properties if name == key.name]
        found += [value for condition, value in self.patterns if key.meets(condition)]
        return (conjunction(*found) if found else self.additional,)

    @override
    def after(self, key: KeyFact, truth: Truth) -> Expr:
        return self if truth(self.asks(key)[0]) else FALSE

    @override
    def holds_at_end(self) -> bool:
        return True


@dataclass(frozen=True, eq=False)
class Required(ObjectAtom):
    """These keys are still to come."""

    keys: tuple[str, ...]

    @override
    def known_keys(self) -> tuple[str, ...]:
        return self.keys

    @override
    def after(self, key: KeyFact, truth: Truth) -> Expr:
        return required(tuple(k for k in self.keys if k != key.name))

    @override
    def without(self, key: str) -> Expr:
        return FALSE if key in self.keys else self

    @override
    def holds_at_end(self) -> bool:
        return False


def required(keys: tuple[str, ...]) -> Expr:
    """The assertion that these keys are still to come."""
    return Required(keys) if keys else TRUE


@dataclass(frozen=True, eq=False)
class NumProperties(ObjectAtom):
    """Between lo and hi more properties follow."""

    lo: int
    hi: int | None

    @override
    def after(self, key: KeyFact, truth: Truth) -> Expr:
        return num_properties(self.lo - 1, None if self.hi is None else self.hi - 1)

    @override
    def holds_at_end(self) -> bool:
        return self.lo <= 0


def num_properties(lo: int, hi: int | None) -> Expr:
    """The assertion that lo to hi properties follow."""
    if hi is not None and (hi < 0 or hi < lo):
        return FALSE
    return TRUE if lo <= 0 and hi is None else NumProperties(max(lo, 0), hi)


@dataclass(frozen=True, eq=False)
class KeysAre(ObjectAtom):
    """Every key as a string satisfies an expression."""

    key: Expr

    @override
    def conditions(self) -> tuple[Expr, ...]:
        return (self.key,)

    @override
    def offers(self) -> Expr | None:
        return TRUE

    @override
    def after(self, key: KeyFact, truth: Truth) -> Expr:
        return self if key.meets(self.key) else FALSE

    @override
    def holds_at_end(self) -> bool:
        return True
