"""Automata spelt out in bytes read exactly the bytes of their texts."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentloop.model.constraint.characters import CharDfa, everything, of_length, of_words
from agentloop.model.constraint.dfa import Dfa
from agentloop.model.constraint.pattern import compile_pattern
from agentloop.model.constraint.spelling import spell_out

LANGUAGES = {
    "everything": everything(),
    "length": of_length(1, 3),
    "class": compile_pattern('^[^é-ж"]*$'),
    "search": compile_pattern("a|\U0001f600"),
    "words": of_words(["a\n", 'q"', "\u2028", "\U0010ffff"]),
}
texts = st.text(
    st.sampled_from(
        'ab"\\\n\x00\x1f\x7f/éж€\u2028\ud7ff\ue000\uffff\U00010000\U0010ffff\U0001f600'
    ),
    max_size=5,
)


def plain(dfa: CharDfa) -> Dfa:
    """The automaton of the plain bytes."""
    fragment = spell_out(dfa, in_json=False)
    assert fragment is not None
    return fragment.to_dfa()


@pytest.mark.parametrize("name", LANGUAGES)
@given(texts)
@settings(deadline=None, max_examples=60)
def test_text_is_read_as_its_bytes(name: str, text: str) -> None:
    """Plain UTF-8 and the escaped content of a JSON string are both read exactly."""
    dfa = LANGUAGES[name]
    fragment = spell_out(dfa, in_json=True)
    assert fragment is not None
    quoted = json.dumps(text, ensure_ascii=False)[1:].encode()  # with its closing quote
    assert fragment.to_dfa().accepts(quoted) == dfa.accepts(text)
    assert plain(dfa).accepts(text.encode()) == dfa.accepts(text)


@given(st.lists(st.sampled_from(b"a\x80\xbf\xc0\xc3\xe0\xed\xa0\xf0\x90\xf4\xff\xa9"), max_size=4))
@settings(deadline=None, max_examples=150)
def test_bytes_that_are_no_utf8_are_not_read(values: list[int]) -> None:
    """Overlong forms, surrogates and cut characters are outside of every language."""
    try:
        bytes(values).decode()
    except UnicodeDecodeError:
        is_text = False
    else:
        is_text = True
    assert plain(everything()).accepts(bytes(values)) == is_text


@pytest.mark.parametrize("text", [r"\u000a", r"\/", r"\u00e9", "\n", r"\u001F", '"', r"\x"])
def test_only_the_shortest_escape_is_canonical(text: str) -> None:
    """A character has one spelling inside a JSON string."""
    fragment = spell_out(everything(), in_json=True)
    assert fragment is not None
    assert not fragment.to_dfa().accepts(f'{text}"'.encode())
