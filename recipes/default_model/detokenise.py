"""Plain text from space-separated tokens, with the place of every character that stays.

Treebank and Natural Questions text puts spaces around punctuation. Spans are given by offset, so
every removal is made on the whole text at once and offsets are carried over exactly.
"""

from __future__ import annotations

import re
from bisect import bisect_left

_REPLACEMENTS = {
    "-LRB-": "(", "-RRB-": ")", "-LSB-": "[", "-RSB-": "]", "-LCB-": "{", "-RCB-": "}",
    "``": '"', "''": '"', "--": "–",
}  # fmt: skip
_TOKEN = re.compile(r"-LRB-|-RRB-|-LSB-|-RSB-|-LCB-|-RCB-|``|''|--")
_NO_SPACE_BEFORE = re.compile(
    r" +(?=[,.;:!?)\]}%](?!\w)|n't\b|'(?:s|re|ve|ll|d|m)\b|' |''|-RRB-|-RSB-)"
)
_NO_SPACE_AFTER = re.compile(r"(?:(?<=[(\[{$£€])|(?<=``)|(?<=-LRB-)|(?<=-LSB-)) +")
_HYPHEN = re.compile(r"(?<=\w)( +)-( +)(?=\w)")
_RANGE = re.compile(r"(?<=\d)( +)--( +)(?=\d)")
_CLITIC = re.compile(r"(?<=\b[Gg]on)( +)na\b|(?<=\b[Ww]an)( +)na\b|(?<=\b[Cc]an)( +)not\b")
_QUOTED = re.compile(r'(?<!\S)"( +)[^"]*?( +)"(?!\w)')


class Detokenised:
    """A text without the spaces of tokenisation.

    Attributes:
        text: the plain text.

    Example:
        >>> d = Detokenised("He left ( in 1981 ) , alone .")
        >>> d.text, d.span(10, 17)
        ('He left (in 1981), alone.', 'in 1981')
    """

    def __init__(self, tokenised: str) -> None:
        dropped: set[int] = set()
        for pattern in (_NO_SPACE_BEFORE, _NO_SPACE_AFTER):
            for found in pattern.finditer(tokenised):
                dropped.update(range(*found.span()))
        for pattern in (_HYPHEN, _RANGE, _QUOTED):
            for found in pattern.finditer(tokenised):
                dropped.update(range(*found.span(1)), range(*found.span(2)))
        for found in _CLITIC.finditer(tokenised):
            dropped.update(range(*found.span(found.lastindex or 0)))
        pieces: list[tuple[int, str]] = []
        place = 0
        while place < len(tokenised):
            if token := _TOKEN.match(tokenised, place):
                pieces.append((place, _REPLACEMENTS[token.group()]))
                place = token.end()
                continue
            if place not in dropped:
                pieces.append((place, tokenised[place]))
            place += 1
        self._places = [p for p, _ in pieces]
        self.text = "".join(c for _, c in pieces)

    def offset(self, place: int) -> int:
        """Where the character at a place of the tokenised text, or the next that stays, now is."""
        return bisect_left(self._places, place)

    def span(self, start: int, end: int) -> str:
        """The plain text of a span of the tokenised text, without spaces at its ends."""
        return self.text[self.offset(start) : self.offset(end)].strip()
