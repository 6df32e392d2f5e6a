"""Any sequence of adding, changing and removing files equals reading the folder from scratch."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from agentloop.retrieval import HashingEmbedder, Index
from agentloop.retrieval.analyser import Analyser

NAMES = st.sampled_from(["a.txt", "b.txt", "c.md", "sub/a.txt", "sub/d.md"])
WORDS = st.lists(st.sampled_from("red green blue cyan pink".split()), min_size=1, max_size=6)  # noqa: SIM905 - reads better
EMBEDDER = HashingEmbedder()
TERMS = Analyser().terms


class FolderMachine(RuleBasedStateMachine):
    """The model is a dictionary from path to text; requirement 5."""

    def __init__(self) -> None:
        super().__init__()
        self.home = Path(tempfile.mkdtemp())
        self.docs = self.home / "docs"
        self.docs.mkdir()
        self.index = Index.open(self.home / "index", embedder=EMBEDDER)
        self.files: dict[str, str] = {}
        self.synced: dict[str, str] | None = None
        self.owners: dict[int, tuple[str, str]] = {}

    def teardown(self) -> None:
        assert self.index.fsck().problems == ()
        self.index.close()
        shutil.rmtree(self.home)

    @rule(name=NAMES, words=WORDS)
    def write(self, name: str, words: list[str]) -> None:
        """Add or change a file."""
        path = self.docs / name
        path.parent.mkdir(exist_ok=True)
        self.files[name] = " ".join(words)
        path.write_text(self.files[name])

    @rule(name=NAMES)
    def remove(self, name: str) -> None:
        """Remove a file where it exists."""
        if self.files.pop(name, None) is not None:
            (self.docs / name).unlink()

    @rule()
    def sync(self) -> None:
        """Bring the index up to date; the report tells what the model knows."""
        before = self.synced or {}
        report = self.index.sync(self.docs, allow_empty=True)
        shared = before.keys() & self.files.keys()
        assert set(report.added) == self.files.keys() - before.keys()
        assert set(report.removed) == before.keys() - self.files.keys()
        assert set(report.changed) == {n for n in shared if before[n] != self.files[n]}
        self.synced = dict(self.files)

    @rule()
    def reopen(self) -> None:
        """Close the index and open it again."""
        self.index.close()
        self.index = Index.open(self.home / "index", embedder=EMBEDDER)

    @precondition(lambda self: self.synced is not None)
    @rule(words=WORDS)
    def search(self, words: list[str]) -> None:
        """Each leg finds exactly the files that the model says it must."""
        assert self.synced is not None
        query = " ".join(words)
        wanted = set(TERMS(query))
        lexical = self.index.search(query, 50, "lexical")
        assert {hit.path for hit in lexical} == {
            name for name, text in self.synced.items() if wanted & set(TERMS(text))
        }
        dense = self.index.search(query, 50, "dense")
        vector = EMBEDDER.embed_query(query)
        expected = {
            name: float(EMBEDDER.embed_query(f"{Path(name).stem}\n{text}") @ vector)
            for name, text in self.synced.items()
        }
        assert {hit.path: hit.score for hit in dense} == pytest.approx(
            {name: score for name, score in expected.items() if score > 1e-6}, abs=1e-5
        )
        for hit in lexical + dense:
            assert hit.text == self.synced[hit.path] == self.index.text(hit.document_id)
            assert self.owners.setdefault(hit.chunk_id, (hit.path, hit.text)) == (
                hit.path,
                hit.text,
            )

    @invariant()
    def counts_agree(self) -> None:
        """Documents, chunks and vectors are as many as the files of the last sync."""
        stats = self.index.stats()
        assert stats.num_documents == len(self.synced or {})
        assert stats.num_chunks == stats.num_embedded == len(self.synced or {})


TestFolder = FolderMachine.TestCase
TestFolder.settings = settings(max_examples=20, stateful_step_count=16, deadline=None)
