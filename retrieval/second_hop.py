"""The second hop: from the passages found to those that they lead to.

"When was the director of this film born?" is answered by a page that shares few words with the
question. Two things find it: a page found at first names it (link), or both speak of the same rare
name and it answers what that page leaves open (shared name, times the rest of the question). What
repeats only what the best passage already says is moved down (cover).

What this does not cover: decomposing the question, reading. A third hop is a second one from there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agentloop.retrieval.bm25 import term_scores
from agentloop.retrieval.links import Links
from agentloop.retrieval.snapshot import Snapshot

Fuse = Callable[[Mapping[str, Mapping[int, float]]], Mapping[int, float]]
Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Expansion:
    """How far the second hop goes, and what each part of it counts.

    Chosen on half of the questions of three sets; see benchmarks/retrieval.md. Every weight may be
    0, which leaves the part out.

    Attributes:
        num_seeds: Passages that are followed.
        num_passages: Most passages considered beside those found at first.
        num_chunks: Chunks considered of a document that is named, from its beginning.
        link_weight: Of being named, as a share of the best score of the first hop.
        shared_weight: Of sharing a name with a seed and answering what the seed leaves open.
        dense_share: Of embeddings in "answering what is left open", the rest is BM25.
        seed_removal: Share of a seed's embedding that is taken out of the question's for that.
        cover_weight: Of what the words of the best passage explain again in another.
        budget_s: Seconds after which no further seed is followed.
    """

    num_seeds: int = 4
    num_passages: int = 1000
    num_chunks: int = 4
    link_weight: float = 0.65
    shared_weight: float = 0.7
    dense_share: float = 0.25
    seed_removal: float = 0.3
    cover_weight: float = 0.5
    budget_s: float = 1.0


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked, as the legs see it.

    Attributes:
        text: The question.
        terms: Analysed, distinct.
        vector: (D,) float32, None without a dense leg.
        lexical_share: Of the lexical leg in fusion, 0 to 1.
    """

    text: str
    terms: Sequence[str]
    vector: NDArray[np.float32] | None
    lexical_share: float


@dataclass(slots=True)
class _Pool:
    """Every passage considered, in columns.

    Attributes:
        ids: (P,) chunk ids.
        place: Row of each id.
        base: (P,) score of the first hop.
        terms: (P, T) BM25 of each term of the question.
        holds: (P, T) whether the passage holds the term.
        vectors: (P, D) embeddings, None without a dense leg.
    """

    ids: list[int]
    place: dict[int, int]
    base: Array
    terms: Array
    holds: NDArray[np.bool_]
    vectors: NDArray[np.float32] | None


