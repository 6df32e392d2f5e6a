"""Schemas agree with an independent validator, in judging and in generating."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from pydantic import BaseModel

from agentloop.errors import ConstraintError, UnsupportedSchemaError
from agentloop.model.constraint import CompileOptions, Dfa, EmptyConstraintError, JsonSchema
from agentloop.model.constraint.options import Whitespace
from tests.model.constraint.schemas import compact, instances, sample, schemas

JUDGE = CompileOptions(extra_keys="allowed", portable_patterns=False, max_depth=5)
slow = settings(
    deadline=None,
    max_examples=70,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


def is_valid_for(reference: Draft202012Validator, value: Any) -> bool:
    """The reference's verdict."""
    check: Callable[[Any], bool] = reference.is_valid  # pyright: ignore  # an overload lacks types
    return check(value)


def automaton(schema: JsonSchema, options: CompileOptions) -> Dfa | None:
    """The automaton, None where no text satisfies the schema or it is refused for uniqueItems."""
    try:
        return schema.automaton(options)
    except EmptyConstraintError:
        return None
    except UnsupportedSchemaError as error:
        if error.keyword != "uniqueItems":
            raise
        return None


@given(schemas, st.lists(instances, min_size=1, max_size=6))
@slow
def test_verdicts_equal_those_of_a_validator(schema: Any, values: list[Any]) -> None:
    """`accepts` and the automaton judge random instances as jsonschema does."""
    constraint = JsonSchema(schema)
    reference = Draft202012Validator(schema)
    dfa = automaton(constraint, JUDGE)
    for value in values:
        is_valid = is_valid_for(reference, value)
        text = json.dumps(value)
        assert constraint.accepts(text) == is_valid, value
        canonical = constraint.canonical(text)
        assert json.loads(canonical) == value
        if "uniqueItems" not in json.dumps(schema):
            assert (dfa is not None and dfa.accepts(canonical.encode())) == is_valid, canonical
        elif dfa is not None:
            assert is_valid or not dfa.accepts(canonical.encode()), canonical


@given(schemas, st.integers(0, 1_000), st.sampled_from(["compact", "spaced", "tolerant"]))
@slow
def test_whatever_is_generated_is_valid(schema: Any, seed: int, whitespace: Whitespace) -> None:
    """Random texts of the automaton are JSON that a validator and the constraint accept."""
    constraint = JsonSchema(schema)
    dfa = automaton(constraint, CompileOptions(whitespace, max_depth=2, max_indent=2))
    if dfa is None:
        return
    reference = Draft202012Validator(schema)
    for i in range(4):
        text = sample(dfa, seed + i).decode()
        assert is_valid_for(reference, json.loads(text)), text


def test_keys_come_in_the_order_of_properties() -> None:
    """The automaton reads keys in the schema's order only; a text with another is still valid."""
    schema = JsonSchema(
        {"properties": {"b": {"type": "integer"}, "a": {}}, "type": "object", "required": ["b"]}
    )
    dfa = schema.automaton()
    assert dfa.accepts(b'{"b":1,"a":null}')
    assert not dfa.accepts(b'{"a":null,"b":1}')
    assert schema.accepts('{ "a": null, "b": 1 }')
    assert schema.canonical('{ "a": null, "b": 1.0 }') == '{"b":1,"a":null}'


def test_extra_keys_are_generated_only_where_asked_for() -> None:
    """An absent additionalProperties permits extra keys, an explicit one also offers them."""
    fields: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "integer"}}}
    absent = JsonSchema(fields)
    assert absent.accepts('{"a":1,"x":2}')
    assert not absent.automaton().accepts(b'{"a":1,"x":2}')
    assert absent.automaton(CompileOptions(extra_keys="allowed")).accepts(b'{"a":1,"x":2}')
    explicit = JsonSchema({**fields, "additionalProperties": {"type": "integer"}})
    assert explicit.automaton().accepts(b'{"a":1,"x":2}')
    assert not explicit.automaton().accepts(b'{"a":1,"x":"y"}')
    pattern = JsonSchema({**fields, "patternProperties": {"^x": {"type": "null"}}})
    assert pattern.automaton().accepts(b'{"a":1,"x1":null}')
    assert not pattern.automaton().accepts(b'{"a":1,"y":null}')
    assert JsonSchema({"type": "object"}).automaton().accepts(b'{"any":[1]}')


