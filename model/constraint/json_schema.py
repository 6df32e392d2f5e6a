"""JSON Schema and pydantic models as constraints."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any, get_args

from pydantic import TypeAdapter

from agentloop.errors import ConstraintError
from agentloop.model.constraint.constraint import JsonConstraint
from agentloop.model.constraint.expression import Expr
from agentloop.model.constraint.json_types import is_schema
from agentloop.model.constraint.options import Formats
from agentloop.model.constraint.schema import Document


@lru_cache(maxsize=1024)
def document_of(schema: str, formats: Formats) -> Document:
    """The document of a schema's JSON text; shared, so that its parts are built once."""
    document = Document(json.loads(schema), formats)
    document.check()
    return document


def schema_text(schema: Any) -> str:
    """The JSON text of a schema, as its document is shared by.

    Raises:
        ConstraintError: The schema holds what JSON does not.
    """
    try:
        return json.dumps(schema, ensure_ascii=True, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ConstraintError(f"a schema must be JSON: {error}") from None


class JsonSchema(JsonConstraint):
    """A JSON value that a JSON Schema, a pydantic model or any type pydantic knows describes.

    Args:
        schema: A schema as a mapping or a boolean; or a type, whose instances `parse` then gives.
        formats: "assert" takes `format` as a requirement, "annotate" as a mere remark.

    Raises:
        UnsupportedSchemaError: The schema is malformed, or uses what cannot be represented exactly.

    Example:
        >>> JsonSchema({"type": "integer", "minimum": 3}).accepts("4")
        True
    """

    def __init__(self, schema: Any, *, formats: Formats = "assert") -> None:
        if formats not in get_args(Formats):
            raise ConstraintError(f"formats must be one of {get_args(Formats)}, got {formats!r}")
        self._adapter: TypeAdapter[Any] | None = None
        if not is_schema(schema):
            self._adapter = TypeAdapter(schema)
            schema = self._adapter.json_schema()
        self.schema = schema
        self.formats: Formats = formats
        self._text = schema_text(schema)
        self.document = document_of(self._text, formats)

    def value_expression(self) -> Expr:
        """The constraint as an expression about a JSON value."""
        return self.document.root

    def from_value(self, value: Any) -> Any:
        """The value, as an instance of the type where one was given."""
        return value if self._adapter is None else self._adapter.validate_python(value)

    def description(self) -> list[Any]:
        """What the constraint is, as JSON."""
        return ["JsonSchema", self._text, self.formats]
