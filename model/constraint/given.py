"""Texts and constraints that a schema takes from outside: by name, or as Python objects in it.

A schema is JSON, so an object in it is replaced by a keyword that names it; what it names is handed
to the document beside the schema.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from agentloop.errors import ConstraintError
from agentloop.model.constraint.constraint import Constraint
from agentloop.model.constraint.json_types import is_list, is_object

EMBEDDED = "x-constraint"
_DATA = frozenset({"enum", "const", "default", "examples"})
"""Keywords whose value is data and no schema."""

GivenValue = str | Iterable[str] | Constraint


@dataclass(frozen=True)
class Given:
    """What a schema may name; compared by content.

    Attributes:
        texts: Names with texts.
        constraints: Names with constraints.
    """

    texts: tuple[tuple[str, tuple[str, ...]], ...] = ()
    constraints: tuple[tuple[str, Constraint], ...] = ()

    @property
    def names(self) -> list[str]:
        """The names that the user gave, for messages."""
        return sorted(name for name, _ in (*self.texts, *self.constraints) if len(name) < 64)

    def text(self, name: str) -> tuple[str, ...] | None:
        """The texts of a name."""
        return dict(self.texts).get(name)

    def constraint(self, name: str) -> Constraint | None:
        """The constraint of a name."""
        return dict(self.constraints).get(name)

    def description(self) -> list[Any]:
        """What is given, as JSON."""
        named = [[name, inner.description()] for name, inner in self.constraints]
        return [[[name, list(texts)] for name, texts in self.texts], named]


NOTHING_GIVEN = Given()


def schema_text(schema: Any, given: Mapping[str, GivenValue]) -> tuple[str, Given]:
    """The JSON text of a schema, as its document is shared by, and what it may name.

    Raises:
        ConstraintError: The schema holds what is neither JSON nor a constraint, or a name stands
            for neither texts nor a constraint.
    """
    texts: dict[str, tuple[str, ...]] = {}
    constraints: dict[str, Constraint] = {}
    for name, value in given.items():
        if isinstance(value, Constraint):
            constraints[name] = value
        else:
            texts[name] = _texts(name, value)
    try:
        plain = _without_objects(schema, constraints, is_data=False)
        text = json.dumps(plain, ensure_ascii=True, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ConstraintError(f"a schema must be JSON: {error}") from None
    if not texts and not constraints:
        return text, NOTHING_GIVEN
    return text, Given(tuple(sorted(texts.items())), tuple(sorted(constraints.items())))


def _texts(name: str, value: object) -> tuple[str, ...]:
    found = (value,) if isinstance(value, str) else value
    if not isinstance(found, Iterable):
        raise ConstraintError(
            f"given[{name!r}] must be a text, several texts or a constraint, got {value!r}"
        )
    texts = tuple(cast("Iterable[object]", found))
    wrong = next((text for text in texts if not isinstance(text, str)), None)
    if wrong is not None or not texts:
        raise ConstraintError(f"given[{name!r}] must hold texts, got {wrong!r}")
    return cast("tuple[str, ...]", texts)


def _without_objects(value: Any, found: dict[str, Constraint], *, is_data: bool) -> Any:
    """A schema with its objects replaced by keywords that name them, and these objects."""
    if isinstance(value, Constraint):
        if is_data:
            raise ConstraintError(f"{value!r} stands in data, where only JSON can; use anyOf")
        found[value.key] = value
        return {EMBEDDED: value.key}
    if is_object(value):
        inner = {
            key: _without_objects(part, found, is_data=is_data or key in _DATA)
            for key, part in value.items()
        }
        return inner if any(inner[key] is not part for key, part in value.items()) else value
    if is_list(value):
        parts = [_without_objects(part, found, is_data=is_data) for part in value]
        return parts if any(a is not b for a, b in zip(parts, value, strict=True)) else value
    return value
