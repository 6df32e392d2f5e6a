"""Reading an index as it was at one moment: every method of a Snapshot sees the same generation."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from agentloop.errors import RetrievalError
from agentloop.retrieval.document import FileStatus

SEGMENT_LENGTH = 1 << 16  # characters in one row of the segments table
_MAX_PARAMETERS = 900  # values in one IN (...): every SQLite build allows 999

Value = TypeVar("Value", int, str)
Scored = list[tuple[int, float]]  # (chunk id, score), best first


@dataclass(frozen=True, slots=True)
class DocumentInfo:
    """One file as the index knows it.

    Attributes:
        id: Derived from `path` alone: the same file keeps it whatever its content becomes.
        path: Relative to the synced folder, `/` between parts; `source/` leads where one was named.
        status: "indexed", "partial", "no_text", "encrypted", "failed" or "unsupported".
        reason: Why, for every status but "indexed".
        title: What the document calls itself, else its file name in words.
        num_pages: Pages, None in formats without pages.
        num_chars: Length of the stored text in characters.
        num_chunks: Searchable pieces.
        sha256: Hex digest of the file's bytes.
        size: Length of the file in bytes.
        encoding: Character encoding it was read with, "" for binary formats.
    """

    id: str
    path: str
    status: FileStatus
    reason: str
    title: str
    num_pages: int | None
    num_chars: int
    num_chunks: int
    sha256: str
    size: int
    encoding: str


@dataclass(frozen=True, slots=True)
class ChunkRow:
    """A chunk with what a hit shows of its document."""

    id: int
    document_id: str
    path: str
    title: str
    start: int
    end: int
    page: int | None
    last_page: int | None
    kind: str
    headings_json: str

    @property
    def headings(self) -> tuple[str, ...]:
        """Section titles, outermost first."""
        return tuple(json.loads(self.headings_json))


class Snapshot:
    """An open read transaction; made by `Store.snapshot`.

    Attributes:
        generation: Counter of the content, higher after every change.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.generation = int(self.meta("generation"))

    def _rows(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        return self._connection.execute(sql, parameters).fetchall()

    def meta(self, key: str, default: str = "") -> str:
        """A value of the meta table."""
        rows = self._rows("SELECT value FROM meta WHERE key = ?", (key,))
        return str(rows[0][0]) if rows else default

    def count(self, table: str) -> int:
        """Rows of a table."""
        return int(self._rows(f"SELECT count(*) FROM {table}")[0][0])

    def lexical(self, terms: Sequence[str], limit: int, globs: Sequence[str] = ()) -> Scored:
        """Best chunks by BM25 over the analysed terms; chunks without any of them are absent.

        Args:
            terms: Analysed terms; repeats count once.
            limit: Most chunks to return.
            globs: Only documents whose path matches one of them.
        """
        if not terms:
            return []
        query = " OR ".join(f'"{term}"' for term in dict.fromkeys(terms))
        where, parameters = _where(globs, "rowid")
        rows = self._rows(
            f"SELECT rowid, -bm25(postings) AS score FROM postings WHERE postings MATCH ? {where}"
            "ORDER BY score DESC, rowid LIMIT ?",
            (query, *parameters, limit),
        )
        return [(chunk_id, score) for chunk_id, score in rows if score > 0]

    def holding(self, terms: Sequence[str], limit: int, globs: Sequence[str] = ()) -> list[int]:
        """Ids of chunks that hold every one of the terms, ascending.

        Args:
            terms: Analysed terms, at least one.
            limit: Most ids to return.
            globs: Only documents whose path matches one of them.
        """
        query = " AND ".join(f'"{term}"' for term in terms)
        where, parameters = _where(globs, "rowid")
        sql = f"SELECT rowid FROM postings WHERE postings MATCH ? {where}ORDER BY rowid LIMIT ?"
        return [row[0] for row in self._rows(sql, (query, *parameters, limit))]

    def num_holding(self, terms: Collection[str]) -> dict[str, int]:
        """How many chunks hold each of the terms; those that none holds are absent."""
        found: dict[str, int] = {}
        for part in _parts(list(terms)):
            marks = ", ".join("?" * len(part))
            sql = f"SELECT term, doc FROM temp.vocabulary WHERE term IN ({marks})"
            found.update(self._rows(sql, part))
        return found

    def analysed(self, chunk_ids: Sequence[int]) -> dict[int, list[str]]:
        """Analysed terms of given chunks, those of title and headings first, repeats included."""
        found: dict[int, list[str]] = {}
        for part in _parts(chunk_ids):
            marks = ", ".join("?" * len(part))
            sql = f"SELECT rowid, context, body FROM postings WHERE rowid IN ({marks})"
            for chunk_id, context, body in self._rows(sql, part):
                found[chunk_id] = f"{context} {body}".split()
        return found

    def posting_totals(self) -> tuple[int, int]:
        """Number of chunks and of terms in all of them, as FTS5 keeps them for BM25.

        Source: the comments on the averages record in SQLite's ext/fts5/fts5_index.c: row 1 of the
        data table holds varints, the number of rows and then the terms of each column.
        """
        rows = self._rows("SELECT block FROM postings_data WHERE id = 1")
        num_chunks, *columns = _varints(rows[0][0]) if rows else [0]
        return num_chunks, sum(columns)

    def first_chunks(
        self, document_ids: Sequence[str], limit: int, globs: Sequence[str] = ()
    ) -> dict[int, str]:
        """Ids of the first chunks of given documents, each with its document's id.

        Args:
            document_ids: Which documents.
            limit: Most chunks of each.
            globs: Only documents whose path matches one of them.
        """
        where, parameters = _where(globs, "document_id", of="documents")
        sql = f"SELECT id FROM chunks WHERE document_id = ? {where}ORDER BY start LIMIT ?"
        return {
            row[0]: document_id
            for document_id in document_ids
            for row in self._rows(sql, (document_id, *parameters, limit))
        }

    def chunk_ids(self, globs: Sequence[str]) -> NDArray[np.int64]:
        """Ids of all chunks of documents whose path matches one of `globs`, ascending."""
        where, parameters = _where(globs, "id")
        rows = self._rows(f"SELECT id FROM chunks WHERE true {where}ORDER BY id", parameters)
        return np.array([row[0] for row in rows], dtype=np.int64)

    def live(self, chunk_ids: Sequence[int]) -> set[int]:
        """Those of the chunk ids that exist."""
        found: set[int] = set()
        for part in _parts(chunk_ids):
            marks = ", ".join("?" * len(part))
            found.update(
                row[0] for row in self._rows(f"SELECT id FROM chunks WHERE id IN ({marks})", part)
            )
        return found

    def vectors(self, after: int = 0) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Ids and embeddings of the chunks with an id above `after`, ascending.

        Args:
            after: Chunk id.

        Returns:
            (N,) int64 and (N, D) float32, (0, 0) where there are none.
        """
        sql = "SELECT chunk_id, vector FROM embeddings WHERE chunk_id > ? ORDER BY chunk_id"
        ids: list[int] = []
        blobs = bytearray()
        for chunk_id, blob in self._connection.execute(sql, (after,)):
            ids.append(chunk_id)
            blobs += blob
        matrix = np.frombuffer(blobs, dtype="<f4").astype(np.float32, copy=False)
        dimension = len(matrix) // max(len(ids), 1)
        return np.array(ids, dtype=np.int64), matrix.reshape(len(ids), dimension)

    def vectors_of(self, chunk_ids: Sequence[int]) -> dict[int, NDArray[np.float32]]:
        """Embeddings of given chunks, (D,) float32 each; those without one are absent."""
        found: dict[int, NDArray[np.float32]] = {}
        for part in _parts(chunk_ids):
            marks = ", ".join("?" * len(part))
            sql = f"SELECT chunk_id, vector FROM embeddings WHERE chunk_id IN ({marks})"
            for chunk_id, blob in self._rows(sql, part):
                found[chunk_id] = np.frombuffer(blob, dtype="<f4")
        return found

    def chunks(self, chunk_ids: Sequence[int]) -> dict[int, ChunkRow]:
        """Chunks by id; ids that do not exist are absent."""
        found: dict[int, ChunkRow] = {}
        for part in _parts(chunk_ids):
            marks = ", ".join("?" * len(part))
            rows = self._rows(
                'SELECT c.id, d.id, d.path, d.title, c.start, c."end", c.page, c.last_page, '
                "c.kind, c.headings FROM chunks AS c JOIN documents AS d ON d.id = c.document_id "
                f"WHERE c.id IN ({marks})",
                part,
            )
            for row in rows:
                found[row[0]] = ChunkRow(*row)
        return found

    def named(self, keys: Collection[str]) -> dict[str, list[str]]:
        """Ids of the documents that go by each of the names; unknown names are absent."""
        found: dict[str, list[str]] = {}
        for part in _parts(list(keys)):
            marks = ", ".join("?" * len(part))
            sql = f"SELECT key, document_id FROM names WHERE key IN ({marks})"
            for key, name in self._rows(sql, part):
                found.setdefault(key, []).append(name)
        return found

    def named_all(self, keys: Sequence[str], limit: int) -> list[str]:
        """Ids of the documents that have every one of the keys, at most `limit`.

        Args:
            keys: At least one.
            limit: Most ids to return.
        """
        first, *others = sorted(keys, key=len, reverse=True)  # long terms are rare terms
        joins = "".join(
            f" JOIN names AS n{at} ON n{at}.document_id = n.document_id AND n{at}.key = ?"
            for at in range(len(others))
        )
        sql = f"SELECT n.document_id FROM names AS n{joins} WHERE n.key = ? LIMIT ?"
        return [row[0] for row in self._rows(sql, (*others, first, limit))]

    def text(self, document_id: str, start: int = 0, end: int | None = None) -> str:
        """The stored text of a document, or the slice `[start:end]` of it.

        Raises:
            RetrievalError: No document has this id, or the slice is not within its text.
        """
        rows = self._rows("SELECT num_chars FROM documents WHERE id = ?", (document_id,))
        if not rows:
            raise RetrievalError(
                f"no document has the id {document_id!r} (it may have been removed by a sync); "
                "list them with documents()"
            )
        length = int(rows[0][0])
        stop = length if end is None else end
        if not 0 <= start <= stop <= length:
            raise RetrievalError(
                f"document {document_id} has {length} characters, asked for [{start}:{stop}]"
            )
        base = start - start % SEGMENT_LENGTH
        segments = self._rows(
            "SELECT text FROM segments WHERE document_id = ? AND start >= ? AND start < ? "
            "ORDER BY start",
            (document_id, base, stop),
        )
        return "".join(row[0] for row in segments)[start - base : stop - base]

    def documents(self, globs: Sequence[str] = ()) -> list[DocumentInfo]:
        """Every file the index knows, by path."""
        where, parameters = _where(globs, "d.id", of="documents")
        rows = self._rows(
            "SELECT d.id, path, status, reason, title, num_pages, num_chars, count(c.id), sha256, "
            "size, encoding FROM documents AS d LEFT JOIN chunks AS c ON c.document_id = d.id "
            f"WHERE true {where}GROUP BY d.id ORDER BY path",
            parameters,
        )
        return [DocumentInfo(*row) for row in rows]


def _where(globs: Sequence[str], column: str, of: str = "chunks") -> tuple[str, tuple[str, ...]]:
    """SQL that keeps only rows of matching documents, and its parameters."""
    if not globs:
        return "", ()
    match = " OR ".join(["path GLOB ?"] * len(globs))
    inner = f"SELECT id FROM documents WHERE {match}"
    if of == "chunks":
        inner = f"SELECT id FROM chunks WHERE document_id IN ({inner})"
    return f"AND {column} IN ({inner}) ", tuple(globs)


def _varints(blob: bytes) -> list[int]:
    """The numbers of a record: seven bits a byte, most significant first, 0x80 means more."""
    numbers: list[int] = []
    value = 0
    for byte in blob:
        value = value << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(value)
            value = 0
    return numbers


def _parts(values: Sequence[Value]) -> Iterator[Sequence[Value]]:
    for at in range(0, len(values), _MAX_PARAMETERS):
        yield values[at : at + _MAX_PARAMETERS]
