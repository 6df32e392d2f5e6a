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

# Fifty times: change some files, fork a sync, kill it at a random moment, examine what is left.
FIFTY_KILLS = """
import os, random, signal, sys, time
from pathlib import Path
from agentloop.retrieval import HashingEmbedder, Index
import agentloop.retrieval.sync as sync
sync._BATCH_FILES = 2
folder, docs = sys.argv[1], Path(sys.argv[2])
draw = random.Random(7)
killed = 0
for turn in range(50):
    for at in draw.sample(range(12), 6):
        path = docs / f"n{at:02}.txt"
        if path.exists() and draw.random() < 0.2:
            path.unlink()
        else:
            path.write_text(f"note number{at} of turn{turn}. " * draw.randint(1, 40))
    child = os.fork()
    if child == 0:
        with Index.open(folder, embedder=HashingEmbedder()) as index:
            index.sync(docs, allow_empty=True)
        os._exit(0)
    time.sleep(draw.random() * 0.1)
    os.kill(child, signal.SIGKILL)
    killed += os.WIFSIGNALED(os.waitpid(child, 0)[1])
    with Index.open(folder, embedder=HashingEmbedder()) as index:
        report = index.fsck()
        assert report.problems == (), (turn, report.problems)
        stats = index.stats()
        assert stats.num_chunks == stats.num_embedded == report.num_chunks, turn
        found = {hit.path for hit in index.search("note", 1000, "lexical")}
        assert found == {document.path for document in index.documents()}, turn
with Index.open(folder, embedder=HashingEmbedder()) as index:
    index.sync(docs, allow_empty=True)
    for document in index.documents():
        assert index.text(document.id) == (docs / document.path).read_text()
    assert {d.path for d in index.documents()} == {path.name for path in docs.iterdir()}
    assert index.fsck().ok
print(killed)
"""


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


def test_fifty_kills_at_random_moments(tmp_path: Path, docs: Path) -> None:
    """Requirement 6: after each kill the index is sound and counts agree; in the end it is full."""
    arguments = [sys.executable, "-c", FIFTY_KILLS, str(tmp_path / "index"), str(docs)]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 10  # the others had already finished, or died before they began
