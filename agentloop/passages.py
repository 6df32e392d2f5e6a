"""What a model is shown of the hits: a few whole sentences of each, every one with its exact place.

The shown text is the stored text with white space made even and marks of layout (`# `, `- `, `| `)
left out, so what is shown is found again in the index by its offsets, not by searching for it.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from agentloop.retrieval import Hit
from agentloop.retrieval.analyser import Analyser
from agentloop.retrieval.sentences import sentences

PROMPT_BYTES = 1400
"""Question and passages together, near what the default model was trained on (450 tokens)."""
PASSAGE_BYTES = 650
"""One passage, about 110 words."""
MIN_PASSAGES_BYTES = 500
"""All passages, however long the question is."""
SENTENCE_BYTES = 300
"""A longer sentence is cut into clauses, so that a quote fits its canvas."""

_MARKS = re.compile(r"[ \t]*(?:#{1,6}[ \t]+|[-*+>][ \t]+|\d{1,3}[.)][ \t]+|\|[ \t]*)")
_HEADING = re.compile(r"[ \t]*#{1,6}[ \t]")
_WORD = re.compile(r"\w")
CONTROL = "<|"
"""Begins a control token of chat formats; a document may not show any."""


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence, or a clause of a long one, as it is shown.

    Attributes:
        text: What the model sees.
        places: For every character of `text`, its place in the document's stored text; one more for
            the end.
        hit: The hit it is from.
    """

    text: str
    places: tuple[int, ...]
    hit: Hit

    @property
    def start(self) -> int:
        """First character in the document's stored text."""
        return self.places[0]

    @property
    def end(self) -> int:
        """One past the last character."""
        return self.places[-1]

    def stored(self, start: int, end: int) -> tuple[int, int]:
        """Where the shown characters `[start:end]` stand in the document's stored text."""
        return self.places[start], self.places[end - 1] + 1


@dataclass(frozen=True, slots=True)
class Passage:
    """Neighbouring sentences of one hit."""

    sentences: tuple[Sentence, ...]

    @property
    def hit(self) -> Hit:
        """The hit they are from."""
        return self.sentences[0].hit

    @property
    def start(self) -> int:
        """First character in the document's stored text."""
        return self.sentences[0].start

    @property
    def end(self) -> int:
        """One past the last character."""
        return self.sentences[-1].end

    @property
    def text(self) -> str:
        """What the model sees."""
        return " ".join(sentence.text for sentence in self.sentences)


def choose_passages(hits: Sequence[Hit], question: str) -> list[Passage]:
    """A passage of each of the best hits, in their order, as many as there is room for.

    Each is a run of whole sentences around the one that shares most with the question. They share
    the room equally, and what one leaves goes to those after it; with the question they stay within
    `PROMPT_BYTES`.

    Args:
        hits: What a search gave.
        question: Decides which sentences are shown.
    """
    candidates = [found for hit in hits if (found := split(hit))]
    weigh = _Weights(question, [s.text for found in candidates for s in found])
    left = max(MIN_PASSAGES_BYTES, PROMPT_BYTES - len(question.encode()))
    passages: list[Passage] = []
    for number, found in enumerate(candidates):
        share = min(PASSAGE_BYTES, left // (len(candidates) - number))
        passage = Passage(_window(found, [weigh(s.text) for s in found], share))
        length = len(passage.text.encode())
        if length <= left:
            left -= length
            passages.append(passage)
    return passages


def split(hit: Hit) -> list[Sentence]:
    """The sentences of a hit, long ones in clauses; what holds no word is left out."""
    found: list[Sentence] = []
    for start, end in _blocks(hit.text):
        if hit.text[start:end].strip() in hit.headings:
            continue
        for first, last in sentences(hit.text, start, end):
            for a, b in _clauses(hit.text, first, last):
                if _WORD.search(hit.text, a, b):
                    found.append(_shown(hit, a, b))
    return found


def _blocks(text: str) -> Iterator[tuple[int, int]]:
    """Paragraphs, list items and rows of a table, without the marks before them.

    Headings of Markdown are left out: they are not quoted, and the words below say more.
    """
    start = at = 0
    after_heading = False
    for line in text.splitlines(keepends=True):
        mark = _MARKS.match(line)
        if mark or after_heading or not line.strip():
            if text[start:at].strip() and not after_heading:
                yield start, at
            start = at + (mark.end() if mark else 0)
        after_heading = _HEADING.match(line) is not None
        at += len(line)
    if text[start:at].strip() and not after_heading:
        yield start, at


def _clauses(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """A sentence in pieces of at most SENTENCE_BYTES, cut at the best place before the limit."""
    while len(text[start:end].encode()) > SENTENCE_BYTES:
        limit = start + len(text[start:end].encode()[:SENTENCE_BYTES].decode(errors="ignore"))
        half = start + (limit - start) // 2
        cuts = (text.rfind(mark, half, limit) for mark in ("; ", ", ", " ", "\n"))
        cut = next((c + 1 for c in cuts if c > 0), limit)
        yield start, start + len(text[start:cut].rstrip())
        start = cut + len(text[cut:end]) - len(text[cut:end].lstrip())
    if start < end:
        yield start, end


def _shown(hit: Hit, start: int, end: int) -> Sentence:
    """A stretch of a hit with its white space made even and no control token."""
    shown: list[str] = []
    places: list[int] = []
    for at in range(start, end):
        char = " " if hit.text[at].isspace() else hit.text[at]
        if char == " " and shown[-1:] == [" "]:
            continue
        if at > start and hit.text[at - 1 : at + 1] == CONTROL:
            shown.append(" ")  # keeps it from being one
            places.append(hit.start + at - 1)
        shown.append(char)
        places.append(hit.start + at)
    return Sentence("".join(shown), (*places, hit.start + end), hit)


class _Weights:
    """Scores a sentence by the question's words in it, rare ones more.

    Source: Jones, "A statistical interpretation of term specificity", 1972 (inverse document
    frequency), over the sentences at hand.
    """

    def __init__(self, question: str, texts: Sequence[str]) -> None:
        self._terms_of = Analyser().terms
        asked = set(self._terms_of(question))
        counts = Counter(term for text in texts for term in asked & set(self._terms_of(text)))
        self._weights: Mapping[str, float] = {
            term: math.log1p(len(texts) / count) for term, count in counts.items()
        }

    def __call__(self, text: str) -> float:
        return sum(self._weights.get(term, 0.0) for term in set(self._terms_of(text)))


def _window(
    found: Sequence[Sentence], scores: Sequence[float], num_bytes: int
) -> tuple[Sentence, ...]:
    """The best sentence and its neighbours, the better side first, of at most so many bytes."""
    best = max(range(len(found)), key=lambda i: scores[i])
    first = last = best
    left = num_bytes - len(found[best].text.encode())
    while True:
        sides = [i for i in (first - 1, last + 1) if 0 <= i < len(found)]
        sides = [i for i in sides if len(found[i].text.encode()) < left]
        if not sides:
            return tuple(found[first : last + 1])
        chosen = max(sides, key=lambda i: (scores[i], i))
        left -= len(found[chosen].text.encode()) + 1
        first, last = min(first, chosen), max(last, chosen)
