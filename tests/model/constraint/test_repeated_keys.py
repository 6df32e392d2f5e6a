"""A key that no schema names may be written twice; what is written is always parsed."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from agentloop.errors import ConstraintError
from agentloop.model.constraint import JsonSchema
from tests.model.constraint.schemas import sample

INTEGERS = JsonSchema({"type": "object", "additionalProperties": {"type": "integer"}})


def test_the_last_value_of_a_repeated_key_counts() -> None:
    """The automaton may write it, `accepts` refuses it, `parse` reads it as all readers do."""
    text = '{"a":1,"b":2,"a":3}'
    assert INTEGERS.automaton().accepts(text.encode())
    assert not INTEGERS.accepts(text)
    assert INTEGERS.parse(text) == json.loads(text) == {"a": 3, "b": 2}


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"additionalProperties": {"type": "integer"}}, '{"a":1,"a":"b"}'),
        ({"minProperties": 2, "type": "object"}, '{"a":1,"a":2}'),
        ({"properties": {"a": {"const": 1}}}, '{"a":1,"a":2}'),
        ({"type": "object"}, '{"a":1,"a":2'),
    ],
)
def test_what_is_invalid_with_the_last_value_is_refused(schema: dict[str, Any], text: str) -> None:
    """Repeating a key lets nothing invalid in."""
    with pytest.raises(ConstraintError):
        JsonSchema(schema).parse(text)


@pytest.mark.parametrize(
    "schema",
    [
        INTEGERS.schema,
        {"type": "object", "patternProperties": {"^[ab]$": {"type": "boolean"}}},
        {"type": "object", "additionalProperties": True, "minProperties": 1},
        {"type": "object", "propertyNames": {"maxLength": 1}, "additionalProperties": {"const": 1}},
    ],
)
def test_whatever_is_written_is_parsed(schema: dict[str, Any]) -> None:
    """Random texts of objects with free keys are parsed to what `jsonschema` accepts."""
    constraint = JsonSchema(schema)
    dfa = constraint.automaton()
    num_repeated = 0
    for seed in range(150):
        text = sample(dfa, seed, length=60).decode()
        value = constraint.parse(text)
        assert value == json.loads(text)
        jsonschema.validate(value, schema)
        num_repeated += not constraint.accepts(text)
    assert num_repeated < 150
