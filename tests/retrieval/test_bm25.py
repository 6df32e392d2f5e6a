"""Our split of BM25 adds up to what SQLite ranks by."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from agentloop.retrieval import Index, bm25
from agentloop.retrieval.bm25 import informative, term_scores
from agentloop.retrieval.store import Store

VOCABULARY = [f"w{number}" for number in range(40)]


@pytest.fixture
def filled(index: Index, docs: Path) -> Index:
    """Forty documents of random words, common ones among them, one with a title."""
    random = Random(3)
    for number in range(40):
        words = random.choices(VOCABULARY, weights=range(40, 0, -1), k=random.randint(1, 60))
        head = "# w1 w39 title\n\n" if number == 7 else ""
        (docs / f"{number}.md").write_text(f"{head}{' '.join(words)} everywhere")
    index.sync(docs)
    return index


def test_terms_add_up_to_the_score_of_sqlite(filled: Index) -> None:
    """For every chunk: the sum over terms is bm25() of FTS5, whose totals we read."""
    terms = ["w0", "w3", "w39", "everywher", "absent"]
    with Store(filled.path).snapshot() as snapshot:
        expected = dict(snapshot.lexical(terms, 1000))
        analysed = snapshot.analysed(list(range(1, 60)))
        ids = sorted(analysed)
        scores = term_scores(snapshot, terms, [analysed[item] for item in ids])
    assert len(ids) == 40
    assert {i: s for i, s in zip(ids, scores.sum(axis=1), strict=True) if s > 0} == pytest.approx(
        expected, rel=1e-9
    )
    assert not scores[:, terms.index("absent")].any()


def test_common_words_are_left_out_of_large_indexes_alone(
    filled: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A word that every chunk holds is looked up where that is cheap, or where nothing else is."""
    with Store(filled.path).snapshot() as snapshot:
        assert informative(snapshot, ["everywher", "w39", "w39"]) == ["everywher", "w39"]
        monkeypatch.setattr(bm25, "_LARGE", 10)
        assert informative(snapshot, ["everywher", "w39", "w39"]) == ["w39"]
        assert informative(snapshot, ["everywher"]) == ["everywher"]
        assert informative(snapshot, []) == []
