"""The algebra of automata over code points equals set algebra on all short texts."""

from __future__ import annotations

from itertools import product as cartesian

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentloop.model.constraint.characters import (
    CharDfa,
    StateBudgetError,
    everything,
    from_rows,
    nothing,
    of_length,
    of_words,
    product,
)

TEXTS = ["".join(chars) for n in range(5) for chars in cartesian("abé", repeat=n)]
SYMBOLS = [((0x61, 0x61),), ((0x62, 0x62),), ((0, 0x60), (0x63, 0x10FFFF))]


@st.composite
def automata(draw: st.DrawFn) -> CharDfa:
    """Random automata over a, b and everything else, dead ends included."""
    num_states = draw(st.integers(1, 5))
    target = st.integers(-1, num_states - 1)
    rows = draw(
        st.lists(st.lists(target, min_size=3, max_size=3), min_size=num_states, max_size=num_states)
    )
    labels = draw(st.lists(st.sampled_from([-1, 0]), min_size=num_states, max_size=num_states))
    return from_rows(rows, labels, SYMBOLS)


def language(dfa: CharDfa) -> set[str]:
    """The short texts of an automaton."""
    return {text for text in TEXTS if dfa.accepts(text)}


@given(automata(), automata())
@settings(deadline=None, max_examples=60)
def test_boolean_operations_are_those_of_sets(left: CharDfa, right: CharDfa) -> None:
    """Union, intersection, difference and complement hold text by text."""
    a, b, every = language(left), language(right), set(TEXTS)
    assert language(left & right) == a & b
    assert language(left | right) == a | b
    assert language(left - right) == a - b
    assert language(left.complement()) == every - a


@given(automata())
@settings(deadline=None, max_examples=60)
def test_minimising_keeps_the_language_and_merges_equal_states(dfa: CharDfa) -> None:
    """No two states of a minimal automaton accept the same texts, and none is lost."""
    small = dfa.minimised()
    assert language(small) == language(dfa)
    seen: set[frozenset[str]] = set()
    for state in range(small.num_states):
        seen.add(frozenset(t for t in [*TEXTS, "aaaaa"] if _accepts_from(small, state, t)))
    assert len(seen) == small.num_states


def _accepts_from(dfa: CharDfa, state: int, text: str) -> bool:
    for char in text:
        column = sum(cut <= ord(char) for cut in dfa.cuts.tolist()) - 1
        state = int(dfa.table[state, column])
    return bool(dfa.labels[state] >= 0)


@given(automata(), automata(), automata())
@settings(deadline=None, max_examples=30)
def test_a_product_labels_by_who_accepts(one: CharDfa, two: CharDfa, three: CharDfa) -> None:
    """The label of a text is computed from the verdicts of all automata on it."""
    both = product([one, two, three], lambda f: f[0] + 2 * f[1] + 4 * f[2] if any(f) else -1)
    for text in TEXTS:
        flags = [one.accepts(text), two.accepts(text), three.accepts(text)]
        wanted = flags[0] + 2 * flags[1] + 4 * flags[2] if any(flags) else -1
        assert both.label(text) == wanted


@given(st.sets(st.text("abé", max_size=4), max_size=8))
@settings(deadline=None, max_examples=30)
def test_a_set_of_words_is_that_set(words: set[str]) -> None:
    """Exactly the given words are accepted."""
    assert language(of_words(words)) == words


@pytest.mark.parametrize(("lo", "hi"), [(0, None), (2, None), (0, 0), (1, 3), (4, 4)])
def test_lengths_count_code_points(lo: int, hi: int | None) -> None:
    """A length bound counts code points, however many bytes they take."""
    dfa = of_length(lo, hi)
    assert language(dfa) == {t for t in TEXTS if lo <= len(t) and (hi is None or len(t) <= hi)}
    assert dfa.accepts("\U0001f600" * lo)


def test_everything_and_nothing() -> None:
    """The two trivial languages are each other's complement."""
    assert language(everything()) == set(TEXTS)
    assert nothing().is_empty
    assert not everything().is_empty


def test_a_length_bound_over_the_budget_is_refused() -> None:
    """An automaton that would be too large is an error that says so."""
    with pytest.raises(StateBudgetError, match="30,000 needs more than 20,000 states"):
        of_length(0, 30_000)
