"""The posterior followed from the left agrees with the one summed over the whole lattice."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from agentloop.model.constraint import Choice, JsonSchema, List, Object, Quote, Text, ToolCalls
from agentloop.model.constraint.beliefs import Beliefs
from agentloop.model.constraint.class_weights import ClassWeights
from agentloop.model.constraint.compiled import compile_constraint
from agentloop.model.constraint.constraint import Constraint
from agentloop.model.constraint.inference import infer
from agentloop.model.constraint.liveness import Liveness
from agentloop.model.constraint.vocabulary import Vocabulary
from agentloop.model.constraint.window import open_window
from agentloop.model.prompts import ToolSpec

LENGTH = 40
PIECES = [
    '{"',
    '":',
    '":"',
    '","',
    '"}',
    '"]',
    "[]",
    "[{",
    '":{"',
    "},",
    "name",
    "arguments",
    "the",
]
VOCABULARY = Vocabulary(
    [bytes([b]) for b in range(256)] + [piece.encode() for piece in PIECES] + [b"", b""], [269]
)
TOOLS: list[ToolSpec] = [
    {
        "name": name,
        "description": "",
        "parameters": {
            "type": "object",
            "properties": {"to": {"type": "string", "maxLength": 9}, "n": {"type": "integer"}},
            "required": ["to"],
        },
    }
    for name in ("ride", "walk")
]
CONSTRAINTS: dict[str, Constraint] = {
    "choice": Choice(["yes", "no"]),
    "tools": ToolCalls(TOOLS, min=1, max=1),
    "any": JsonSchema({}),
    "quotes": Object(a=Text(), q=List(Quote(["the one and the other", "another one"]))),
}


def assert_close(got: NDArray[np.float64], expected: NDArray[np.float64]) -> None:
    np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize("name", CONSTRAINTS)
@pytest.mark.parametrize("fill", ["none", "prefix", "some"])
def test_following_agrees_with_summing(name: str, fill: str) -> None:
    """States, class sets and ends are as probable as in the lattice, however much is committed."""
    compiled = compile_constraint(CONSTRAINTS[name], VOCABULARY)
    generator = np.random.default_rng(len(name) + len(fill))
    logits = generator.normal(0, 3, (LENGTH, VOCABULARY.size))
    text = infer(compiled, logits, [-1] * LENGTH, temperature=1.0, generator=1).tokens
    kept = {
        "none": np.zeros(LENGTH, np.bool_),
        "prefix": np.arange(LENGTH) < 6,
        "some": generator.random(LENGTH) < 0.3,
    }[fill]
    canvas = np.where(kept, text, -1)
    automaton = compiled.automaton
    window = open_window(automaton, canvas, 0, 0)
    assert window is not None
    rows = slice(window.first, window.last)
    weights = ClassWeights(automaton, logits[rows], canvas[rows])
    liveness = Liveness(automaton, canvas[rows], window.room)
    beliefs = Beliefs(weights, liveness, window.start, np.ones(window.length))
    ours, reference = beliefs.chain, beliefs.lattice
    assert type(ours) is not type(reference)
    for i in range(window.length):
        assert_close(ours.p_states(i), reference.p_states(i))
        assert_close(ours.p_sets(i), reference.p_sets(i))
        assert_close(ours.p_exit(i), reference.p_exit(i))
        weighed = weights.set_sums_until(i + 1)[i, automaton.pair_set] > 0
        pairs = np.flatnonzero(weighed).astype(np.int32)
        assert_close(ours.per_weight(i, pairs), reference.per_weight(i, pairs))
        state = int(ours.p_states(i).argmax())
        one, other = ours.leaving(i, state), reference.leaving(i, state)
        assert_close(one / one.sum(), other / other.sum())


def test_only_rows_left_of_what_is_asked_are_read() -> None:
    """The confidence of the first positions does not depend on logits that come later."""
    compiled = compile_constraint(CONSTRAINTS["tools"], VOCABULARY)
    logits = np.random.default_rng(3).normal(0, 2, (LENGTH, VOCABULARY.size))
    positions = np.arange(5)
    posterior = infer(compiled, logits, [-1] * LENGTH, path="greedy")
    expected = posterior.confidence[:5]
    logits[20:] = np.random.default_rng(4).normal(0, 2, logits[20:].shape)
    changed = infer(compiled, logits, [-1] * LENGTH, path="greedy")
    np.testing.assert_array_equal(changed.confidence_at(positions), expected)
    np.testing.assert_array_equal(posterior.confidence_at(positions[::-1]), expected[::-1])
