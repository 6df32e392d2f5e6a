"""Parsed JSON looked at with types: what came from a file or a model is anything until checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast


def as_object(value: object) -> dict[str, Any] | None:
    """The value if it is a JSON object."""
    return cast(dict[str, Any], value) if isinstance(value, dict) else None


def as_array(value: object) -> list[object] | None:
    """The value if it is a JSON array."""
    return cast(list[object], value) if isinstance(value, list) else None


def inlined(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A JSON schema with its `$defs` put in the places that refer to them.

    One that refers to itself comes back as it is.
    """
    definitions: dict[str, Any] = as_object(schema.get("$defs")) or {}

    def resolve(node: object, inside: frozenset[str]) -> Any:
        items, entries = as_array(node), as_object(node)
        if items is not None:
            return [resolve(item, inside) for item in items]
        if entries is None:
            return node
        name = str(entries.get("$ref", "")).removeprefix("#/$defs/")
        if name not in definitions:
            return {key: resolve(value, inside) for key, value in entries.items()}
        if name in inside:
            raise RecursionError(name)
        rest = {key: value for key, value in entries.items() if key != "$ref"}
        return resolve(definitions[name], inside | {name}) | rest

    try:
        body = {key: value for key, value in schema.items() if key != "$defs"}
        whole: dict[str, Any] = resolve(body, frozenset())
    except RecursionError:
        return dict(schema)
    return whole
