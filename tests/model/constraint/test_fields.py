"""The posterior of a field equals the sum over all texts that a toy vocabulary can spell."""

from __future__ import annotations

import itertools
import json
from typing import Any

import numpy as np
import pytest

from agentloop.errors import CanvasTooSmallError, ConstraintError
from agentloop.model.constraint import (
    Choice,
    JsonConstraint,
    JsonSchema,
    List,
    Nullable,
    Object,
    Text,
    ToolCalls,
)
from agentloop.model.constraint.fields import FieldPosterior, compile_field
from agentloop.model.constraint.json_types import is_list
from agentloop.model.constraint.vocabulary import Vocabulary

WORDS = [
    *(b'{"a":', b',"b":', b'{"b":', b"}", b"true", b"false", b"null", b'"x"', b'"y"', b"1", b"2"),
    *(b"[", b"]", b",", b""),
]
VOCABULARY = Vocabulary(WORDS, [len(WORDS) - 1])
LENGTH = 6


def texts() -> list[tuple[tuple[int, ...], str]]:
    """All sequences of tokens that fit the canvas, ended and padded, with what they spell."""
    eos = len(WORDS) - 1
    found: list[tuple[tuple[int, ...], str]] = []
    for length in range(1, LENGTH):
        for ids in itertools.product(range(eos), repeat=length):
            text = b"".join(WORDS[i] for i in ids).decode()
            if text[0] in "{[" and text[-1] in "}]":
                found.append(((*ids, eos), text))
    return found


TEXTS = [(ids, text) for ids, text in texts() if text.count("{") == text.count("}")]


def at(value: Any, pointer: str) -> Any:
    for part in pointer.split("/")[1:]:
        value = value[int(part)] if is_list(value) else value[part]
    return value


def enumerated(constraint: JsonConstraint, pointer: str, logits: Any) -> FieldPosterior:
    """The posterior by adding up the factorised probabilities of all texts of the constraint."""
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    sums: dict[Any, float] = {}
    absent = 0.0
    for ids, text in TEXTS:
        if not constraint.accepts(text):
            continue
        weight = float(np.prod([p[i, token] for i, token in enumerate(ids)]))
        try:
            value = at(json.loads(text), pointer)
        except (KeyError, IndexError):
            absent += weight
        else:
            sums[value] = sums.get(value, 0.0) + weight
    present = sum(sums.values())
    return FieldPosterior({v: s / present for v, s in sums.items()}, present / (present + absent))


OPTIONAL = JsonSchema(
    {
        "type": "object",
        "properties": {"a": {"enum": ["x", None, 1, 2]}, "b": {"type": "boolean"}},
        "required": ["b"],
        "additionalProperties": False,
    }
)
SWITCHED = JsonSchema(
    {
        "type": "object",
        "properties": {"a": {"enum": ["x", "y"]}, "b": {"type": ["boolean", "integer"]}},
        "required": ["a", "b"],
        "additionalProperties": False,
        "if": {"properties": {"a": {"const": "x"}}},
        "then": {"properties": {"b": {"type": "boolean"}}},
        "else": {"properties": {"b": {"enum": [1, 2, 7]}}},
    }
)
ITEMS = JsonSchema({"type": "array", "items": {"enum": ["x", "y", 1]}, "minItems": 1})
COMPOSED = Object(a=Nullable(Choice(["x", "y"])), b=Choice(["y"]))


