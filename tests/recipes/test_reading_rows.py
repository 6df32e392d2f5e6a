"""Rows of questions on passages: exact quotes, distractors that do not answer, cuts."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipes.default_model.detokenise import Detokenised
from recipes.default_model.questions import (
    Question,
    qamr_question,
    qed_question,
    read_xquad,
)
from recipes.default_model.reading_rows import Distractors, cut, paragraph_row, sentence_row
from tests.recipes.samples import QED_RECORD, XQUAD, Json

WORDS = st.sampled_from(
    [
        *("He", "left", "(", ")", ",", ".", "'s", "n't", "-LRB-", "-RRB-", "``", "''", "--", "-"),
        *("gon", "na", "$", "9.8", "1986", "%", '"', "McBurney", "é"),
    ]
)


@given(st.lists(WORDS, min_size=1, max_size=20), st.data())
def test_detokenised_spans_stand_in_the_text(tokens: list[str], data: st.DataObject) -> None:
    """Every span of tokens is a span of the plain text, and only spaces and names of signs go."""
    tokenised = " ".join(tokens)
    plain = Detokenised(tokenised)
    first = data.draw(st.integers(0, len(tokens) - 1))
    last = data.draw(st.integers(first, len(tokens) - 1))
    start = len(" ".join([*tokens[:first], ""])) if first else 0
    span = plain.span(start, start + len(" ".join(tokens[first : last + 1])))
    assert span
    assert span in plain.text
    signs = {"-LRB-": "(", "-RRB-": ")", "``": '"', "''": '"', "--": "–"}
    letters = "".join(signs.get(t, t) for t in tokens)
    assert plain.text.replace(" ", "") == letters


@pytest.mark.parametrize(
    ("tokenised", "plain"),
    [
        ("He did n't pay $ 9.8 , alas .", "He didn't pay $9.8, alas."),
        ("Two ( 1986 -- 1987 ) all - star games", "Two (1986–1987) all-star games"),
        ('It is called " the end " now', 'It is called "the end" now'),
        ("McBurney 's `` point '' -LRB- left -RRB-", 'McBurney\'s "point" (left)'),
    ],
)
def test_detokenised_text_reads_like_text(tokenised: str, plain: str) -> None:
    """Spaces go where typesetting has none."""
    assert Detokenised(tokenised).text == plain


def test_qed_record_becomes_a_question() -> None:
    """The answer and its sentence are plain and exact."""
    question = qed_question(QED_RECORD)
    assert question is not None
    assert question.text == "where do sparrows nest"
    assert question.answers == ["trees"]
    assert question.quote == "They nest in trees, mostly."


@pytest.mark.parametrize(
    "change", [{"answer_type": "multi_sentence"}, {"answer_spans": [[34, 60]]}]
)
def test_qed_answers_over_sentences_are_left_out(change: Json) -> None:
    """Only an answer that stands in one sentence can be quoted."""
    assert qed_question({**QED_RECORD, **change}) is None


def test_qamr_needs_validators_and_a_span() -> None:
    """A line is used if its answer is contiguous and every validator gave it."""
    tokens = {
        "Wiki1k:wikipedia:1:2:3": [
            "The",
            "sponge",
            ",",
            "-LRB-",
            "a",
            "sea",
            "animal",
            "-RRB-",
            ",",
            "eats",
            "plankton",
            ".",
        ]
    }
    head = ["Wiki1k:wikipedia:1:2:3", "1", "5", "0", "3", "What does the sponge eat?"]
    question = qamr_question([*head, "10", "2:10", "3:10"], tokens, "q")
    assert question is not None
    assert question.answers == ["plankton"]
    assert question.quote == "The sponge, (a sea animal), eats plankton."
    assert qamr_question([*head, "10", "2:10", "3:Invalid"], tokens, "q") is None
    assert qamr_question([*head, "1 10", "2:1 10", "3:1 10"], tokens, "q") is None


def test_xquad_sentences_are_not_cut_at_abbreviations(tmp_path: Path) -> None:
    """The quote is the whole sentence around the answer."""
    path = tmp_path / "xquad.en.json"
    path.write_text(json.dumps(XQUAD), encoding="utf-8")
    first, second = read_xquad(path)
    assert first.quote == "Fort Caroline stood on the St. Johns."
    assert first.text == "On which river did the fort stand?"
    assert second.quote == "Lavoisier named it."


QUESTION = Question(
    "q", "who wrote the poem", ["Ada"], ["It is old.", "Ada wrote the poem.", "It rhymes."], 1, "p"
)


OTHERS = Distractors(
    [("p", ["The poem is long."]), ("o", ["Ada wrote it."]), ("o", ["A poem is read.", "Here."])]
)


def test_distractors_do_not_answer() -> None:
    """Neither a passage of the same page nor one that holds the answer is a distractor."""
    assert OTHERS.choose(QUESTION, 3, 7, random.Random(0)) == ["A poem is read. Here."]


@given(st.integers(0, 10_000))
def test_reading_rows_quote_exactly(seed: int) -> None:
    """An answer is quoted from a shown passage; without one, no passage holds it."""
    row = paragraph_row(QUESTION, OTHERS, "s", random.Random(seed), num_words=(4, 12))
    assert row is not None
    answer = json.loads(row["answer"])
    if answer["answer"] is None:
        assert answer["quotes"] == row["answers"] == []
        assert not any("Ada" in p for p in row["passages"])
    else:
        assert answer == {"answer": "Ada", "quotes": ["Ada wrote the poem."]}
        assert any("Ada wrote the poem." in p for p in row["passages"])


def test_a_vague_question_on_a_sentence_makes_no_row() -> None:
    """A question that names nothing of its sentence cannot find it among others."""
    vague = Question("q", "What is it?", ["Ada"], ["Ada wrote the poem."], 0, "p")
    assert sentence_row(vague, OTHERS, "s", random.Random(0)) is None


@given(st.lists(st.integers(1, 9), min_size=1, max_size=9), st.data())
def test_cut_keeps_the_place_and_the_limit(lengths: list[int], data: st.DataObject) -> None:
    """A cut is neighbouring sentences with the place in it, within the limit if it can be."""
    sentences = [" ".join([f"s{i}"] * n) for i, n in enumerate(lengths)]
    place = data.draw(st.integers(0, len(lengths) - 1))
    kept = cut(sentences, place, 12, random.Random(0))
    first = sentences.index(kept[0])
    assert kept == sentences[first : first + len(kept)]
    assert sentences[place] in kept
    assert sum(len(s.split()) for s in kept) <= 12
