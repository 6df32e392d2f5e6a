"""The language of cited answers, against listing it by brute force."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop.cited_answer import NO_END, NO_START, CitedAnswer, find_answer
from agentloop.errors import ConstraintError
from agentloop.model.constraint.dfa import Dfa
from agentloop.model.constraint.options import DEFAULT_OPTIONS
from agentloop.model.prompts import reading_answer

WORDS = re.compile(r"\w+(?:['’]\w+|(?<=\d)[.,](?=\d)\w+)*|[^\w\s]")
sentence_lists = st.lists(
    st.text(st.sampled_from('ab1 ."\\é,'), min_size=1, max_size=8), min_size=1, max_size=4
).filter(lambda some: any(re.search(r'[ab1é"\\]', text) for text in some))


def language(sentences: list[str], *, is_required: bool) -> set[str]:
    """Every text that may be answered, listed word by word."""
    texts = set[str]() if is_required else {reading_answer(None, [])}
    for sentence in sentences:
        words = list(WORDS.finditer(sentence))
        for i, first in enumerate(words):
            for last in words[i:]:
                if first.group() not in NO_START and last.group() not in NO_END:
                    texts.add(reading_answer(sentence[first.start() : last.end()], [sentence]))
    return texts


def spelt(dfa: Dfa) -> set[str]:
    """Every text of a finite automaton."""
    found: set[str] = set()
    todo = [(0, b"")]
    while todo:
        state, text = todo.pop()
        if dfa.accepting[state]:
            found.add(text.decode())
        for at in range(int(dfa.offsets[state]), int(dfa.offsets[state + 1])):
            todo.append((int(dfa.arc_targets[at]), text + bytes([int(dfa.arc_bytes[at])])))
    return found


@given(sentence_lists, st.booleans())
def test_the_automaton_reads_exactly_the_cited_answers(
    sentences: list[str], is_required: bool
) -> None:
    """The automaton's texts are those listed by hand, and each is accepted and parsed."""
    expected = language(sentences, is_required=is_required)
    if not expected - {reading_answer(None, [])}:
        return
    constraint = CitedAnswer(sentences, is_required=is_required)
    assert spelt(constraint.automaton(DEFAULT_OPTIONS)) == expected
    for text in expected:
        assert constraint.parse(text) == json.loads(text)


@given(sentence_lists, st.text(st.sampled_from('ab1 ."\\é,'), max_size=8), st.integers(0, 3))
def test_acceptance_agrees_with_the_list(sentences: list[str], answer: str, number: int) -> None:
    """Any answer next to any quote is accepted if, and only if, it is listed."""
    expected = language(sentences, is_required=False)
    if len(expected) == 1:
        return
    text = reading_answer(answer, [sentences[number % len(sentences)]])
    assert CitedAnswer(sentences).accepts(text) == (text in expected)


@given(sentence_lists)
def test_answers_are_found_where_they_stand(sentences: list[str]) -> None:
    """The place of an answer holds the answer."""
    for text in language(sentences, is_required=True):
        value = json.loads(text)
        start, end = find_answer(value["quotes"][0], value["answer"])
        assert value["quotes"][0][start:end] == value["answer"]


def test_an_answer_comes_with_its_own_sentence() -> None:
    """Neither a word of another sentence, nor no quote, nor two quotes, nor another spelling."""
    constraint = CitedAnswer(["Lima is in Peru.", "Oslo is in Norway."])
    assert constraint.accepts(reading_answer("Peru", ["Lima is in Peru."]))
    assert not constraint.accepts(reading_answer("Peru", ["Oslo is in Norway."]))
    assert not constraint.accepts(reading_answer("Peru", []))
    assert not constraint.accepts(reading_answer(None, ["Lima is in Peru."]))
    assert not constraint.accepts(reading_answer("Peru", ["Lima is in Peru."] * 2))
    assert not constraint.accepts('{"answer": null, "quotes": []}')
    assert not constraint.accepts("null")
    assert not constraint.accepts('{"answer":7,"quotes":["Lima is in Peru."]}')


def test_what_is_wrong_is_refused_with_a_reason() -> None:
    """A text outside the language, sentences without words, an answer that is not there."""
    with pytest.raises(ConstraintError, match="is not an answer from the given sentences"):
        CitedAnswer(["Lima."]).parse("[]")
    with pytest.raises(ConstraintError, match="got 1 without"):
        CitedAnswer(["..."])
    with pytest.raises(ConstraintError, match="'im' is no run of words"):
        find_answer("Lima.", "im")


def test_keys_tell_constraints_apart() -> None:
    """Equal sentences have equal keys; other sentences, or a duty to answer, have other ones."""
    keys = [
        CitedAnswer(["a"]).key,
        CitedAnswer(["b"]).key,
        CitedAnswer(["a"], is_required=True).key,
    ]
    assert len({*keys, CitedAnswer(["a", "a"]).key}) == 3
