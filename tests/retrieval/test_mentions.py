"""Names are found by how they are written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop.retrieval.analyser import Analyser
from agentloop.retrieval.mentions import MAX_RUN_LENGTH, is_break, lead_names, lead_terms, runs

ANALYSER = Analyser("none")


def _runs(text: str) -> list[str]:
    words = ANALYSER.words(text)
    return [" ".join(word.written for word in words[start:end]) for start, end in runs(words)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("he met Ada Lindqvist near Uppsala, once.", ["Ada Lindqvist near Uppsala"]),
        ("he met Ada Lindqvist yesterday in Uppsala.", ["Ada Lindqvist", "Uppsala"]),
        ("the Lord of the Rings came", ["Lord of the Rings"]),
        ("by Anna, Bo and Carl (Lund)", ["Anna", "Bo and Carl", "Lund"]),
        ("J. R. Smith. He slept", ["J R Smith", "He"]),
        ("in 1954 at 東京タワー", ["1954 at 東京タワー"]),
        ("nothing here", []),
    ],
)
def test_runs_of_capitals_are_names(text: str, expected: list[str]) -> None:
    """Short words between capitals belong to a run, punctuation ends it, an initial's does not."""
    assert _runs(text) == expected


@given(st.text(alphabet="Aa b.,(—", max_size=60))
def test_runs_are_apart_and_begin_and_end_with_name_like_words(text: str) -> None:
    """In order, never overlapping, never across a break, never longer than the limit."""
    words = ANALYSER.words(text)
    before = 0
    for start, end in runs(words):
        assert before <= start < end <= min(len(words), start + MAX_RUN_LENGTH)
        assert words[start].is_name_like
        assert not any(is_break(words, at) for at in range(start + 1, end))
        before = end


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Anna Lindqvist (born 1950) was", ["anna lindqvist"]),
        ("The Silent Harbour is a film", ["the silent harbour", "silent harbour"]),
        ("Conchobar mac Nessa is king", ["conchobar", "conchobar mac nessa"]),
        ("it is cold", []),
        ("It is cold", []),
        ("", []),
    ],
)
def test_a_text_is_named_by_its_first_run(text: str, expected: list[str]) -> None:
    """Every end of the name that lower case or punctuation follows; pronouns are too short."""
    assert lead_names(ANALYSER.words(text)) == expected


def test_parts_of_a_leading_name() -> None:
    """Name-like words among the first twelve, whatever stands between them."""
    text = "Frank Jeffrey Edson Smart was a painter of " + "x " * 8 + "Later"
    assert lead_terms(ANALYSER.words(text)) == {"frank", "jeffrey", "edson", "smart"}
