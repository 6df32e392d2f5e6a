"""The constraint of a cited answer: a span of one sentence together with that sentence, or null.

The texts are those of `agentloop.model.prompts.reading_answer`. An answer that is not null is made
of whole words of the very sentence that is quoted for it, so an answer never comes without the
words that show it, and a quote never with an answer from elsewhere.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from agentloop.errors import ConstraintError
from agentloop.model.constraint.constraint import FORMAT_VERSION
from agentloop.model.constraint.dfa import Dfa
from agentloop.model.constraint.options import CompileOptions
from agentloop.model.constraint.quote import split
from agentloop.model.constraint.spelling import escape
from agentloop.model.prompts import reading_answer

NO_START = frozenset(",;:.!?)]}»”")
"""Signs that no answer starts with."""
NO_END = frozenset(",;:([{«“")
"""Signs that no answer ends with."""

_PARTS = {
    "open": b'{"answer":',
    "null": b'null,"quotes":[]}',
    "between": b'","quotes":["',
    "close": b'"]}',
}
_Part = Literal["open", "value", "null", "start", "answer", "between", "quote", "close"]
_Place = tuple[_Part, int, int]
"""A place in the language: the part, the sentence (0 where all are alike), bytes read of it."""
_ENDS: frozenset[_Place] = frozenset(
    {("null", 0, len(_PARTS["null"])), ("close", 0, len(_PARTS["close"]))}
)


@dataclass(frozen=True)
class _Spelt:
    """A sentence as JSON spells it, with the bytes at which an answer may start and end."""

    spelling: bytes
    starts: tuple[int, ...]
    ends: frozenset[int]


class CitedAnswer:
    """What may be answered from some sentences.

    Args:
        sentences: The sentences that may be quoted.
        is_required: Whether there must be an answer; else it may be null.

    Raises:
        ConstraintError: There is no sentence to answer from.

    Example:
        >>> told = CitedAnswer(["Lima is in Peru.", "It is warm."])
        >>> told.accepts('{"answer":"Lima","quotes":["Lima is in Peru."]}')
        True
        >>> told.accepts('{"answer":"Lima","quotes":["It is warm."]}')
        False
    """

    def __init__(self, sentences: Iterable[str], *, is_required: bool = False) -> None:
        self.sentences = tuple(dict.fromkeys(sentences))
        self.is_required = is_required
        self._spelt = [_spelt(sentence) for sentence in self.sentences]
        if not any(spelt.starts for spelt in self._spelt):
            raise ConstraintError(
                f"CitedAnswer needs a sentence with a word in it, got {len(self.sentences)} without"
            )

    @property
    def key(self) -> str:
        """A digest of the sentences, the same in every process."""
        content = json.dumps([FORMAT_VERSION, self.description()])
        return hashlib.sha256(content.encode()).hexdigest()

    def description(self) -> list[Any]:
        """What the constraint is, as JSON."""
        return ["CitedAnswer", list(self.sentences), self.is_required]

    def accepts(self, text: str) -> bool:
        """Whether a text is an answer, in the one spelling there is of it."""
        try:
            value: Any = json.loads(text)
            answer, quotes = value["answer"], value["quotes"]
            if text != reading_answer(answer, quotes):
                return False
        except (ValueError, TypeError, KeyError):
            return False
        if answer is None:
            return bool(quotes == []) and not self.is_required
        return len(quotes) == 1 and quotes[0] in self.sentences and self._holds(quotes[0], answer)

    def parse(self, text: str) -> dict[str, Any]:
        """`{"answer": ..., "quotes": [...]}`.

        Raises:
            ConstraintError: The text is not an answer.
        """
        if not self.accepts(text):
            raise ConstraintError(f"{text[:200]!r} is not an answer from the given sentences")
        value: dict[str, Any] = json.loads(text)
        return value

    def automaton(self, options: CompileOptions) -> Dfa:
        """The byte automaton: the subset construction over places in the sentences."""
        numbers: dict[frozenset[_Place], int] = {frozenset({("open", 0, 0)}): 0}
        todo = list(numbers)
        arcs: list[tuple[int, int, int]] = []
        while todo:
            places = todo.pop()
            after: dict[int, set[_Place]] = {}
            for place in places:
                for byte, target in self._moves(place):
                    after.setdefault(byte, set()).add(target)
            for byte, targets in after.items():
                reached = frozenset(targets)
                if reached not in numbers:
                    numbers[reached] = len(numbers)
                    todo.append(reached)
                arcs.append((numbers[places], byte, numbers[reached]))
        accepting = np.array([not _ENDS.isdisjoint(places) for places in numbers], np.bool_)
        sources, arc_bytes, targets_ = np.array(arcs, np.int64).T
        return Dfa.from_arcs(sources, arc_bytes, targets_, accepting)

    def _moves(self, place: _Place) -> Iterator[tuple[int, _Place]]:
        """The bytes that may follow a place, with the places after them."""
        part, number, at = place
        if part == "value":
            if not self.is_required:
                yield ord("n"), ("null", 0, 1)
            for i, spelt in enumerate(self._spelt):
                for start in spelt.starts:
                    yield ord('"'), ("start", i, start)
            return
        text = (
            self._spelt[number].spelling if part in ("start", "answer", "quote") else _PARTS[part]
        )
        if part == "answer" and at in self._spelt[number].ends:
            yield ord('"'), ("between", number, 1)
        if at < len(text):
            yield text[at], _after(part, number, at + 1, len(text))
        elif part == "quote":
            yield ord('"'), ("close", 0, 1)

    def _holds(self, sentence: str, answer: object) -> bool:
        """Whether a sentence has an answer in it, from the start of a word to the end of one."""
        spelt = self._spelt[self.sentences.index(sentence)]
        wanted = escape(answer) if isinstance(answer, str) else b""
        return bool(wanted) and any(
            spelt.spelling.startswith(wanted, start) and start + len(wanted) in spelt.ends
            for start in spelt.starts
        )


def find_answer(sentence: str, answer: str) -> tuple[int, int]:
    """Where an answer stands in the sentence that holds it, in characters; the first such place."""
    starts, ends = _edges(sentence)
    for start in starts:
        if sentence.startswith(answer, start) and start + len(answer) in ends:
            return start, start + len(answer)
    raise ConstraintError(f"{answer!r} is no run of words of {sentence!r}")


def _after(part: _Part, number: int, at: int, length: int) -> _Place:
    """The place after a byte of a part; the part's end may be the next one's beginning."""
    if part == "start":
        return ("answer", number, at)
    if part == "open" and at == length:
        return ("value", 0, 0)
    if part == "between" and at == length:
        return ("quote", number, 0)
    return (part, number, at)


def _edges(sentence: str) -> tuple[list[int], list[int]]:
    """The characters at which an answer may start, and end."""
    starts: list[int] = []
    ends: list[int] = []
    at = 0
    for is_unit, text in split(sentence, "words"):
        if is_unit and text not in NO_START:
            starts.append(at)
        at += len(text)
        if is_unit and text not in NO_END:
            ends.append(at)
    return starts, ends


def _spelt(sentence: str) -> _Spelt:
    starts, ends = _edges(sentence)
    offsets = [0]
    for char in sentence:
        offsets.append(offsets[-1] + len(escape(char)))
    return _Spelt(
        escape(sentence), tuple(offsets[i] for i in starts), frozenset(offsets[i] for i in ends)
    )
