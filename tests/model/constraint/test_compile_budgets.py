"""What a compilation may take is bounded; over the bound less is generated, or it is refused."""

from __future__ import annotations

import pytest

from agentloop.errors import CompileLimitError
from agentloop.model.constraint import CompileOptions, JsonSchema, fragment, lift
from agentloop.model.constraint.compiled import ConstraintCache, compile_constraint
from agentloop.model.constraint.vocabulary import Vocabulary

BYTES = Vocabulary([*(bytes([byte]) for byte in range(256)), b""], [256])
ANYTHING = JsonSchema({"type": "array"})


def num_states(options: CompileOptions) -> int:
    return compile_constraint(ANYTHING, BYTES, options, cache=ConstraintCache()).num_states


def test_a_lift_over_its_budget_is_done_again_under_the_tightest_options(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where the moves of the tokens would take too much memory, less nesting is generated."""
    free, tight = CompileOptions(), CompileOptions().tighter(much=True)
    assert tight is not None
    full, least = num_states(free), num_states(tight)
    assert full > 2 * least
    monkeypatch.setattr(lift, "MAX_MOVED", 20 * least)
    assert num_states(free) == least


def test_a_lift_that_stays_over_its_budget_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The refusal says what there is too much of, and what to do."""
    monkeypatch.setattr(lift, "MAX_MOVED", 5)
    with pytest.raises(CompileLimitError) as caught:
        num_states(CompileOptions())
    assert caught.value.limit == "states"
    assert "join more than 5 pairs of states of the automaton, which has" in str(caught.value)
    assert "give long strings a smaller maxLength" in str(caught.value)
    with pytest.raises(CompileLimitError):
        compile_constraint(ANYTHING.automaton(), BYTES)


def test_keys_that_need_too_many_arcs_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Known keys among patterned ones cost arcs one by one, and those are counted."""
    keys = {f"key number {i}": True for i in range(40)}
    schema = JsonSchema({"properties": keys, "patternProperties": {"^k": {"type": "string"}}})
    assert schema.automaton().num_states > 0
    monkeypatch.setattr(fragment, "MAX_OWN_ARCS", 1_000)
    with pytest.raises(CompileLimitError, match="keys need more than 1,000 arcs") as caught:
        JsonSchema({**schema.schema, "title": "not built before"}).automaton()
    assert caught.value.limit == "steps"
