"""Where sentences end, by rules: for cutting chunks, not for linguistics.

A wrong cut costs a little context, never a character: the spans of a text always cover everything
in it but white space between them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

# A full stop in any script, closing quotes or brackets, then white space; scripts that write no
# spaces end at the stop itself.
# A run of stops is tried once, from its first: a million dots cost a million steps.
_STOPS = ".!?\u2026\u061f\u06d4\u0964"
_END = re.compile(
    rf"(?<![{_STOPS}])(?P<stop>[{_STOPS}]++)[\"'\u201d\u2019\u00bb)\]]*(?=\s)"
    r"|[\u3002\uff01\uff1f]+[\u300d\u300f\u201d\u2019\uff09]*"
)
_LAST_WORD = re.compile(r"[^\s(\[\"'\u201c\u2018]*\Z")
_ABBREVIATION_WORDS = (
    "mr mrs ms dr prof sr jr st vs etc e.g i.e cf al inc ltd co corp dept est approx resp ca jan "
    "feb mar apr jun jul aug sep sept oct nov dec gen col sgt capt lt rev hon pres gov sen rep u.s "
    "u.k u.n a.m p.m b.c a.d ph.d z.b d.h bzw usw mt ft ed eds"
)
_NUMBER_WORDS = "no nos nr fig figs eq eqs vol vols p pp bd abs art sec ch chap op"
_ABBREVIATIONS = frozenset(_ABBREVIATION_WORDS.split())
_BEFORE_NUMBERS = frozenset(_NUMBER_WORDS.split())
_NUMBER_FOLLOWS = re.compile(r"\s*\d")
_CONTINUES = re.compile(r"\s+[a-z\u00df-\u00f6\u00f8-\u00ff,;:)]")
_LOOK_BACK = 24  # characters searched for the word before a stop


def sentences(text: str, start: int = 0, end: int | None = None) -> Iterator[tuple[int, int]]:
    """`(start, end)` of each sentence of `text[start:end]`, without surrounding white space.

    Args:
        text: Any text.
        start: First character to look at.
        end: One past the last, None for the text's end.
    """
    end = len(text) if end is None else end
    for match in _END.finditer(text, start, end):
        if match["stop"] and not _is_end(text, start, match, end):
            continue
        yield from _trimmed(text, start, match.end())
        start = match.end()
    yield from _trimmed(text, start, end)


def _is_end(text: str, start: int, match: re.Match[str], end: int) -> bool:
    if _CONTINUES.match(text, match.end(), end):
        return False
    if match["stop"] != ".":
        return True
    found = _LAST_WORD.search(text, max(start, match.start() - _LOOK_BACK), match.start())
    word = found.group() if found else ""
    if word.casefold() in _ABBREVIATIONS:
        return False
    if word.casefold() in _BEFORE_NUMBERS and _NUMBER_FOLLOWS.match(text, match.end(), end):
        return False
    is_initial = len(word) == 1 and word.isupper()  # "J. R. R. Tolkien"
    is_list_number = word.isdigit() and not text[start : match.start() - len(word)].strip()
    return not (is_initial or is_list_number)


def _trimmed(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    piece = text[start:end]
    stripped = piece.strip()
    if stripped:
        start += len(piece) - len(piece.lstrip())
        yield start, start + len(stripped)
