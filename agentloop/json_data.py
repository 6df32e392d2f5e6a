"""Parsed JSON looked at with types: what came from a file or a model is anything until checked."""

from __future__ import annotations

from typing import Any, cast


def as_object(value: object) -> dict[str, Any] | None:
    """The value if it is a JSON object."""
    return cast(dict[str, Any], value) if isinstance(value, dict) else None


def as_array(value: object) -> list[object] | None:
    """The value if it is a JSON array."""
    return cast(list[object], value) if isinstance(value, list) else None