def test_a_key_that_is_counted_is_not_made_up_twice() -> None:
    """Where properties are counted, at most one key that no schema names is generated."""
    schema = JsonSchema({"type": "object", "minProperties": 1, "additionalProperties": True})
    dfa = schema.automaton()
    assert dfa.accepts(b'{"x":1}')
    assert not dfa.accepts(b'{"x":1,"x":2}')
    assert not schema.accepts('{"x":1,"x":2}')


@pytest.mark.parametrize(
    "item",
    [{"type": "string"}, {}, {"type": "integer"}, {"enum": list("abcdefghij")}, {"enum": [1, 2]}],
)
def test_unique_items_differ(item: dict[str, Any]) -> None:
    """What is generated never repeats an item; what is judged may come in any order."""
    schema = JsonSchema({"type": "array", "items": item, "uniqueItems": True, "minItems": 2})
    dfa = schema.automaton(CompileOptions(max_depth=1))
    for seed in range(40):
        text = sample(dfa, seed).decode()
        assert schema.accepts(text), text
        assert len(json.loads(text)) > 1
    free = JsonSchema({"uniqueItems": True})
    assert free.accepts('[1, true, "1", [1], {"a": 1}, {"a": 2}, 0, false]')
    assert not free.accepts('[{"a": 1, "b": [2]}, {"b": [2.0], "a": 1e0}]')


def test_negated_uniqueness_is_refused_with_its_place() -> None:
    """Where it would have to fail, uniqueness over items that cannot be listed is refused."""
    schema = JsonSchema({"properties": {"a": {"not": {"uniqueItems": True}}}})
    assert schema.accepts('{"a": [1, 1]}')
    with pytest.raises(UnsupportedSchemaError, match="one of several options") as caught:
        schema.automaton()
    assert (caught.value.pointer, caught.value.keyword) == ("/properties/a/not", "uniqueItems")


def test_recursion_is_unrolled_to_the_depth_asked_for() -> None:
    """A recursive schema is judged at any depth and generated to a bounded one."""
    schema = JsonSchema(
        {
            "type": "object",
            "properties": {"next": {"anyOf": [{"type": "null"}, {"$ref": "#"}]}},
            "required": ["next"],
            "additionalProperties": False,
        }
    )
    text = "null"
    for _ in range(30):
        text = f'{{"next":{text}}}'
    assert schema.accepts(text)
    two = b'{"next":{"next":null}}'
    assert schema.automaton(CompileOptions(max_depth=2)).accepts(two)
    assert not schema.automaton(CompileOptions(max_depth=0)).accepts(two)


@pytest.mark.parametrize("whitespace", ["compact", "spaced", "tolerant"])
def test_whitespace_profiles(whitespace: Whitespace) -> None:
    """Each profile reads its own spelling; "tolerant" reads all of them."""
    schema = JsonSchema(
        {"type": "object", "properties": {"a": {"items": {"type": "integer"}, "type": "array"}}}
    )
    dfa = schema.automaton(CompileOptions(whitespace))
    value = {"a": [1, 2]}
    spellings = {
        "compact": compact(value),
        "spaced": json.dumps(value),
        "indented": json.dumps(value, indent=2),
    }
    read = {name for name, text in spellings.items() if dfa.accepts(text.encode())}
    assert read == (set(spellings) if whitespace == "tolerant" else {whitespace})


