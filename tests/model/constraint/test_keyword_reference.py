"""The page about keywords says what the code does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agentloop.errors import UnsupportedSchemaError
from agentloop.model.constraint import Choice, CompileOptions, JsonSchema
from agentloop.model.constraint.formats import FORMATS
from agentloop.model.constraint.keyword_reference import keyword_reference
from agentloop.model.constraint.rules import ASSERTING, RULES
from tests.model.constraint.schemas import compact

PAGE = Path(__file__).resolve().parents[3] / "docs" / "json-schema.md"


def test_the_page_is_up_to_date() -> None:
    """docs/json-schema.md is what the tables of keywords and formats give."""
    assert PAGE.read_text() == keyword_reference()


def test_every_keyword_and_format_is_listed() -> None:
    """Nothing that is asserted is missing from the page."""
    page = PAGE.read_text()
    assert [name for name in [*ASSERTING, *FORMATS] if f"`{name}`" not in page] == []


EXACT: dict[str, dict[str, Any]] = {
    "type": {"type": ["null", "integer", "array"]},
    "required": {"required": ["a"]},
    "unevaluatedProperties": {
        "anyOf": [{"properties": {"a": {"type": "integer"}}, "required": ["a"]}, True],
        "unevaluatedProperties": {"type": "boolean"},
    },
    "propertyNames": {"propertyNames": {"maxLength": 1}},
    "dependentRequired": {"dependentRequired": {"a": ["b"]}},
    "dependentSchemas": {"dependentSchemas": {"a": {"maxProperties": 1}}},
    "dependencies": {"dependencies": {"a": ["b"], "b": {"properties": {"a": {"const": 1}}}}},
    "prefixItems": {"prefixItems": [{"type": "integer"}]},
    "items": {"items": {"type": "integer"}},
    "additionalItems": {"items": [{"type": "integer"}], "additionalItems": {"type": "string"},
                        "$schema": "http://json-schema.org/draft-07/schema#"},
    "unevaluatedItems": {"contains": {"type": "string"}, "unevaluatedItems": {"const": 1}},
    "contains": {"contains": {"type": "integer"}},
    "minContains": {"contains": {"type": "integer"}, "minContains": 2},
    "maxContains": {"contains": {"type": "integer"}, "maxContains": 1},
    "enum": {"enum": [1, "ab", [1], {"a": 1}]},
    "const": {"const": {"b": "a"}},
    "allOf": {"allOf": [{"type": ["integer", "string"]}, {"enum": [1, "ab", None]}]},
    "anyOf": {"anyOf": [{"type": "integer"}, {"maxLength": 1}]},
    "oneOf": {"oneOf": [{"type": "integer"}, {"minimum": 1}]},
    "not": {"not": {"type": "array", "maxItems": 1}},
    "if": {"if": {"type": "integer"}, "then": {"const": 1}, "else": {"type": "string"}},
    "then": {"if": {"minItems": 1}, "then": {"maxItems": 1}},
    "else": {"if": {"type": "object"}, "else": {"const": True}},
    "x-quote": {"type": "string", "x-quote": "texts"},
    "x-choice": {"x-choice": "texts"},
    "x-regex": {"x-regex": "a?"},
    "x-constraint": {"x-constraint": "some"},
}  # fmt: skip
"""For each keyword that is exact, a schema; its valid small instances are all generated."""
SCALARS: list[Any] = [None, True, 0, 1, 2, "", "a", "b", "ab"]
INSTANCES: list[Any] = [
    *SCALARS,
    *([], [1], ["a"], [1, 2], [1, "a"], ["a", "b", 1], [True, None], [2, 2, 2]),
    *({}, {"a": 1}, {"a": True}, {"b": "a"}, {"a": 1, "b": True}, {"a": "a", "b": 1}, {"ab": 0}),
]
BOUNDED: dict[str, tuple[Any, str]] = {
    "$ref": ({"items": {"$ref": "#"}}, "[[[[[[[]]]]]]]"),
    "properties": ({"properties": {"a": {}}}, '{"b":1}'),
    "minProperties": ({"minProperties": 2, "properties": {"a": {}}}, '{"a":1,"b":1,"c":1}'),
    "minItems": ({"items": {"const": 1}, "maxItems": 40}, f"[{','.join('1' * 40)}]"),
    "uniqueItems": ({"items": {"type": "string"}, "uniqueItems": True}, '["aa","ab"]'),
    "minLength": ({"maxLength": 300}, f'"{"x" * 300}"'),
    "pattern": ({"pattern": r"^\s$"}, '"\ufeff"'),
    "format": ({"format": "time"}, '"22:59:60-01:00"'),
    "minimum": ({"minimum": 0}, "0.12345678901234567"),
    "multipleOf": ({"multipleOf": 1e-3, "minimum": 0}, "1234567890123.125"),
}
"""For each group that is bounded, a schema and a valid text that is not generated."""


def test_what_is_exact_is_generated_whole() -> None:
    """For every exact keyword: all small instances, valid ones generated, invalid ones not."""
    listed = {k for rule in RULES if rule.exactness == "exact" for k in rule.keywords}
    assert listed == set(EXACT)
    given: dict[str, Any] = {"texts": ["ab"], "some": Choice(["a", "ab"])}
    options = CompileOptions(extra_keys="allowed")
    for keyword, schema in EXACT.items():
        constraint = JsonSchema(schema, given=given)
        dfa = constraint.automaton(options)
        verdicts = {constraint.accepts(compact(instance)) for instance in INSTANCES}
        assert verdicts == {True, False}, keyword
        for instance in INSTANCES:
            text = constraint.canonical(compact(instance))
            assert dfa.accepts(text.encode()) == constraint.accepts(text), (keyword, text)


def test_what_is_bounded_leaves_something_out() -> None:
    """For every bounded group there is a valid text that is not generated."""
    groups = [rule.keywords for rule in RULES if rule.exactness == "bounded"]
    assert [keywords[0] for keywords in groups] == list(BOUNDED)
    for keyword, (schema, text) in BOUNDED.items():
        constraint = JsonSchema(schema)
        assert constraint.accepts(text) == (keyword != "format"), keyword  # narrow there, too
        assert not constraint.automaton().accepts(text.encode()), keyword


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "other.json"},
        {"not": {"$ref": "#"}},
        {"items": {}, "not": {"uniqueItems": True}},
        {"pattern": r"(a)\1"},
        {"pattern": "(?<=a)b"},
        {"pattern": r"\ba"},
        {"pattern": "(?i)a"},
        {"pattern": "a(?=b)"},
        {"pattern": "a{5001}"},
        {"multipleOf": 4001},
        {"minLength": 10**6},
        {"anyOf": [{"x-quote": "p"}, {"type": "string", "pattern": "^a"}], "type": "string"},
    ],
)
def test_what_the_page_says_is_refused_is(schema: Any) -> None:
    """Each item of the list of refusals, when it is read or when it is compiled."""
    with pytest.raises(UnsupportedSchemaError):
        JsonSchema(schema, given={"p": "a b"}).automaton()
