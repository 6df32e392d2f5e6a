"""What a user of an index sees: sync, search, citations, refusals."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from agentloop.errors import DocumentError, IndexCorruptError, RetrievalError
from agentloop.retrieval import HashingEmbedder, Index, Limits, SyncReport
from agentloop.retrieval.embedder import Vectors

MakePdf = Callable[..., bytes]
BIRDS = "# Birds\n\nThe kestrel hovers over the meadow.\n\n## Owls\n\nOwls hunt at night.\n"
SHIPS = "# Ships\n\nThe frigate left the harbour at dawn.\n"


def old(path: Path) -> None:
    """Make a file look as if it was last changed long ago: its time alone then tells."""
    os.utime(path, ns=(10**18, 10**18))


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_", ".")
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(text)


class CountingEmbedder(HashingEmbedder):
    """Counts the passages it embeds."""

    num_passages = 0

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        self.num_passages += len(texts)
        return super().embed_passages(texts)


def test_hits_are_exact_slices_with_their_place(index: Index, docs: Path) -> None:
    """Requirement 21: a hit's text is the stored text at its offsets, with section and document."""
    write(docs, birds_md=BIRDS, sub__ships_md=SHIPS)
    index.sync(docs)
    (hit,) = index.search("owls at night", top_k=1)
    assert hit.path == "birds.md"
    assert hit.headings == ("Birds", "Owls")
    assert hit.text == "## Owls\n\nOwls hunt at night."
    assert index.text(hit.document_id)[hit.start : hit.end] == hit.text
    assert index.text(hit.document_id, hit.start, hit.end) == hit.text
    assert hit.title == "Birds"
    assert set(hit.scores) == {"lexical", "dense"}


def test_text_is_a_slice_of_any_part_of_a_long_document(index: Index, docs: Path) -> None:
    """Stored segments are joined without a seam."""
    text = "".join(f"Sentence number {at} stands here. " for at in range(6000))
    write(docs, long_txt=text)
    index.sync(docs)
    (document,) = index.documents()
    assert index.text(document.id) == text
    for start in (0, 65_530, 65_536, 131_000):
        assert index.text(document.id, start, start + 20) == text[start : start + 20]
    with pytest.raises(RetrievalError, match=rf"has {len(text)} characters, asked for \[5:4\]"):
        index.text(document.id, 5, 4)
    with pytest.raises(RetrievalError, match="no document has the id 'nope'"):
        index.text("nope")


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


@pytest.mark.parametrize("mode", ["hybrid", "lexical", "dense"])
def test_searching_an_empty_index_finds_nothing(index: Index, mode: str, docs: Path) -> None:
    """Requirement 12: no documents, no words in the question, no matching path: no hits."""
    assert index.search("anything", mode=mode) == []  # type: ignore[arg-type]  # parametrized
    write(docs, birds_md=BIRDS)
    index.sync(docs)
    assert index.search("...", mode=mode) == []  # type: ignore[arg-type]  # parametrized
    assert index.search("", mode=mode) == []  # type: ignore[arg-type]  # parametrized
    assert index.search("owls", mode=mode, paths="no/*") == []  # type: ignore[arg-type]  # same


def test_more_hits_than_exist_are_not_invented(index: Index, docs: Path) -> None:
    """Requirement 12: k above the number of chunks gives those that fit; none scores zero."""
    write(docs, birds_md=BIRDS, ships_md=SHIPS)
    index.sync(docs)
    hits = index.search("kestrel", top_k=1000, mode="lexical")
    assert [hit.path for hit in hits] == ["birds.md"]
    dense = index.search("kestrel", top_k=1000, mode="dense")
    assert all(hit.score > 0 for hit in hits + dense)


def test_as_many_live_hits_as_exist_are_found_after_removals(index: Index, docs: Path) -> None:
    """Requirement 13: removed chunks reach no leg and take no live one's place."""
    write(docs, **{f"n{at}_txt": f"signal {at}" for at in range(40)})
    index.sync(docs)
    for at in range(35):
        (docs / f"n{at}.txt").unlink()
    index.sync(docs)
    expected = {f"n{at}.txt" for at in range(35, 40)}
    for mode in ("hybrid", "lexical", "dense"):
        assert {hit.path for hit in index.search("signal", top_k=10, mode=mode)} == expected


