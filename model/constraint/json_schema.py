"""JSON Schema and pydantic models as constraints."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, get_args

from pydantic import TypeAdapter
from pydantic.errors import PydanticUserError

from agentloop.errors import ConstraintError
from agentloop.model.constraint.constraint import Constraint, JsonConstraint
from agentloop.model.constraint.expression import Expr
from agentloop.model.constraint.given import NOTHING_GIVEN, Given, GivenValue, schema_text
from agentloop.model.constraint.json_types import is_schema
from agentloop.model.constraint.options import Formats
from agentloop.model.constraint.schema import Document


@lru_cache(maxsize=1024)
def document_of(schema: str, given: Given = NOTHING_GIVEN, formats: Formats = "assert") -> Document:
    """The document of a schema's JSON text; shared, so that its parts are built once."""
    document = Document(json.loads(schema), formats, given)
    document.check()
    return document


def described(described_type: Any) -> tuple[TypeAdapter[Any], dict[str, Any]]:
    """What makes instances of a type, and the schema that it is described by.

    Raises:
        ConstraintError: pydantic does not know the type, or has no schema for it.
    """
    try:
        adapter = TypeAdapter[Any](described_type)
        return adapter, adapter.json_schema()
    except PydanticUserError as error:
        raise ConstraintError(
            f"a schema must be a mapping, a boolean or a type that pydantic can describe; got "
            f"{described_type!r}: {error.message}"
        ) from None


class JsonSchema(JsonConstraint):
    """A JSON value that a JSON Schema, a pydantic model or any type pydantic knows describes.

    Args:
        schema: A schema as a mapping or a boolean; or a type, whose instances `parse` then gives.
            A constraint such as `Quote(passages)` may stand wherever a subschema may.
        formats: "assert" takes `format` as a requirement, "annotate" as a mere remark.
        given: Texts and constraints by the names that `x-quote`, `x-choice` and `x-constraint` use.

    Raises:
        UnsupportedSchemaError: The schema is malformed, or uses what cannot be represented exactly.

    Example:
        >>> JsonSchema({"type": "integer", "minimum": 3}).accepts("4")
        True
        >>> shown = JsonSchema({"type": "string", "x-quote": "source"}, given={"source": "A cat."})
        >>> shown.accepts('"cat"'), shown.accepts('"dog"')
        (True, False)
    """

    def __init__(
        self,
        schema: Any,
        *,
        formats: Formats = "assert",
        given: Mapping[str, GivenValue] | None = None,
    ) -> None:
        if formats not in get_args(Formats):
            raise ConstraintError(f"formats must be one of {get_args(Formats)}, got {formats!r}")
        self._adapter: TypeAdapter[Any] | None = None
        if isinstance(schema, Constraint):
            schema = {"allOf": [schema]}
        if not is_schema(schema):
            self._adapter, schema = described(schema)
        self.schema = schema
        self.formats: Formats = formats
        self._text, self._given = schema_text(schema, given or {})
        self.document = document_of(self._text, self._given, formats)

    def value_expression(self) -> Expr:
        """The constraint as an expression about a JSON value."""
        return self.document.root

    def from_value(self, value: Any) -> Any:
        """The value, as an instance of the type where one was given."""
        return value if self._adapter is None else self._adapter.validate_python(value)

    def description(self) -> list[Any]:
        """What the constraint is, as JSON."""
        given = [] if self._given is NOTHING_GIVEN else [self._given.description()]
        return ["JsonSchema", self._text, self.formats, *given]
