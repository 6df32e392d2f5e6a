"""Quotes: spans that occur verbatim in given texts, so that none can be made up.

Texts are cut into units (words, sentences or characters) with what stands between them; the suffix
automaton of these symbols, started and ended at units only, is then written out in bytes.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Literal, get_args

from typing_extensions import override

from agentloop.errors import ConstraintError
from agentloop.model.constraint.character_wording import listed
from agentloop.model.constraint.constraint import TextConstraint
from agentloop.model.constraint.expression import Expr, Kind
from agentloop.model.constraint.fragment import Builder, Fragment, exit_of
from agentloop.model.constraint.scalar_assertions import Length
from agentloop.model.constraint.scalars import OpaqueText
from agentloop.model.constraint.spelling import QUOTE, escape
from agentloop.model.constraint.suffix_automaton import SuffixAutomaton
from agentloop.model.constraint.wording import count
from agentloop.model.constraint.work import check_work

Unit = Literal["words", "chars", "sentences"]
MAX_QUOTE_STATES = 4_000_000
MAX_QUOTE_ARCS = 8_000_000

WORD = re.compile(r"\w+(?:['’]\w+|(?<=\d)[.,](?=\d)\w+)*|[^\w\s]")
"""A word with its apostrophes, a number with its separators, or one sign."""
SENTENCE_END = re.compile(r"""(?<=[.!?])["'”’)\]]*(?=\s+["'“‘(\[]?[A-Z0-9])|\n+|\Z""")

Symbol = tuple[bool, str]
"""Whether it is a unit, and its text."""


def split(text: str, unit: Unit) -> list[Symbol]:
    """A text as units and what stands between them, in order; joined they give the text again.

    Example:
        >>> split("It is 3.5 m.", "words")[2:6]
        [(True, 'is'), (False, ' '), (True, '3.5'), (False, ' ')]
    """
    if unit == "chars":
        return [(True, char) for char in text]
    spans = [m.span() for m in WORD.finditer(text)] if unit == "words" else _sentences(text)
    symbols: list[Symbol] = []
    at = 0
    for start, end in spans:
        if start > at:
            symbols.append((False, text[at:start]))
        symbols.append((True, text[start:end]))
        at = end
    return symbols


def _sentences(text: str) -> list[tuple[int, int]]:
    spans: list[tuple[int, int]] = []
    start = 0
    for match in SENTENCE_END.finditer(text):
        piece = text[start : match.end()]
        if piece.strip():
            lead = len(piece) - len(piece.lstrip())
            spans.append((start + lead, start + len(piece.rstrip())))
            start = match.end()
    return spans


@dataclass(frozen=True, eq=False)
class QuotedText(OpaqueText):
    """The text is a span of some texts, from the start of a unit to the end of one."""

    kind: ClassVar[Kind] = "string"
    texts: tuple[str, ...]
    unit: Unit
    min_length: int
    max_length: int | None
    max_units: int | None

    @override
    def accepts(self, text: str) -> bool:
        if not text or len(text) < self.min_length:
            return False
        if self.max_length is not None and len(text) > self.max_length:
            return False
        return any(self._occurs(text, boundaries) for boundaries in self._boundaries)

    @cached_property
    def _boundaries(self) -> list[tuple[str, dict[int, int], dict[int, int]]]:
        """Each text with the index of the unit that starts, or ends, at an offset."""
        found: list[tuple[str, dict[int, int], dict[int, int]]] = []
        for source in self.texts:
            starts: dict[int, int] = {}
            ends: dict[int, int] = {}
            at = 0
            for is_unit, symbol in split(source, self.unit):
                if is_unit:
                    starts[at] = ends[at + len(symbol)] = len(starts)
                at += len(symbol)
            found.append((source, starts, ends))
        return found

    def _occurs(self, text: str, at: tuple[str, dict[int, int], dict[int, int]]) -> bool:
        source, starts, ends = at
        start = source.find(text)
        while start >= 0:
            first, last = starts.get(start), ends.get(start + len(text))
            if first is not None and last is not None and self._has_few_units(last - first + 1):
                return True
            start = source.find(text, start + 1)
        return False

    def _has_few_units(self, num_units: int) -> bool:
        return self.max_units is None or num_units <= self.max_units

    @override
    def spelt(self, *, in_json: bool) -> Fragment:
        return _content(self, in_json)

    @override
    def with_length(self, length: Length) -> QuotedText:
        bounds = [hi for hi in (self.max_length, length.hi) if hi is not None]
        return replace(
            self,
            min_length=max(self.min_length, length.lo),
            max_length=min(bounds, default=None),
        )

    @property
    @override
    def wording(self) -> str:
        length = count(self.min_length, self.max_length, "character")
        bound = f", {length}" if self.min_length > 1 or self.max_length is not None else ""
        units = "" if self.max_units is None else f", at most {self.max_units} {self.unit}"
        return f"quoted word for word from the given texts by {self.unit}{bound}{units}"

    @override
    def continuation(self, text: str) -> tuple[int, tuple[str, ...]]:
        best = 0
        following: dict[str, None] = {}
        for source, starts, ends in self._boundaries:
            stops = list(ends)
            for start, first in starts.items():
                reach = self._reach(start, first, stops)
                length = _num_shared(source, start, reach, text)
                if reach == start or length < best:
                    continue
                if length > best:
                    best = length
                    following.clear()
                after = bisect_right(stops, start + length)
                if start + length < reach:
                    following[source[start + length : stops[after]]] = None
        ends_here = ("the end of the quote",) if self.accepts(text[:best]) else ()
        return best, (*listed(following), *ends_here)

    def _reach(self, start: int, first: int, stops: list[int]) -> int:
        """Where the longest quote that starts with a unit ends; `start` if there is none."""
        last = len(stops)
        if self.max_units is not None:
            last = min(last, first + self.max_units)
        if self.max_length is not None:
            last = min(last, bisect_right(stops, start + self.max_length))
        reach = stops[last - 1] if last > first else start
        return reach if reach - start >= self.min_length else start


def _num_shared(source: str, start: int, stop: int, text: str) -> int:
    """How many characters of a stretch of a source a text begins with."""
    length = 0
    for char in text[: stop - start]:
        if source[start + length] != char:
            break
        length += 1
    return length


@dataclass(frozen=True)
class _Spot:
    """A state of the suffix automaton, with what has been read where lengths are bounded."""

    state: int
    ends_unit: bool
    num_units: int
    num_chars: int


@lru_cache(maxsize=64)
def _content(quoted: QuotedText, in_json: bool) -> Fragment:
    found = _Writer(quoted, in_json).write()
    if found is None:
        raise ConstraintError(
            f"no quote by {quoted.unit} of {quoted.min_length} to {quoted.max_length} characters"
            " and at most"
            f" {quoted.max_units} units exists in the {len(quoted.texts)} given texts"
        )
    return found


class _Writer:
    """Writes the byte automaton of the quotes of some texts."""

    def __init__(self, quoted: QuotedText, in_json: bool) -> None:
        self.quoted = quoted
        self.in_json = in_json
        self.automaton = SuffixAutomaton(split(text, quoted.unit) for text in quoted.texts)
        self.builder = Builder(MAX_QUOTE_STATES, MAX_QUOTE_ARCS)
        self.numbers: dict[_Spot, int] = {}
        self.todo: list[_Spot] = []

    def write(self) -> Fragment | None:
        """The fragment, None if no quote fits the bounds."""
        self.numbers[_Spot(0, False, 0, 0)] = 0
        self.todo = list(self.numbers)
        while self.todo:
            check_work()
            self._write_spot(self.todo.pop())
        return self.builder.finish().without(set())

    def _write_spot(self, spot: _Spot) -> None:
        source = self.numbers[spot]
        self._end(source, spot)
        self._write_words(source, self._words(spot))

    def _end(self, source: int, spot: _Spot) -> None:
        """Let a quote end at a state, if it may end at a spot."""
        if not spot.ends_unit or spot.num_chars < self.quoted.min_length:
            return
        if self.in_json:
            self.builder.arc(source, QUOTE, exit_of(0))
        else:
            self.builder.end(source, exit_of(0))

    def _words(self, spot: _Spot) -> list[tuple[bytes, _Spot]]:
        """The spellings of the symbols that may follow a spot, with the spots after them."""
        words: list[tuple[bytes, _Spot]] = []
        for (is_unit, text), target in self.automaton.moves[spot.state].items():
            after = self._after(spot, is_unit, text, target)
            if after is not None:
                words.append((escape(text) if self.in_json else text.encode(), after))
        return words

    def _number(self, spot: _Spot) -> int:
        """The state of a spot, to be written later if it is new."""
        if spot not in self.numbers:
            self.numbers[spot] = self.builder.state()
            self.todo.append(spot)
        return self.numbers[spot]

    def _after(self, spot: _Spot, is_unit: bool, text: str, target: int) -> _Spot | None:
        """The spot after a symbol, None where a quote may not go on with it."""
        quoted = self.quoted
        if spot.state == 0 and not is_unit:
            return None
        num_units, num_chars = spot.num_units + is_unit, spot.num_chars + len(text)
        if quoted.max_units is not None and num_units > quoted.max_units:
            return None
        if quoted.max_length is not None and num_chars > quoted.max_length:
            return None
        if quoted.max_units is None:
            num_units = 0
        if quoted.max_length is None:
            num_chars = min(num_chars, quoted.min_length)
        return _Spot(target, is_unit, num_units, num_chars)

    def _write_words(self, source: int, words: list[tuple[bytes, _Spot]]) -> None:
        """Arcs that read some words.

        Where one word begins another, the state after it goes on with both: as the spot itself if
        that is unambiguous, else with the spot's own words written out again.
        """
        stack = [(source, words)]
        while stack:
            source, words = stack.pop()
            groups: dict[int, list[tuple[bytes, _Spot]]] = {}
            for word, spot in words:
                groups.setdefault(word[0], []).append((word[1:], spot))
            for byte, rest in groups.items():
                done = list(dict.fromkeys(spot for word, spot in rest if not word))
                longer = [(word, spot) for word, spot in rest if word]
                if not longer and len(done) == 1:
                    self.builder.arc(source, byte, self._number(done[0]))
                    continue
                middle = self.builder.state()
                self.builder.arc(source, byte, middle)
                stack.append((middle, longer + self._joined(middle, done, longer)))

    def _joined(
        self, middle: int, done: list[_Spot], longer: list[tuple[bytes, _Spot]]
    ) -> list[tuple[bytes, _Spot]]:
        """Make a state behave as some spots too; the words that have to be written out for it."""
        if not done:
            return []
        after = [word for spot in done for word in self._words(spot)]
        if len(done) == 1 and not {w[0] for w, _ in after} & {w[0] for w, _ in longer}:
            self.builder.end(middle, self._number(done[0]))
            return []
        for spot in done:
            self._end(middle, spot)
        return after


class Quote(TextConstraint):
    """A span that occurs word for word in one of some texts.

    Args:
        texts: The texts to quote from.
        unit: What a quote starts and ends with: whole words or signs, whole sentences, or any
            character.
        min_length: Fewest characters, at least 1.
        max_length: Most characters, None for no bound.
        max_units: Most units in one quote, None for no bound.

    Raises:
        ConstraintError: There is no text to quote from, or the bounds make no sense.

    Example:
        >>> quote = Quote(["The cat sat."])
        >>> quote.accepts("cat sat"), quote.accepts("cat ran"), quote.accepts("at sat")
        (True, False, False)
    """

    def __init__(
        self,
        texts: Iterable[str],
        unit: Unit = "words",
        *,
        min_length: int = 1,
        max_length: int | None = None,
        max_units: int | None = None,
    ) -> None:
        self.texts = (texts,) if isinstance(texts, str) else tuple(texts)
        if unit not in get_args(Unit):
            raise ConstraintError(f"unit must be one of {get_args(Unit)}, got {unit!r}")
        if not any(text.strip() for text in self.texts):
            raise ConstraintError("Quote needs a text to quote from, got none that is not blank")
        if min_length < 1 or (max_length is not None and max_length < min_length):
            raise ConstraintError(
                f"Quote needs 1 <= min_length <= max_length, got {min_length} and {max_length}"
            )
        if max_units is not None and max_units < 1:
            raise ConstraintError(f"Quote needs max_units of 1 or more, got {max_units}")
        self._expression = QuotedText(self.texts, unit, min_length, max_length, max_units)

    def text_expression(self) -> Expr:
        """The constraint as an expression about a string."""
        return self._expression

    def description(self) -> list[Any]:
        """What the constraint is, as JSON."""
        quoted = self._expression
        bounds = [quoted.min_length, quoted.max_length, quoted.max_units]
        return ["Quote", list(self.texts), quoted.unit, *bounds]
