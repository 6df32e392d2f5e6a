"""HTML pages: the visible text as blocks; a table's row is one line, a listing keeps its lines.

Walks the tree without recursion, so nesting depth costs nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from selectolax.lexbor import LexborHTMLParser, LexborNode

from agentloop.retrieval.document import BlockKind, HeadingPath, ParsedDocument, TextBuilder
from agentloop.retrieval.encoding import clean, decode

_CHARSET = re.compile(rb"""<meta[^>]{0,200}?charset\s*=\s*["']?([\w:.-]{1,40})""", re.IGNORECASE)
_HIDDEN_TAGS = "script style noscript template head svg math iframe object select nav button"
_HIDDEN = frozenset(_HIDDEN_TAGS.split())
_BREAK = "\v"  # stands for <br> until white space is collapsed
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_BLOCK_TAGS = (
    "address article aside blockquote body center dd details dialog dir div dl dt fieldset "
    "figcaption figure footer form header hgroup hr html li main menu ol p section summary ul "
    "caption"
)
_BLOCKS = frozenset(_BLOCK_TAGS.split())


def load_web_page(data: bytes) -> ParsedDocument:
    """Decode and parse an HTML file into blocks with heading paths."""
    found = _CHARSET.search(data, 0, 4096)
    text, encoding = decode(data, found[1].decode("ascii") if found else None)
    tree = LexborHTMLParser(text)
    walk = _Walk()
    if tree.root is not None:
        walk.visit(tree.root)
    title = tree.css_first("title")
    return ParsedDocument(
        "indexed",
        text=walk.out.text,
        blocks=tuple(walk.out.blocks),
        title=" ".join(clean(title.text()).split()) if title is not None else "",
        encoding=encoding,
    )


@dataclass(slots=True)
class _Walk:
    """Collects inline text in `line` until a block begins or ends."""

    out: TextBuilder = field(default_factory=TextBuilder)
    headings: HeadingPath = field(default_factory=HeadingPath)
    line: list[str] = field(default_factory=list[str])
    kind: BlockKind = "paragraph"

    def visit(self, root: LexborNode) -> None:
        """Every node under `root` in document order, entering and leaving each element once."""
        node: LexborNode | None = root
        while node is not None:
            inner = node.child if self._enter(node) else None
            if inner is not None:
                node = inner
                continue
            while node is not None:
                self._leave(node)
                if node.mem_id == root.mem_id:
                    node = None
                elif node.next is not None:
                    node = node.next
                    break
                else:
                    node = node.parent
        self._flush()

    def _enter(self, node: LexborNode) -> bool:
        """Take the node in; whether its children are to be visited."""
        tag = node.tag
        if tag == "-text":
            self.line.append((node.text_content or "").replace(_BREAK, " "))
            return False
        if tag in _HIDDEN or (tag or "").startswith(("-", "!")):
            return tag == "-document"
        if tag == "br":
            self.line.append(_BREAK)
        elif tag == "pre":
            self._flush()
            self._add(node.text(), "code")
            return False
        elif tag == "table":
            self._flush()
            if not _is_layout(node):
                self._add("\n".join(_rows(node)), "table")
                return False
        elif tag in _HEADINGS:
            self._flush()
            self._heading(_HEADINGS[tag], node.text(separator=" "))
            return False
        elif tag in _BLOCKS or tag in ("tr", "td", "th"):
            self._flush()
            self.kind = "list" if tag in ("li", "dt", "dd") else self.kind
        return True

    def _leave(self, node: LexborNode) -> None:
        tag = node.tag
        if tag in _BLOCKS or tag in ("tr", "td", "th"):
            self._flush()

    def _heading(self, level: int, title: str) -> None:
        title = " ".join(clean(title).split())
        if title:
            self.out.add(title, "heading", headings=self.headings.enter(level, title))

    def _add(self, text: str, kind: BlockKind) -> None:
        self.out.add(clean(text), kind, headings=self.headings.path)

    def _flush(self) -> None:
        raw = "".join(self.line)
        self.line.clear()
        rows = [" ".join(row.split()) for row in raw.split(_BREAK)]
        for paragraph in "\n".join(rows).split("\n\n"):
            self._add(paragraph, self.kind)
        self.kind = "paragraph"


def _is_layout(table: LexborNode) -> bool:
    """Whether a table only arranges the page: it holds tables or headings of its own."""
    return any(
        table.css_first(inner) is not None for inner in ("td table", "td h1", "td h2", "td h3")
    )


def _rows(table: LexborNode) -> list[str]:
    """One line for each row, cells joined by ` | `."""
    rows: list[str] = []
    for row in table.css("tr"):
        cells = [" ".join(cell.text(separator=" ").split()) for cell in row.css("td, th")]
        if any(cells):
            rows.append(" | ".join(cells))
    caption = table.css_first("caption")
    if caption is not None and (title := " ".join(caption.text().split())):
        rows.insert(0, title)
    return rows