def test_bounds_that_a_text_cannot_break_are_dropped_exactly() -> None:
    """A length bound beyond the text costs no states and changes no text that fits."""
    schema = JsonSchema({"type": "string", "maxLength": 200})
    counted = schema.automaton()
    free = schema.automaton(CompileOptions(max_text_length=100))
    assert counted.num_states > 2_000 > 50 > free.num_states
    assert not counted.accepts(b'"' + b"x" * 201 + b'"')
    for length in (0, 1, 100):
        text = b'"' + b"x" * length + b'"'
        assert (counted.accepts(text), free.accepts(text)) == (True, True)
    least = JsonSchema({"type": "string", "minLength": 3})
    assert not least.automaton(CompileOptions(max_text_length=100)).accepts(b'"ab"')


def test_long_bounds_are_narrowed_never_widened() -> None:
    """A bound that would cost too many states gives shorter texts, and none that is too long."""
    schema = JsonSchema({"type": "string", "minLength": 20, "maxLength": 100_000})
    dfa = schema.automaton(CompileOptions(max_counted_length=50))
    accepted = [n for n in range(0, 60) if dfa.accepts(b'"' + b"x" * n + b'"')]
    assert accepted == list(range(20, 51))


def test_a_schema_over_the_budget_is_refused_with_its_place() -> None:
    """The refusal names the pointer of the schema that is too large."""
    schema = JsonSchema({"type": "object", "properties": {"a": {"minLength": 50_000}}})
    with pytest.raises(UnsupportedSchemaError, match="50,000 needs more than") as caught:
        schema.automaton()
    assert caught.value.pointer == "/properties/a"


class Pet(BaseModel):
    """A model for the test below."""

    name: str
    age: int = 0
    tags: list[str] | None = None


def test_a_model_is_parsed_to_its_instance() -> None:
    """A pydantic model is a constraint, and `parse` gives an instance."""
    constraint = JsonSchema(Pet)
    assert constraint.parse('{"name":"Rex","tags":["good"]}') == Pet(name="Rex", tags=["good"])
    assert constraint.automaton().accepts(b'{"name":"Rex","age":3}')
    assert JsonSchema(list[int]).parse("[1, 2]") == [1, 2]


def test_the_key_is_that_of_the_content() -> None:
    """Equal schemas share a key, different ones and different formats do not."""
    schema = {"type": "string", "format": "date"}
    assert JsonSchema(schema).key == JsonSchema(dict(schema)).key
    assert JsonSchema(schema).key != JsonSchema(schema, formats="annotate").key
    assert JsonSchema(schema) == JsonSchema(dict(schema))


@pytest.mark.parametrize(
    ("schema", "pointer", "keyword", "reason"),
    [
        ({"properties": {"a/b": {"type": "text"}}}, "/properties/a~1b", "type", "must be of"),
        ({"items": {"pattern": "(a"}}, "/items", "pattern", "missing '\\)'"),
        ({"$ref": "other.json"}, "", "$ref", "nothing is fetched"),
        ({"$ref": "#/$defs/x"}, "", "$ref", "leads nowhere"),
        ({"$ref": "#x"}, "", "$ref", "names no anchor"),
        ({"$ref": "#"}, "", "$ref", "leads back to itself"),
        ({"minLength": -1}, "", "minLength", "must not be negative"),
        ({"minLength": "1"}, "", "minLength", "must be a whole number"),
        ({"minimum": "1"}, "", "minimum", "must be a number"),
        ({"multipleOf": 0}, "", "multipleOf", "must be above 0"),
        ({"required": "a"}, "", "required", "must be a list of strings"),
        ({"allOf": []}, "", "allOf", "at least one schema"),
        ({"items": 3}, "/items", "", "must be an object or a boolean"),
        ({"enum": 3}, "", "enum", "must be a list"),
    ],
)
def test_refusals_name_place_keyword_and_reason(
    schema: Any, pointer: str, keyword: str, reason: str
) -> None:
    """What is malformed or not representable is refused before anything is generated."""
    with pytest.raises(UnsupportedSchemaError, match=reason) as caught:
        JsonSchema(schema).accepts("1")
    assert (caught.value.pointer, caught.value.keyword) == (pointer, keyword)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1, 2}, b"x"])
