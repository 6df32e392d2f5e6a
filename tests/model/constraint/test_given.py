"""Schemas take quotes, choices, patterns and whole constraints from outside."""

from __future__ import annotations

import json
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field

from agentloop.errors import ConstraintError, UnsupportedSchemaError
from agentloop.model.constraint import (
    Choice,
    JsonSchema,
    List,
    Nullable,
    Object,
    Quote,
    Regex,
    Text,
    ToolCalls,
)
from tests.model.constraint.schemas import compact, sample

PASSAGES = ["The cat sat on the mat.", "It rained in Oslo."]
CITED: dict[str, Any] = {
    "type": "object",
    "properties": {
        "answer": {"type": ["string", "null"], "x-quote": "passages"},
        "shown": {
            "type": "array",
            "items": {"type": "string", "x-quote": {"texts": "passages", "unit": "sentences"}},
            "maxItems": 2,
        },
        "mood": {"type": "string", "x-choice": "moods"},
        "code": {"type": "string", "x-regex": "[A-Z]{2}[0-9]"},
    },
    "required": ["answer", "mood"],
    "additionalProperties": False,
}
NAMED = JsonSchema(CITED, given={"passages": PASSAGES, "moods": ["good", "bad"]})
PLACED = JsonSchema(
    {
        "type": "object",
        "properties": {
            "answer": Nullable(Quote(PASSAGES)),
            "shown": List(Quote(PASSAGES, "sentences"), max=2),
            "mood": Choice(["good", "bad"]),
            "code": Regex("[A-Z]{2}[0-9]"),
        },
        "required": ["answer", "mood"],
        "additionalProperties": False,
    }
)
GOOD: dict[str, Any] = {"answer": "cat sat", "mood": "good"}


@pytest.mark.parametrize("constraint", [NAMED, PLACED], ids=["named", "objects"])
@pytest.mark.parametrize(
    ("change", "is_valid"),
    [
        ({}, True),
        ({"answer": None}, True),
        ({"answer": "cat ran"}, False),
        ({"answer": 1}, False),
        ({"shown": ["It rained in Oslo."]}, True),
        ({"shown": ["It rained"]}, False),
        ({"shown": ["It rained in Oslo."] * 3}, False),
        ({"mood": "fair"}, False),
        ({"code": "AB1"}, True),
        ({"code": "xAB1"}, False),
        ({"more": 1}, False),
    ],
)
def test_named_texts_and_objects_in_a_schema_mean_the_same(
    constraint: JsonSchema, change: dict[str, Any], is_valid: bool
) -> None:
    """Judged alike, whether texts are named by keywords or objects stand in the schema."""
    text = compact({**GOOD, **change})
    assert constraint.accepts(text) == is_valid
    assert constraint.automaton().accepts(constraint.canonical(text).encode()) == is_valid
    assert (constraint.explain(text) is None) == is_valid


@pytest.mark.parametrize("seed", range(8))
def test_whatever_is_generated_is_accepted(seed: int) -> None:
    """Samples of both forms satisfy the other."""
    assert NAMED.accepts(sample(PLACED.automaton(), seed).decode())
    assert PLACED.accepts(sample(NAMED.automaton(), seed).decode())


def test_a_type_says_which_field_is_quoted() -> None:
    """A pydantic model names the texts, which come with the call; values are its instances."""

    class Answer(BaseModel):
        span: Annotated[str, Field(json_schema_extra={"x-quote": "passages"})]
        sure: bool

    constraint = JsonSchema(Answer, given={"passages": PASSAGES})
    assert constraint.parse('{"span": "the mat", "sure": true}') == Answer(
        span="the mat", sure=True
    )
    assert not constraint.accepts('{"span": "a mat", "sure": true}')


def test_lengths_bound_a_quote() -> None:
    """`minLength` and `maxLength` beside a quote narrow it, in what is judged and generated."""
    schema = {"type": "string", "x-quote": "p", "minLength": 5, "maxLength": 7}
    constraint = JsonSchema(schema, given={"p": PASSAGES})
    dfa = constraint.automaton()
    for text, is_valid in [
        ("cat sat", True),
        ("cat", False),
        ("The cat", True),
        ("on the mat", False),
    ]:
        assert constraint.accepts(compact(text)) == dfa.accepts(compact(text).encode()) == is_valid
    found = constraint.explain('"on the mat"')
    assert found is not None
    assert (found.offset, found.allowed) == (7, ("the end of the quote",))


def test_a_keyword_says_nothing_about_other_types() -> None:
    """As `pattern`, so that it can stand beside any type; an object in a schema is exact."""
    loose = JsonSchema({"x-choice": "c"}, given={"c": ["a"]})
    assert loose.accepts("1")
    assert not loose.accepts('"b"')
    assert not JsonSchema(Choice(["a"])).accepts("1")
    assert JsonSchema(Choice(["a"])).accepts('"a"')


