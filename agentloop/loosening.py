"""Schemas that the constraint engine refuses, loosened until it takes them.

The engine represents a schema exactly or not at all. A tool's schema that somebody else wrote may
hold a keyword it refuses; then the model is constrained by the schema without that keyword, and
what it answers is checked against the whole one, with a bounded repair. What was left out is told.
"""

from __future__ import annotations

import json
import logging
from functools import lru_cache
from typing import Any, NamedTuple

from agentloop.errors import ConstraintError, UnsupportedSchemaError
from agentloop.json_data import as_array, as_object
from agentloop.model.prompts import Schema, ToolSpec

logger = logging.getLogger("agentloop")
_MAX_ROUNDS = 64


class Loosened(NamedTuple):
    """A tool's specification as the engine takes it.

    Attributes:
        spec: The specification.
        left_out: What the engine refused, a line each; empty if it takes the schema as it is.
    """

    spec: ToolSpec
    left_out: tuple[str, ...]


def loosened(spec: ToolSpec) -> Loosened:
    """A specification with as much of its schema as the engine takes.

    A warning is logged the first time that something is left out.
    """
    parameters, left_out = _loosened(spec["name"], json.dumps(spec["parameters"]))
    return (
        Loosened({**spec, "parameters": parameters}, left_out) if left_out else Loosened(spec, ())
    )


@lru_cache(maxsize=4096)
def _loosened(name: str, text: str) -> tuple[Schema, tuple[str, ...]]:
    schema: dict[str, Any] = json.loads(text)
    left_out: list[str] = []
    for _ in range(_MAX_ROUNDS):
        refusal = _refusal(name, schema)
        if refusal is None:
            break
        left_out.append(str(refusal))
        pointer = refusal.pointer.removeprefix(f"/{name}")
        if not _leave_out(schema, pointer, refusal.keyword):
            schema = {"type": "object"}
            break
    else:
        schema = {"type": "object"}
    if left_out:
        logger.warning(
            "tool %s: answers are checked against its whole schema, but constrained without what "
            "the engine refuses: %s",
            name,
            "; ".join(left_out),
        )
    return schema, tuple(left_out)


def _refusal(name: str, schema: Schema) -> UnsupportedSchemaError | None:
    from agentloop.model.constraint import ToolCalls  # loads numpy, so only when needed

    try:
        ToolCalls([{"name": name, "description": "", "parameters": schema}]).automaton()
    except UnsupportedSchemaError as error:
        return error
    except ConstraintError as error:
        return UnsupportedSchemaError("", "", str(error))
    return None


def _leave_out(schema: dict[str, Any], pointer: str, keyword: str) -> bool:
    """Take a keyword out of the place a pointer names. False if it is not there."""
    node: object = schema
    for part in pointer.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        items = as_array(node)
        if items is not None:
            node = items[int(key)] if key.isdecimal() and int(key) < len(items) else None
        else:
            node = (as_object(node) or {}).get(key)
    entries = as_object(node)
    if entries is None or keyword not in entries:
        return False
    del entries[keyword]
    return True
