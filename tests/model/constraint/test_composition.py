"""Constraints inside constraints."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import BaseModel

from agentloop.errors import ConstraintError
from agentloop.model.constraint import (
    Choice,
    JsonSchema,
    List,
    Nullable,
    Object,
    OneOf,
    Regex,
    Text,
    ToolCall,
    ToolCalls,
)


class Point(BaseModel):
    """A model for the tests below."""

    x: int
    y: int


FORM = Object(
    colour=Choice(["red", "blue"]),
    code=Nullable(Regex("[A-Z]{2}")),
    at=List(JsonSchema(Point), min=1, max=2),
    other=OneOf(JsonSchema({"type": "integer"}), Text(max_length=3)),
)
GOOD: dict[str, Any] = {"colour": "red", "code": "AB", "at": [{"x": 1, "y": 2}], "other": "abc"}


@pytest.mark.parametrize(
    ("change", "is_valid"),
    [
        ({}, True),
        ({"code": None, "other": -5}, True),
        ({"at": [{"x": 1, "y": 2}, {"x": 0, "y": 0}]}, True),
        ({"colour": "green"}, False),
        ({"colour": None}, False),
        ({"code": "ABC"}, False),
        ({"at": []}, False),
        ({"at": [{"x": 1}]}, False),
        ({"other": "abcd"}, False),
        ({"other": 1.5}, False),
        ({"more": 1}, False),
    ],
)
def test_each_part_keeps_its_constraint(change: dict[str, Any], is_valid: bool) -> None:
    """A composed value is valid exactly when all its parts are."""
    text = json.dumps({**GOOD, **change}, separators=(",", ":"))
    assert FORM.automaton().accepts(text.encode()) == is_valid
    assert FORM.accepts(text) == is_valid


def test_values_are_parsed_by_their_parts() -> None:
    """Models become instances, texts stay texts, tool calls become calls."""
    parsed = FORM.parse(json.dumps(GOOD))
    assert parsed == {**GOOD, "at": [Point(x=1, y=2)]}
    tools = ToolCalls(
        [{"name": "go", "description": "", "parameters": {"type": "object", "properties": {}}}]
    )
    both = Object(why=Text(), calls=tools)
    text = '{"why":"since","calls":[{"name":"go","arguments":{}}]}'
    assert both.automaton().accepts(text.encode())
    assert both.parse(text) == {"why": "since", "calls": [ToolCall("go", {})]}


def test_fields_are_written_in_the_order_given() -> None:
    """The automaton has one order of fields; the text may have another and is still valid."""
    pair = Object(b=Choice(["x"]), a=Choice(["y"]))
    assert pair.automaton().accepts(b'{"b":"x","a":"y"}')
    assert not pair.automaton().accepts(b'{"a":"y","b":"x"}')
    assert pair.accepts('{"a":"y","b":"x"}')


def test_the_first_option_that_holds_parses() -> None:
    """`OneOf` gives the value as its first fitting option does."""
    either = OneOf(JsonSchema(Point), JsonSchema({"type": "object"}))
    assert either.parse('{"x":1,"y":2}') == Point(x=1, y=2)
    assert either.parse('{"x":"1"}') == {"x": "1"}


def test_keys_hold_all_parts() -> None:
    """A change anywhere inside changes the key; building it again does not."""
    again = Object(**FORM.fields)
    assert again.key == FORM.key
    assert Object(colour=Choice(["red"])).key != Object(colour=Choice(["blue"])).key
    assert List(Text(), 0, 2).key != List(Text(), 0, 3).key


def test_bad_arguments_are_refused() -> None:
    """Impossible numbers and no options are errors at once."""
    with pytest.raises(ConstraintError, match="0 <= min <= max, got 2 and 1"):
        List(Text(), 2, 1)
    with pytest.raises(ConstraintError, match="at least one option"):
        OneOf()
