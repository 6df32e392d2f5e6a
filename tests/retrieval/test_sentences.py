"""Sentence spans cover a text and cut where a reader would."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop.retrieval.sentences import sentences


def cut(text: str) -> list[str]:
    return [text[start:end] for start, end in sentences(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two! Three?", ["One.", "Two!", "Three?"]),
        ("Dr. Smith met J. R. R. Tolkien. They spoke.", 2),
        ("It costs 3.14 euros, e.g. at noon. Good.", 2),
        ('He said "no." Then he left.', ['He said "no."', "Then he left."]),
        ("The U.S. army left. It rained.", 2),
        ("これは文です。次の文です。", ["これは文です。", "次の文です。"]),
        ("नमस्ते दुनिया। यह हिंदी है।", 2),
        ("no stop at all", ["no stop at all"]),
        ("Wait... what? Yes.", ["Wait... what?", "Yes."]),
        ("1. First item.\n2. Second item.", 2),
        ("", []),
        (" \n ", []),
    ],
)
def test_cuts_are_where_a_reader_would_cut(text: str, expected: list[str] | int) -> None:
    """Abbreviations, initials, numbers and quotes do not mislead."""
    found = cut(text)
    assert found == expected if isinstance(expected, list) else len(found) == expected


@given(st.text(st.sampled_from("ab .!?\n\"'A。1)"), max_size=60))
def test_spans_cover_everything_but_white_space(text: str) -> None:
    """No character is lost, none comes twice, and no span begins or ends in white space."""
    at = 0
    for start, end in sentences(text):
        assert not text[at:start].strip()
        assert text[start:end].strip() == text[start:end] != ""
        at = end
    assert not text[at:].strip()


@pytest.mark.parametrize("unit", [".", "?!", ". ", '."', "。", "a.", "1.\n"])
def test_no_text_costs_more_than_its_length(unit: str) -> None:
    """Half a million stops, however placed, are cut at once: the test would time out else."""
    text = unit * (500_000 // len(unit)) + "x"
    assert text.startswith(unit)
    assert sum(1 for _ in sentences(text)) >= 1
