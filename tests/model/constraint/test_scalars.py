"""Strings under bounds that tell alternatives apart are written short, and judged exactly."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentloop.model.constraint import CompileOptions, Dfa, JsonSchema

CAP = 6


@st.composite
def alternatives(draw: st.DrawFn) -> dict[str, Any]:
    """Two to four alternatives of a string that differ in their lengths."""
    parts: list[dict[str, Any]] = []
    for _ in range(draw(st.integers(2, 4))):
        lo = draw(st.integers(0, 40))
        part: dict[str, Any] = {"minLength": lo, "maxLength": lo + draw(st.integers(0, 40))}
        parts.append({"not": part} if draw(st.booleans()) else part)
    return {"type": "string", draw(st.sampled_from(["anyOf", "oneOf"])): parts}


@pytest.mark.parametrize("patterns", [(), ("^a", "^b", "^c", "a$")])
@given(alternatives())
@settings(deadline=None, max_examples=40)
def test_lengths_that_tell_alternatives_apart_are_judged_exactly_up_to_the_cap(
    patterns: tuple[str, ...], schema: dict[str, Any]
) -> None:
    """Up to `max_counted_length` a string is written if and only if it is valid; beyond, never."""
    keyword = "anyOf" if "anyOf" in schema else "oneOf"
    parts = [
        {**part, "pattern": pattern}
        for part, pattern in zip(schema[keyword], patterns, strict=False)
    ]
    constraint = JsonSchema({**schema, keyword: parts or schema[keyword]})
    fragment = JsonSchema({"anyOf": [constraint.schema, {"const": 0}]})  # so that some text is left
    dfa: Dfa = fragment.automaton(CompileOptions(max_counted_length=CAP))
    for length in range(CAP + 3):
        for text in {"a" * length, "b" * length, "ba" * (length // 2)}:
            spelt = json.dumps(text)
            is_written = dfa.accepts(spelt.encode())
            if is_written or len(text) <= CAP:
                assert is_written == constraint.accepts(spelt), (text, constraint)


def test_alternatives_with_large_bounds_compile() -> None:
    """Tens of thousands of characters in several alternatives cost no more than they are worth."""
    options = [
        {"type": "object", "properties": {"a": {"type": "string", "maxLength": 32_767}}},
        {
            "type": "object",
            "properties": {"a": {"type": "string", "pattern": "^x", "minLength": 3}},
        },
    ]
    dfa = JsonSchema({"patternProperties": {"^k": {"anyOf": options}}}).automaton()
    assert dfa.accepts(b'{"k":{"a":"yz"}}')
    assert dfa.num_states < 20_000
