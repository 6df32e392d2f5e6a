"""Type guards for JSON values of unknown shape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeGuard


def is_object(value: object) -> TypeGuard[Mapping[str, Any]]:
    """Whether a value is a JSON object; its keys have been checked to be strings."""
    return isinstance(value, Mapping)


def is_list(value: object) -> TypeGuard[list[Any]]:
    """Whether a value is a JSON array."""
    return isinstance(value, list)


def is_schema(value: object) -> bool:
    """Whether a value can be a schema."""
    return isinstance(value, Mapping | bool)
