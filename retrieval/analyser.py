"""From text to search terms: folded, stemmed words; bigrams where no spaces are written.

The same analyser reads documents and questions; its fingerprint is stored with the postings.
Words of a script are stemmed by that script's language; Latin script by the language chosen.
"""

from __future__ import annotations

import re
import threading
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from typing import NamedTuple, Protocol, cast

import Stemmer  # type: ignore[import-not-found]  # a C extension without stubs

# Scripts written without spaces between words: Thai, Lao, Myanmar, Khmer, kana, Han.
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf"
    "\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
_SCRIPTS = (  # first and last letter of a script, language of its stemmer
    ("\u0370", "\u03ff", "greek"),
    ("\u0400", "\u04ff", "russian"),
    ("\u0530", "\u058f", "armenian"),
    ("\u0600", "\u06ff", "arabic"),
    ("\u0900", "\u097f", "hindi"),
    ("\u0b80", "\u0bff", "tamil"),
)
_VERSION = 1


class _Stemmer(Protocol):
    def stemWords(self, words: list[str]) -> list[str]: ...  # noqa: N802 - PyStemmer's name


class _Snowball(Protocol):
    def algorithms(self) -> list[str]: ...
    def version(self) -> str: ...
    def Stemmer(self, language: str) -> _Stemmer: ...  # noqa: N802 - PyStemmer's name


_SNOWBALL = cast(_Snowball, Stemmer)


@cache
def _marks() -> str:
    """Every combining mark, as ranges for a character class."""
    codes = [c for c in range(0x300, 0x11A00) if unicodedata.category(chr(c))[0] == "M"]
    firsts = [c for before, c in pairwise([0, *codes]) if c != before + 1]
    lasts = [c for c, after in pairwise([*codes, 0]) if after != c + 1]
    return "".join(f"{chr(a)}-{chr(b)}" for a, b in zip(firsts, lasts, strict=True))


@cache
def _token_pattern() -> re.Pattern[str]:
    r"""Runs of letters, digits and their marks; `(?P<run>)` is one of an unspaced script.

    `\w` alone would cut Indic and Thai words at every vowel sign, which Unicode calls a mark.
    """
    word = rf"[^\W_{_UNSPACED}]"
    wide = rf"(?=[{_UNSPACED}])[^\W_]"
    return re.compile(rf"(?P<run>(?:{wide}[{_marks()}]*)+)|{word}(?:{word}|[{_marks()}])*")


@cache
def _cluster_pattern() -> re.Pattern[str]:
    return re.compile(f".[{_marks()}]*")


class Word(NamedTuple):
    """A word of a text.

    Attributes:
        written: As it stands there, after NFKC.
        term: What it is searched by.
        gap: The characters between the word before and this one.
    """

    written: str
    term: str
    gap: str

    @property
    def is_name_like(self) -> bool:
        """Whether it begins with a capital or a digit, or in a script that has no capitals."""
        return not self.written[0].islower()


@dataclass(frozen=True, slots=True)
class Analyser:
    """Makes search terms; may be shared by threads.

    Attributes:
        language: Snowball language for words in Latin script, or "none".
    """

    language: str = "english"
    _local: threading.local = field(default_factory=threading.local, repr=False, compare=False)

    def __post_init__(self) -> None:
        known = [*_SNOWBALL.algorithms(), "none"]
        if self.language not in known:
            raise ValueError(f"language must be one of {', '.join(known)}; got {self.language!r}")

    @property
    def fingerprint(self) -> str:
        """Changes whenever the same text could give other terms."""
        return (
            f"terms {_VERSION}, {self.language}, Snowball {_SNOWBALL.version()}, "
            f"Unicode {unicodedata.unidata_version}"
        )

    def terms(self, text: str) -> list[str]:
        """Terms in order of occurrence, repeats included."""
        folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
        terms: list[str] = []
        for match in _token_pattern().finditer(folded):
            if match["run"]:
                terms.extend(_grams(match["run"]))
            else:
                terms.append(match.group())
        return self._stemmed(terms)

    def words(self, text: str) -> list[Word]:
        """Words with their terms; a run of an unspaced script is one word."""
        text = unicodedata.normalize("NFKC", text)
        matches = list(_token_pattern().finditer(text))
        terms = self._stemmed(
            [unicodedata.normalize("NFKC", match.group().casefold()) for match in matches]
        )
        ends = [0, *(match.end() for match in matches)]
        return [
            Word(match.group(), term, text[end : match.start()])
            for match, term, end in zip(matches, terms, ends, strict=False)
        ]

    def _stemmed(self, terms: list[str]) -> list[str]:
        by_language: dict[str, list[int]] = {}
        for at, term in enumerate(terms):
            by_language.setdefault(self._language(term), []).append(at)
        for language, places in by_language.items():
            if language != "none":
                stems = self._stemmer(language).stemWords([terms[at] for at in places])
                for at, stem in zip(places, stems, strict=True):
                    terms[at] = stem or terms[at]
        return terms

    def _language(self, term: str) -> str:
        first = term[0]
        if first < "\u0250":
            return self.language
        return next((name for low, high, name in _SCRIPTS if low <= first <= high), "none")

    def _stemmer(self, language: str) -> _Stemmer:
        """One stemmer per thread and language: they keep a cache that is not locked."""
        cached: dict[str, _Stemmer] = self._local.__dict__
        if language not in cached:
            cached[language] = _SNOWBALL.Stemmer(language)
        return cached[language]


def _grams(run: str) -> Iterator[str]:
    """Every character of a run with its marks, and every pair of neighbours."""
    clusters = _cluster_pattern().findall(run)
    for at, cluster in enumerate(clusters):
        yield cluster
        if at + 1 < len(clusters):
            yield cluster + clusters[at + 1]
