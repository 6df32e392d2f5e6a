"""Plain text: paragraphs are separated by blank lines; the stored text is the file's own."""

from __future__ import annotations

import re
from collections.abc import Iterator

from agentloop.retrieval.document import Block, ParsedDocument
from agentloop.retrieval.encoding import decode

_LINE = re.compile(r"[^\n]*\n?")


def lines(text: str) -> Iterator[tuple[int, int]]:
    """`(start, end)` of every line, its newline left out."""
    for match in _LINE.finditer(text):
        if match.end() > match.start():
            yield match.start(), match.end() - match.group().endswith("\n")


def load_plain_text(data: bytes) -> ParsedDocument:
    """Decode a text file into paragraphs."""
    text, encoding = decode(data)
    return ParsedDocument("indexed", text=text, blocks=tuple(paragraphs(text)), encoding=encoding)


def paragraphs(text: str) -> Iterator[Block]:
    """One block for each run of lines that are not blank."""
    first = last = -1
    for start, end in lines(text):
        if text[start:end].strip():
            first = start if first < 0 else first
            last = end
        elif first >= 0:
            yield Block(first, last, "paragraph")
            first = -1
    if first >= 0:
        yield Block(first, last, "paragraph")
