"""Search quality on question sets with known answers: recall@5, all@5 and nDCG@10 of each leg.

Every passage becomes a file of its own and goes the whole way through `Index.sync`. Needs a folder
of `SET_corpus.jsonl.gz` {id, title, text} and `SET_queries_dev.jsonl.gz` {question, gold} files.

    python benchmarks/retrieval_quality.py DATA --sets hotpot musique --work /tmp/quality

The work folder keeps the indexes: a second run with the same one embeds nothing again.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any

from rich.progress import Progress

from agentloop.retrieval import Index

SETS = ("scifact", "hotpot", "musique", "2wiki")
NUM_RESAMPLES = 1000
_TOP_K = 40  # chunks asked for: a document may have several among the first


@dataclass(frozen=True, slots=True)
class Setup:
    """One way to search.

    Attributes:
        name: For the table.
        arguments: Of `Index.search`.
    """

    name: str
    arguments: Mapping[str, Any]


LEXICAL_SETUPS = (
    Setup("lexical", {"mode": "lexical"}),
    Setup("lexical, 2 hops", {"mode": "lexical", "hops": 2}),
)
SETUPS = (
    *LEXICAL_SETUPS,
    Setup("dense", {"mode": "dense"}),
    Setup("rrf", {"fusion": "rrf"}),
    Setup("convex 0.3", {"dense_weight": 0.3}),
    Setup("convex 0.5", {"dense_weight": 0.5}),
    Setup("convex 0.7", {"dense_weight": 0.7}),
    Setup("hybrid, 2 hops", {"hops": 2}),
)


def recall(found: Sequence[int], gold: Sequence[int]) -> float:
    """Share of the gold passages among the first five."""
    return len(set(found[:5]) & set(gold)) / len(set(gold))


def all_found(found: Sequence[int], gold: Sequence[int]) -> float:
    """1 where every gold passage is among the first five, else 0."""
    return float(set(gold) <= set(found[:5]))


def ndcg(found: Sequence[int], gold: Sequence[int]) -> float:
    """Normalised discounted cumulative gain of the first ten, relevance 0 or 1.

    Source: Jarvelin and Kekalainen, "Cumulated gain-based evaluation of IR techniques", 2002.
    """
    gain = sum(1 / math.log2(at + 2) for at, item in enumerate(found[:10]) if item in gold)
    return gain / sum(1 / math.log2(at + 2) for at in range(min(len(set(gold)), 10)))


METRICS: dict[str, Callable[[Sequence[int], Sequence[int]], float]] = {
    "recall@5": recall,
    "all@5": all_found,
    "nDCG@10": ndcg,
}


def interval(values: Sequence[float]) -> tuple[float, float]:
    """95 % bootstrap interval of the mean over questions."""
    random = Random(0)
    means = sorted(fmean(random.choices(values, k=len(values))) for _ in range(NUM_RESAMPLES))
    return means[int(0.025 * NUM_RESAMPLES)], means[int(0.975 * NUM_RESAMPLES) - 1]


def read(path: Path) -> Iterator[dict[str, Any]]:
    """Lines of a compressed JSON-lines file."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def write_documents(corpus: Path, folder: Path, *, has_titles: bool) -> None:
    """One Markdown file for each passage, its title as heading; or its text alone."""
    folder.mkdir(parents=True, exist_ok=True)
    for passage in read(corpus):
        file = folder / f"{passage['id']}.{'md' if has_titles else 'txt'}"
        if not file.exists():
            head = f"# {' '.join(passage['title'].split())}\n\n" if has_titles else ""
            file.write_text(head + passage["text"], encoding="utf-8")


def synced(data: Path, name: str, work: Path, *, has_titles: bool, is_lexical: bool) -> Index:
    """The index of one set, made or brought up to date."""
    kind = f"{name}-{'titles' if has_titles else 'hidden'}"
    documents = work / kind / "documents"
    write_documents(data / f"{name}_corpus.jsonl.gz", documents, has_titles=has_titles)
    path = work / kind / ("lexical" if is_lexical else "index")
    index = Index.open(path, embedder=None if is_lexical else "auto")
    with Progress() as progress:
        task = progress.add_task(kind)
        report = index.sync(
            documents, lambda done, total, _: progress.update(task, completed=done, total=total)
        )
    print(f"{kind}: {report.num_chunks} chunks written in {report.seconds:.1f} s; {index.stats()}")
    return index


def ranking(index: Index, question: str, setup: Setup) -> list[int]:
    """Passage ids in the order of their best chunk."""
    hits = index.search(question, _TOP_K, **setup.arguments)
    return list(dict.fromkeys(int(Path(hit.path).stem) for hit in hits))


def report(index: Index, queries: Sequence[dict[str, Any]], setups: Sequence[Setup]) -> None:
    """Print one row for each way to search."""
    for setup in setups:
        found = [ranking(index, query["question"], setup) for query in queries]
        cells: list[str] = []
        for metric in METRICS.values():
            values = [
                metric(items, query["gold"]) for items, query in zip(found, queries, strict=True)
            ]
            low, high = interval(values)
            cells.append(f"{100 * fmean(values):5.1f} ({100 * low:.1f}-{100 * high:.1f})")
        print(f"| {setup.name:15} | " + " | ".join(cells) + " |", flush=True)


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("data", type=Path, help="folder of the sets")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=SETS)
    parser.add_argument("--work", type=Path, default=Path("build/retrieval_quality"))
    parser.add_argument("--hidden", action="store_true", help="leave the titles out")
    parser.add_argument("--lexical", action="store_true", help="no embeddings: the BM25 leg alone")
    arguments = parser.parse_args()
    for name in arguments.sets:
        has_titles = not arguments.hidden
        with synced(
            arguments.data,
            name,
            arguments.work,
            has_titles=has_titles,
            is_lexical=arguments.lexical,
        ) as index:
            queries = list(read(arguments.data / f"{name}_queries_dev.jsonl.gz"))
            shown = "visible" if has_titles else "hidden"
            print(f"\n{name}, titles {shown}, {len(queries)} questions")
            print(f"|                 | {' | '.join(METRICS)} |")
            report(index, queries, LEXICAL_SETUPS if arguments.lexical else SETUPS)


if __name__ == "__main__":
    main()