def test_constraints_are_given_by_name() -> None:
    """Any constraint, also one that stands in several places and in definitions."""
    point = Object(x=JsonSchema({"type": "integer"}), y=JsonSchema({"type": "integer"}))
    schema = {
        "$defs": {"line": {"type": "array", "items": {"x-constraint": "point"}, "minItems": 2}},
        "properties": {"a": {"$ref": "#/$defs/line"}, "b": {"x-constraint": "point"}},
        "required": ["a"],
    }
    constraint = JsonSchema(schema, given={"point": point})
    assert constraint.accepts('{"a": [{"x":1,"y":2},{"x":3,"y":4}]}')
    assert not constraint.accepts('{"a": [{"x":1,"y":2},{"x":3}]}')
    assert not constraint.accepts('{"a": [{"x":1,"y":2},{"x":3,"y":4}], "b": {"x": 0.5, "y": 1}}')


def test_what_is_given_is_part_of_the_key() -> None:
    """Other texts are another constraint; the same texts are the same one."""

    def key(texts: Any) -> str:
        return JsonSchema({"x-quote": "p"}, given={"p": texts}).key

    assert key(["a b"]) == key(("a b",)) == key("a b")
    assert key(["a b"]) != key(["a c"])
    assert JsonSchema({"anyOf": [Choice(["a"])]}).key != JsonSchema({"anyOf": [Choice(["b"])]}).key


@pytest.mark.parametrize(
    ("schema", "given", "pointer", "reason"),
    [
        ({"items": {"x-quote": "p"}}, {}, "/items", "no texts given under 'p'"),
        ({"x-quote": "p"}, {"q": ["a"]}, "", r"only \['q'\]"),
        ({"x-quote": {"texts": "p", "units": 1}}, {"p": "a"}, "", "'units' is not one of"),
        ({"x-quote": {"texts": "p", "unit": "lines"}}, {"p": "a"}, "", "unit must be one of"),
        ({"x-quote": "p"}, {"p": " "}, "", "not blank"),
        ({"x-choice": 3}, {}, "", "must be a string, got 3"),
        ({"x-regex": "("}, {}, "", "missing"),
        ({"x-constraint": "c"}, {"c": "text"}, "", "no constraint given"),
    ],
)
def test_what_is_not_given_is_refused_with_its_place(
    schema: Any, given: Any, pointer: str, reason: str
) -> None:
    """The refusal has the pointer, the keyword and what to pass."""
    with pytest.raises(UnsupportedSchemaError, match=reason) as caught:
        JsonSchema(schema, given=given)
    assert caught.value.pointer == pointer
    assert caught.value.keyword.startswith("x-")


@pytest.mark.parametrize(
    ("schema", "given", "reason"),
    [
        ({"enum": [Choice(["a"])]}, {}, "stands in data"),
        ({"properties": {"a": object()}}, {}, "must be JSON"),
        ({}, {"p": 3}, "must be a text, several texts or a constraint"),
        ({}, {"p": [1]}, "must hold texts, got 1"),
        ({}, {"p": []}, "must hold texts"),
    ],
)
def test_what_is_neither_schema_nor_text_is_refused(schema: Any, given: Any, reason: str) -> None:
    """A wrong argument is an error that says what is wanted."""
    with pytest.raises(ConstraintError, match=reason):
        JsonSchema(schema, given=given)


def test_quotes_that_cannot_be_told_apart_are_refused_with_the_place() -> None:
    """Two quotes for one string are an error at the pointer of that string."""
    twice = {"properties": {"q": {"anyOf": [{"x-quote": "a"}, {"x-quote": "b"}]}}}
    constraint = JsonSchema({**twice, "type": "object"}, given={"a": "a cat", "b": "a dog"})
    assert constraint.accepts('{"q": "dog"}')
    with pytest.raises(UnsupportedSchemaError, match="a Quote stands alone") as caught:
        constraint.automaton()
    assert caught.value.pointer == "/properties/q"


def test_arguments_of_tools_are_quoted() -> None:
    """A tool's schema may hold constraints, so that an argument is a word of the request."""
    parameters = {
        "type": "object",
        "properties": {"city": Quote(["Rain in Oslo?"]), "note": Text(max_length=9)},
        "required": ["city"],
        "additionalProperties": False,
    }
    calls = ToolCalls([{"name": "rain", "description": "", "parameters": parameters}])
    assert calls.accepts('[{"name":"rain","arguments":{"city":"Oslo"}}]')
    assert not calls.accepts('[{"name":"rain","arguments":{"city":"Lima"}}]')
    json.dumps(calls.description())