def test_path_filters_reach_every_leg(index: Index, docs: Path) -> None:
    """A pattern restricts the search itself: a full page of hits from few documents."""
    write(docs, **{f"noise__n{at}_txt": f"signal {at}" for at in range(150)})
    write(docs, **{f"kept__k{at}_txt": f"the signal of {at} words and others" for at in range(6)})
    index.sync(docs)
    for mode in ("hybrid", "lexical", "dense"):
        hits = index.search("signal", top_k=6, mode=mode, paths="kept/*")
        assert {hit.path for hit in hits} == {f"kept/k{at}.txt" for at in range(6)}
        both = index.search("signal", top_k=2, mode=mode, paths=["kept/k1.*", "kept/k2.txt"])
        assert {hit.path for hit in both} == {"kept/k1.txt", "kept/k2.txt"}
    assert len(index.documents("kept/*")) == 6


def test_another_embedder_is_refused(tmp_path: Path, docs: Path) -> None:
    """Requirement 9: even one of the same width; the message names both and the way out."""
    write(docs, birds_md=BIRDS)
    folder = tmp_path / "index"
    with Index.open(folder, embedder=HashingEmbedder()) as index:
        index.sync(docs)
    with pytest.raises(RetrievalError, match=r"another embedder .*'other'.* or sync into a new"):
        Index.open(folder, embedder=HashingEmbedder(salt="other"))


def test_an_index_with_embeddings_can_be_searched_without_its_embedder(
    tmp_path: Path, docs: Path
) -> None:
    """Lexically; writing it would leave chunks without vectors and is refused."""
    write(docs, birds_md=BIRDS)
    folder = tmp_path / "index"
    with Index.open(folder, embedder=HashingEmbedder()) as index:
        index.sync(docs)
    with Index.open(folder, embedder=None) as index:
        assert index.search("owls")[0].path == "birds.md"
        with pytest.raises(RetrievalError, match="needs embeddings"):
            index.search("owls", mode="dense")
        with pytest.raises(RetrievalError, match="opened with embedder=None"):
            index.sync(docs)


def test_a_lexical_index_stays_lexical(tmp_path: Path, docs: Path) -> None:
    """Opened again it needs no model; an embedder given to it is refused."""
    write(docs, birds_md=BIRDS)
    folder = tmp_path / "index"
    with Index.open(folder, embedder=None) as index:
        index.sync(docs)
    with Index.open(folder) as index:
        assert index.embedder is None
        assert index.search("kestrel")[0].scores.keys() == {"lexical"}
    with pytest.raises(RetrievalError, match="made without embeddings"):
        Index.open(folder, embedder=HashingEmbedder())


def test_settings_are_those_the_index_was_made_with(tmp_path: Path) -> None:
    """Other settings are refused, no settings mean the recorded ones."""
    folder = tmp_path / "index"
    Index.open(folder, embedder=None, chunk_tokens=50, language="german").close()
    Index.open(folder).close()
    with pytest.raises(RetrievalError, match="made with chunk_tokens=50, not 60"):
        Index.open(folder, chunk_tokens=60)
    with pytest.raises(RetrievalError, match="made with language=german, not french"):
        Index.open(folder, language="french")
    with pytest.raises(ValueError, match="from 0 to below max_tokens=5, got 5"):
        Index.open(tmp_path / "other", embedder=None, chunk_tokens=5, overlap_tokens=5)


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


def test_opening_refuses_what_is_no_index(tmp_path: Path, docs: Path) -> None:
    """A folder of other things, a file, a missing index: nothing is written."""
    write(docs, birds_md=BIRDS)
    with pytest.raises(RetrievalError, match=r"holds other files \(birds.md, ...\) and no index"):
        Index.open(docs, embedder=None)
    with pytest.raises(RetrievalError, match="is a file; an index is a folder"):
        Index.open(docs / "birds.md", embedder=None)
    with pytest.raises(RetrievalError, match=r"there is no index in .*missing"):
        Index.open(tmp_path / "missing", embedder=None, create=False)
    assert [path.name for path in docs.iterdir()] == ["birds.md"]
    assert not (tmp_path / "missing").exists()
    assert not Index.exists(docs)


