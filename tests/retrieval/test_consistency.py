"""The examination finds what is wrong, and only that."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from agentloop.errors import IndexCorruptError
from agentloop.retrieval import HashingEmbedder, Index

DAMAGE = {
    "DELETE FROM embeddings WHERE chunk_id = 1": "1 chunks without an embedding, the first is 1",
    "DELETE FROM postings WHERE rowid = 1": "1 chunks without postings, the first is 1",
    "INSERT INTO postings (rowid, body) VALUES (99, 'x')": "1 postings without a chunk",
    'UPDATE chunks SET "end" = 9999 WHERE id = 1': "a.md: chunk [0:9999] lies outside its text",
    "UPDATE chunks SET start = 0 WHERE id = 2": "UNIQUE",
    "DELETE FROM segments": "a.md: its text has 0 characters",
    "UPDATE documents SET status = 'failed'": "a.md: has status failed and 2 chunks",
    "UPDATE documents SET path = 'b.md'": "b.md: its id",
    "UPDATE embeddings SET vector = x'0000' WHERE chunk_id = 1": "embeddings of different widths",
    "UPDATE documents SET num_pages = 3": "a.md: chunk [0:13] is on pages None-None of 3",
}


@pytest.fixture
def folder(tmp_path: Path, docs: Path) -> Path:
    (docs / "a.md").write_text("# One\n\nFirst.\n\n# Two\n\nSecond.\n")
    with Index.open(tmp_path / "index", embedder=HashingEmbedder()) as index:
        index.sync(docs)
        assert index.fsck().ok
        assert index.fsck().num_chunks == 2
    return tmp_path / "index"


@pytest.mark.parametrize(("statement", "problem"), DAMAGE.items())
def test_every_broken_promise_is_named(folder: Path, statement: str, problem: str) -> None:
    """One damage, a sentence that says where it is; or SQLite does not let it happen."""
    connection = sqlite3.connect(folder / "index.sqlite", isolation_level=None)
    try:
        connection.execute(statement)
    except sqlite3.IntegrityError as error:
        assert problem in str(error)  # noqa: PT017 - the other outcome is checked below
        return
    finally:
        connection.close()
    with Index.open(folder, embedder=HashingEmbedder()) as index:
        report = index.fsck()
    assert not report.ok
    assert any(found.startswith(problem) for found in report.problems), report.problems


def test_a_file_with_destroyed_pages_is_reported(folder: Path) -> None:
    """Damage within the file is found, whether it can still be examined or not."""
    file = folder / "index.sqlite"
    content = bytearray(file.read_bytes())
    content[8192:] = b"\xa5" * (len(content) - 8192)
    file.write_bytes(content)
    try:
        with Index.open(folder, embedder=HashingEmbedder()) as index:
            problems = index.fsck().problems
    except IndexCorruptError as error:
        problems = (str(error),)
    assert problems
    assert "damaged" in problems[0] or "SQLite: " in problems[0]
