"""An explanation is given exactly where a text is rejected, and points at the place."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from agentloop.errors import ConstraintError, UnsupportedSchemaError
from agentloop.model.constraint import (
    Choice,
    Constraint,
    JsonSchema,
    List,
    Nullable,
    Object,
    Quote,
    Regex,
    Text,
    ToolCalls,
)
from agentloop.model.constraint.json_types import is_list, is_object
from agentloop.model.constraint.rejection import Rejection
from tests.model.constraint.schemas import compact, instances, sample, schemas

PERSON = JsonSchema(
    {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 5},
            "year": {"type": "string", "pattern": r"^\d{4}$"},
            "colour": {"enum": ["red", "blue", "black"]},
            "age": {"type": "integer", "minimum": 0, "maximum": 5},
            "tags": {"items": {"type": "string"}, "maxItems": 2, "uniqueItems": True},
            "kids": {"type": "array", "items": {"$ref": "#/$defs/kid"}},
        },
        "required": ["name", "colour"],
        "additionalProperties": False,
        "$defs": {
            "kid": {
                "oneOf": [
                    {"properties": {"is": {"const": "boy"}, "n": {}}, "required": ["is", "n"]},
                    {"properties": {"is": {"const": "girl"}, "x": {}}, "required": ["is", "x"]},
                ]
            }
        },
    }
)
TOOLS = ToolCalls(
    [
        {
            "name": "book",
            "description": "",
            "parameters": {
                "type": "object",
                "properties": {"day": {"type": "string", "format": "date"}},
                "required": ["day"],
                "additionalProperties": False,
            },
        }
    ]
)
QUOTE = Quote(["The cat sat on the mat. The cat ran."], max_units=4)


def rejection(constraint: Constraint, text: str) -> Rejection:
    found = constraint.explain(text)
    assert found is not None
    return found


def check(constraint: Constraint, text: str) -> None:
    """An explanation is there exactly where the text is rejected, and its place is in the text."""
    found = constraint.explain(text)
    assert (found is None) == constraint.accepts(text)
    if found is not None:
        assert 0 <= found.offset <= len(text)
        assert found.found
        assert str(found.offset) in str(found)
        lines = text.split("\n")
        before = sum(len(line) + 1 for line in lines[: found.line - 1])
        assert before + found.column - 1 == found.offset


@given(schemas, instances, st.data())
@settings(deadline=None, max_examples=80)
def test_an_explanation_is_given_exactly_where_a_json_text_is_rejected(
    schema: Any, instance: Any, data: st.DataObject
) -> None:
    """Whole texts, cut ones and damaged ones: never without an explanation, never with one more."""
    try:
        constraint = JsonSchema(schema)
        text = json.dumps(instance, ensure_ascii=data.draw(st.booleans()))
        check(constraint, text)
        check(constraint, text[: data.draw(st.integers(0, len(text)))])
        at = data.draw(st.integers(0, len(text)))
        noise = data.draw(
            st.sampled_from(['"', "}", "]", ",", "1", "x", ":", "\\", "\n", "[", "{"])
        )
        check(constraint, text[:at] + noise + text[at + data.draw(st.integers(0, 1)) :])
    except UnsupportedSchemaError:
        assume(False)


@given(st.text('{}[]",:\\u0dD8e+-.1truefalsn \n\x00é', max_size=12))
@settings(deadline=None, max_examples=100)
def test_any_text_at_all_is_explained(text: str) -> None:
    """The reader that judges and the one that says why agree on what is JSON."""
    check(JsonSchema(True), text)


@pytest.mark.parametrize(
    "text",
    [
        r'"\ud83d\ude00"',
        r'"\ud83d"',
        '"\ud83d"',
        r'"\ude00\ud83d"',
        "1e99999",
        "1e99999999999999999999",
        "-",
        "01",
        "1.",
        "NaN",
        "\ufeff1",
        "[" * 101 + "]" * 101,
        "[" * 102 + "]" * 102,
        "[" * 100 + "1" + "]" * 100,
        "[" * 101 + "1" + "]" * 101,
        "[" * 50_000,
        '{"a":1,"a":2}',
        '{"\\u0061":1,"a":2}',
    ],
)
def test_odd_texts_are_judged_alike(text: str) -> None:
    """Surrogates, huge numbers, deep nesting and repeated keys are explained where rejected."""
    check(JsonSchema(True), text)


@given(st.from_regex(r"(a|bc)*d?[0-9]{0,3}x?", fullmatch=True), st.text("abcdx019", max_size=6))
@settings(deadline=None, max_examples=60)
def test_a_text_could_go_on_up_to_the_place_that_is_told(valid: str, other: str) -> None:
    """What stands before the place begins an accepted text; one character more does not."""
    pattern = r"(a|bc)*d?[0-9]{2,3}x|none"
    constraint = Regex(pattern)
    for text in (valid, other, valid[: len(valid) // 2] + other):
        check(constraint, text)
        found = constraint.explain(text)
        if found is not None:
            starts = [text[: found.offset], text[: found.offset + 1]]
            ends = ["", "c", "00x", "0x", "x", "c00x", "none", "one", "ne", "e"]
            possible = [any(re.fullmatch(pattern, s + end) for end in ends) for s in starts]
            assert possible[0]
            assert found.offset == len(text) or not possible[1]


@given(st.lists(st.text("abc", max_size=4), min_size=1, max_size=9), st.text("abcd", max_size=5))
@settings(deadline=None)
def test_choices_are_explained_by_those_that_still_fit(words: list[str], text: str) -> None:
    """The place is where the last choices part from the text; they are what is allowed."""
    constraint = Choice(words)
    check(constraint, text)
    found = constraint.explain(text)
    if found is not None:
        fits = {w for w in words if w.startswith(text[: found.offset])}
        assert fits
        if found.offset < len(text):
            assert not any(w.startswith(text[: found.offset + 1]) for w in words)
        listed = {json.loads(said) for said in found.allowed if said.startswith('"')}
        assert listed <= fits


@given(st.text("ab .", min_size=1, max_size=12), st.text("ab .", max_size=8), st.integers(1, 4))
@settings(deadline=None, max_examples=100)
def test_quotes_are_explained_to_the_character(source: str, text: str, most: int) -> None:
    """Up to the place the text begins a quote, by enumeration; one character further none does."""
    assume(source.strip())
    constraint = Quote([source], max_units=most)
    spans = {source[i:j] for i in range(len(source)) for j in range(i + 1, len(source) + 1)}
    quotes = {span for span in spans if constraint.accepts(span)}
    check(constraint, text)
    found = constraint.explain(text)
    if found is not None:
        assert any(quote.startswith(text[: found.offset]) for quote in quotes)
        if found.offset < len(text):
            assert not any(quote.startswith(text[: found.offset + 1]) for quote in quotes)


def leaves(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """The paths of all values inside a value."""
    if is_object(value):
        return [p for key, inner in value.items() for p in leaves(inner, (*path, key))]
    if is_list(value):
        return [p for i, inner in enumerate(value) for p in leaves(inner, (*path, i))]
    return [path]


def test_a_wrong_value_is_found_wherever_it_is() -> None:
    """Each value of a large sample replaced by one of a wrong type is what the pointer names."""
    inner: dict[str, Any] = {
        "type": "object",
        "properties": {"p": {"type": "integer"}, "q": {"type": "boolean"}},
    }
    inner |= {"required": ["p", "q"], "additionalProperties": False}
    pair = {"prefixItems": [inner, {"type": "null"}], "items": False, "minItems": 2}
    schema = {
        "type": "object",
        "properties": {"a": inner, "b~/": {"type": "array", "items": inner}, "c": pair},
        "required": ["a", "b~/", "c"],
        "additionalProperties": False,
    }
    constraint = JsonSchema(schema)
    item = {"p": 1, "q": True}
    whole = {"a": item, "b~/": [item, item, item], "c": [item, None]}
    assert constraint.accepts(json.dumps(whole))
    for path in leaves(whole):
        broken = json.loads(json.dumps(whole))
        place: Any = broken
        for part in path[:-1]:
            place = place[part]
        place[path[-1]] = "wrong"
        text = json.dumps(broken, indent=2)
        found = rejection(constraint, text)
        escaped = [str(part).replace("~", "~0").replace("/", "~1") for part in path]
        assert found.pointer == "".join(f"/{part}" for part in escaped)
        assert text[found.offset :].startswith('"wrong"')
        assert found.schema_pointer is not None


@pytest.mark.parametrize(
    ("text", "place", "pointer", "found", "allowed"),
    [
        ('{"name":"ab","colour":"blck"}', "c", "/colour", '"c" in "blck"', ('"black"', '"blue"')),
        ('{"name":"abcdefg"', "f", "/name", '"f" in "abcdefg"', ("the end of the string",)),
        ('{"name":"a","colour":"red","year":"20x6"}', "x", "/year", '"x" in "20x6"', ("a digit",)),
        ('{"colour":"red","age":17}', "17", "/age", "17", ("an integer from 0 to 5",)),
        ('{"name":"a"}', "}", "", "the end of the object", ('the property "colour"',)),
        (
            '{"name":"a","color":1}',
            '"color"',
            "/color",
            'the property "color"',
            tuple(f'the property "{key}"' for key in ("year", "colour", "age", "tags", "kids")),
        ),
        ('{"tags":["a","b","c"]}', '"c"', "/tags/2", '"c"', ("the end of the array",)),
        (
            '{"tags":["a","a"]}',
            '"a"]',
            "/tags/1",
            '"a"',
            ("an item that differs from those before it",),
        ),
        ('{"kids":[{"is":"dog"}]}', "dog", "/kids/0/is", '"d" in "dog"', ('"boy"', '"girl"')),
        ('{"kids":[{"is":"girl"}]}', "}]", "/kids/0", "the end of the object", None),
        ('{"name":', "", "/name", "the end of the text", ("a string of at most 5 characters",)),
        ('{"kids":[', "", "/kids/0", "the end of the text", ("an object", '"]"')),
        ('{"name":"a","colour":"red"', "", "", "the end of the text", ('","', '"}"')),
        ('{"name":"a","colour":"red"} x', "x", "", '"x"', ("the end of the text",)),
        ('{"name" 1', "1", "/name", '"1"', ('":"',)),
        ("[]", "[]", "", "[]", ('an object with "name", "colour"',)),
        ('{"age":-', "", "/age", "the end of the text", ("a digit",)),
        ('{"kids":tru', "tru", "/kids", "tru", ("an array",)),
    ],
)
def test_the_place_and_what_was_allowed(
    text: str, place: str, pointer: str, found: str, allowed: tuple[str, ...] | None
) -> None:
    """Literals, classes of characters, properties and what is missing, each at its place."""
    told = rejection(PERSON, text)
    assert (text[told.offset :].startswith(place), told.pointer, told.found) == (
        True,
        pointer,
        found,
    )
    assert place or told.offset == len(text)
    if allowed is not None:
        assert told.allowed == allowed


def test_where_a_text_breaks_off_the_properties_that_must_follow_come_first() -> None:
    """Names still possible are listed, those that are required at the front and marked."""
    told = rejection(PERSON, '{"age":1,')
    assert told.allowed[:2] == (
        'the property "name" (required)',
        'the property "colour" (required)',
    )
    assert 'the property "tags"' in told.allowed
    assert rejection(PERSON, '{"name":"a"').rule == 'the property "colour" (required)'


def test_texts_quotes_and_calls_are_explained() -> None:
    """Each sort of constraint says what could stand at the place."""
    day = Regex(r"(?:Mon|Tue|Wed)day-[0-9]{2}(x|yy)?")
    assert rejection(day, "Mxn").allowed == ('"onday-"',)
    assert rejection(day, "Monday-12z").allowed == ('"x"', '"y"', "the end of the text")
    assert rejection(Text(max_length=3), "abcd").offset == 3
    assert rejection(QUOTE, "The dog").allowed == ('"cat"',)
    assert rejection(QUOTE, "The cat sat on the").allowed == ("the end of the quote",)
    calls = rejection(TOOLS, '[{"name":"bok"')
    assert (calls.pointer, calls.allowed) == ("/0/name", ('"book"',))
    date = rejection(TOOLS, '[{"name":"book","arguments":{"day":"2026-13-01"}}]')
    assert (date.pointer, date.found) == ("/0/arguments/day", '"3" in "2026-13-01"')
    assert date.schema_pointer == "/properties/day"
    both = Object(quotes=List(QUOTE), mood=Nullable(Choice(["good", "bad"])))
    assert rejection(both, '{"quotes":["a dog"],"mood":null}').pointer == "/quotes/0"
    assert rejection(both, '{"quotes":[],"mood":"b"}').allowed == ('"bad"',)


def test_the_message_of_a_text_that_cannot_be_parsed_says_why() -> None:
    """What `parse` raises holds the explanation, in one sentence."""
    with pytest.raises(ConstraintError) as caught:
        PERSON.parse('{"name":"a","colour":"red","age":17}')
    assert (
        "line 1, column 34 (character 33), at /age: found 17, allowed there: an integer from 0 to 5"
        " (schema at #/properties/age)"
    ) in str(caught.value)


@given(st.integers(0, 2**32))
@settings(deadline=None, max_examples=8)
def test_what_is_generated_is_never_explained(seed: int) -> None:
    """Texts that the automaton writes are not rejected, so there is nothing to explain."""
    for constraint in (PERSON, TOOLS, QUOTE):
        assert constraint.explain(sample(constraint.automaton(), seed).decode()) is None
    assert PERSON.explain(compact({"name": "a", "colour": "red"})) is None
