"""An index file: many readers, one writer, each document written in one transaction."""

from __future__ import annotations

import hashlib
import json
import secrets
import sqlite3
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from agentloop.errors import RetrievalError
from agentloop.retrieval import schema
from agentloop.retrieval.chunker import Chunk
from agentloop.retrieval.document import ParsedDocument
from agentloop.retrieval.snapshot import SEGMENT_LENGTH, Snapshot
from agentloop.retrieval.write_lock import write_lock

FILE_NAME = "index.sqlite"
LOCK_NAME = "lock.sqlite"


def document_id(path: str) -> str:
    """The id of the document at a path: 16 hex digits of the path's digest."""
    return hashlib.blake2b(path.encode(), digest_size=8).hexdigest()


@dataclass(frozen=True, slots=True)
class FileState:
    """What tells whether a file changed since it was read.

    Attributes:
        path: Relative to the root of its source.
        size: Bytes.
        mtime_ns: Time of the last change, by the file system.
        read_ns: When it was read, by the clock.
        sha256: Hex digest of the bytes that were read.
        status: What came of it.
        reason: Why, for every status but "indexed".
    """

    path: str
    size: int
    mtime_ns: int
    read_ns: int = 0
    sha256: str = ""
    status: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class PreparedChunk:
    """A chunk with all that searching needs.

    Attributes:
        chunk: Its place in the document.
        context: Analysed terms of title and headings, separated by spaces.
        body: Analysed terms of its text, separated by spaces.
        vector: (D,) float32 of unit length, None in an index without embeddings.
    """

    chunk: Chunk
    context: str
    body: str
    vector: NDArray[np.float32] | None


class Store:
    """The file `index.sqlite` of an index folder; may be shared by threads."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / FILE_NAME
        self._idle: list[sqlite3.Connection] = []
        self._lock = threading.Lock()
        self._closed = False

    @classmethod
    def open(cls, folder: Path, *, create: bool, meta: dict[str, str]) -> Self:
        """Open an index folder, making it where it is missing.

        Args:
            folder: Holds the index and nothing else.
            create: Whether a missing index may be made.
            meta: Rows of the meta table that a new index starts with.

        Raises:
            RetrievalError: There is no index and `create` is false, or other files are there.
            IndexCorruptError: The index file is damaged, foreign, or of another version.
        """
        store = cls(folder)
        if schema.is_blank(store.path):
            store._create(create, meta)
        schema.check(store.path)
        return store

    def _create(self, create: bool, meta: dict[str, str]) -> None:
        if not create:
            raise RetrievalError(
                f"there is no index in {self.folder} ({FILE_NAME} is missing); "
                "make one with Index.open(path) and sync a folder into it"
            )
        if self.folder.exists() and not self.folder.is_dir():
            raise RetrievalError(
                f"{self.folder} is a file; an index is a folder: give another path"
            )
        strangers = sorted(
            entry.name
            for entry in (self.folder.iterdir() if self.folder.exists() else ())
            if not entry.name.startswith((FILE_NAME, LOCK_NAME))
        )
        if strangers:
            raise RetrievalError(
                f"{self.folder} holds other files ({', '.join(strangers[:3])}, ...) and no index; "
                "give a new or empty folder for the index"
            )
        self.folder.mkdir(parents=True, exist_ok=True)
        with write_lock(self.folder / LOCK_NAME, schema.BUSY_S):
            if schema.is_blank(self.path):  # nobody else made it while we waited
                schema.create(self.path, {"id": secrets.token_hex(8), "generation": "0", **meta})

    def close(self) -> None:
        """Close every idle connection; the store cannot be used again."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    @contextmanager
    def snapshot(self) -> Generator[Snapshot]:
        """A view of the index that later writes do not change; never waits for a writer."""
        with schema.corruption_reported(self.path):
            connection = self._borrow()
            try:
                connection.execute("BEGIN")
                yield Snapshot(connection)
            finally:
                self._give_back(connection)

    def _borrow(self) -> sqlite3.Connection:
        with self._lock:
            if self._closed:
                raise RetrievalError(f"the index {self.folder} was closed; open it again")
            if self._idle:
                return self._idle.pop()
        return schema.connect(self.path, read_only=True)

    def _give_back(self, connection: sqlite3.Connection) -> None:
        if connection.in_transaction:
            connection.rollback()
        with self._lock:
            if not self._closed:
                self._idle.append(connection)
                return
        connection.close()

    @contextmanager
    def writer(self, wait_s: float = 0.0) -> Generator[Writer]:
        """The right to write, held by one thread of one process at a time.

        Args:
            wait_s: How long to wait for another writer, in seconds.

        Raises:
            RetrievalError: Another writer kept it for longer.
        """
        with schema.corruption_reported(self.path), write_lock(self.folder / LOCK_NAME, wait_s):
            connection = schema.connect(self.path, read_only=False)
            try:
                yield Writer(connection)
            finally:
                connection.close()


