"""A subschema being read: its place in the document and typed access to its keywords."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Protocol

from agentloop.errors import ConstraintError
from agentloop.model.constraint.expression import Expr
from agentloop.model.constraint.given import Given
from agentloop.model.constraint.json_types import is_list, is_object
from agentloop.model.constraint.numerals import to_decimal
from agentloop.model.constraint.options import Formats
from agentloop.model.constraint.pattern import compile_pattern
from agentloop.model.constraint.references import Location
from agentloop.model.constraint.scalar_assertions import Matches


class SchemaDocument(Protocol):
    """What a subschema may ask of the document it stands in."""

    @property
    def formats(self) -> Formats:
        """Whether formats are requirements."""
        ...

    @property
    def given(self) -> Given:
        """What the schema may name."""
        ...

    def reference(self, location: Location) -> Expr:
        """The expression of a subschema."""
        ...

    def resolve(self, here: Location, keyword: str) -> Location:
        """What a reference keyword of a subschema stands for."""
        ...


@dataclass(frozen=True)
class Scope:
    """A subschema being read: the document and the place in it."""

    document: SchemaDocument
    here: Location

    @property
    def schema(self) -> Mapping[str, Any]:
        """The subschema."""
        found: Mapping[str, Any] = self.here.schema
        return found

    def sub(self, *path: str | int) -> Expr:
        """The expression of a subschema below this one."""
        return self.document.reference(self.here.at(*path))

    def subs(self, keyword: str) -> list[Expr]:
        """The expressions of a keyword that holds a list of subschemas."""
        value = self.schema[keyword]
        if not is_list(value) or not value:
            raise self.here.refusal(keyword, "must be a list of at least one schema")
        return [self.sub(keyword, i) for i in range(len(value))]

    def mapping(self, keyword: str) -> Mapping[str, Any]:
        """The value of a keyword that holds an object; empty where it is absent."""
        value = self.schema.get(keyword, {})
        if not is_object(value):
            raise self.here.refusal(keyword, f"must be an object, got {value!r}")
        return value

    def count(self, keyword: str) -> int | None:
        """The value of a keyword that holds a count; None where it is absent."""
        value = self.schema.get(keyword)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value):
            raise self.here.refusal(keyword, f"must be a whole number, got {value!r}")
        if value < 0:
            raise self.here.refusal(keyword, f"must not be negative, got {value!r}")
        return int(value)

    def number(self, keyword: str) -> Decimal | None:
        """The value of a keyword that holds a number; None where it is absent."""
        value = self.schema.get(keyword)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.here.refusal(keyword, f"must be a number, got {value!r}")
        found = to_decimal(value)
        if found is None:
            raise self.here.refusal(keyword, f"the number {value!r} has too many digits")
        return found

    def names(self, keyword: str, value: Any) -> tuple[str, ...]:
        """A list of property names."""
        if not is_list(value) or not all(isinstance(name, str) for name in value):
            raise self.here.refusal(keyword, f"must be a list of strings, got {value!r}")
        return tuple(dict.fromkeys(value))

    def pattern(self, keyword: str, pattern: Any) -> Expr:
        """The expression of strings that match a regular expression."""
        if not isinstance(pattern, str):
            raise self.here.refusal(keyword, f"must be a string, got {pattern!r}")
        try:
            compile_pattern(pattern)
        except ConstraintError as error:
            raise self.here.refusal(keyword, str(error)) from None
        return Matches(pattern)
