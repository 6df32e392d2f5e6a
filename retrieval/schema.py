"""The tables of an index file, and how a connection to one is opened and checked.

SQLite is the only truth: everything else on disk can be rebuilt from these tables.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

from agentloop.errors import IndexCorruptError

APPLICATION_ID = 0x61674C70  # "agLp", in the header of every index file
SCHEMA_VERSION = 1
BUSY_S = 30.0  # longest wait for another connection's lock

SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE sources (name TEXT PRIMARY KEY, root TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE documents (
    id TEXT PRIMARY KEY,            -- from the path, never from the content
    source TEXT NOT NULL REFERENCES sources (name),
    path TEXT NOT NULL UNIQUE,      -- relative to the source's root, with / between parts
    status TEXT NOT NULL,
    reason TEXT NOT NULL,
    title TEXT NOT NULL,
    encoding TEXT NOT NULL,
    num_pages INTEGER,
    num_chars INTEGER NOT NULL,
    sha256 TEXT NOT NULL,
    size INTEGER NOT NULL,          -- of the file, bytes
    mtime_ns INTEGER NOT NULL,
    read_ns INTEGER NOT NULL        -- when the file was read: a later mtime means it changed
) WITHOUT ROWID;
CREATE TABLE segments (             -- the document's text, cut so that a slice reads little
    document_id TEXT NOT NULL REFERENCES documents (id) ON DELETE CASCADE,
    start INTEGER NOT NULL,
    text TEXT NOT NULL,
    UNIQUE (document_id, start)
);
CREATE TABLE blocks (
    document_id TEXT NOT NULL REFERENCES documents (id) ON DELETE CASCADE,
    start INTEGER NOT NULL,
    "end" INTEGER NOT NULL,
    kind TEXT NOT NULL,
    page INTEGER,
    headings TEXT NOT NULL,         -- JSON array
    PRIMARY KEY (document_id, start)
) WITHOUT ROWID;
CREATE TABLE chunks (
    id INTEGER PRIMARY KEY AUTOINCREMENT,  -- never given twice, so a cache can trust it
    document_id TEXT NOT NULL REFERENCES documents (id) ON DELETE CASCADE,
    start INTEGER NOT NULL,
    "end" INTEGER NOT NULL,
    kind TEXT NOT NULL,
    page INTEGER,
    last_page INTEGER,
    headings TEXT NOT NULL,         -- JSON array
    UNIQUE (document_id, start)
);
CREATE TABLE embeddings (
    chunk_id INTEGER PRIMARY KEY REFERENCES chunks (id) ON DELETE CASCADE,
    vector BLOB NOT NULL            -- float32, little endian, unit length
);
CREATE TABLE names (                -- what other documents may call this one by
    key TEXT NOT NULL,              -- analysed terms, or ? and a term that may be part of a name
    document_id TEXT NOT NULL REFERENCES documents (id) ON DELETE CASCADE,
    PRIMARY KEY (key, document_id)
) WITHOUT ROWID;
CREATE INDEX names_document ON names (document_id);
-- Terms come from our own analyser, separated by spaces; "ascii" only cuts at those spaces.
CREATE VIRTUAL TABLE postings USING fts5 (context, body, tokenize = 'ascii');
"""

# Seen by each connection for itself: how many chunks hold a term.
VOCABULARY = "CREATE VIRTUAL TABLE temp.vocabulary USING fts5vocab('main', 'postings', 'row')"


@contextmanager
def corruption_reported(path: Path) -> Generator[None]:
    """Turns SQLite's reports of damage into `IndexCorruptError`.

    Args:
        path: The index file, for the message.
    """
    try:
        yield
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            raise _damaged(path, error) from error
        raise
    except sqlite3.DatabaseError as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            raise _damaged(path, error) from error
        raise


def _damaged(path: Path, error: Exception) -> IndexCorruptError:
    return IndexCorruptError(
        f"{path} is damaged ({error}); nothing was changed. The documents themselves are safe: "
        "move the index folder away and sync again, or restore a copy of it"
    )


def connect(path: Path, *, read_only: bool) -> sqlite3.Connection:
    """A connection in autocommit mode that any one thread at a time may use.

    Args:
        path: An existing index file, or one to be created.
        read_only: Refuse every write.
    """
    connection = sqlite3.connect(
        path, timeout=BUSY_S, isolation_level=None, check_same_thread=False
    )
    try:
        connection.execute(VOCABULARY)
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA synchronous = FULL")
        if read_only:
            connection.execute("PRAGMA query_only = ON")
    except BaseException:
        connection.close()
        raise
    return connection


def check(path: Path) -> None:
    """Check, without writing, that a file is an index of this version.

    Raises:
        IndexCorruptError: It is another program's file, damaged, or of another version.
    """
    with corruption_reported(path):
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
        try:
            (application,) = connection.execute("PRAGMA application_id").fetchone()
            (version,) = connection.execute("PRAGMA user_version").fetchone()
        finally:
            connection.close()
    if application != APPLICATION_ID:
        raise IndexCorruptError(
            f"{path} is not an agentloop index (application id {application:#010x}, expected "
            f"{APPLICATION_ID:#010x}); nothing was changed. Give another folder for the index"
        )
    if version != SCHEMA_VERSION:
        raise IndexCorruptError(
            f"{path} has schema version {version}, this agentloop reads {SCHEMA_VERSION}; nothing "
            "was changed. Use the version that wrote it, or sync into a new index folder"
        )


def is_blank(path: Path) -> bool:
    """Whether nothing was ever written: no file, or what a kill during creation leaves."""
    if not path.exists() or path.stat().st_size == 0:
        return True
    with corruption_reported(path):
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
        try:
            (application,) = connection.execute("PRAGMA application_id").fetchone()
            (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        finally:
            connection.close()
    return bool(application == 0 and tables == 0)


def create(path: Path, meta: dict[str, str]) -> None:
    """Write the tables of an empty index. The caller holds the write lock.

    Args:
        path: Where `is_blank` is true.
        meta: First rows of the `meta` table.
    """
    connection = connect(path, read_only=False)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("BEGIN IMMEDIATE")
        for statement in _statements(SCHEMA):
            connection.execute(statement)
        connection.executemany("INSERT INTO meta VALUES (?, ?)", meta.items())
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        connection.execute("COMMIT")
    finally:
        connection.close()


def _statements(script: str) -> Iterator[str]:
    """The statements of a script one by one: `executescript` would commit the transaction."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
