"""Hostile schemas end in an automaton or in a typed refusal, never in waiting or a crash."""

from __future__ import annotations

from typing import Any

import pytest

from agentloop.errors import ConstraintError
from agentloop.model.constraint import JsonSchema
from agentloop.model.constraint.jsontext import MAX_NESTING


def nested(depth: int, keyword: str) -> Any:
    """A schema inside a keyword of a schema, and so on so many times."""
    schema: Any = {"type": "integer"}
    for _ in range(depth):
        inner: Any = [schema, {}] if keyword == "allOf" else schema
        schema = {keyword: inner}
    return schema


def chain(length: int) -> dict[str, Any]:
    """Definitions that refer to each other in a chain, without a step into the value."""
    links = {str(i): {"$ref": f"#/$defs/{i + 1}"} for i in range(length)}
    return {"$defs": {**links, str(length): {"type": "null"}}, "$ref": "#/$defs/0"}


def overlapping(count: int) -> dict[str, Any]:
    """Alternatives none of which is ruled out before the end."""
    options = [
        {"properties": {f"k{j}": {"minLength": i + j} for j in range(8)}} for i in range(count)
    ]
    return {"type": "object", "oneOf": options}


HOSTILE: dict[str, Any] = {
    "deep arrays": nested(30, "items"),
    "too deep arrays": nested(5_000, "items"),
    "deep not": nested(90, "not"),
    "deep allOf": nested(45, "allOf"),
    "long chain of references": chain(2_000),
    "mutual references": {
        "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}},
        "$ref": "#/$defs/a",
    },
    "a reference in its own not": {"not": {"$ref": "#"}},
    "tree without leaves": {"type": "array", "items": {"$ref": "#"}, "minItems": 1},
    "wide tree": {"properties": {f"k{i}": {"$ref": "#"} for i in range(30)}},
    "huge enum": {"enum": [f"value {i}" for i in range(30_000)]},
    "enum of everything": {"enum": [None, True, 1, "a", [1, {"b": []}], {"c": {"d": 1}}] * 100},
    "catastrophic pattern": {"pattern": "^(a+)+$"},
    "exponential pattern": {"pattern": "(a|b)*a(a|b){18}"},
    "large repeat": {"pattern": "^(a{1,500}){1,500}$"},
    "conflicting lengths": {"type": "string", "minLength": 10**9, "maxLength": 10**9},
    "many items": {"type": "array", "minItems": 10**9},
    "many counted": {"items": {"type": "string", "maxLength": 200}, "maxItems": 10**6},
    "overlapping alternatives": overlapping(12),
    "counting what is contained": {
        "type": "array",
        "allOf": [{"contains": {"const": i}, "maxContains": 9} for i in range(12)],
    },
    "many dependencies": {
        "type": "object",
        "dependentRequired": {f"k{i}": [f"k{(i * 7 + 3) % 40}"] for i in range(40)},
    },
    "distinct letters": {"items": {"enum": [chr(97 + i) for i in range(26)]}, "uniqueItems": True},
    "large multiple": {"type": "integer", "multipleOf": 3_999},
    "many digits": {"type": "number", "minimum": float("1e-300"), "maximum": float("1e300")},
    "empty keys": {"properties": {"": {"properties": {"": {}}}}, "required": [""]},
    "odd keys": {"properties": {'\u0000\ud83d\ude00"\\': {"type": "null"}}},
    "half a surrogate": {"properties": {"\ud83d": {}}, "enum": ["\ud83d"]},
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_schema_ends_in_an_automaton_or_a_refusal(name: str) -> None:
    """Compilation is bounded, whatever the schema."""
    try:
        dfa = JsonSchema(HOSTILE[name]).automaton()
    except ConstraintError:
        return
    assert 0 < dfa.num_states <= 200_000


def test_nesting_is_judged_up_to_a_limit() -> None:
    """A text as deep as the limit is judged, a deeper one is not accepted."""
    schema = JsonSchema({"$ref": "#/$defs/a", "$defs": {"a": {"items": {"$ref": "#/$defs/a"}}}})
    assert schema.accepts("[" * MAX_NESTING + "]" * MAX_NESTING)
    assert not schema.accepts("[" * (MAX_NESTING + 2) + "]" * (MAX_NESTING + 2))