def test_a_schema_that_is_no_json_is_refused(value: Any) -> None:
    """A schema can hold JSON values only."""
    with pytest.raises(ConstraintError, match="must be JSON"):
        JsonSchema({"const": value})


@pytest.mark.parametrize(
    "text", ["", "{", "nul", "NaN", "[1,]", '"\\ud800"', '{"a":1,"a":1}', "1 2", "[" * 5_000]
)
def test_what_is_no_json_is_not_accepted(text: str) -> None:
    """`accepts` is False for anything that is not exactly one JSON value."""
    assert not JsonSchema(True).accepts(text)


@pytest.mark.parametrize(
    ("name", "yes", "no"),
    [
        (
            "date",
            ["2024-02-29", "2000-02-29"],
            ["2023-02-29", "1900-02-29", "2024-13-01", "24-1-1"],
        ),
        ("time", ["23:59:60Z", "01:02:03.5+01:30"], ["24:00:00Z", "12:00:00", "22:59:60Z"]),
        ("date-time", ["2024-02-29T00:00:00Z"], ["2024-02-29", "2023-02-29T00:00:00Z"]),
        ("duration", ["P1Y2M3DT4H", "PT5S", "P2W"], ["P", "PT", "P1D2Y", "1D"]),
        ("email", ["a.b@c.org", '"x y"@c.org'], ["a@", "@b", "a..b@c", "a b@c"]),
        ("hostname", ["a-b.example"], ["-a", "a-", "a..b", "a_b", ""]),
        ("ipv4", ["127.0.0.1"], ["256.0.0.1", "1.2.3", "01.2.3.4"]),
        ("ipv6", ["::1", "1:2::8", "::ffff:1.2.3.4"], ["1::2::3", ":::", "12345::"]),
        ("uri", ["http://a.b/c?d#e", "urn:x:y"], ["a b:c", "/x", "http://a b"]),
        ("uri-reference", ["/x?y", "#z", ""], ["\\x", "a b"]),
        ("uuid", ["123E4567-e89b-12d3-a456-426614174000"], ["123e4567e89b12d3a456426614174000"]),
        ("json-pointer", ["", "/a~0b/~1"], ["a", "/~2"]),
        ("relative-json-pointer", ["0#", "1/a"], ["01", "-1", "/a"]),
    ],
)
def test_formats(name: str, yes: list[str], no: list[str]) -> None:
    """Known formats are requirements unless formats are taken as remarks."""
    strict, lax = JsonSchema({"format": name}), JsonSchema({"format": name}, formats="annotate")
    dfa = strict.automaton()
    assert [t for t in yes if not strict.accepts(json.dumps(t))] == []
    assert [t for t in no if strict.accepts(json.dumps(t))] == []
    assert all(dfa.accepts(compact(t).encode()) for t in yes)
    assert all(lax.accepts(json.dumps(t)) for t in no)


def test_generated_fractions_keep_their_order_as_floats() -> None:
    """Where numbers are compared, a fraction has few enough digits for any reader's floats."""
    schema = JsonSchema({"type": "number", "exclusiveMaximum": 1.5})
    dfa = schema.automaton()
    assert dfa.accepts(b"1.49999999999999")
    assert not dfa.accepts(b"1.499999999999999999")
    assert schema.accepts("1.499999999999999999")
    assert dfa.accepts(b"-12345678901234567890")
    assert JsonSchema({"type": "number"}).automaton().accepts(b"1.499999999999999999")


def test_large_and_small_numbers_are_exact() -> None:
    """Bounds are compared as decimals, not as floats."""
    schema = JsonSchema({"type": "number", "minimum": 0.1, "exclusiveMaximum": 10**30})
    inside = ["0.1", str(10**30 - 1), "1e29"]
    outside = ["0.0999999999999999999999", str(10**30), "1e-2"]
    assert [schema.accepts(text) for text in inside + outside] == [True] * 3 + [False] * 3
    assert schema.canonical("1.50e2") == "150"
    assert Decimal(schema.canonical("1e-5")) == Decimal("0.00001")
