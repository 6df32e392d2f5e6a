"""Choices, patterns and plain texts as constraints."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentloop.errors import ConstraintError
from agentloop.model.constraint import Choice, List, Regex, Text
from agentloop.model.constraint.pattern_syntax import PatternError


@given(st.sets(st.text("abé\n", max_size=4), min_size=1, max_size=6), st.text("abé\n", max_size=4))
@settings(deadline=None, max_examples=60)
def test_a_choice_is_its_set(choices: set[str], text: str) -> None:
    """Exactly the choices are accepted, one that begins another included."""
    choice = Choice(choices)
    dfa = choice.automaton()
    for candidate in [*choices, text]:
        assert (
            dfa.accepts(candidate.encode()) == choice.accepts(candidate) == (candidate in choices)
        )


def test_ten_thousand_choices() -> None:
    """A choice of 10,000 entries is a trie of a few states an entry."""
    words = [f"entry {i * 7919 % 100_003}" for i in range(10_000)]
    dfa = Choice(words).automaton()
    assert all(dfa.accepts(word.encode()) for word in words[::97])
    assert not dfa.accepts(b"entry 1")
    assert dfa.num_states < 30_000


@given(st.text("0123-x", max_size=8))
@settings(deadline=None)
def test_a_pattern_covers_the_whole_text(text: str) -> None:
    """`Regex` is a full match."""
    regex = Regex(r"[0-2]{1,2}-\d+")
    is_match = re.fullmatch(r"[0-2]{1,2}-[0-9]+", text) is not None
    assert regex.accepts(text) == regex.automaton().accepts(text.encode()) == is_match


def test_a_text_has_a_length() -> None:
    """`Text` counts code points, in the plain text and as a JSON string."""
    text = Text(max_length=2, min_length=1)
    assert [n for n in range(4) if text.automaton().accepts(("é" * n).encode())] == [1, 2]
    inside = List(text, max=1).automaton()
    assert inside.accepts(b'["\\n\\""]')
    assert not inside.accepts(b'["abc"]')
    assert Text().automaton().accepts(b"any\ntext")


def test_a_valid_text_is_parsed_to_itself_and_another_refused() -> None:
    """`parse` gives the text, or says what the text does not satisfy."""
    assert Choice(["a", "b"]).parse("a") == "a"
    with pytest.raises(
        ConstraintError, match=r"'c' does not satisfy Choice\(\[\[\"a\", \"b\"\]\]\)"
    ):
        Choice(["a", "b"]).parse("c")


def test_keys_tell_constraints_apart() -> None:
    """Equal content has an equal key, in any order where order means nothing."""
    assert Choice(["a", "b"]).key == Choice(["b", "a", "b"]).key
    keys = {c.key for c in (Choice(["a"]), Choice(["b"]), Regex("a"), Text(), Text(1))}
    assert len(keys) == 5


def test_bad_arguments_are_refused() -> None:
    """No choice, a malformed pattern and an empty range are errors at once."""
    with pytest.raises(ConstraintError, match="at least one text"):
        Choice([])
    with pytest.raises(PatternError, match="missing"):
        Regex("(a")
    with pytest.raises(ConstraintError, match="0 <= min_length <= max_length, got 3 and 2"):
        Text(2, 3)
