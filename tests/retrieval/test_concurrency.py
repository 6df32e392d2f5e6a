"""Readers see one moment each and never wait; one writer at a time."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from agentloop.errors import RetrievalError
from agentloop.retrieval import HashingEmbedder, Index
from agentloop.retrieval.store import Store

WRITER = """
import sys
from agentloop.retrieval import HashingEmbedder, Index
with Index.open(sys.argv[1], embedder=HashingEmbedder()) as index:
    def wait(done, total, path):
        if done == 1:
            print("writing", flush=True)
            sys.stdin.readline()
    index.sync(sys.argv[2], wait)
"""


def write_version(docs: Path, version: int) -> None:
    for at in range(6):
        (docs / f"n{at}.txt").write_text(f"signal file{at} version{version}")


def test_a_second_process_reads_on_and_may_not_write(tmp_path: Path, docs: Path) -> None:
    """Requirements 7 and 14: while one process writes, another searches and is refused to sync."""
    write_version(docs, 1)
    folder = tmp_path / "index"
    with Index.open(folder, embedder=HashingEmbedder()) as index:
        index.sync(docs)
        write_version(docs, 2)
        (docs / "new.txt").write_text("a new file")
        command = [sys.executable, "-c", WRITER, str(folder), str(docs)]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "writing\n"
            assert len(index.search("signal", 9)) == 6
            with pytest.raises(RetrievalError, match="another process or thread is writing"):
                index.sync(docs)
            process.communicate("\n")
        assert process.returncode == 0
        assert len(index.search("version2", 9, "lexical")) == 6
        assert index.search("version1", 9, "lexical") == []
        assert index.sync(docs).num_unchanged == 7
        assert index.fsck().ok


def test_a_patient_writer_gets_its_turn(tmp_path: Path) -> None:
    """With wait_s the second writer goes on when the first has finished."""
    Index.open(tmp_path / "index", embedder=None).close()
    store = Store(tmp_path / "index")
    order: list[str] = []
    has_begun = threading.Event()

    def first() -> None:
        with store.writer():
            has_begun.set()
            order.append("first")

    thread = threading.Thread(target=first)
    thread.start()
    has_begun.wait(30)
    with store.writer(wait_s=30):
        order.append("second")
    thread.join()
    store.close()
    assert order == ["first", "second"]


def test_a_snapshot_stays_as_it_was(tmp_path: Path, docs: Path) -> None:
    """Requirement 7: what a reader has begun to read does not change under it."""
    write_version(docs, 1)
    folder = tmp_path / "index"
    with Index.open(folder, embedder=HashingEmbedder()) as index:
        index.sync(docs)
        store = Store(folder)
        with store.snapshot() as snapshot:
            before = snapshot.documents()
            write_version(docs, 2)
            (docs / "n0.txt").unlink()
            index.sync(docs)
            assert snapshot.documents() == before
            assert [snapshot.text(document.id)[-8:] for document in before] == ["version1"] * 6
        with store.snapshot() as snapshot:
            assert len(snapshot.documents()) == 5
        store.close()


def test_eight_searching_threads_beside_a_sync(tmp_path: Path, docs: Path) -> None:
    """Requirement 8: no crash; every hit is whole, and no file comes in two versions at once."""
    write_version(docs, 0)
    failures: list[BaseException] = []
    done = threading.Event()
    with Index.open(tmp_path / "index", embedder=HashingEmbedder()) as index:
        index.sync(docs)

        def search(mode: str) -> None:
            try:
                while not done.wait(0.01):
                    hits = index.search("signal", 20, mode)  # type: ignore[arg-type]  # a Mode
                    assert len({hit.path for hit in hits}) == len(hits) == 6
                    for hit in hits:
                        assert hit.text.startswith(f"signal file{hit.path[1]} version")
            except BaseException as error:
                failures.append(error)

        modes = ["hybrid", "lexical", "dense", "hybrid"] * 2
        threads = [threading.Thread(target=search, args=(mode,)) for mode in modes]
        for thread in threads:
            thread.start()
        for version in range(1, 5):
            write_version(docs, version)
            index.sync(docs)
        done.set()
        for thread in threads:
            thread.join()
        assert failures == []
        assert {hit.text[-8:] for hit in index.search("signal", 20)} == {"version4"}
        assert index.fsck().ok
