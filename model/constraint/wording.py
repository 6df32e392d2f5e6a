"""Constraints in words: what a JSON value may be.

For messages only; nothing is decided here. A phrase fits after "allowed: ".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from agentloop.model.constraint.array_assertions import Contains, Elements, NumItems
from agentloop.model.constraint.character_wording import MAX_LISTED, SHOWN_LENGTH, listed, quoted
from agentloop.model.constraint.expression import (
    FALSE,
    TRUE,
    And,
    Expr,
    Kind,
    Not,
    Or,
    conjuncts,
    holds,
)
from agentloop.model.constraint.machine import Machine
from agentloop.model.constraint.numerals import Bounds, spell
from agentloop.model.constraint.object_assertions import NumProperties, Required, Shape
from agentloop.model.constraint.scalar_assertions import (
    HasFormat,
    Integral,
    Length,
    Matches,
    MultipleOf,
    ScalarAtom,
    Within,
)
from agentloop.model.constraint.scalars import OpaqueText, finite_words


def allowed_values(machine: Machine, expr: Expr) -> tuple[str, ...]:
    """What a JSON value may be, one phrase for each alternative; empty where it cannot be.

    Example:
        >>> from agentloop.model.constraint.json_schema import JsonSchema
        >>> schema = {"type": ["integer", "null"], "minimum": 3}
        >>> allowed_values(Machine(), JsonSchema(schema).value_expression())
        ('null', 'an integer of 3 or more')
    """
    kinds: tuple[Kind, ...] = ("null", "true", "false")
    by_kind = {kind: machine.at_kind(expr, kind) for kind in (*kinds, *_OF_KIND)}
    if all(at_kind == TRUE for at_kind in by_kind.values()):
        return ("any JSON value",)
    found: list[str] = [kind for kind in kinds if by_kind[kind] == TRUE]
    for kind, word in _OF_KIND.items():
        if by_kind[kind] != FALSE:
            found += word(by_kind[kind])
    return tuple(dict.fromkeys(found))


def _alternatives(expr: Expr, phrase: Callable[[Sequence[Expr]], str]) -> list[str]:
    """One phrase for each alternative of an expression, each made from what must hold."""
    found: list[str] = []
    for option in expr.args if isinstance(expr, Or) else (expr,):
        found.append(phrase(conjuncts(option)))
    found = list(dict.fromkeys(found))
    more = len(found) - MAX_LISTED
    return [*found[:MAX_LISTED], f"{more} more"] if more > 0 else found


def _strings(expr: Expr) -> list[str]:
    words = finite_words(expr)
    if words is not None:
        return list(listed(fitting(expr, words)))
    return _alternatives(expr, partial(_qualified, "a string"))


def _numbers(expr: Expr) -> list[str]:
    words = finite_words(expr)
    if words is not None:
        fits = sorted(fitting(expr, words), key=float)
        more = len(fits) - MAX_LISTED
        return [*fits[:MAX_LISTED], f"{more:,} more"] if more > 0 else fits

    def phrase(parts: Sequence[Expr]) -> str:
        is_whole = any(isinstance(part, Integral) for part in parts)
        return _qualified("an integer" if is_whole else "a number", parts)

    return _alternatives(expr, phrase)


def fitting(expr: Expr, words: Iterable[str]) -> list[str]:
    """Those of some texts for which an expression holds."""

    def leaf(word: str, atom: Expr) -> bool:
        assert isinstance(atom, ScalarAtom)
        return atom.accepts(word)

    return [word for word in words if holds(expr, partial(leaf, word))]


def _arrays(expr: Expr) -> list[str]:
    return _alternatives(expr, partial(_qualified, "an array"))


def _objects(expr: Expr) -> list[str]:
    return _alternatives(expr, partial(_qualified, "an object"))


_OF_KIND: dict[Kind, Callable[[Expr], list[str]]] = {
    "number": _numbers,
    "string": _strings,
    "array": _arrays,
    "object": _objects,
}


def _qualified(noun: str, parts: Sequence[Expr]) -> str:
    """A noun with what is asked of it."""
    said = [text for part in parts if (text := _said(part))]
    return " ".join([noun, ", ".join(said)]) if said else noun


def phrase(noun: str, expr: Expr) -> str:
    """A noun with what an expression asks of it, alternatives joined by "or"; "" for nothing."""
    said = _alternatives(expr, partial(_qualified, noun))
    return " or ".join(said) if said != [noun] else ""


def _said(part: Expr) -> str:
    """What one assertion says, "" where it goes without saying."""
    if isinstance(part, OpaqueText):
        return part.wording
    if isinstance(part, Not):
        inner = _said(part.arg)
        return f"not {inner}" if inner else "with an exception"
    if isinstance(part, And | Or):
        said = [text for arg in part.args if (text := _said(arg))]
        return (", " if isinstance(part, And) else " or ").join(dict.fromkeys(said))
    say = _SAYINGS.get(type(part))
    return say(part) if say else ""


def _say_length(part: Length) -> str:
    return f"of {count(part.lo, part.hi, 'character')}"


def _say_matches(part: Matches) -> str:
    return f"that matches {shortened(part.pattern)}"


def _say_format(part: HasFormat) -> str:
    return f"in the format {part.name}"


def _say_items(part: NumItems) -> str:
    return f"of {count(part.lo, part.hi, 'item')}"


def _say_properties(part: NumProperties) -> str:
    return f"of {count(part.lo, part.hi, 'property', 'properties')}"


def _say_required(part: Required) -> str:
    names = [quoted(key) for key in part.keys[:MAX_LISTED]]
    more = len(part.keys) - len(names)
    return f"with {', '.join(names)}" + (f" and {more} more" if more else "")


def _say_multiple(part: MultipleOf) -> str:
    return f"that is a multiple of {spell(part.step)}"


def _say_bounds(part: Within) -> str:
    return bounds(part.bounds)


def _say_contains(part: Contains) -> str:
    return f"with {count(part.lo, part.hi, 'item')} of a kind"


_SAYINGS: dict[type[Expr], Callable[[Any], str]] = {
    Length: _say_length,
    Matches: _say_matches,
    HasFormat: _say_format,
    MultipleOf: _say_multiple,
    Within: _say_bounds,
    NumItems: _say_items,
    Contains: _say_contains,
    NumProperties: _say_properties,
    Required: _say_required,
    Shape: lambda _: "",
    Elements: lambda _: "",
}


def shortened(pattern: str) -> str:
    """A pattern between slashes, cut if long."""
    return f"/{pattern if len(pattern) <= SHOWN_LENGTH else pattern[: SHOWN_LENGTH - 1] + '…'}/"


def count(lo: int, hi: int | None, noun: str, plural: str = "") -> str:
    """A range of counts.

    Example:
        >>> count(2, 2, "item"), count(0, 1, "item"), count(3, None, "item")
        ('2 items', 'at most 1 item', '3 or more items')
    """
    many = plural or f"{noun}s"
    if hi is None:
        return f"{lo:,} or more {many}"
    shown = noun if hi == 1 else many
    if lo == hi:
        return f"{lo:,} {shown}"
    return f"at most {hi:,} {shown}" if lo == 0 else f"{lo:,} to {hi:,} {shown}"


def bounds(interval: Bounds) -> str:
    """An interval of numbers.

    Example:
        >>> from decimal import Decimal
        >>> bounds(Bounds(Decimal(0), Decimal(5))), bounds(Bounds(Decimal(0), is_lo_open=True))
        ('from 0 to 5', 'above 0')
    """
    lo = None if interval.lo is None else spell(interval.lo)
    hi = None if interval.hi is None else spell(interval.hi)
    if lo is not None and hi is not None and not (interval.is_lo_open or interval.is_hi_open):
        return f"from {lo} to {hi}"
    parts: list[str] = []
    if lo is not None:
        parts.append(f"above {lo}" if interval.is_lo_open else f"of {lo} or more")
    if hi is not None:
        parts.append(f"below {hi}" if interval.is_hi_open else f"of {hi} or less")
    return " and ".join(parts)
