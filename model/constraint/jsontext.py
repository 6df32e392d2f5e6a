"""JSON text to values and back, strictly: no NaN, no repeated keys, numbers as exact decimals."""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

from agentloop.errors import ConstraintError
from agentloop.model.constraint.machine import JsonValue
from agentloop.model.constraint.numerals import to_decimal

MAX_NESTING = 100
"""Deepest nesting of a text that is read."""


class JsonTextError(ConstraintError):
    """A text is not JSON, or not JSON that can be told apart from all other."""


def read_number(text: str) -> Decimal:
    """The exact value of a number as JSON spells it.

    Raises:
        JsonTextError: It has too many digits.
    """
    try:
        found = to_decimal(Decimal(text))
    except InvalidOperation:  # an exponent beyond what a decimal can hold
        found = None
    if found is None:
        raise JsonTextError(f"the number {text[:40]!r} has too many digits")
    return found


def _constant(text: str) -> Decimal:
    raise JsonTextError(f"{text} is not JSON")


def _object(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in found if keys.count(key) > 1)
        raise JsonTextError(f"the key {twice!r} comes twice in one object")
    return found


def parse_json(text: str, *, may_repeat: bool = False) -> JsonValue:
    """The value of a JSON text.

    Args:
        text: The text.
        may_repeat: Whether a key may come twice in one object; its last value counts.

    Raises:
        JsonTextError: It is not JSON, repeats a key, nests too deeply or holds half a pair of
            surrogates.
    """
    try:
        value: JsonValue = json.loads(
            text,
            parse_float=read_number,
            parse_int=read_number,
            parse_constant=_constant,
            object_pairs_hook=dict if may_repeat else _object,
        )
        json.dumps(value, ensure_ascii=False, default=str).encode()
    except RecursionError:
        raise JsonTextError(f"the text nests more than {MAX_NESTING} deep") from None
    except ValueError as error:  # UnicodeEncodeError for half a surrogate pair is one too
        raise JsonTextError(f"not JSON: {error}") from None
    _check_nesting(value)
    return value


def _check_nesting(value: JsonValue) -> None:
    level: list[JsonValue] = [value]
    for _ in range(MAX_NESTING + 1):
        inner: list[JsonValue] = []
        for part in level:
            if isinstance(part, list):
                inner += part
            elif isinstance(part, dict):
                inner += part.values()
        if not inner:
            return
        level = inner
    raise JsonTextError(f"the text nests more than {MAX_NESTING} deep")


def to_python(value: JsonValue) -> Any:
    """The value as `json.loads` gives it: int and float instead of decimals."""
    match value:
        case Decimal():
            return int(value) if value == value.to_integral_value() else float(value)
        case list():
            return [to_python(item) for item in value]
        case Mapping():
            return {key: to_python(inner) for key, inner in value.items()}
        case _:
            return value
