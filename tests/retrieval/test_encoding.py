"""Bytes become the text that was meant."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop.retrieval.encoding import clean, decode

GERMAN = "Die Größe der Bücher überrascht; „schöne“ Straßen für 5 €."
FRENCH = "Le café d’été coûte cinq euros à l'hôtel près de la forêt."
ENGLISH = "The café’s “naïve” résumé — a story about people who didn’t read the manual."
SPANISH = "El niño comió una manzana. ¿Dónde está la biblioteca? Mañana será otro día."
POLISH = "Zażółć gęślą jaźń. Książka leży na stole, a kot śpi w łóżku pod oknem."
RUSSIAN = "Привет, как дела? Сегодня хорошая погода, и мы идём гулять в парк."
JAPANESE = "日本語の文章です。今日は天気がいいので、公園に行きました。カタカナも使います。"


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        (GERMAN, "cp1252"),
        (FRENCH, "cp1252"),
        (ENGLISH, "cp1252"),
        (SPANISH, "latin-1"),
        (FRENCH.replace("’", "'"), "latin-1"),
        (POLISH, "cp1250"),
        (RUSSIAN, "cp1251"),
        (JAPANESE, "shift_jis"),
        (JAPANESE, "utf-16"),
        (GERMAN, "utf-16"),
        (ENGLISH, "utf-16-le"),
        (ENGLISH, "utf-16-be"),
        (RUSSIAN, "utf-8-sig"),
        (JAPANESE, "utf-32"),
        (JAPANESE, "utf-8"),
    ],
)
@pytest.mark.parametrize("repeats", [1, 20])
def test_common_encodings_are_read_right(text: str, encoding: str, repeats: int) -> None:
    """Requirement 15: Windows, Latin, UTF-16 and Japanese files load as written, short or long."""
    whole = "\n".join([text] * repeats)
    assert decode(whole.encode(encoding))[0] == whole


def test_a_declared_encoding_is_believed() -> None:
    """What a page says of itself decides where bytes alone would not."""
    data = "Příliš žluťoučký kůň".encode("iso8859-2")
    assert decode(data, "iso-8859-2") == ("Příliš žluťoučký kůň", "iso-8859-2")


def test_an_unknown_declared_encoding_is_ignored() -> None:
    """A page may claim nonsense."""
    assert decode(FRENCH.encode("cp1252"), "x-no-such-thing")[0] == FRENCH


def test_line_ends_become_newlines() -> None:
    """One kind of line end is stored, whatever the file has."""
    assert decode(b"a\r\nb\rc\n")[0] == "a\nb\nc\n"


@given(st.binary(max_size=300))
def test_any_bytes_decode_to_text_that_can_be_stored(data: bytes) -> None:
    """Decoding never fails, and gives no NUL, no carriage return, no lone surrogate."""
    text, name = decode(data)
    assert name
    assert not set(text) & {"\x00", "\r"}
    text.encode()


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\x00\ufeff")))
def test_utf8_is_read_exactly(text: str) -> None:
    """UTF-8 comes first: what is valid in it is never guessed to be something else."""
    if "\x00" not in text:
        assert decode(text.encode())[0] == text


@given(st.text())
def test_clean_text_can_be_encoded(text: str) -> None:
    """Lone surrogates, which no file can hold, are replaced."""
    clean(text).encode()
