"""Finite sets of JSON values: those an expression permits, where they can be listed."""

from __future__ import annotations

from decimal import Decimal
from functools import partial
from math import ceil, floor

from agentloop.errors import UnsupportedSchemaError
from agentloop.model.constraint.expression import (
    FALSE,
    TRUE,
    Expr,
    Kind,
    conjuncts,
    holds,
)
from agentloop.model.constraint.machine import Machine
from agentloop.model.constraint.scalar_assertions import Integral, ScalarAtom, Within
from agentloop.model.constraint.scalars import finite_words

MAX_VALUES = 200
"""Most values that are listed."""


def finite_values(expr: Expr) -> list[bool | Decimal | str | None] | None:
    """The scalars an expression permits; None if it permits containers or too many values."""
    machine = Machine()
    found: list[bool | Decimal | str | None] = []
    try:
        if any(machine.at_kind(expr, kind) != FALSE for kind in ("array", "object")):
            return None
        literals: tuple[tuple[Kind, bool | None], ...] = (
            ("null", None),
            ("true", True),
            ("false", False),
        )
        found += [value for kind, value in literals if machine.at_kind(expr, kind) == TRUE]
        texts = _words(machine.at_kind(expr, "string"))
        numbers = _words(machine.at_kind(expr, "number"))
    except UnsupportedSchemaError:  # being worked out by way of itself, or refused elsewhere
        return None
    if texts is None or numbers is None or len(texts) + len(numbers) > MAX_VALUES:
        return None
    return [*found, *texts, *map(Decimal, numbers)]


def _words(expr: Expr) -> list[str] | None:
    """The texts for which an expression holds, where they can be listed."""
    if expr == FALSE:
        return []
    words = finite_words(expr)
    if words is None:
        words = _integers(expr)
    if words is None or len(words) > MAX_VALUES:
        return None
    return [word for word in sorted(words) if holds(expr, partial(_accepts, word))]


def _accepts(word: str, leaf: Expr) -> bool:
    assert isinstance(leaf, ScalarAtom)
    return leaf.accepts(word)


def _integers(expr: Expr) -> frozenset[str] | None:
    """The integers between two bounds."""
    parts = conjuncts(expr)
    if not any(isinstance(part, Integral) for part in parts):
        return None
    lows = [p.bounds.lo for p in parts if isinstance(p, Within) and p.bounds.lo is not None]
    highs = [p.bounds.hi for p in parts if isinstance(p, Within) and p.bounds.hi is not None]
    if not lows or not highs or max(lows) + MAX_VALUES < min(highs):
        return None
    return frozenset(str(n) for n in range(ceil(max(lows)), floor(min(highs)) + 1))
