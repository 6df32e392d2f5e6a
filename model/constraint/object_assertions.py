"""Assertions about objects: what each asks of the next property, and what is left of it then.

Nothing here knows JSON Schema or bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Protocol

from typing_extensions import override

from agentloop.model.constraint.expression import (
    FALSE,
    TRUE,
    Atom,
    Expr,
    Kind,
    Truth,
    conjunction,
    disjunction,
)


class KeyFact(Protocol):
    """What is known about a key: its name, or only which conditions it meets."""

    @property
    def name(self) -> str | None:
        """The key itself, None for one that no assertion names."""
        ...

    def meets(self, condition: Expr) -> bool:
        """Whether the key as a string satisfies an expression."""
        ...


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

    @cached_property
    def _by_name(self) -> dict[str, Expr]:
        return dict(self.properties)

    @override
    def known_keys(self) -> tuple[str, ...]:
        return tuple(self._by_name)

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
        named = None if key.name is None else self._by_name.get(key.name)
        if not self.patterns:
            return (self.additional if named is None else named,)
        found = [] if named is None else [named]
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
        if key.name not in self.keys:
            return self
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
