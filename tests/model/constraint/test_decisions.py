"""Decisions agree with enumeration of all texts and with reading the members one by one."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentloop.errors import ConstraintError, ContradictionError
from agentloop.model.constraint.decisions import compile_decision, labelled_union, literal
from agentloop.model.constraint.dfa import Dfa
from agentloop.model.constraint.inference import Weighting
from tests.model.constraint.reference import MASK, VOCABULARY, Enumeration, dfas


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(st.lists(dfas(max_states=3), min_size=1, max_size=3))
def test_the_union_labels_every_text_with_its_members(automata: list[Dfa]) -> None:
    """Reading side by side accepts what any member accepts, and says which ones do."""
    union, labels = labelled_union(automata)
    for length in range(6):
        for letters in itertools.product(b"ab", repeat=length):
            text = bytes(letters)
            accepted = [dfa.accepts(text) for dfa in automata]
            assert union.accepts(text) == any(accepted)
            state = 0
            for byte in text:
                state = int(union.step(np.array([state], np.int32), byte)[0])
            assert state < 0 or labels[state].tolist() == accepted
            assert state >= 0 or not any(accepted)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(
    st.lists(dfas(max_states=3), min_size=2, max_size=3),
    st.integers(0, 2**32),
    st.sampled_from(["local", "product"]),
)
def test_the_posterior_of_a_decision_equals_that_of_all_texts(
    automata: list[Dfa], seed: int, weighting: Weighting
) -> None:
    """Each member's probability is the weight of its texts among all, in either weighting."""
    length = 3
    logits = np.random.default_rng(seed).normal(0, 2, (length, VOCABULARY.size))
    log_p = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    union, _ = labelled_union(automata)
    locality = 1.0 if weighting == "local" else 0.0
    case = Enumeration(union, VOCABULARY, log_p, [MASK] * length, locality)
    if not case.weights:
        return
    named = {str(k): dfa for k, dfa in enumerate(automata)}
    decision = compile_decision(named, VOCABULARY)
    posterior = decision.posterior(logits, weighting=weighting)
    for name, dfa in named.items():
        own = sum(w for (t, _), w in case.weights.items() if dfa.accepts(VOCABULARY.text(t)))
        np.testing.assert_allclose(posterior[name], own / case.total, rtol=1e-9, atol=1e-12)


def test_a_choice_of_texts_is_exact_and_follows_the_temperature() -> None:
    """Texts need no constraint; a text that begins another is a member of its own."""
    decision = compile_decision(["ab", "abb", "ba"], VOCABULARY)
    logits = np.random.default_rng(0).normal(0, 1, (4, VOCABULARY.size))
    posterior = decision.posterior(logits)
    assert list(posterior) == ["ab", "abb", "ba"]
    assert sum(posterior.values()) == pytest.approx(1.0)
    sharp = decision.posterior(logits, temperature=0.25)
    assert sharp == pytest.approx(decision.posterior(logits * 4))
    decided = decision.posterior(logits, [1, MASK, MASK, MASK])
    assert decided == pytest.approx({"ab": 0.0, "abb": 0.0, "ba": 1.0})


def test_a_decision_refuses_what_it_cannot_decide() -> None:
    """No member, members no token spells, and fixed text of no member raise."""
    with pytest.raises(ConstraintError, match="at least one member; got none"):
        compile_decision([], VOCABULARY)
    with pytest.raises(ConstraintError, match="no sequence of tokens"):
        compile_decision(["xyz"], VOCABULARY)
    with pytest.raises(ContradictionError, match="position 0, which holds 'b'"):
        compile_decision(["ab"], VOCABULARY).posterior(np.zeros((3, 8)), [1, MASK, MASK])


def test_a_literal_is_one_text() -> None:
    """A literal accepts its text and nothing shorter or longer."""
    dfa = literal("né".encode())
    texts = [b"", b"n", "né".encode(), "nén".encode()]
    assert [dfa.accepts(text) for text in texts] == [False, False, True, False]
    assert literal(b"").accepts(b"")
