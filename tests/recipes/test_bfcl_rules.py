"""A call is right if it equals a listed one by the leaderboard's rules."""

import json
from typing import Any

import pytest

from recipes.default_model.bfcl_rules import bfcl_scores, equals_listed

LISTED: dict[str, Any] = {
    "book": {
        "city": ["New York, NY", "NYC"],
        "seats": [2, 2.5],
        "pets": [True, ""],
        "days": [["Mon", "Tue"], [1]],
        "who": [{"name": ["Ada"], "age": [36, ""]}],
    }
}
RIGHT: dict[str, Any] = {
    "city": "new york ny",
    "seats": 2.0,
    "days": ["mon", "TUE"],
    "who": {"name": "ada"},
}


@pytest.mark.parametrize(
    ("change", "is_right"),
    [
        ({}, True),
        ({"pets": True}, True),
        ({"pets": 1}, False),
        ({"seats": True}, False),
        ({"city": "Boston"}, False),
        ({"days": ["Tue", "Mon"]}, False),
        ({"days": [1]}, True),
        ({"who": {"name": "Ada", "age": 36}}, True),
        ({"who": {"age": 36}}, False),
        ({"who": {"name": "Ada", "job": "x"}}, False),
        ({"more": 1}, False),
    ],
)
def test_a_call_equals_a_listed_one(change: dict[str, Any], is_right: bool) -> None:
    """Values are compared as the leaderboard does; what is not optional must be there."""
    assert equals_listed(("book", {**RIGHT, **change}), LISTED) == is_right


def test_what_must_be_there_may_not_be_left_out() -> None:
    """A parameter without "" among its values is required; another name is another call."""
    assert not equals_listed(("book", {k: v for k, v in RIGHT.items() if k != "city"}), LISTED)
    assert not equals_listed(("cancel", RIGHT), LISTED)


def test_scores_count_calls_and_silence() -> None:
    """Where nothing is listed, no call is right."""
    text = json.dumps([{"name": "book", "arguments": RIGHT}])
    rows: list[dict[str, Any]] = [
        {"possible": [LISTED]},
        {"possible": []},
        {"possible": []},
        {"possible": [LISTED]},
    ]
    scores = bfcl_scores([text, text, "[]", "nonsense"], rows)
    assert scores == {"valid": 0.75, "exact_call": 0.5, "tool_name": 0.5}
