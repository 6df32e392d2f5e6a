"""What is shown of hits: whole sentences, near a size, every character with its place."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from agentloop.passages import (
    MIN_PASSAGES_BYTES,
    PASSAGE_BYTES,
    PROMPT_BYTES,
    SENTENCE_BYTES,
    choose_passages,
    split,
)
from agentloop.retrieval import Hit


def hit(text: str, start: int = 0, headings: tuple[str, ...] = ()) -> Hit:
    """A hit with a text, at a place of its document."""
    return Hit(
        path="a.md",
        document_id="a",
        chunk_id=1,
        start=start,
        end=start + len(text),
        text=text,
        title="A",
        headings=headings,
        page=None,
        last_page=None,
        score=1.0,
        scores={},
    )


texts = st.text(st.sampled_from("ab É。. \n\t#-|<!1>,;"), max_size=120)


@given(texts, st.integers(0, 9))
def test_every_shown_character_stands_at_its_place(text: str, start: int) -> None:
    """Shown and stored text differ in white space and control tokens alone."""
    for sentence in split(hit(text, start)):
        assert len(sentence.places) == len(sentence.text) + 1
        stored = text[sentence.start - start : sentence.end - start]
        assert "".join(sentence.text.split()) == "".join(stored.split())
        assert "<|" not in sentence.text
        for a in (i for i, char in enumerate(sentence.text) if char != " "):
            for b in range(a + 1, len(sentence.text) + 1):
                first, last = sentence.stored(a, b)
                piece = text[first - start : last - start]
                assert "".join(piece.split()) == "".join(sentence.text[a:b].split())


@given(texts)
def test_sentences_lie_in_order_and_hold_words(text: str) -> None:
    """No character is shown twice, and nothing without a word is shown."""
    found = split(hit(text))
    assert all(one.end <= other.start for one, other in pairwise(found))
    assert all(any(char.isalnum() for char in sentence.text) for sentence in found)


def test_marks_of_layout_are_not_shown() -> None:
    """Headings are left out; list, quote and table marks are cut off; lines are joined."""
    text = "# Chile\n\nIt is\nlong. It has\n\n- copper\n* wine\n1. salt\n> view\n| a | b |\n|-|-|\n"
    shown = [sentence.text for sentence in split(hit(text))]
    assert shown == ["It is long.", "It has", "copper", "wine", "salt", "view", "a | b |"]


def test_headings_of_other_formats_are_not_shown() -> None:
    """A paragraph that is one of the hit's headings is left out."""
    assert [s.text for s in split(hit("Chile\n\nIt is long.", headings=("Chile",)))] == [
        "It is long."
    ]


def test_control_tokens_in_documents_are_broken() -> None:
    """A document cannot open a turn of the conversation, and its quotes still have a place."""
    (first, *_) = split(hit("Stop<|im_end|> now"))
    assert first.text == "Stop< |im_end|> now"
    assert first.stored(0, len(first.text)) == (0, 18)


@given(st.text(st.sampled_from("ab c,;é"), min_size=1, max_size=1500))
def test_long_sentences_are_cut_into_clauses(text: str) -> None:
    """Every piece fits its size, and together they hold every letter."""
    found = split(hit(text))
    assert all(len(sentence.text.encode()) <= SENTENCE_BYTES for sentence in found)
    letters = [char for char in text if char.isalnum()]
    assert [c for s in found for c in s.text if c.isalnum()] == letters


def test_the_best_sentence_is_shown_with_its_neighbours() -> None:
    """The sentence that shares rare words with the question is in the window."""
    filler = " ".join(f"Something else is said in sentence {i} of many." for i in range(40))
    text = f"{filler} The lighthouse was built in 1871. {filler}"
    (passage,) = choose_passages([hit(text)], "When was the lighthouse built?")
    assert "The lighthouse was built in 1871." in passage.text
    assert len(passage.sentences) > 3
    assert text[passage.start : passage.end] == passage.text


@settings(max_examples=25)
@given(st.integers(1, 20), st.integers(0, 3000))
def test_passages_share_what_the_prompt_has(num_hits: int, question_length: int) -> None:
    """Together they stay within the prompt's size, whatever the number of hits."""
    text = " ".join(f"Sentence {i} says a little." for i in range(30))
    hits = [replace(hit(text), chunk_id=i) for i in range(num_hits)]
    passages = choose_passages(hits, "q" * question_length)
    room = max(MIN_PASSAGES_BYTES, PROMPT_BYTES - question_length)
    assert 1 <= len(passages) <= num_hits
    assert sum(len(p.text) for p in passages) <= room
    assert len(passages) == num_hits or num_hits > 3
    assert all(len(p.text) <= PASSAGE_BYTES for p in passages)


def test_hits_without_words_give_no_passage() -> None:
    """Nothing to read is not a passage."""
    assert choose_passages([hit("---\n\n***")], "What?") == []
    assert choose_passages([], "What?") == []
