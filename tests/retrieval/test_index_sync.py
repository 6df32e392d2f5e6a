"""Syncing an index: what is read, what is reported, what is refused."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from agentloop.errors import DocumentError
from agentloop.retrieval import Index, Limits, SyncReport
from tests.retrieval.indexing import BIRDS, SHIPS, CountingEmbedder, MakePdf, old, write


def test_identical_files_are_separate_documents(index: Index, docs: Path) -> None:
    """Requirements 1 and 18: removing one of two equal files removes only its chunks."""
    write(docs, a_md=BIRDS, b_md=BIRDS)
    index.sync(docs)
    assert {hit.path for hit in index.search("kestrel", top_k=9)} == {"a.md", "b.md"}
    (docs / "a.md").unlink()
    report = index.sync(docs)
    assert report.removed == ("a.md",)
    assert {hit.path for hit in index.search("kestrel", top_k=9)} == {"b.md"}
    assert index.fsck().ok


def test_an_unchanged_folder_costs_nothing(tmp_path: Path, docs: Path) -> None:
    """Requirement 2: no embedding, no write, the same generation; a touched file is no change."""
    write(docs, birds_md=BIRDS, ships_md=SHIPS)
    embedder = CountingEmbedder()
    with Index.open(tmp_path / "index", embedder=embedder) as index:
        index.sync(docs)
        before, embedded = index.stats(), embedder.num_passages
        content = {p.name: p.read_bytes() for p in index.path.iterdir() if "shm" not in p.name}
        old(docs / "birds.md")
        report = index.sync(docs)
        after = {p.name: p.read_bytes() for p in index.path.iterdir() if "shm" not in p.name}
        assert embedded > 0
        assert (embedder.num_passages, index.stats()) == (embedded, before)
        assert content == after
        assert (report.num_unchanged, report.statuses["unchanged"]) == (2, 2)
        assert report.added == report.changed == report.removed == ()


def test_a_changed_file_is_found_even_at_the_same_time_and_size(index: Index, docs: Path) -> None:
    """Files changed within the clock's grain of being read are told apart by their content."""
    write(docs, note_txt="alpha alpha")
    index.sync(docs)
    status = (docs / "note.txt").stat()
    write(docs, note_txt="bravo bravo")
    os.utime(docs / "note.txt", ns=(status.st_atime_ns, status.st_mtime_ns))
    assert index.sync(docs).changed == ("note.txt",)
    assert index.search("alpha", mode="lexical") == []
    assert [hit.text for hit in index.search("bravo")] == ["bravo bravo"]


def test_statuses_sum_to_the_files_seen(index: Index, docs: Path, make_pdf: MakePdf) -> None:
    """One bad file of each kind: every one has a status and a reason, none stops the others."""
    write(docs, birds_md=BIRDS, empty_txt=" \n", picture_png="x", sub__ships_md=SHIPS, _hidden="x")
    (docs / "scan.pdf").write_bytes(make_pdf("picture"))
    (docs / "half.pdf").write_bytes(make_pdf("picture", [(50, 700, "Half a file.")]))
    (docs / "locked.pdf").write_bytes(make_pdf([(50, 700, "x")], encrypted=True))
    (docs / "broken.pdf").write_bytes(b"%PDF-1.4 broken")
    (docs / "binary").write_bytes(bytes(range(256)))
    write(docs, README="Read me first.")
    report = index.sync(docs)
    problems = {problem.path: problem.status for problem in report.problems}
    assert problems == {
        "empty.txt": "no_text",
        "picture.png": "unsupported",
        "binary": "unsupported",
        "scan.pdf": "no_text",
        "half.pdf": "partial",
        "locked.pdf": "encrypted",
        "broken.pdf": "failed",
    }
    assert all(problem.reason for problem in report.problems)
    assert report.num_files == sum(report.statuses.values()) == 10
    assert report.statuses["indexed"] == 3
    assert {hit.path for hit in index.search("half read first owls", top_k=9)} >= {
        "half.pdf",
        "README",
        "birds.md",
    }
    again = index.sync(docs)
    assert {problem.path for problem in again.problems} == problems.keys()
    assert again.num_files == 10
    assert again.statuses["unchanged"] == 4
    assert index.fsck().ok


def test_a_file_over_the_limit_is_reported_and_read_once_allowed(index: Index, docs: Path) -> None:
    """Requirement 10: nothing is cut short in silence."""
    write(docs, long_txt="word " * 100, short_txt="a word")
    report = index.sync(docs, limits=Limits(max_file_bytes=100))
    (problem,) = report.problems
    assert "500 bytes, the limit is 100: raise max_file_bytes" in problem.reason
    assert index.sync(docs).changed == ("long.txt",)
    assert len(index.search("word")) == 2


def test_progress_is_told_for_every_file(index: Index, docs: Path) -> None:
    """Done counts up to the number of files, each path once."""
    write(docs, birds_md=BIRDS, ships_md=SHIPS, picture_png="x")
    calls: list[tuple[int, int, str]] = []
    index.sync(docs, lambda done, total, path: calls.append((done, total, path)))
    assert [call[:2] for call in calls] == [(1, 3), (2, 3), (3, 3)]
    assert {call[2] for call in calls} == {"birds.md", "ships.md", "picture.png"}


