"""What a user of an index sees: search, citations, settings."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest

from agentloop.errors import IndexCorruptError, RetrievalError
from agentloop.retrieval import HashingEmbedder, Index
from tests.retrieval.indexing import BIRDS, SHIPS, write


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
