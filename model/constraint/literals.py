"""Expressions of JSON types and of single JSON values."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from agentloop.model.constraint.array_assertions import elements, num_items
from agentloop.model.constraint.expression import (
    FALSE,
    TRUE,
    Expr,
    KindIs,
    conjunction,
    disjunction,
)
from agentloop.model.constraint.json_types import is_list, is_object
from agentloop.model.constraint.numerals import spell, to_decimal
from agentloop.model.constraint.object_assertions import Shape, required
from agentloop.model.constraint.scalar_assertions import Integral, Numbers, Words

OBJECT = KindIs(frozenset({"object"}))
TYPES: dict[str, Expr] = {
    "null": KindIs(frozenset({"null"})),
    "boolean": KindIs(frozenset({"true", "false"})),
    "number": KindIs(frozenset({"number"})),
    "integer": conjunction(KindIs(frozenset({"number"})), Integral()),
    "string": KindIs(frozenset({"string"})),
    "array": KindIs(frozenset({"array"})),
    "object": OBJECT,
}


def _spelt(value: float | Decimal) -> str:
    number = to_decimal(value)
    if number is None:
        raise ValueError(f"the number {value!r} has too many digits")
    return spell(number)


def equal_to(value: Any) -> Expr:
    """The expression of one JSON value.

    Raises:
        ValueError: The value is a number that cannot be spelt out.
    """
    match value:
        case None:
            return TYPES["null"]
        case bool():
            return KindIs(frozenset({"true" if value else "false"}))
        case str():
            return conjunction(TYPES["string"], Words(frozenset({value})))
        case int() | float() | Decimal():
            return conjunction(TYPES["number"], Numbers(frozenset({_spelt(value)})))
        case _ if is_list(value):
            items = tuple(map(equal_to, value))
            size = num_items(len(items), len(items))
            return conjunction(TYPES["array"], size, elements(items, TRUE))
        case _:
            assert is_object(value)
            pairs = tuple((key, equal_to(inner)) for key, inner in value.items())
            shape = Shape(pairs, (), FALSE, is_open=False)
            return conjunction(OBJECT, shape, required(tuple(value)))


def one_of_values(values: list[Any]) -> Expr:
    """The expression of a finite set of JSON values."""
    words = frozenset(value for value in values if isinstance(value, str))
    numbers = frozenset(
        _spelt(value)
        for value in values
        if isinstance(value, int | float) and not isinstance(value, bool)
    )
    options: list[Expr] = []
    if words:
        options.append(conjunction(TYPES["string"], Words(words)))
    if numbers:
        options.append(conjunction(TYPES["number"], Numbers(numbers)))
    rest = [v for v in values if not isinstance(v, str | int | float) or isinstance(v, bool)]
    return disjunction(*options, *map(equal_to, rest))
