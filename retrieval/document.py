"""What a loader makes of one file: its text, the blocks of that text, and a status.

Offsets everywhere in this package count Python characters (code points) of the stored text, half
open: a block is `text[start:end]`. This module knows no file format and no index.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, Self, get_args

BlockKind = Literal["heading", "paragraph", "list", "table", "code", "metadata"]
FileStatus = Literal[
    "indexed",  # read in full, now searchable
    "unchanged",  # searchable since an earlier sync
    "partial",  # searchable, but pages are missing: the reason says which
    "no_text",  # read in full, but it holds no text (a scan, an empty file)
    "encrypted",  # needs a password
    "failed",  # could not be read: the reason says why
    "unsupported",  # no loader for this kind of file
]
STATUSES: tuple[FileStatus, ...] = get_args(FileStatus)
SEARCHABLE: frozenset[FileStatus] = frozenset({"indexed", "partial"})


@dataclass(frozen=True, slots=True)
class Block:
    """A paragraph, heading, list, table or listing.

    Attributes:
        start: First character in the document's text.
        end: One past the last character.
        kind: What it is; tables and code are kept whole where they fit.
        page: 1-based page where the block starts, None in formats without pages.
        headings: Titles of the sections it lies in, outermost first; a heading ends its own path.
    """

    start: int
    end: int
    kind: BlockKind
    page: int | None = None
    headings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ParsedDocument:
    """The text of one file, or why there is none.

    Attributes:
        status: "indexed", "partial", "no_text", "encrypted", "failed" or "unsupported".
        reason: Why, for every status but "indexed".
        text: The stored text; blocks and chunks are slices of it.
        blocks: In order, not overlapping; everything but white space lies in one of them.
        title: What the document calls itself, or "".
        num_pages: Pages of the file, None in formats without pages.
        encoding: Character encoding the bytes were read with, "" for binary formats.
        sha256: Hex digest of the file's bytes, "" where they could not be read.
    """

    status: FileStatus
    reason: str = ""
    text: str = ""
    blocks: tuple[Block, ...] = ()
    title: str = ""
    num_pages: int | None = None
    encoding: str = ""
    sha256: str = ""

    def to_json(self) -> dict[str, Any]:
        """A form that `json.dumps` takes and `from_json` reads back unchanged."""
        blocks = [[b.start, b.end, b.kind, b.page, list(b.headings)] for b in self.blocks]
        names = (field.name for field in fields(self) if field.name != "blocks")
        return {**{name: getattr(self, name) for name in names}, "blocks": blocks}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """The inverse of `to_json`."""
        blocks = tuple(Block(s, e, kind, page, tuple(h)) for s, e, kind, page, h in value["blocks"])
        scalars = {name: part for name, part in value.items() if name != "blocks"}
        return cls(**scalars, blocks=blocks)


@dataclass(slots=True)
class TextBuilder:
    """Lays blocks out as one text, a blank line between them, keeping their offsets."""

    pieces: list[str] = field(default_factory=list[str])
    blocks: list[Block] = field(default_factory=list[Block])
    length: int = 0

    def add(
        self,
        text: str,
        kind: BlockKind,
        page: int | None = None,
        headings: tuple[str, ...] = (),
    ) -> None:
        """Append a block; text of white space alone adds nothing."""
        text = text.strip("\n") if kind in ("code", "table") else text.strip()
        if not text.strip():
            return
        if self.pieces:
            self.pieces.append("\n\n")
            self.length += 2
        self.blocks.append(Block(self.length, self.length + len(text), kind, page, headings))
        self.pieces.append(text)
        self.length += len(text)

    @property
    def text(self) -> str:
        """Everything added so far."""
        return "".join(self.pieces)


@dataclass(slots=True)
class HeadingPath:
    """The open sections at a point of a document, by heading level."""

    open: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])

    def enter(self, level: int, title: str) -> tuple[str, ...]:
        """Open a section, closing those of the same or a deeper level.

        Args:
            level: 1 for the outermost.
            title: Heading text; white space is collapsed.
        """
        while self.open and self.open[-1][0] >= level:
            self.open.pop()
        self.open.append((level, " ".join(title.split())))
        return self.path

    @property
    def path(self) -> tuple[str, ...]:
        """Titles of the open sections, outermost first."""
        return tuple(title for _, title in self.open if title)
