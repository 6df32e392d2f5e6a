"""Constraints made of constraints: objects, lists, alternatives.

Example:
    >>> from agentloop.model.constraint.texts import Choice, Text
    >>> form = Object(colour=Choice(["red", "blue"]), note=Nullable(Text(max_length=9)))
    >>> form.parse('{"colour": "red", "note": null}')
    {'colour': 'red', 'note': None}
"""

from __future__ import annotations

import json
from typing import Any

from agentloop.errors import ConstraintError
from agentloop.model.constraint.array_assertions import Elements, num_items
from agentloop.model.constraint.constraint import Constraint, JsonConstraint, field_values
from agentloop.model.constraint.expression import (
    FALSE,
    Expr,
    KindIs,
    conjunction,
    disjunction,
)
from agentloop.model.constraint.jsontext import parse_json
from agentloop.model.constraint.machine import Asked, Machine
from agentloop.model.constraint.object_assertions import Shape, required

OBJECT = KindIs(frozenset({"object"}))
ARRAY = KindIs(frozenset({"array"}))
NULL = KindIs(frozenset({"null"}))


class Object(JsonConstraint):
    """A JSON object with exactly these fields, in this order."""

    def __init__(self, **fields: Constraint) -> None:
        self.fields = fields
        pairs = tuple((name, inner.value_expression()) for name, inner in fields.items())
        self._expression = conjunction(
            OBJECT, Shape(pairs, (), FALSE, is_open=False), required(tuple(fields))
        )

    def value_expression(self) -> Expr:
        """The constraint as an expression about a JSON value."""
        return self._expression

    def from_value(self, value: Any) -> dict[str, Any]:
        """The fields' Python values by name."""
        return field_values(self.fields, value)

    def description(self) -> list[Any]:
        """What the constraint is, as JSON."""
        return ["Object", [[name, inner.description()] for name, inner in self.fields.items()]]


class List(JsonConstraint):
    """A JSON array of min to max items of one kind, max None for any number."""

    def __init__(self, item: Constraint, min: int = 0, max: int | None = None) -> None:
        if min < 0 or (max is not None and max < min):
            raise ConstraintError(f"List needs 0 <= min <= max, got {min} and {max}")
        self.item = item
        self.min = min
        self.max = max
        self._expression = conjunction(
            ARRAY, num_items(min, max), Elements((), item.value_expression())
        )

    def value_expression(self) -> Expr:
        """The constraint as an expression about a JSON value."""
        return self._expression

    def from_value(self, value: Any) -> list[Any]:
        """The items' Python values."""
        return [self.item.from_value(inner) for inner in value]

    def description(self) -> list[Any]:
        """What the constraint is, as JSON."""
        return ["List", self.item.description(), self.min, self.max]


class OneOf(JsonConstraint):
    """A JSON value that satisfies some option; it is parsed by the first one it satisfies."""

    def __init__(self, *options: Constraint) -> None:
        if not options:
            raise ConstraintError("OneOf needs at least one option, got none")
        self.options = options
        self._expression = disjunction(*(option.value_expression() for option in options))

    def value_expression(self) -> Expr:
        """The constraint as an expression about a JSON value."""
        return self._expression

    def from_value(self, value: Any) -> Any:
        """The value as its option gives it."""
        parsed = parse_json(json.dumps(value, ensure_ascii=False))
        for option in self.options:
            if Machine().run(Asked(option.value_expression()), parsed) is not None:
                return option.from_value(value)
        raise ConstraintError(f"{value!r} satisfies no option of {self!r}")

    def description(self) -> list[Any]:
        """What the constraint is, as JSON."""
        return ["OneOf", *(option.description() for option in self.options)]


class Nullable(JsonConstraint):
    """A JSON value that satisfies a constraint, or null."""

    def __init__(self, inner: Constraint) -> None:
        self.inner = inner
        self._expression = disjunction(NULL, inner.value_expression())

    def value_expression(self) -> Expr:
        """The constraint as an expression about a JSON value."""
        return self._expression

    def from_value(self, value: Any) -> Any:
        """The inner constraint's Python value, or None."""
        return None if value is None else self.inner.from_value(value)

    def description(self) -> list[Any]:
        """What the constraint is, as JSON."""
        return ["Nullable", self.inner.description()]
