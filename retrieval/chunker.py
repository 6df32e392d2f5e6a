"""Cuts a document into chunks: exact slices of its text, each within the embedder's token limit.

Cuts fall, in order of preference, between sections, blocks, sentences (lines in tables and code),
words, characters. Titles and other metadata never move a cut. Starts strictly increase.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from agentloop.retrieval.document import Block, BlockKind
from agentloop.retrieval.plain_text import lines
from agentloop.retrieval.sentences import sentences

CountTokens = Callable[[Sequence[str]], list[int]]
_MAX_TOKEN_LENGTH = 16  # characters that one token can stand for
_WORD = re.compile(r"\S+")
_PIECE = re.compile(r"[^\W\d_]+|\d|[^\w\s]|_")
_WIDE = re.compile("[\u0e00-\u0eff\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")


@dataclass(frozen=True, slots=True)
class Chunk:
    """`text[start:end]` of a document.

    Attributes:
        start: First character.
        end: One past the last.
        page: Page of the first character, None in formats without pages.
        last_page: Page of the last character.
        headings: Titles of the section of its first block that is no heading, outermost first.
        kind: "table", "code" or "metadata" where the chunk holds only that, else "paragraph".
    """

    start: int
    end: int
    page: int | None
    last_page: int | None
    headings: tuple[str, ...]
    kind: BlockKind


@dataclass(frozen=True, slots=True)
class _Unit:
    """A stretch that packing never cuts; `tokens` is at most the limit.

    A torn unit begins within a word: counts do not add up across its start, so it begins a chunk.
    """

    start: int
    end: int
    tokens: int
    block: Block
    is_torn: bool = False


@dataclass(frozen=True, slots=True)
class Chunker:
    """How to cut.

    Attributes:
        count_tokens: Tokens of each of several texts; the sum over pieces cut at white space must
            be at least the count of the whole.
        max_tokens: Limit of a chunk.
        overlap_tokens: Whole sentences up to this many tokens are repeated at the head of the next
            chunk of the same section.
    """

    count_tokens: CountTokens
    max_tokens: int = 200
    overlap_tokens: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.overlap_tokens < self.max_tokens:
            raise ValueError(
                f"overlap_tokens must be from 0 to below max_tokens={self.max_tokens}, "
                f"got {self.overlap_tokens}"
            )

    def chunks(self, text: str, blocks: Sequence[Block]) -> list[Chunk]:
        """Cut a document.

        Args:
            text: The stored text.
            blocks: In order, not overlapping.
        """
        spans = [span for block in blocks for span in _block_spans(text, block)]
        counts = self._count(text, [(start, end) for start, end, _ in spans])
        units = [
            unit
            for (start, end, block), tokens in zip(spans, counts, strict=True)
            for unit in self._fitting(text, start, end, block, tokens)
        ]
        return [_chunk(group) for group in self._packed(self._merged(units))]

    def _merged(self, units: list[_Unit]) -> list[_Unit]:
        """Tables and listings that fit as wholes become one unit each."""
        merged: list[_Unit] = []
        at = 0
        while at < len(units):
            block, last = units[at].block, at
            while last + 1 < len(units) and units[last + 1].block is block:
                last += 1
            tokens = sum(unit.tokens for unit in units[at : last + 1])
            if block.kind in ("table", "code") and tokens <= self.max_tokens:
                merged.append(_Unit(units[at].start, units[last].end, tokens, block))
            else:
                merged.extend(units[at : last + 1])
            at = last + 1
        return merged

    def _fitting(
        self, text: str, start: int, end: int, block: Block, tokens: int, is_torn: bool = False
    ) -> Iterator[_Unit]:
        """The span itself where it fits, else runs of its words, else of its characters."""
        if tokens <= self.max_tokens or end - start == 1:
            yield _Unit(start, end, tokens, block, is_torn)
            return
        words = [match.span() for match in _WORD.finditer(text, start, end)]
        if len(words) == 1:
            middle = start + (end - start) // 2
            halves = [(start, middle), (middle, end)]
            for (s, e), n in zip(halves, self._count(text, halves), strict=True):
                torn = is_torn or s == middle
                yield from self._fitting(text, s, e, block, n, torn)
            return
        counts = self._count(text, words)
        first, total = 0, 0
        for at, count in enumerate(counts):
            if total + count > self.max_tokens and first < at:
                yield _Unit(words[first][0], words[at - 1][1], total, block)
                first, total = at, 0
            if count > self.max_tokens:
                yield from self._fitting(text, *words[at], block, count)
                first, total = at + 1, 0
            else:
                total += count
        if first < len(words):
            yield _Unit(words[first][0], words[-1][1], total, block)

    def _count(self, text: str, spans: Sequence[tuple[int, int]]) -> list[int]:
        """Tokens of each span; a tokenizer that calls a long word one unknown is not believed."""
        counts = self.count_tokens([text[s:e] for s, e in spans])
        return [
            max(count, (e - s) // _MAX_TOKEN_LENGTH)
            for (s, e), count in zip(spans, counts, strict=True)
        ]

    def _packed(self, units: list[_Unit]) -> Iterator[list[_Unit]]:
        """Groups of consecutive units, each within the limit and within one section."""
        group: list[_Unit] = []
        for unit in units:
            if group and self._cuts_before(unit, group):
                yield group
                group = self._overlap(group, unit)
            group.append(unit)
        if group:
            yield group

    def _cuts_before(self, unit: _Unit, group: list[_Unit]) -> bool:
        if unit.is_torn or sum(u.tokens for u in group) + unit.tokens > self.max_tokens:
            return True
        last = group[-1].block
        if "metadata" in (last.kind, unit.block.kind):
            return last.kind != unit.block.kind
        only_headings = all(u.block.kind == "heading" for u in group)
        is_inside = unit.block.headings[: len(last.headings)] == last.headings
        return unit.block.headings != last.headings and not (only_headings and is_inside)

    def _overlap(self, group: list[_Unit], unit: _Unit) -> list[_Unit]:
        """Units at the end of `group` to repeat before `unit`: never all of them."""
        if unit.is_torn or unit.block.headings != group[-1].block.headings:
            return []
        room = min(self.overlap_tokens, self.max_tokens - unit.tokens)
        sizes = list(accumulate(u.tokens for u in reversed(group[1:])))
        kept = bisect_right(sizes, room)
        return group[len(group) - kept :] if kept else []


def _block_spans(text: str, block: Block) -> Iterator[tuple[int, int, Block]]:
    """Lines of a table or listing, items of a list, sentences of anything else."""
    if block.kind == "heading":
        yield block.start, block.end, block
    elif block.kind in ("table", "code", "list", "metadata"):
        for start, end in lines(text[block.start : block.end]):
            if text[block.start + start : block.start + end].strip():
                yield block.start + start, block.start + end, block
    else:
        for start, end in sentences(text, block.start, block.end):
            yield start, end, block


def _chunk(group: Sequence[_Unit]) -> Chunk:
    first = group[0].block
    deepest = next((u.block for u in group if u.block.kind != "heading"), group[-1].block)
    kinds = {u.block.kind for u in group}
    kind = first.kind if len(kinds) == 1 and first.kind in ("table", "code", "metadata") else None
    return Chunk(
        group[0].start,
        group[-1].end,
        first.page,
        group[-1].block.page,
        deepest.headings,
        kind or "paragraph",
    )


def approximate_tokens(texts: Sequence[str]) -> list[int]:
    """Token counts without a tokenizer: a little above what word pieces give.

    A word counts one token and one more for every four letters beyond the eighth; digits, symbols
    and the characters of scripts without spaces count one each.
    """
    return [
        sum(1 + max(0, len(piece) - 5) // 4 for piece in _PIECE.findall(text))
        + len(_WIDE.findall(text))
        for text in texts
    ]
