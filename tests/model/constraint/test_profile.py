"""How values are spelt: whitespace, escapes, numbers and lengths by the options; judged freely."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import assume, given, settings

from agentloop.errors import ConstraintError, UnsupportedSchemaError
from agentloop.model.constraint import (
    Choice,
    CompileOptions,
    EmptyConstraintError,
    JsonSchema,
    List,
    Object,
    Quote,
    Text,
)
from tests.model.constraint.schemas import instances, sample, schemas


@given(schemas, instances)
@settings(deadline=None, max_examples=30)
def test_the_menu_of_whitespace_holds_its_spellings(schema: Any, instance: Any) -> None:
    """Where the compact spelling is generated, so are the spaced and the indented one."""
    try:
        constraint = JsonSchema(schema)
        compact = constraint.automaton()
        assume(constraint.accepts(json.dumps(instance)))
    except (UnsupportedSchemaError, EmptyConstraintError):
        assume(False)
        return
    canonical = constraint.canonical(json.dumps(instance))
    assume(compact.accepts(canonical.encode()))
    value = json.loads(canonical)
    spaced = json.dumps(value, ensure_ascii=False)
    assume(json.dumps(value, ensure_ascii=False, separators=(",", ":")) == canonical)
    tolerant = constraint.automaton(CompileOptions("tolerant"))
    assert constraint.automaton(CompileOptions("spaced")).accepts(spaced.encode())
    for text in (canonical, spaced, json.dumps(value, ensure_ascii=False, indent=2)):
        assert tolerant.accepts(text.encode()), text
        assert constraint.accepts(text)


@pytest.mark.parametrize(
    ("value", "spellings", "written"),
    [
        ("a", [r'"\u0061"', '"a"'], '"a"'),
        ("é/\n", [r'"\u00e9\/\n"', r'"é/\u000A"'], '"é/\\n"'),
        ("😀", [r'"\ud83d\ude00"', '"😀"'], '"😀"'),
        (1, ["1", "1.0", "1e0", "10e-1", "0.1E+1"], "1"),
        (-0.5, ["-0.5", "-0.50", "-5e-1"], "-0.5"),
        (0, ["0", "-0", "0.0", "0e9"], "0"),
        (1000, ["1000", "1e3", "1E+3"], "1000"),
    ],
)
def test_any_spelling_is_judged_and_one_is_written(
    value: Any, spellings: list[str], written: str
) -> None:
    """Escapes, exponents and trailing zeros are read; one canonical text is generated."""
    constraint = JsonSchema({"const": value})
    dfa = constraint.automaton()
    for text in spellings:
        assert constraint.accepts(text)
        assert constraint.canonical(text) == written
        assert dfa.accepts(text.encode()) == (text == written)


@pytest.mark.parametrize("seed", range(5))
def test_strings_are_as_long_as_the_profile_asks(seed: int) -> None:
    """Values of at least so many characters, keys and what may not be so long as they are."""
    options = CompileOptions(min_string_length=3)
    schema = {
        "type": "object",
        "properties": {
            "k": {"type": "string"},
            "short": {"type": "string", "maxLength": 2},
            "one": {"enum": ["", "ab", "abcd"]},
            "list": {"type": "array", "items": {"type": "string"}, "minItems": 1},
        },
        "required": ["k", "short", "one", "list"],
        "additionalProperties": False,
    }
    constraint = JsonSchema(schema)
    made = constraint.parse(sample(constraint.automaton(options), seed).decode())
    assert len(made["k"]) >= 3
    assert len(made["short"]) <= 2
    assert made["one"] == "abcd"
    assert all(len(text) >= 3 for text in made["list"])


def test_a_profile_empties_no_constraint() -> None:
    """Where longer strings cannot be, shorter ones are written."""
    options = CompileOptions(min_string_length=4)
    assert JsonSchema({"const": "a"}).automaton(options).accepts(b'"a"')
    twice = {"properties": {"a": {"const": ""}, "b": {"type": "string"}}, "required": ["a", "b"]}
    assert JsonSchema(twice).automaton(options).accepts(b'{"a":"","b":"long"}')
    either = {
        "properties": {"a": {"type": "string", "maxLength": 5}},
        "required": ["a"],
        "not": {"properties": {"a": {"minLength": 2}}},
    }
    assert JsonSchema(either).automaton(options).accepts(b'{"a":"x"}')
    form = Object(quote=Quote(["a cat sat"]), mood=Choice(["ok"]), notes=List(Text(), 1, 1))
    dfa = form.automaton(options)
    assert dfa.accepts(b'{"quote":"a cat","mood":"ok","notes":["long"]}')
    assert not dfa.accepts(b'{"quote":"a","mood":"ok","notes":["long"]}')
    assert not dfa.accepts(b'{"quote":"a cat","mood":"ok","notes":[""]}')
    with pytest.raises(ConstraintError, match="min_string_length must be 0 or more"):
        CompileOptions(min_string_length=-1)


@pytest.mark.parametrize("depth", [0, 1, 3])
def test_recursion_is_written_to_the_depth_of_the_option(depth: int) -> None:
    """A tree as deep as the option says is generated, a deeper one only judged."""
    tree = {"type": "object", "properties": {"in": {"$ref": "#"}}, "additionalProperties": False}
    constraint = JsonSchema(tree)
    dfa = constraint.automaton(CompileOptions(max_depth=depth))

    def nested(levels: int) -> str:
        return "{}" if levels == 0 else f'{{"in":{nested(levels - 1)}}}'

    generated = [dfa.accepts(nested(levels).encode()) for levels in range(depth + 3)]
    assert generated == sorted(generated, reverse=True)
    assert sum(generated) == depth + 1
    assert all(constraint.accepts(nested(levels)) for levels in range(depth + 3))