@dataclass(slots=True)
class SecondHop:
    """One expansion of one ranking.

    Attributes:
        snapshot: What is searched.
        links: Follows names.
        question: What is asked.
        settings: How far to go.
        globs: Only documents whose path matches one of them are reached.
    """

    snapshot: Snapshot
    links: Links
    question: Question
    settings: Expansion
    globs: Sequence[str] = ()

    def expand(
        self, ranked: Mapping[int, float], legs: Mapping[str, dict[int, float]], fuse: Fuse
    ) -> dict[int, dict[str, float]]:
        """Scores of the passages found and of those reached, by what they come from.

        Args:
            ranked: Scores of the first hop.
            legs: Scores by leg; those of passages reached are added to them.
            fuse: Makes one ranking of the legs, best at most 1.

        Returns:
            By chunk id, "base", and where they are not 0 "link", "shared" and "cover"; their sum is
            what passages are ordered by.
        """
        deadline = time.monotonic() + self.settings.budget_s
        asked = self.links.documents(self.question.text)
        named = self._first_chunks(asked, ranked)
        first = {
            **ranked,
            **self._bases([item for item in named if item not in ranked], legs, fuse),
        }
        for chunk_id, strength in named.items():
            bonus = self.settings.link_weight * strength
            first[chunk_id] += bonus
        seeds = sorted(first, key=lambda item: (-first[item], item))[: self.settings.num_seeds]
        strengths = {seed: first[seed] / (first[seeds[0]] or 1.0) for seed in seeds}
        shared = self._follow(strengths, named, ranked, deadline)
        pool = self._pool({*ranked, *named, *self._kept(shared, strengths)}, legs, fuse)
        parts = self._parts(pool, named, shared, strengths)
        return {
            chunk_id: {
                name: float(part[row])
                for name, part in parts.items()
                if name == "base" or part[row]
            }
            for chunk_id, row in pool.place.items()
        }

    def _bases(
        self, chunk_ids: Sequence[int], legs: Mapping[str, dict[int, float]], fuse: Fuse
    ) -> dict[int, float]:
        """Scores in the first hop of passages that it did not rank."""
        pool = self._pool(chunk_ids, legs, fuse)
        return {chunk_id: float(pool.base[row]) for chunk_id, row in pool.place.items()}

    def _follow(
        self,
        strengths: Mapping[int, float],
        named: dict[int, float],
        ranked: Mapping[int, float],
        deadline: float,
    ) -> dict[int, dict[int, float]]:
        """By seed, the passages that share a name with it; `named` gets what it names."""
        rows = self.snapshot.chunks(list(strengths))
        shared: dict[int, dict[int, float]] = {}
        for seed, strength in strengths.items():
            if time.monotonic() > deadline:
                break
            row = rows[seed]
            text = self.snapshot.text(row.document_id, row.start, row.end)
            if self.settings.link_weight:
                linked = self.links.documents(text, row.document_id)
                for chunk_id, share in self._first_chunks(linked, ranked).items():
                    named[chunk_id] = max(strength * share, named.get(chunk_id, 0.0))
            if self.settings.shared_weight:
                shared[seed] = self.links.passages(text, frozenset(self.question.terms))
                shared[seed].pop(seed, None)
        return shared

    def _first_chunks(
        self, documents: Mapping[str, float], ranked: Mapping[int, float]
    ) -> dict[int, float]:
        """For each document the one of its first chunks that the first hop likes best."""
        owners = self.snapshot.first_chunks(list(documents), self.settings.num_chunks, self.globs)
        best: dict[str, int] = {}
        for chunk_id, owner in owners.items():
            before = best.setdefault(owner, chunk_id)
            if ranked.get(chunk_id, 0.0) > ranked.get(before, 0.0):
                best[owner] = chunk_id
        return {chunk_id: documents[owner] for owner, chunk_id in best.items()}

    def _kept(
        self, shared: Mapping[int, Mapping[int, float]], strengths: Mapping[int, float]
    ) -> list[int]:
        """Passages with the rarest names in common with the strongest seeds."""
        best: dict[int, float] = {}
        for seed, rarity in shared.items():
            for chunk_id, share in rarity.items():
                best[chunk_id] = max(strengths[seed] * share, best.get(chunk_id, 0.0))
        ordered = sorted(best, key=lambda item: (-best[item], item))
        return ordered[: self.settings.num_passages]

    def _pool(
        self, chunk_ids: Collection[int], legs: Mapping[str, dict[int, float]], fuse: Fuse
    ) -> _Pool:
        """Score every passage in every leg."""
        analysed = self.snapshot.analysed(sorted(chunk_ids))
        ids = sorted(analysed)
        place = {chunk_id: row for row, chunk_id in enumerate(ids)}
        terms = term_scores(self.snapshot, self.question.terms, [analysed[item] for item in ids])
        vectors = None
        if "lexical" in legs:
            totals = terms.sum(axis=1)  # (P,)
            legs["lexical"].update(_positive(ids, totals))
        if "dense" in legs and self.question.vector is not None:
            stored = self.snapshot.vectors_of(ids)
            nothing = np.zeros_like(self.question.vector)
            vectors = np.array([stored.get(item, nothing) for item in ids])  # (P, D)
            vectors = vectors.reshape(len(ids), len(nothing))
            cosines = vectors @ self.question.vector  # (P,)
            legs["dense"].update(_positive(ids, cosines))
        fused = fuse(legs)
        base = np.array([fused.get(item, 0.0) for item in ids])
        return _Pool(ids, place, base, terms, terms > 0, vectors)

    def _parts(
        self,
        pool: _Pool,
        named: Mapping[int, float],
        shared: Mapping[int, Mapping[int, float]],
        strengths: Mapping[int, float],
    ) -> dict[str, Array]:
        """(P,) by what a passage's score comes from."""
        link = np.zeros(len(pool.ids))
        for chunk_id, strength in named.items():
            if chunk_id in pool.place:
                link[pool.place[chunk_id]] = self.settings.link_weight * strength
        joint = np.zeros(len(pool.ids))
        for seed, rarity in shared.items():
            rows = [pool.place[item] for item in rarity if item in pool.place]
            rarities = np.array([share for item, share in rarity.items() if item in pool.place])
            if rows:
                answers = self._left_open(pool, pool.place[seed])[rows] * rarities
                joint[rows] = np.maximum(joint[rows], strengths[seed] * answers)
        joint *= self.settings.shared_weight
        return {
            "base": pool.base,
            "link": link,
            "shared": joint,
            "cover": self._cover(pool, pool.base + link + joint),
        }

    def _left_open(self, pool: _Pool, seed: int) -> Array:
        """(P,) how well each passage answers what a seed leaves open, the best 1."""
        lexical: Array = pool.terms[:, ~pool.holds[seed]].sum(axis=1)
        lexical[seed] = 0.0
        lexical /= lexical.max() or 1.0
        if pool.vectors is None or self.question.vector is None:
            return lexical
        rest = self.question.vector - self.settings.seed_removal * pool.vectors[seed]  # (D,)
        dense = np.clip(pool.vectors @ rest, 0.0, None).astype(float)
        dense[seed] = 0.0
        dense /= dense.max() or 1.0
        both: Array = (1 - self.settings.dense_share) * lexical + self.settings.dense_share * dense
        return both

    def _cover(self, pool: _Pool, scores: Array) -> Array:
        """(P,) not above 0: the share of each score that the best passage's words explain."""
        best = int(scores.argmax())
        repeated: Array = pool.terms[:, pool.holds[best]].sum(axis=1)
        repeated[best] = 0.0
        scale = float(pool.terms.sum(axis=1).max()) or 1.0
        repeated *= -self.settings.cover_weight * self.question.lexical_share / scale
        return repeated


def _positive(ids: Sequence[int], scores: NDArray[np.floating]) -> dict[int, float]:
    """The scores above 0 by id."""
    values: list[float] = scores.tolist()
    return {item: value for item, value in zip(ids, values, strict=True) if value > 0}