@pytest.mark.parametrize(
    ("constraint", "pointer", "values"),
    [
        (OPTIONAL, "/a", [None, "x", 1, 2]),
        (OPTIONAL, "/b", [True, False]),
        (SWITCHED, "/a", ["x", "y"]),
        (ITEMS, "/0", ["x", "y", 1]),
        (ITEMS, "/1", ["x", "y", 1]),
        (COMPOSED, "/a", [None, "x", "y"]),
    ],
)
@pytest.mark.parametrize("seed", [0, 1])
def test_the_posterior_of_a_field_equals_enumeration(
    constraint: JsonConstraint, pointer: str, values: list[Any], seed: int
) -> None:
    """Sums over all other fields, and over texts in which an optional one is absent."""
    logits = np.random.default_rng(seed).normal(0, 2, (LENGTH, len(WORDS)))
    field = compile_field(constraint, pointer, VOCABULARY)
    assert set(field.values) == set(values)
    found = field.posterior(logits, weighting="product")
    expected = enumerated(constraint, pointer, logits)
    assert found.p_present == pytest.approx(expected.p_present, abs=1e-9)
    assert sum(found.values.values()) == pytest.approx(1.0, abs=1e-9)
    for value in values:
        assert found.values[value] == pytest.approx(expected.values.get(value, 0.0), abs=1e-9)
    assert found.best == max(values, key=lambda v: expected.values.get(v, 0.0))


def test_committed_tokens_are_given() -> None:
    """A field that is committed is certain, and settles what depends on it."""
    logits = np.zeros((LENGTH, len(WORDS)))
    tokens = np.full(LENGTH, -1)
    tokens[:2] = [0, 8]  # {"a":"y"
    belief = compile_field(SWITCHED, "/a", VOCABULARY).posterior(logits, tokens)
    assert belief.values == {"x": pytest.approx(0), "y": pytest.approx(1)}


def test_the_name_of_a_tool_is_a_field() -> None:
    """Which tool is called, and an argument of it that only one tool has."""
    number = {"type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"]}
    calls = ToolCalls(
        [
            {"name": "x", "description": "", "parameters": number},
            {"name": "y", "description": "", "parameters": {"type": "object", "maxProperties": 0}},
        ]
    )
    words = [b'[{"name":', b'"x"', b'"y"', b',"arguments":{', b'"n":', b"1", b"2", b"}}]", b""]
    vocabulary = Vocabulary(words, [8])
    logits = np.zeros((7, 9))
    logits[1, 1] = 3.0
    name = compile_field(calls, "/0/name", vocabulary).posterior(logits)
    assert name.best == "x"
    assert name.p_present == pytest.approx(1.0)
    argument = compile_field(calls, "/0/arguments/n", vocabulary).posterior(logits)
    assert argument.p_present == pytest.approx(name.values["x"], abs=1e-9)
    with pytest.raises(CanvasTooSmallError):
        compile_field(calls, "/0/name", vocabulary).posterior(logits[:3])


@pytest.mark.parametrize(
    ("constraint", "pointer", "reason"),
    [
        (OPTIONAL, "/c", "nothing at /c"),
        (OPTIONAL, "/a/x", "nothing at /a/x"),
        (OPTIONAL, "a", "no JSON pointer"),
        (ITEMS, "/x", "nothing at /x"),
        (List(Text()), "/0", "no list of values"),
        (JsonSchema({"enum": [1, True]}), "", "True == 1"),
    ],
)
def test_what_is_no_field_is_refused(constraint: JsonConstraint, pointer: str, reason: str) -> None:
    """The error names the field and the reason."""
    with pytest.raises(ConstraintError, match=reason):
        compile_field(constraint, pointer, VOCABULARY)


def test_a_root_value_is_a_field() -> None:
    """The empty pointer is the value itself; numbers that begin each other are told apart."""
    words = [b"1", b"2", b"0", b""]
    logits = np.random.default_rng(5).normal(0, 1, (3, 4))
    found = compile_field(JsonSchema({"enum": [1, 10, 12, 2]}), "", Vocabulary(words, [3]))
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    weights = {
        1: p[0, 0] * p[1, 3],
        10: p[0, 0] * p[1, 2] * p[2, 3],
        12: p[0, 0] * p[1, 1] * p[2, 3],
        2: p[0, 1] * p[1, 3],
    }
    belief = found.posterior(logits, weighting="product")
    for value, weight in weights.items():
        assert belief.values[value] == pytest.approx(weight / sum(weights.values()), abs=1e-9)
