"""Checks every promise of the tables against the rows: what `fsck` runs."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from agentloop.errors import IndexCorruptError
from agentloop.retrieval import schema
from agentloop.retrieval.document import SEARCHABLE
from agentloop.retrieval.snapshot import SEGMENT_LENGTH
from agentloop.retrieval.store import Store, document_id

_MAX_PROBLEMS = 100


@dataclass(frozen=True, slots=True)
class FsckReport:
    """What an examination found.

    Attributes:
        problems: One sentence each; empty where all is well.
        num_documents: Documents examined.
        num_chunks: Chunks examined.
    """

    problems: tuple[str, ...]
    num_documents: int
    num_chunks: int

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        return not self.problems


def examine(store: Store) -> FsckReport:
    """Examine an index in one snapshot; changes nothing.

    Raises:
        IndexCorruptError: The file is too damaged to be examined.
    """
    connection = schema.connect(store.path, read_only=False)
    try:
        problems: list[str] = []
        for check in (_file, _postings, _counts, _documents):
            for problem in check(connection):
                problems.append(problem)
                if len(problems) >= _MAX_PROBLEMS:
                    break
        (documents,) = connection.execute("SELECT count(*) FROM documents").fetchone()
        (chunks,) = connection.execute("SELECT count(*) FROM chunks").fetchone()
    except sqlite3.DatabaseError as error:
        raise IndexCorruptError(
            f"{store.path} is too damaged to be examined ({error}); nothing was changed. Move the "
            "index folder away and sync again, or restore a copy of it"
        ) from error
    finally:
        connection.close()
    return FsckReport(tuple(problems[:_MAX_PROBLEMS]), documents, chunks)


def _file(connection: sqlite3.Connection) -> Iterator[str]:
    for (message,) in connection.execute("PRAGMA integrity_check"):
        if message != "ok":
            yield f"SQLite: {message}"
    for table, rowid, parent, _ in connection.execute("PRAGMA foreign_key_check"):
        yield f"row {rowid} of {table} belongs to a missing row of {parent}"


def _postings(connection: sqlite3.Connection) -> Iterator[str]:
    try:
        connection.execute("INSERT INTO postings (postings) VALUES ('integrity-check')")
    except sqlite3.DatabaseError as error:
        yield f"the postings do not fit their texts: {error}"


def _counts(connection: sqlite3.Connection) -> Iterator[str]:
    for what, sql in (
        ("chunks without postings", "SELECT id FROM chunks EXCEPT SELECT rowid FROM postings"),
        ("postings without a chunk", "SELECT rowid FROM postings EXCEPT SELECT id FROM chunks"),
        (
            "chunks without an embedding",
            "SELECT id FROM chunks WHERE (SELECT value FROM meta WHERE key = 'embedder') <> 'none' "
            "EXCEPT SELECT chunk_id FROM embeddings",
        ),
    ):
        rows = connection.execute(sql).fetchall()
        if rows:
            yield f"{len(rows)} {what}, the first is {rows[0][0]}"
    widths = connection.execute("SELECT DISTINCT length(vector) FROM embeddings").fetchall()
    if len(widths) > 1:
        yield f"embeddings of different widths: {sorted(width for (width,) in widths)} bytes"


def _documents(connection: sqlite3.Connection) -> Iterator[str]:
    sql = "SELECT id, path, status, num_chars, num_pages FROM documents ORDER BY path"
    for name, path, status, length, pages in connection.execute(sql).fetchall():
        if name != document_id(path):
            yield f"{path}: its id {name} does not come from its path"
        yield from (f"{path}: {problem}" for problem in _text(connection, name, length))
        yield from (f"{path}: {problem}" for problem in _chunks(connection, name, length, pages))
        (chunks,) = connection.execute(
            "SELECT count(*) FROM chunks WHERE document_id = ?", (name,)
        ).fetchone()
        if (status in SEARCHABLE) != (chunks > 0):
            yield f"{path}: has status {status} and {chunks} chunks"


def _text(connection: sqlite3.Connection, name: str, length: int) -> Iterator[str]:
    sql = "SELECT start, length(CAST(text AS BLOB)), text FROM segments WHERE document_id = ? "
    at = 0
    for start, _, text in connection.execute(sql + "ORDER BY start", (name,)):
        if start != at or len(text) > SEGMENT_LENGTH:
            yield f"its text has a gap or overlap at {start}, expected {at}"
        at = start + len(text)
    if at != length:
        yield f"its text has {at} characters, {length} are recorded"


def _chunks(
    connection: sqlite3.Connection, name: str, length: int, pages: int | None
) -> Iterator[str]:
    sql = 'SELECT start, "end", page, last_page FROM chunks WHERE document_id = ? ORDER BY id'
    rows = connection.execute(sql, (name,)).fetchall()
    for (start, *_), (later, *_) in pairwise(rows):
        if later <= start:
            yield f"chunk starts do not increase: {later} after {start}"
    for start, end, page, last_page in rows:
        if not 0 <= start < end <= length:
            yield f"chunk [{start}:{end}] lies outside its text of {length} characters"
        if pages is not None and not 1 <= (page or 0) <= (last_page or 0) <= pages:
            yield f"chunk [{start}:{end}] is on pages {page}-{last_page} of {pages}"
