"""Search quality on a set of questions with known passages: each leg by itself, then together.

Every passage becomes a file of its own and goes the whole way through `Index.sync`. A set is two
files of JSON lines, plain or compressed: `NAME_corpus.jsonl` {id, title, text} and
`NAME_queries.jsonl` or `NAME_queries_dev.jsonl` {question, gold: [ids]}.
"""

from __future__ import annotations

import gzip
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import fmean, median
from typing import Any, Self

from agentloop.errors import DocumentError
from agentloop.retrieval.index import Index

NUM_RESAMPLES = 1000
_TOP_K = 40  # chunks asked for: a document may have several among the first
_QUERY_FILES = ("queries", "queries_dev")


@dataclass(frozen=True, slots=True)
class Question:
    """A question and the ids of the passages that answer it together."""

    text: str
    gold: frozenset[str]


@dataclass(frozen=True, slots=True)
class QuestionSet:
    """A set of questions.

    Attributes:
        name: Of its files, without folder.
        corpus: File of the passages.
        questions: In the order of the file.
    """

    name: str
    corpus: Path
    questions: tuple[Question, ...]

    @classmethod
    def read(cls, prefix: Path) -> Self:
        """Read a set by what its files begin with, such as `data/hotpot`.

        Raises:
            DocumentError: A file is missing or holds something else.
        """
        corpus = _existing(prefix, ("corpus",))
        questions: list[Question] = []
        for number, row in enumerate(_rows(queries := _existing(prefix, _QUERY_FILES)), start=1):
            try:
                gold = frozenset(str(item) for item in row["gold"])
                questions.append(Question(str(row["question"]), gold))
            except (KeyError, TypeError) as error:
                raise DocumentError(
                    f'{queries}:{number}: expected {{"question": text, "gold": [ids]}}, got {row!r}'
                ) from error
        return cls(prefix.name, corpus, tuple(questions))

    def write_documents(self, folder: Path, *, has_titles: bool) -> None:
        """One Markdown file for each passage, its title as heading; or its text alone."""
        folder.mkdir(parents=True, exist_ok=True)
        for passage in _rows(self.corpus):
            file = folder / f"{passage['id']}.{'md' if has_titles else 'txt'}"
            if not file.exists():
                head = f"# {' '.join(passage['title'].split())}\n\n" if has_titles else ""
                file.write_text(head + passage["text"], encoding="utf-8")


def _existing(prefix: Path, parts: Sequence[str]) -> Path:
    names = [f"{prefix.name}_{part}.jsonl{end}" for part in parts for end in ("", ".gz")]
    for name in names:
        if (prefix.parent / name).is_file():
            return prefix.parent / name
    raise DocumentError(
        f"{prefix.parent} has none of {', '.join(names)}: give the set as FOLDER/NAME"
    )


def _rows(path: Path) -> Iterator[Any]:
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as lines:
        for number, line in enumerate(lines, start=1):
            try:
                yield json.loads(line)
            except ValueError as error:
                raise DocumentError(f"{path}:{number} is no JSON: {error}") from error


def recall(found: Sequence[str], gold: frozenset[str]) -> float:
    """Share of the gold passages among the first five."""
    return len(gold.intersection(found[:5])) / len(gold)


def all_found(found: Sequence[str], gold: frozenset[str]) -> float:
    """1 where every gold passage is among the first five, else 0."""
    return float(gold.issubset(found[:5]))


def ndcg(found: Sequence[str], gold: frozenset[str]) -> float:
    """Normalised discounted cumulative gain of the first ten, relevance 0 or 1.

    Source: Jarvelin and Kekalainen, "Cumulated gain-based evaluation of IR techniques", 2002.
    """
    gain = sum(1 / math.log2(at + 2) for at, item in enumerate(found[:10]) if item in gold)
    return gain / sum(1 / math.log2(at + 2) for at in range(min(len(gold), 10)))


Metric = Callable[[Sequence[str], frozenset[str]], float]
METRICS: dict[str, Metric] = {"recall@5": recall, "all@5": all_found, "nDCG@10": ndcg}

LEXICAL_SETUPS: dict[str, Mapping[str, Any]] = {
    "lexical": {"mode": "lexical"},
    "lexical, 2 hops": {"mode": "lexical", "hops": 2},
}
SETUPS: dict[str, Mapping[str, Any]] = {
    **LEXICAL_SETUPS,
    "dense": {"mode": "dense"},
    "hybrid, rrf": {"fusion": "rrf"},
    "hybrid": {},
    "hybrid, 2 hops": {"hops": 2},
}


@dataclass(frozen=True, slots=True)
class Score:
    """A metric over a set.

    Attributes:
        mean: In percent.
        low: Lower end of the 95 % bootstrap interval of the mean.
        high: Its upper end.
        odd: Mean over every second question, from the second: none of them chose a parameter.
    """

    mean: float
    low: float
    high: float
    odd: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one way to search reached.

    Attributes:
        setup: Its name in `SETUPS`.
        scores: By name in `METRICS`.
        p50_ms: Median time of a search.
        p95_ms: Time that 95 % of the searches stay within.
    """

    setup: str
    scores: Mapping[str, Score]
    p50_ms: float
    p95_ms: float


def score(values: Sequence[float]) -> Score:
    """Mean and interval of one metric's values, one a question."""
    random = Random(0)
    means = sorted(fmean(random.choices(values, k=len(values))) for _ in range(NUM_RESAMPLES))
    edge = NUM_RESAMPLES // 40  # 2.5 %
    odd = values[1::2] or values
    ends = means[edge], means[-edge - 1]
    return Score(*(100 * value for value in (fmean(values), *ends, fmean(odd))))


def evaluate(index: Index, questions: Sequence[Question], setup: str) -> Outcome:
    """Ask every question in one way.

    Args:
        index: Made from `QuestionSet.write_documents`.
        questions: At least one.
        setup: A name in `SETUPS`.
    """
    values: dict[str, list[float]] = {name: [] for name in METRICS}
    spent_ms: list[float] = []
    for question in questions:
        began = time.perf_counter()
        hits = index.search(question.text, _TOP_K, **SETUPS[setup])
        spent_ms.append(1000 * (time.perf_counter() - began))
        found = list(dict.fromkeys(Path(hit.path).stem for hit in hits))
        for name, metric in METRICS.items():
            values[name].append(metric(found, question.gold))
    slow = sorted(spent_ms)[max(math.ceil(0.95 * len(spent_ms)) - 1, 0)]
    scores = {name: score(column) for name, column in values.items()}
    return Outcome(setup, scores, median(spent_ms), slow)
