"""Hostile schemas end in an automaton or in a typed refusal, never in waiting or a crash."""

from __future__ import annotations

from typing import Any

import pytest

from agentloop.errors import ConstraintError
from agentloop.model.constraint import JsonSchema
from agentloop.model.constraint.jsontext import MAX_NESTING
from benchmarks.hostile_schemas import HOSTILE, MAX_MIB, HostileSchemas, ending_of


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_schema_ends_in_an_automaton_or_a_refusal(name: str) -> None:
    """Compilation is bounded, whatever the schema."""
    try:
        dfa = JsonSchema(HOSTILE[name]).automaton()
    except ConstraintError:
        return
    assert 0 < dfa.num_states <= 200_000


@pytest.mark.parametrize("seed", range(30))
def test_random_hostile_schemas_end_in_an_automaton_or_a_refusal(seed: int) -> None:
    """Any keyword anywhere, malformed or extreme, ends in a result or in a `ConstraintError`."""
    schema = HostileSchemas(seed).document()
    try:
        dfa = JsonSchema(schema).automaton()
    except ConstraintError:
        return
    assert dfa.num_states > 0


@pytest.mark.parametrize(
    "name", ["overlapping alternatives", "many counted", "huge enum", "tree without leaves"]
)
def test_a_hostile_schema_stays_within_its_memory(name: str) -> None:
    """In a process with limits, the dearest schemas end as they should, within 1 GB."""
    ending = ending_of(HOSTILE[name])
    assert ending.is_typed, ending
    assert ending.peak_mib <= MAX_MIB


def test_what_ends_in_no_typed_way_is_told_from_a_refusal() -> None:
    """The process with limits reports an error that is not of the engine's own kind."""

    class Odd(dict[str, Any]):
        def items(self) -> Any:
            raise ZeroDivisionError("odd")

    ending = ending_of(Odd(type="string"))
    assert not ending.is_typed
    assert "odd" in ending.kind


@pytest.mark.parametrize("schema", [{1: {}}, {"enum": [{1, 2}]}, {"const": float("nan")}, 3, ...])
def test_what_is_no_json_is_refused(schema: Any) -> None:
    """Keys that are no strings become strings; values that JSON lacks are refused."""
    if schema == {1: {}}:
        assert JsonSchema(schema).accepts("null")
        return
    with pytest.raises(ConstraintError, match="schema"):
        JsonSchema(schema)


def test_nesting_is_judged_up_to_a_limit() -> None:
    """A text as deep as the limit is judged, a deeper one is not accepted."""
    schema = JsonSchema({"$ref": "#/$defs/a", "$defs": {"a": {"items": {"$ref": "#/$defs/a"}}}})
    assert schema.accepts("[" * MAX_NESTING + "]" * MAX_NESTING)
    assert not schema.accepts("[" * (MAX_NESTING + 2) + "]" * (MAX_NESTING + 2))
