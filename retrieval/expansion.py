"""The second hop: from the passages found to the documents they name.

A question like "When was the director of this film born?" is answered by a page that shares few
words with it, but that a page found at first names. Such a page is ranked by its own score and by
that of the passage that leads to it.

What this does not cover: more than two hops, links through headings, hyperlinks or shared entities.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from agentloop.retrieval.analyser import Analyser
from agentloop.retrieval.links import mentioned
from agentloop.retrieval.snapshot import Snapshot

Fuse = Callable[[Mapping[str, Mapping[int, float]]], Mapping[int, float]]
ScoreMore = Callable[[Sequence[int]], Mapping[str, Mapping[int, float]]]


@dataclass(frozen=True, slots=True)
class Expansion:
    """How far the second hop goes.

    Attributes:
        num_seeds: Passages whose links are followed.
        num_documents: Most documents reached.
        num_chunks: Passages considered of each, from its beginning.
        link_weight: What a link adds to a passage's score, as a share of the seed's score.
    """

    num_seeds: int = 5
    num_documents: int = 200
    num_chunks: int = 4
    link_weight: float = 0.6


@dataclass(slots=True)
class Reached:
    """Documents that links lead to.

    Attributes:
        strength: By document id, the share (0 to 1) of the best seed that names it.
    """

    strength: dict[str, float] = field(default_factory=dict[str, float])

    def add(self, document_id: str, strength: float) -> None:
        """Keep the strongest link to a document."""
        self.strength[document_id] = max(strength, self.strength.get(document_id, 0.0))


def reach(
    snapshot: Snapshot,
    analyser: Analyser,
    query: str,
    ranked: Sequence[tuple[int, float]],
    settings: Expansion,
) -> Reached:
    """Documents that the question or the best passages name.

    Args:
        snapshot: What is searched.
        analyser: That of the index.
        query: The question.
        ranked: Chunk ids with scores, best first.
        settings: How far to go.
    """
    seeds = ranked[: settings.num_seeds]
    rows = snapshot.chunks([chunk_id for chunk_id, _ in seeds])
    texts = [
        snapshot.text(rows[chunk_id].document_id, rows[chunk_id].start, rows[chunk_id].end)
        for chunk_id, _ in seeds
    ]
    by_question, *by_seed = mentioned(snapshot, analyser, [query, *texts])
    best = max((score for _, score in seeds), default=0.0) or 1.0
    reached = Reached()
    for document_id in by_question:
        reached.add(document_id, 1.0)
    for (chunk_id, score), named in zip(seeds, by_seed, strict=True):
        for document_id in named:
            if document_id != rows[chunk_id].document_id:
                reached.add(document_id, score / best)
    return reached


def expand(
    snapshot: Snapshot,
    reached: Reached,
    legs: Mapping[str, dict[int, float]],
    score_more: ScoreMore,
    fuse: Fuse,
    globs: Sequence[str],
    settings: Expansion,
) -> dict[int, float]:
    """Scores of the passages found and of those reached, links counted.

    Args:
        snapshot: What is searched.
        reached: Where links lead.
        legs: Scores by leg; those of passages reached are added to them.
        score_more: Scores given chunks in every leg.
        fuse: Makes one ranking of the legs, best at most 1.
        globs: Only documents whose path matches one of them are reached.
        settings: How much a link counts.
    """
    strongest = sorted(reached.strength, key=lambda name: (-reached.strength[name], name))
    strongest = strongest[: settings.num_documents]
    owners = snapshot.first_chunks(strongest, settings.num_chunks, globs)
    for name, scores in score_more(list(owners)).items():
        legs[name].update(scores)
    fused = dict(fuse(legs))
    for chunk_id, owner in owners.items():
        bonus = settings.link_weight * reached.strength[owner]
        fused[chunk_id] = fused.get(chunk_id, 0.0) + bonus
    return fused
