"""Markdown: headings, lists, tables, fenced listings; the stored text is the file's own source.

Keeping the source, marks included, lets a citation point into the file that the user has. What this
does not cover: nested block quotes, indented listings (they read as paragraphs), inline HTML.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from agentloop.retrieval.document import Block, BlockKind, HeadingPath, ParsedDocument
from agentloop.retrieval.encoding import decode
from agentloop.retrieval.plain_text import lines

_ATX = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*?))?(?:[ \t]+#+)?[ \t]*$")
_SETEXT = re.compile(r" {0,3}(=+|-{2,})[ \t]*$")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_ITEM = re.compile(r"[ \t]*(?:[-*+]|\d{1,9}[.)])[ \t]+\S")
_DELIMITER_ROW = re.compile(r"[ \t]*\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$")
_TITLE_FIELD = re.compile(r"^title:[ \t]*(\S.*)$", re.MULTILINE | re.IGNORECASE)


def load_markdown(data: bytes) -> ParsedDocument:
    """Decode a Markdown file into blocks with heading paths."""
    text, encoding = decode(data)
    reader = _Reader(text)
    reader.read()
    return ParsedDocument(
        "indexed", text=text, blocks=tuple(reader.blocks), title=reader.title, encoding=encoding
    )


@dataclass(slots=True)
class _Reader:
    """Line by line; `first` to `last` is the block being collected, of kind `kind`."""

    text: str
    blocks: list[Block] = field(default_factory=list[Block])
    headings: HeadingPath = field(default_factory=HeadingPath)
    title: str = ""
    first: int = -1
    last: int = -1
    kind: BlockKind = "paragraph"
    fence: str = ""

    def read(self) -> None:
        spans = list(lines(self.text))
        at = self._front_matter(spans)
        for start, end in spans[at:]:
            self._line(start, end, self.text[start:end])
        self._flush()

    def _front_matter(self, spans: list[tuple[int, int]]) -> int:
        """Number of lines of a leading `---` block, which becomes one metadata block."""
        rows = [self.text[s:e].rstrip() for s, e in spans[:200]]
        if not rows or rows[0] != "---":
            return 0
        for at in range(1, len(rows)):
            if rows[at] in ("---", "..."):
                end = spans[at][1]
                self.blocks.append(Block(0, end, "metadata"))
                if found := _TITLE_FIELD.search(self.text, 0, end):
                    self.title = found[1].strip().strip("\"'")
                return at + 1
        return 0

    def _line(self, start: int, end: int, line: str) -> None:
        if self.fence:
            self._extend(start, end)
            if line.strip().startswith(self.fence) and not line.strip().strip(self.fence[0]):
                self._flush()
            return
        if not line.strip():
            self._flush()
        elif found := _FENCE.match(line):
            self._flush()
            self.kind, self.fence = "code", found[1]
            self._extend(start, end)
        elif found := _ATX.match(line):
            self._flush()
            self._heading(start, end, len(found[1]), found[2] or "")
        else:
            self._body(start, end, line)

    def _body(self, start: int, end: int, line: str) -> None:
        if self.first >= 0 and self.kind == "paragraph":
            above = self.text[self.first : self.last]
            if found := _SETEXT.match(line):
                first, self.first = self.first, -1
                self._heading(first, end, 1 if found[1][0] == "=" else 2, above)
                return
            if "|" in line and "|" in above.rpartition("\n")[2] and _DELIMITER_ROW.match(line):
                self._table(start, end)
                return
        if self.kind == "table" and "|" not in line:
            self._flush()
        if _ITEM.match(line) and self.kind == "paragraph":
            self._flush()
            self.kind = "list"
        self._extend(start, end)

    def _table(self, start: int, end: int) -> None:
        """The line above is the table's head: cut it from the paragraph it was taken for."""
        head = self.text.rfind("\n", self.first, self.last) + 1
        if head > self.first:
            last, self.last = self.last, head - 1
            self._flush()
            self.first, self.last = head, last
        self.kind = "table"
        self._extend(start, end)

    def _heading(self, start: int, end: int, level: int, title: str) -> None:
        path = self.headings.enter(level, title)
        self.title = self.title or " ".join(title.split())
        self.blocks.append(Block(start, end, "heading", headings=path))

    def _extend(self, start: int, end: int) -> None:
        self.first = start if self.first < 0 else self.first
        self.last = end

    def _flush(self) -> None:
        if self.first >= 0:
            self.blocks.append(Block(self.first, self.last, self.kind, headings=self.headings.path))
        self.first, self.kind, self.fence = -1, "paragraph", ""
