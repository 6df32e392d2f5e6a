"""The default embedder: found offline, repeatable, and it reads long texts whole."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from agentloop.errors import RetrievalError
from agentloop.retrieval import HashingEmbedder, Index, SentenceEmbedder


def test_importing_and_lexical_search_load_no_model(tmp_path: Path) -> None:
    """Neither torch, nor faiss, nor sentence_transformers, nor transformers."""
    program = """
import sys
from agentloop.retrieval import Index, SentenceEmbedder
SentenceEmbedder.default().fingerprint, SentenceEmbedder.default().max_tokens
with Index.open(sys.argv[1], embedder=None) as index:
    index.search("word")
heavy = {"torch", "faiss", "sentence_transformers", "transformers"} & sys.modules.keys()
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "index")], check=True)


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    """The message says what such a folder must hold."""
    with pytest.raises(RetrievalError, match=r"tokenizer.json is missing"):
        SentenceEmbedder(tmp_path)


def test_the_default_embedder_finds_meaning(tmp_path: Path, docs: Path) -> None:
    """all-MiniLM-L6-v2: repeatable unit vectors, paraphrases near, long texts read to their end."""
    import torch

    torch.set_num_threads(1)  # as fast as more for a few texts, and kind to a busy machine
    embedder = SentenceEmbedder.default()
    texts = ["A cat sat on the mat.", "Stock markets fell sharply.", "The kitten rests on a rug."]
    vectors = embedder.embed_passages(texts)
    assert vectors.shape == (3, 384)
    assert vectors.dtype == np.float32
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1, abs=1e-5)
    assert vectors[0] @ vectors[2] > 0.4 > vectors[0] @ vectors[1]
    exact = np.stack([embedder.embed_query(text) for text in texts])  # always in float32
    assert np.sum(exact * vectors, axis=1).min() > 0.9999
    assert np.array_equal(embedder.embed_passages(texts), vectors)
    assert embedder.max_tokens == 254
    assert embedder.count_tokens(["one two", ""]) == [2, 0]
    filler = "nothing of interest happens here " * 60
    ends = embedder.embed_passages([f"{filler} a cat", f"{filler} stock markets"])
    assert not np.allclose(ends[0], ends[1], atol=1e-3)
    (docs / "cat.txt").write_text(texts[0])
    (docs / "stock.txt").write_text(texts[1])
    with Index.open(tmp_path / "index") as index:
        index.sync(docs)
        assert index.search("feline on a carpet", 1, "dense")[0].path == "cat.txt"
    with pytest.raises(RetrievalError, match="made with another embedder"):
        Index.open(tmp_path / "index", embedder=HashingEmbedder(dimension=384))


def test_prefixes_are_part_of_the_fingerprint() -> None:
    """A question prefix changes vectors, so it makes another embedder."""
    default = SentenceEmbedder.default()
    other = SentenceEmbedder(default.folder, query_prefix="query: ")
    assert default.fingerprint == SentenceEmbedder.default().fingerprint != other.fingerprint
