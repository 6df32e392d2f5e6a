"""Assertions about arrays: what each asks of the next item, and what is left of it then.

Nothing here knows JSON Schema or bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from typing_extensions import override

from agentloop.model.constraint.expression import FALSE, TRUE, Atom, Expr, Kind, Truth


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
class AllDifferent(ArrayAtom):
    """No two items are equal, whatever they are; settled from the whole array, not item by item.

    Attributes:
        pointer: JSON pointer of the schema that asserts it.
    """

    pointer: str

    @override
    def after(self, truth: Truth) -> Expr:
        raise AssertionError("settled before items are read")

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
