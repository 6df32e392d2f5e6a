"""A sync killed at any point leaves a sound index, and the next one finishes the work."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from agentloop.retrieval import HashingEmbedder, Index

PROGRAM = """
import sys, agentloop.retrieval.sync as sync
from agentloop.retrieval import HashingEmbedder, Index
sync._BATCH_FILES = 4
with Index.open(sys.argv[1], embedder=HashingEmbedder()) as index:
    print("open", flush=True)
    index.sync(sys.argv[2], lambda done, total, path: print(done, flush=True))
"""
NUM_FILES = 24


def expected(at: int) -> str:
    return f"note number{at} of many. " * (1 + at % 5)


@pytest.mark.parametrize("after", [0, 1, 9, 20, 24])
def test_nothing_committed_is_lost(tmp_path: Path, docs: Path, after: int) -> None:
    """Requirement 6: kill -9 after some files; all is sound and found, the next sync finishes."""
    for at in range(NUM_FILES):
        (docs / f"n{at:02}.txt").write_text(expected(at))
    folder = tmp_path / "index"
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(folder), str(docs)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    with process, process.stdout:
        for line in process.stdout:
            if line.strip() == ("open" if after == 0 else str(after)):
                process.kill()
                break
    with Index.open(folder, embedder=HashingEmbedder()) as index:
        report = index.fsck()
        assert report.problems == ()
        assert after <= report.num_documents <= NUM_FILES
        for document in index.documents():
            at = int(document.path[1:3])
            hits = index.search(f"number{at}", 1, "lexical")
            assert [hit.path for hit in hits] == [document.path]
            assert index.text(document.id) == expected(at)
        finished = index.sync(docs)
        assert len(finished.added) == NUM_FILES - report.num_documents
        assert index.stats().num_embedded == index.stats().num_chunks >= NUM_FILES
        assert index.fsck().ok
