"""Tool calls: the right name with the right arguments, in the spelling the prompts use."""

from __future__ import annotations

from typing import Any

import pytest

from agentloop.errors import ConstraintError, UnsupportedSchemaError
from agentloop.model.constraint import ToolCall, ToolCalls
from agentloop.model.prompts import ToolSpec, tool_answer


def tool(name: str, **properties: Any) -> ToolSpec:
    """A tool whose parameters are all required."""
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    return {"name": name, "description": "", "parameters": parameters}


ADD = tool("add", a={"type": "integer"}, b={"type": "integer"})
SAY = tool("say", text={"type": "string"}, loud={"type": "boolean"})
CALLS: list[tuple[list[tuple[str, dict[str, Any]]], bool]] = [
    ([("add", {"a": 1, "b": -2})], True),
    ([("say", {"text": 'a "b"', "loud": True})], True),
    ([("add", {"text": "a", "loud": True})], False),
    ([("add", {"a": 1})], False),
    ([("add", {"a": 1, "b": "2"})], False),
    ([("sub", {"a": 1, "b": 2})], False),
    ([("add", {"a": 1, "b": 2, "c": 3})], False),
    ([], False),
    ([("add", {"a": 1, "b": 2})] * 2, False),
]


@pytest.mark.parametrize(("calls", "is_valid"), CALLS)
def test_a_call_has_a_known_name_and_its_arguments(
    calls: list[tuple[str, dict[str, Any]]], is_valid: bool
) -> None:
    """One call of one tool, with that tool's arguments and no others."""
    text = tool_answer(calls)
    assert ToolCalls([ADD, SAY]).automaton().accepts(text.encode()) == is_valid


def test_numbers_of_calls() -> None:
    """`min` of 0 permits an empty list; `parallel` or `max` permits several calls."""
    add = ("add", {"a": 1, "b": 2})
    texts = [tool_answer([add] * n).encode() for n in range(10)]

    def permitted(constraint: ToolCalls) -> list[int]:
        dfa = constraint.automaton()
        return [n for n, text in enumerate(texts) if dfa.accepts(text)]

    assert permitted(ToolCalls([ADD])) == [1]
    assert permitted(ToolCalls([ADD], min=0)) == [0, 1]
    assert permitted(ToolCalls([ADD], min=2, max=3)) == [2, 3]
    assert permitted(ToolCalls([ADD], parallel=True)) == [1, 2, 3, 4, 5, 6, 7, 8]


def test_calls_are_parsed_in_any_key_order() -> None:
    """`parse` gives names and arguments."""
    text = '[{"arguments": {"b": 2, "a": 1}, "name": "add"}]'
    assert ToolCalls([ADD, SAY]).parse(text) == [ToolCall("add", {"b": 2, "a": 1})]
    assert ToolCalls([ADD], min=0).parse("[]") == []


def test_many_tools_share_what_they_have_in_common() -> None:
    """128 tools make one automaton, whose size is that of its parts."""
    tools = [
        tool(f"tool_{i}", **{f"p{j}_{i % 4}": {"type": "string"} for j in range(6)})
        for i in range(128)
    ]
    dfa = ToolCalls(tools).automaton()
    for i in (0, 77, 127):
        arguments = {f"p{j}_{i % 4}": "x" for j in range(6)}
        assert dfa.accepts(tool_answer([(f"tool_{i}", arguments)]).encode())
    assert not dfa.accepts(tool_answer([("tool_128", {})]).encode())
    assert dfa.num_states < 40_000


def test_a_tool_that_cannot_be_represented_is_named() -> None:
    """The pointer of the refusal begins with the tool."""
    bad = tool("bad", x={"type": "string", "pattern": r"(a)\1"})
    with pytest.raises(UnsupportedSchemaError, match="escape") as caught:
        ToolCalls([ADD, bad])
    assert caught.value.pointer == "/bad/properties/x"


def test_bad_arguments_are_refused() -> None:
    """No tool, two of one name and impossible numbers are errors at once."""
    with pytest.raises(ConstraintError, match="got no tool"):
        ToolCalls([])
    with pytest.raises(ConstraintError, match="'add' twice"):
        ToolCalls([ADD, ADD])
    with pytest.raises(ConstraintError, match="0 <= min <= max, got 2 and 1"):
        ToolCalls([ADD], min=2)
