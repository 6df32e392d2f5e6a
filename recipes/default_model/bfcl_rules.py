"""Whether a call equals one that the Berkeley Function Calling Leaderboard lists.

A listed call gives, for each parameter, the values that count as right; "" among them says that the
parameter may be left out. Texts are compared without case, spaces and `,./-_*^`. Types are not
compared: calls are decoded under the function's schema. Source: the AST rules of `bfcl-eval`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from agentloop.scores import Call, parse_calls, share

_IGNORED = re.compile(r"[ ,./\-_*^]")


def equals_listed(call: Call, listed: Mapping[str, Mapping[str, Sequence[Any]]]) -> bool:
    """Whether a call equals a listed one, {name: {parameter: [acceptable values]}}.

    Example:
        >>> equals_listed(("area", {"base": 10}), {"area": {"base": [10], "unit": ["cm", ""]}})
        True
    """
    name, arguments = call
    return name in listed and _fits(arguments, listed[name])


def _fits(given: Mapping[str, Any], accepted: Mapping[str, Sequence[Any]]) -> bool:
    """Every value given is accepted, and what was left out may be left out."""
    known = all(key in accepted and _is_among(value, accepted[key]) for key, value in given.items())
    return known and all(key in given or "" in values for key, values in accepted.items())


def _is_among(value: Any, accepted: Sequence[Any]) -> bool:
    return any(_is_same(value, item) for item in accepted)


def _is_same(value: object, accepted: object) -> bool:
    if isinstance(value, str) and isinstance(accepted, str):
        return _plain(value) == _plain(accepted)
    if isinstance(value, dict) and isinstance(accepted, dict):
        return _fits(cast(dict[str, Any], value), cast(dict[str, Any], accepted))
    if isinstance(value, list) and isinstance(accepted, list):
        items, wanted = cast(list[object], value), cast(list[object], accepted)
        return len(items) == len(wanted) and all(map(_is_same, items, wanted))
    if isinstance(value, bool) or isinstance(accepted, bool):
        return value is accepted
    return value == accepted


def _plain(text: str) -> str:
    return _IGNORED.sub("", text).lower().replace("'", '"')


def bfcl_scores(predictions: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Scores of answers to rows of BFCL.

    Returns:
        valid: share that parse as a list of calls.
        exact_call: share of one call that equals a listed one; of no call where none is listed.
        tool_name: the same for names alone.

    Raises:
        ValueError: there is not one prediction for every row.
    """
    made = [parse_calls(p) for p in predictions]
    pairs = list(zip(made, (row["possible"] for row in rows), strict=True))
    return {
        "valid": share(calls is not None for calls in made),
        "exact_call": share(_is_right(calls, possible) for calls, possible in pairs),
        "tool_name": share(
            [name for name, _ in calls or []] == [name for listed in possible for name in listed]
            for calls, possible in pairs
        ),
    }


def _is_right(calls: list[Call] | None, possible: Sequence[Any]) -> bool:
    if calls is None or len(calls) != len(possible):
        return False
    return all(equals_listed(c, listed) for c, listed in zip(calls, possible, strict=True))
