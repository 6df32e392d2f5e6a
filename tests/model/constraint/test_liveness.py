"""What can still reach the end of a canvas agrees with walking every path backward."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import agentloop.model.constraint.liveness as liveness_module
from agentloop.errors import ConstraintError
from agentloop.model.constraint.dfa import Dfa
from agentloop.model.constraint.lift import lift
from agentloop.model.constraint.liveness import Liveness
from agentloop.model.constraint.token_automaton import TokenAutomaton
from tests.model.constraint.reference import MASK, VOCABULARY, dfas


def walked(lifted: TokenAutomaton, tokens: list[int], room: int) -> list[set[int]]:
    """The live states at each boundary, by following single edges."""
    eos, tail = lifted.eos_class, lifted.tail_class
    live = [{s for s in range(lifted.num_states) if lifted.distance[s] <= room}]
    for token in reversed(tokens):
        own = int(lifted.token_class[token])
        classes = range(tail + 1) if token == MASK else [own, tail] if own == eos else [own]
        before = {
            s
            for s in range(lifted.num_states)
            for c in classes
            if c >= 0 and lifted.follow(s, c) in live[0]
        }
        live.insert(0, before)
    return live


@pytest.mark.parametrize("sparse", [0, 2, 10**6])
@settings(max_examples=40, deadline=None)
@given(
    dfas(max_states=5),
    st.lists(st.sampled_from([MASK, MASK, *range(VOCABULARY.size)]), max_size=6),
    st.integers(0, 3),
)
def test_live_states_are_those_with_a_way_to_the_end(
    sparse: int, dfa: Dfa, tokens: list[int], room: int
) -> None:
    """Counting after the last committed token, listing and sweeping before it: all the same."""
    try:
        lifted = lift(dfa, VOCABULARY)
    except ConstraintError:
        assume(False)
        raise
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(liveness_module, "_SPARSE", sparse)
        liveness = Liveness(lifted, np.array(tokens, np.int64), room)
    expected = walked(lifted, tokens, room)
    for boundary, states in enumerate(expected):
        assert set(np.flatnonzero(liveness.at(boundary)).tolist()) == states
        assert liveness.restricts(boundary) or len(states) == lifted.num_states