class Writer:
    """Writes whole documents; made by `Store.writer`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    @contextmanager
    def transaction(self, *, changes_content: bool = True) -> Generator[sqlite3.Connection]:
        """All or nothing.

        Args:
            changes_content: Whether the generation counter goes up with it.
        """
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection
            if changes_content:
                connection.execute("UPDATE meta SET value = value + 1 WHERE key = 'generation'")
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    @contextmanager
    def unhurried(self) -> Generator[None]:
        """Many transactions that reach the disk together when the block ends.

        Each is still all or nothing, and a killed process loses none that was committed; only a
        power failure within the block may undo the last ones, as if it had come a little earlier.
        """
        self._connection.execute("PRAGMA synchronous = NORMAL")
        before = self._connection.total_changes
        try:
            yield
        finally:
            self._connection.execute("PRAGMA synchronous = FULL")
            if self._connection.total_changes != before:
                self.set_meta(written_ns=str(time.time_ns()))  # its commit syncs all before it

    def compact(self) -> None:
        """Give the space of what was removed back to the file system."""
        with self.transaction(changes_content=False) as connection:
            connection.execute("INSERT INTO postings (postings) VALUES ('optimize')")
        self._connection.execute("VACUUM")
        self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def file_states(self, source: str) -> dict[str, FileState]:
        """Every file known of a source, by path."""
        rows = self._connection.execute(
            "SELECT path, size, mtime_ns, read_ns, sha256, status, reason FROM documents "
            "WHERE source = ?",
            (source,),
        )
        return {row[0]: FileState(*row) for row in rows}

    def source_root(self, source: str) -> str | None:
        """The folder that a source was last synced from, None where it is new."""
        sql = "SELECT root FROM sources WHERE name = ?"
        row = self._connection.execute(sql, (source,)).fetchone()
        return None if row is None else str(row[0])

    def set_source(self, source: str, root: str) -> None:
        """Record the folder of a source."""
        with self.transaction(changes_content=False) as connection:
            connection.execute("INSERT OR REPLACE INTO sources VALUES (?, ?)", (source, root))

    def set_meta(self, **values: str) -> None:
        """Record facts about the index that change no document."""
        with self.transaction(changes_content=False) as connection:
            connection.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", values.items())

    def put(
        self,
        source: str,
        state: FileState,
        document: ParsedDocument,
        title: str,
        names: Sequence[str],
        chunks: Sequence[PreparedChunk],
    ) -> None:
        """Write a document in place of what its path held before.

        Args:
            source: Name of the source it belongs to.
            state: The file it was read from.
            document: Its text and blocks.
            title: Title to show, never empty.
            names: Keys that other documents may call it by, as `links.keys_of` forms them.
            chunks: In order.
        """
        name = document_id(state.path)
        with self.transaction() as connection:
            _delete(connection, name)
            connection.execute(
                "INSERT INTO documents VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    name,
                    source,
                    state.path,
                    document.status,
                    document.reason,
                    title,
                    document.encoding,
                    document.num_pages,
                    len(document.text),
                    state.sha256,
                    state.size,
                    state.mtime_ns,
                    state.read_ns,
                ),
            )
            _insert_text(connection, name, document)
            connection.executemany(
                "INSERT OR IGNORE INTO names VALUES (?, ?)", ((key, name) for key in names)
            )
            for chunk in chunks:
                _insert_chunk(connection, name, chunk)

    def remove(self, path: str) -> None:
        """Delete the document at a path with everything derived from it."""
        with self.transaction() as connection:
            _delete(connection, document_id(path))


def _delete(connection: sqlite3.Connection, name: str) -> None:
    connection.execute(
        "DELETE FROM postings WHERE rowid IN (SELECT id FROM chunks WHERE document_id = ?)", (name,)
    )
    connection.execute("DELETE FROM documents WHERE id = ?", (name,))  # the rest cascades


def _insert_text(connection: sqlite3.Connection, name: str, document: ParsedDocument) -> None:
    text = document.text
    connection.executemany(
        "INSERT INTO segments VALUES (?, ?, ?)",
        (
            (name, start, text[start : start + SEGMENT_LENGTH])
            for start in range(0, len(text), SEGMENT_LENGTH)
        ),
    )
    connection.executemany(
        "INSERT INTO blocks VALUES (?, ?, ?, ?, ?, ?)",
        ((name, b.start, b.end, b.kind, b.page, _json(b.headings)) for b in document.blocks),
    )


def _insert_chunk(connection: sqlite3.Connection, name: str, prepared: PreparedChunk) -> None:
    c = prepared.chunk
    cursor = connection.execute(
        "INSERT INTO chunks VALUES (NULL, ?, ?, ?, ?, ?, ?, ?)",
        (name, c.start, c.end, c.kind, c.page, c.last_page, _json(c.headings)),
    )
    chunk_id = cursor.lastrowid
    connection.execute(
        "INSERT INTO postings (rowid, context, body) VALUES (?, ?, ?)",
        (chunk_id, prepared.context, prepared.body),
    )
    if prepared.vector is not None:
        blob = np.asarray(prepared.vector, dtype="<f4").tobytes()
        connection.execute("INSERT INTO embeddings VALUES (?, ?)", (chunk_id, blob))


def _json(headings: tuple[str, ...]) -> str:
    return json.dumps(headings, ensure_ascii=False)