@pytest.mark.parametrize("damage", ["text", "foreign", "version", "torn"])
def test_a_damaged_or_foreign_file_is_refused_and_kept(tmp_path: Path, damage: str) -> None:
    """The error says what to do, and not a byte of the file changes."""
    folder = tmp_path / "index"
    Index.open(folder, embedder=None).close()
    file = folder / "index.sqlite"
    if damage == "text":
        file.write_bytes(b"these are my precious notes" * 1000)
    elif damage == "foreign":
        file.unlink()
        with sqlite3.connect(file) as connection:
            connection.execute("CREATE TABLE precious (notes)")
        connection.close()
    elif damage == "version":
        with sqlite3.connect(file) as connection:
            connection.execute("PRAGMA user_version = 99")
        connection.close()
    else:
        file.write_bytes(file.read_bytes()[:5000])
    before = file.read_bytes()
    with pytest.raises(IndexCorruptError, match="nothing was changed"), Index.open(folder) as index:
        index.search("owls")
    assert file.read_bytes() == before


def test_a_kill_while_the_index_is_made_leaves_no_obstacle(tmp_path: Path) -> None:
    """An index file that nothing was written to is made anew."""
    folder = tmp_path / "index"
    folder.mkdir()
    (folder / "index.sqlite").touch()
    assert not Index.exists(folder)
    Index.open(folder, embedder=None).close()
    assert Index.exists(folder)


def test_a_closed_index_says_so(index: Index) -> None:
    """Rather than fail somewhere inside."""
    index.close()
    with pytest.raises(RetrievalError, match="was closed; open it again"):
        index.search("owls")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"top_k": 0}, "top_k must be at least 1, got 0"),
        ({"mode": "fuzzy"}, "mode must be one of hybrid, lexical, dense; got 'fuzzy'"),
        ({"fusion": "max"}, "fusion must be one of convex, rrf; got 'max'"),
        ({"dense_weight": 2}, "dense_weight must be from 0 to 1, got 2"),
    ],
)
def test_bad_arguments_are_named(index: Index, arguments: dict[str, object], message: str) -> None:
    """The message lists what is legal."""
    with pytest.raises(ValueError, match=message):
        index.search("owls", **arguments)  # type: ignore[arg-type]  # wrong on purpose


def test_fusion_weights_lead_from_one_leg_to_the_other(index: Index, docs: Path) -> None:
    """Weight 0 orders by BM25, weight 1 by cosine."""
    write(docs, **{f"n{at}_txt": "signal " * (at + 1) + "noise word " * at for at in range(8)})
    index.sync(docs)
    by_mode = {m: [h.path for h in index.search("signal", 8, m)] for m in ("lexical", "dense")}
    lexical = [hit.path for hit in index.search("signal", 8, dense_weight=0)]
    dense = [hit.path for hit in index.search("signal", 8, dense_weight=1)]
    assert (lexical, dense) == (by_mode["lexical"], by_mode["dense"])
    ranked = index.search("signal", 8, fusion="rrf")
    assert {hit.path for hit in ranked} == set(lexical)


def test_a_very_long_question_is_searched(index: Index, docs: Path) -> None:
    """Thousands of different words are no error."""
    write(docs, birds_md=BIRDS)
    index.sync(docs)
    question = " ".join(f"word{at}" for at in range(3000)) + " kestrel"
    assert index.search(question)[0].path == "birds.md"


def test_questions_are_data(index: Index, docs: Path) -> None:
    """Requirement 22, the lexical half: query syntax and SQL in a question are only words."""
    write(docs, birds_md=BIRDS, odd_txt='NEAR("x" OR 1) * ; DROP TABLE chunks; --')
    index.sync(docs)
    for question in ('"', "owls AND", "NEAR(", "body:owls", "a*", "'; DROP TABLE chunks; --"):
        index.search(question)
    assert index.search('DROP TABLE "chunks"')[0].path == "odd.txt"
    assert index.fsck().ok


def test_searching_from_the_event_loop(index: Index, docs: Path) -> None:
    """The asynchronous search gives what the other gives."""
    write(docs, birds_md=BIRDS)
    index.sync(docs)
    assert asyncio.run(index.asearch("owls", 3)) == index.search("owls", 3)


def test_chinese_is_found_by_its_words(index: Index, docs: Path) -> None:
    """A question without spaces meets a text without spaces."""
    write(docs, a_txt="今天天气很好，我们去公园散步。", b_txt="图书馆里有很多书。")
    index.sync(docs)
    assert index.search("公园在哪里", 1, "lexical")[0].path == "a.txt"


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