def test_a_stopped_sync_keeps_what_it_has_done(index: Index, docs: Path) -> None:
    """An error in the middle leaves a sound index, and the next sync does the rest."""
    write(docs, **{f"n{at}_txt": f"note {at}" for at in range(300)})

    def stop(done: int, total: int, path: str) -> None:
        if done == 260:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        index.sync(docs, stop)
    kept = index.stats().num_documents
    assert 256 <= kept < 300
    assert index.fsck().ok
    report = index.sync(docs)
    assert len(report.added) == 300 - kept
    assert index.stats().num_documents == 300


def test_a_missing_or_empty_folder_changes_nothing(index: Index, docs: Path) -> None:
    """An unmounted folder does not empty the index; asking for it does."""
    write(docs, birds_md=BIRDS)
    index.sync(docs)
    moved = docs.rename(docs.with_name("moved"))
    with pytest.raises(DocumentError, match="docs does not exist; nothing was changed"):
        index.sync(docs)
    docs.mkdir()
    with pytest.raises(DocumentError, match="holds no files; nothing was changed"):
        index.sync(docs)
    with pytest.raises(DocumentError, match="is not a folder"):
        index.sync(moved / "birds.md")
    assert len(index.documents()) == 1
    assert index.sync(docs, allow_empty=True).removed == ("birds.md",)
    assert index.documents() == []


def test_a_second_folder_needs_a_name(index: Index, docs: Path, tmp_path: Path) -> None:
    """Syncing another folder does not replace the first; a moved folder is the same one."""
    write(docs, birds_md=BIRDS)
    other = tmp_path / "other"
    write(other, birds_md=SHIPS)
    index.sync(docs)
    with pytest.raises(DocumentError, match=r"holds the folder .*docs; .* Give source='a name'"):
        index.sync(other)
    index.sync(other, source="fleet")
    assert [document.path for document in index.documents()] == ["birds.md", "fleet/birds.md"]
    assert index.search("frigate", top_k=1)[0].path == "fleet/birds.md"
    moved = docs.rename(tmp_path / "moved")
    assert index.sync(moved).num_unchanged == 1
    with pytest.raises(ValueError, match="a plain name without '/', got 'a/b'"):
        index.sync(other, source="a/b")


def test_an_unreadable_file_keeps_its_last_version(index: Index, docs: Path) -> None:
    """What cannot be read now is reported; what is known of it stays searchable."""
    write(docs, note_txt="alpha")
    index.sync(docs)
    (docs / "note.txt").unlink()
    (docs / "note.txt").symlink_to("missing")
    report = index.sync(docs)
    assert [(p.path, p.status) for p in report.problems] == [("note.txt", "failed")]
    assert index.search("alpha")[0].path == "note.txt"


def test_an_index_among_the_documents_is_not_a_document(docs: Path) -> None:
    """Keeping the index inside the folder is fine."""
    write(docs, birds_md=BIRDS)
    with Index.open(docs / "index", embedder=None) as index:
        assert index.sync(docs).num_files == 1
        assert index.sync(docs).num_files == 1


def test_names_that_no_index_can_store_are_reported(index: Index, docs: Path) -> None:
    """A file name that is not UTF-8 fails by itself."""
    write(docs, birds_md=BIRDS)
    try:
        with open(os.fsencode(docs) + b"/bad\xff.txt", "wb") as file:
            file.write(b"text")
    except OSError:
        pytest.skip("this file system refuses such names")
    report = index.sync(docs)
    assert [(p.status, "not valid UTF-8" in p.reason) for p in report.problems] == [
        ("failed", True)
    ]
    assert report.num_files == 2


def test_compacting_shrinks_the_file_and_changes_no_answer(index: Index, docs: Path) -> None:
    """Requirement 20: after many changes the index is as small as one made anew."""
    filler = " ".join(f"word{at}" for at in range(400))
    for version in range(6):
        write(docs, **{f"n{at}_txt": f"signal {at} {version} {filler}" for at in range(12)})
        index.sync(docs)
    for at in range(2, 12):
        (docs / f"n{at}.txt").unlink()
    index.sync(docs)
    before, size = index.search("signal", 9), index.stats().num_bytes
    index.compact()
    assert index.search("signal", 9) == before
    assert index.stats().num_bytes < size / 2
    assert index.fsck().ok


def test_reports_do_not_depend_on_listing_order(tmp_path: Path, docs: Path) -> None:
    """Two indexes over copies of a folder are alike, ids of documents included."""
    write(docs, b_md=BIRDS, a_md=SHIPS, c__d_md=BIRDS)
    copy = Path(shutil.copytree(docs, tmp_path / "copy"))
    found: list[tuple[SyncReport, list[str]]] = []
    for at, folder in enumerate((docs, copy)):
        with Index.open(tmp_path / f"index{at}", embedder=None) as index:
            report = index.sync(folder)
            found.append((report, [document.id for document in index.documents()]))
    assert found[0][0].added == found[1][0].added == ("a.md", "b.md", "c/d.md")
    assert found[0][1] == found[1][1]
