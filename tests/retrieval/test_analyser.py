"""Search terms are the same for what a reader takes to be the same word."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop.retrieval.analyser import Analyser

ANALYSER = Analyser()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Running foxes", "runs FOX"),
        ("Straße", "STRASSE"),
        ("ﬁle １２３", "file 123"),
        ("e\u0301te\u0301", "\u00e9t\u00e9"),
        ("Книги", "книга"),
        ("ΕΛΛΗΝΙΚΆ", "ελληνικά"),
        ("ﾃｽﾄ", "テスト"),
    ],
)
def test_variants_of_a_word_share_terms(one: str, other: str) -> None:
    """Case, width, ligatures, composition and endings do not matter."""
    assert ANALYSER.terms(one) == ANALYSER.terms(other)


def test_scripts_without_spaces_give_characters_and_pairs() -> None:
    """Chinese, Japanese and Thai can be found by any part of a word."""
    assert ANALYSER.terms("東京都 tower") == ["東", "東京", "京", "京都", "都", "tower"]
    assert ANALYSER.terms("สวัสดี") == ["ส", "สวั", "วั", "วัส", "ส", "สดี", "ดี"]


def test_vowel_signs_do_not_cut_words() -> None:
    """Indic words hold marks; they are one term each."""
    assert len(ANALYSER.terms("हिन्दी में लिखा")) == 3


def test_an_unknown_language_is_refused() -> None:
    """The message lists what can be chosen."""
    with pytest.raises(ValueError, match=r"language must be one of .*english.*; got 'klingon'"):
        Analyser("klingon")


def test_fingerprints_tell_languages_apart() -> None:
    """Postings made for one language are not taken for another's."""
    assert Analyser("german").fingerprint != ANALYSER.fingerprint


@given(st.text(max_size=80))
def test_terms_hold_no_separator(text: str) -> None:
    """Terms are joined by spaces in the index: none may hold one, a quote, or nothing at all."""
    for term in ANALYSER.terms(text):
        assert re.fullmatch(r'[^\s"]+', term)


@given(st.text(max_size=40), st.text(max_size=40))
def test_a_space_parts_texts(one: str, other: str) -> None:
    """Analysing two texts is analysing each: terms do not depend on their surroundings."""
    assert ANALYSER.terms(f"{one} {other}") == ANALYSER.terms(one) + ANALYSER.terms(other)
