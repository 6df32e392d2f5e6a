"""BM25 term by term, for chunks that are at hand: the same numbers as SQLite's bm25().

The whole ranking comes from SQLite; this splits the score of a few hundred chunks into what each
term of the question adds, which a second hop needs: what is still unanswered once a passage is
read?
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log

import numpy as np
from numpy.typing import NDArray

from agentloop.retrieval.snapshot import Snapshot

_K1 = 1.2  # SQLite's constants
_B = 0.75
_LEAST_IDF = 1e-6
_LARGE = 10_000  # chunks of an index in which common words are costly


def inverse_frequency(num_chunks: int, num_holding: int) -> float:
    """Weight of a term, as SQLite's bm25() has it: never below a millionth.

    Source: Robertson and Zaragoza, "The Probabilistic Relevance Framework" (2009), equation 3.3.
    """
    idf = log((num_chunks - num_holding + 0.5) / (num_holding + 0.5))
    return idf if idf > 0 else _LEAST_IDF


def informative(snapshot: Snapshot, terms: Sequence[str]) -> list[str]:
    """Distinct terms worth looking up.

    In a large index those are left out that more than half of the chunks hold: they cannot order
    chunks, and reading their postings is most of the time that a search takes.
    """
    distinct = list(dict.fromkeys(terms))
    num_chunks = snapshot.count("chunks")
    if num_chunks < _LARGE:
        return distinct
    holding = snapshot.num_holding(distinct)
    return [t for t in distinct if 2 * holding.get(t, 0) <= num_chunks] or distinct


def term_scores(
    snapshot: Snapshot, terms: Sequence[str], analysed: Sequence[Sequence[str]]
) -> NDArray[np.float64]:
    """(P, T) BM25 that each of T terms adds to each of P chunks.

    Args:
        snapshot: What the chunks are of.
        terms: Distinct.
        analysed: Terms of each chunk, as `Snapshot.analysed` gives them.
    """
    num_chunks, num_terms = snapshot.posting_totals()
    mean_length = num_terms / max(num_chunks, 1) or 1.0
    holding = snapshot.num_holding(terms)
    idf = np.array([inverse_frequency(num_chunks, holding.get(term, 0)) for term in terms])  # (T,)
    column = {term: at for at, term in enumerate(terms)}
    frequency = np.zeros((len(analysed), len(terms)))  # (P, T)
    for row, chunk in enumerate(analysed):
        for term in chunk:
            at = column.get(term)
            if at is not None:
                frequency[row, at] += 1
    lengths = np.array([len(chunk) for chunk in analysed], dtype=float)  # (P,)
    damping = _K1 * (1 - _B + _B * lengths / mean_length)[:, None]  # (P, 1)
    return idf * frequency * (_K1 + 1) / (frequency + damping)
