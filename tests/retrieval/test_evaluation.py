"""Metrics, intervals, and a set of questions from its files to a table."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from agentloop.errors import DocumentError
from agentloop.retrieval import Index
from agentloop.retrieval.evaluation import (
    LEXICAL_SETUPS,
    QuestionSet,
    all_found,
    evaluate,
    ndcg,
    recall,
    score,
)

PASSAGES = [
    {"id": 1, "title": "Silent Harbour", "text": "A drama directed by Ada Lindqvist."},
    {"id": 2, "title": "Ada Lindqvist", "text": "She was born in Uppsala."},
    {"id": 3, "title": "Bo Berg", "text": "He was born in Lund."},
]


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    """A set of three passages and one question that needs two of them."""
    lines = "\n".join(json.dumps(passage) for passage in PASSAGES)
    (tmp_path / "films_corpus.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    asked = {"question": "Where was the director of Silent Harbour born?", "gold": [1, 2]}
    (tmp_path / "films_queries.jsonl").write_text(json.dumps(asked))
    return tmp_path / "films"


def test_metrics_of_a_known_ranking() -> None:
    """One of two found among five; both among ten, in the first and the sixth place."""
    found, gold = ["a", "x", "y", "z", "w", "b"], frozenset("ab")
    assert (recall(found, gold), all_found(found, gold)) == (0.5, 0.0)
    assert ndcg(found, gold) == pytest.approx((1 + 1 / 2.8073549) / (1 + 1 / 1.5849625))
    assert recall(["b", "a"], gold) == all_found(["b", "a"], gold) == ndcg(["b", "a"], gold) == 1.0


def test_an_interval_holds_the_mean() -> None:
    """Percent; repeatable; the half that chose nothing is every second question."""
    found = score([0.0, 1.0] * 20)
    assert found == score([0.0, 1.0] * 20)
    assert (found.mean, found.odd) == (50.0, 100.0)
    assert 30 < found.low < 50 < found.high < 70


@pytest.mark.parametrize("has_titles", [True, False])
def test_a_set_is_asked(prefix: Path, tmp_path: Path, has_titles: bool) -> None:
    """From files to scores, titles shown or hidden."""
    asked = QuestionSet.read(prefix)
    asked.write_documents(tmp_path / "docs", has_titles=has_titles)
    with Index.open(tmp_path / "index", embedder=None) as index:
        index.sync(tmp_path / "docs")
        outcomes = [evaluate(index, asked.questions, setup) for setup in LEXICAL_SETUPS]
    assert [outcome.setup for outcome in outcomes] == list(LEXICAL_SETUPS)
    assert {o.scores["recall@5"].mean for o in outcomes} <= {50.0, 100.0}
    assert outcomes[1].p95_ms >= outcomes[1].p50_ms > 0


def test_missing_and_foreign_files_are_told(prefix: Path) -> None:
    """The message names the files looked for, or the line and what it should hold."""
    with pytest.raises(DocumentError, match=r"has none of other_corpus\.jsonl, other"):
        QuestionSet.read(prefix.with_name("other"))
    queries = prefix.with_name("films_queries.jsonl")
    queries.write_text('{"question": "x"}')
    with pytest.raises(DocumentError, match=r'films_queries.jsonl:1: expected \{"question": text'):
        QuestionSet.read(prefix)
    queries.write_text("{")
    with pytest.raises(DocumentError, match=r"films_queries\.jsonl:1 is no JSON"):
        QuestionSet.read(prefix)
