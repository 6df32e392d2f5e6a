"""Values checked against a JSON schema, with one short error that a model can act on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import jsonschema
import jsonschema.exceptions
import jsonschema.validators
from referencing import Registry
from referencing.exceptions import Unresolvable

from agentloop.drafts import shorten
from agentloop.errors import GraphBuildError
from agentloop.model.prompts import Schema

MESSAGE_LENGTH = 400


@dataclass(frozen=True, slots=True)
class Misfit:
    """Where a value does not fit its schema, everything cut to a readable length.

    Attributes:
        pointer: JSON pointer of the place, `""` for the whole value.
        message: What is wrong.
        expected: What the schema takes there.
        got: What came.
    """

    pointer: str
    message: str
    expected: str
    got: str


class SchemaCheck:
    """A JSON schema ready to check values. It never fetches a schema from elsewhere.

    Args:
        schema: The schema.
        what: What it describes, for errors: `tool 'search'`.

    Raises:
        GraphBuildError: The schema is not a valid one.
    """

    def __init__(self, schema: Schema, what: str) -> None:
        kind: Any = jsonschema.validators.validator_for(
            schema, default=jsonschema.Draft202012Validator
        )
        try:
            kind.check_schema(schema)
        except jsonschema.exceptions.SchemaError as error:
            pointer = pointer_to(error.absolute_path)
            raise GraphBuildError(
                f"{what} has an invalid JSON schema at {pointer or 'the top'}: "
                f"{error.message[:MESSAGE_LENGTH]}"
            ) from error
        offline: Any = Registry  # an empty one: references to other documents fetch nothing
        self._validator = kind(schema, registry=offline())

    def misfit(self, value: object) -> Misfit | None:
        """The most telling misfit of a value, `None` if it fits."""
        best_match = cast(Any, jsonschema.exceptions).best_match
        try:
            best = best_match(self._validator.iter_errors(value))
        except Unresolvable as error:
            reason = f"Unresolvable reference: {error}"[:MESSAGE_LENGTH]
            return Misfit("", reason, "a schema without references to other documents", "")
        except RecursionError:
            return Misfit("", "it is nested too deeply", "fewer levels", shorten(type(value)))
        if best is None:
            return None
        return Misfit(
            pointer_to(best.absolute_path),
            best.message[:MESSAGE_LENGTH],
            f"{best.validator} {shorten(best.validator_value, 120)}",
            shorten(best.instance, 120),
        )


def argument_check(schema: object, name: str) -> SchemaCheck:
    """The check of a tool's arguments.

    Raises:
        GraphBuildError: The schema is not one of an object, or not valid.
    """
    if not isinstance(schema, Mapping) or cast(Schema, schema).get("type") != "object":
        raise GraphBuildError(
            f"tool {name!r} needs a JSON schema of an object for its arguments, got "
            f"{shorten(cast(Any, schema))}; write {{'type': 'object', 'properties': {{...}}}}"
        )
    return SchemaCheck(cast(Schema, schema), f"tool {name!r}")


def pointer_to(path: Any) -> str:
    """A path of keys and indices as a JSON pointer.

    Example:
        >>> pointer_to(["a/b", 0])
        '/a~1b/0'
    """
    return "".join(f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in path)
