"""The vector cache is never the truth: missing, damaged or stale, the answers are the same."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop.retrieval import HashingEmbedder, Index
from agentloop.retrieval.embedder import unit_rows
from agentloop.retrieval.vectors import VectorIndex, VectorStamp

STAMP = VectorStamp("index", "embedder", "token")


def filled(tmp_path: Path, num_files: int = 12) -> tuple[Path, Path]:
    docs, folder = tmp_path / "docs", tmp_path / "index"
    docs.mkdir()
    for at in range(num_files):
        (docs / f"n{at}.txt").write_text(f"signal number {at} with word{at}")
    with Index.open(folder, embedder=HashingEmbedder()) as index:
        index.sync(docs)
    return docs, folder


def answers(folder: Path) -> list[tuple[str, float]]:
    with Index.open(folder, embedder=HashingEmbedder()) as index:
        hits = index.search("signal word3", top_k=20, mode="dense")
        return [(hit.path, round(hit.score, 5)) for hit in hits]


@given(st.integers(0, 2**32), st.integers(1, 60), st.integers(1, 20), st.booleans())
def test_nearest_neighbours_are_exact(seed: int, size: int, k: int, has_filter: bool) -> None:
    """Ids and cosines equal numpy's, with and without a filter."""
    random = np.random.default_rng(seed)
    matrix = unit_rows(random.standard_normal((size, 8)).astype(np.float32))
    ids = np.sort(random.choice(1000, size, replace=False)).astype(np.int64)
    query = unit_rows(random.standard_normal((1, 8)).astype(np.float32))[0]
    allowed = ids[random.random(size) < 0.5] if has_filter else None
    found = VectorIndex.build(ids, matrix, 1).search(query, k, allowed)
    scores = dict(zip(ids.tolist(), (matrix @ query).tolist(), strict=True))
    legal = ids.tolist() if allowed is None else allowed.tolist()
    expected = sorted(legal, key=lambda i: -scores[i])[:k]
    assert [i for i, _ in found] == expected
    assert [s for _, s in found] == pytest.approx([scores[i] for i in expected], abs=1e-5)


def test_a_file_is_read_back(tmp_path: Path) -> None:
    """Saved and loaded it answers alike, and nothing else is left in the folder."""
    matrix = unit_rows(np.arange(12, dtype=np.float32).reshape(4, 3) + 1)
    index = VectorIndex.build(np.array([2, 3, 5, 7]), matrix, 9)
    index.save(tmp_path / "v", STAMP)
    loaded = VectorIndex.load(tmp_path / "v", STAMP, 9)
    assert loaded is not None
    assert loaded.search(matrix[1], 3) == index.search(matrix[1], 3)
    assert (loaded.generation, loaded.max_id, len(loaded)) == (9, 7, 4)
    assert [path.name for path in tmp_path.iterdir()] == ["v"]


@pytest.mark.parametrize(
    "stamp",
    [
        VectorStamp("other", "embedder", "token"),
        VectorStamp("index", "other", "token"),
        VectorStamp("index", "embedder", "other"),
    ],
)
def test_a_file_of_another_index_is_ignored(tmp_path: Path, stamp: VectorStamp) -> None:
    """Index, embedder and token must all be those expected."""
    VectorIndex.build(np.array([1]), np.ones((1, 1), np.float32), 1).save(tmp_path / "v", stamp)
    assert VectorIndex.load(tmp_path / "v", STAMP, 1) is None


def test_a_file_from_the_future_is_ignored(tmp_path: Path) -> None:
    """An index that was restored from an older copy has seen fewer changes than its cache."""
    VectorIndex.build(np.array([1]), np.ones((1, 1), np.float32), 5).save(tmp_path / "v", STAMP)
    assert VectorIndex.load(tmp_path / "v", STAMP, 4) is None


@given(st.data())
def test_no_damage_is_ever_believed(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Any changed byte, any cut: the file is ignored, nothing is raised."""
    folder = tmp_path_factory.mktemp("damage")
    VectorIndex.build(np.array([1, 2]), np.eye(2, dtype=np.float32), 1).save(folder / "v", STAMP)
    content = bytearray((folder / "v").read_bytes())
    at = data.draw(st.integers(content.index(b"\n") + 1, len(content) - 1))
    if data.draw(st.booleans()):
        content[at] ^= data.draw(st.integers(1, 255))
    else:
        del content[at:]
    (folder / "v").write_bytes(content)
    assert VectorIndex.load(folder / "v", STAMP, 1) is None
    shutil.rmtree(folder)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "missing": lambda file: file.unlink(),
    "cut": lambda file: file.write_bytes(file.read_bytes()[:-7]),
    "empty": lambda file: file.write_bytes(b""),
    "nonsense": lambda file: file.write_bytes(b"\xff" * 5000),
    "a list": lambda file: file.write_bytes(b"[1, 2]\n"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_answers_do_not_depend_on_the_file(tmp_path: Path, damage: str) -> None:
    """Missing or damaged, it is built anew from the store, and saved by the next sync."""
    docs, folder = filled(tmp_path)
    expected = answers(folder)
    assert len(expected) == 12
    DAMAGE[damage](folder / "vectors.faiss")
    assert answers(folder) == expected
    with Index.open(folder, embedder=HashingEmbedder()) as index:
        index.sync(docs)
    assert answers(folder) == expected
    assert (folder / "vectors.faiss").stat().st_size > 1000


def test_a_stale_file_misses_nothing(tmp_path: Path) -> None:
    """Documents that came or went since it was written are counted all the same."""
    docs, folder = filled(tmp_path, 100)
    stale = (folder / "vectors.faiss").read_bytes()
    (docs / "n3.txt").unlink()
    (docs / "n100.txt").write_text("signal word3 word3")
    (docs / "n5.txt").write_text("signal word3 changed")
    with Index.open(folder, embedder=HashingEmbedder()) as index:
        index.sync(docs)
        assert (folder / "vectors.faiss").read_bytes() == stale  # too little changed to write it
        hits = index.search("signal word3", top_k=200, mode="dense")
    fresh = tmp_path / "fresh"
    with Index.open(fresh, embedder=HashingEmbedder()) as index:
        index.sync(docs)
    assert len(hits) == 100
    found = {(hit.path, round(hit.score, 5)) for hit in hits}
    assert found >= set(answers(fresh))
    assert sorted(score for _, score in found)[-20:] == sorted(s for _, s in answers(fresh))


def test_a_restored_copy_does_not_believe_a_newer_file(tmp_path: Path) -> None:
    """Chunk ids given out twice, once in each history, are not confused."""
    docs, folder = filled(tmp_path)
    backup = (folder / "index.sqlite").read_bytes()
    (docs / "new.txt").write_text("signal word3 word3 word3")
    (docs / "n4.txt").unlink()
    with Index.open(folder, embedder=HashingEmbedder()) as index:
        index.sync(docs)
    (folder / "index.sqlite").write_bytes(backup)
    (docs / "new.txt").write_text("another text")
    for at in range(12, 20):
        (docs / f"n{at}.txt").write_text(f"signal number {at}")
    with Index.open(folder, embedder=HashingEmbedder()) as index:
        index.sync(docs)
    kept = answers(folder)
    (folder / "vectors.faiss").unlink()
    assert answers(folder) == kept
