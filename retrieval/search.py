"""A question against a snapshot: each leg ranks, the rankings are fused, the best become hits."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from agentloop.retrieval.analyser import Analyser
from agentloop.retrieval.dense import DenseLeg
from agentloop.retrieval.embedder import Embedder, Vectors
from agentloop.retrieval.expansion import Expansion, expand, reach
from agentloop.retrieval.fusion import convex, reciprocal_rank
from agentloop.retrieval.snapshot import Snapshot

Mode = Literal["hybrid", "lexical", "dense"]
Fusion = Literal["convex", "rrf"]
MODES: tuple[Mode, ...] = get_args(Mode)
FUSIONS: tuple[Fusion, ...] = get_args(Fusion)
DEFAULT_DENSE_WEIGHT = 0.5
_MIN_DEPTH = 100  # chunks each leg ranks before fusion, at least


@dataclass(frozen=True, slots=True)
class Hit:
    """A passage found; `index.text(document_id)[start:end] == text`.

    Attributes:
        path: Document, relative to the synced folder.
        document_id: Its id.
        chunk_id: The passage's own id, never reused for another.
        start: First character in the document's stored text.
        end: One past the last character.
        text: The passage, exactly as stored.
        title: Title of the document.
        headings: Titles of the sections it lies in, outermost first.
        page: 1-based page of the first character, None in formats without pages.
        last_page: Page of the last character.
        score: What the hits are ordered by, higher is better; comparable within one search only.
        scores: Score of each leg that found it: "lexical" is BM25, "dense" is the cosine.
    """

    path: str
    document_id: str
    chunk_id: int
    start: int
    end: int
    text: str
    title: str
    headings: tuple[str, ...]
    page: int | None
    last_page: int | None
    score: float
    scores: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Request:
    """What to search for, checked.

    Attributes:
        query: The question.
        top_k: Most hits to return.
        mode: Which legs take part.
        fusion: How two legs become one ranking.
        dense_weight: Share of the dense leg in fusion, 0 to 1.
        globs: Only documents whose path matches one of these, all where empty.
        hops: 1 for the passages that fit the question, 2 for also those that they lead to.
    """

    query: str
    top_k: int
    mode: Mode = "hybrid"
    fusion: Fusion = "convex"
    dense_weight: float = DEFAULT_DENSE_WEIGHT
    globs: tuple[str, ...] = ()
    hops: int = 1

    def __post_init__(self) -> None:
        if self.top_k < 1:
            raise ValueError(f"top_k must be at least 1, got {self.top_k}")
        if self.mode not in MODES:
            raise ValueError(f"mode must be one of {', '.join(MODES)}; got {self.mode!r}")
        if self.fusion not in FUSIONS:
            raise ValueError(f"fusion must be one of {', '.join(FUSIONS)}; got {self.fusion!r}")
        if self.hops not in (1, 2):
            raise ValueError(f"hops must be 1 or 2, got {self.hops}")
        if not 0 <= self.dense_weight <= 1:
            raise ValueError(f"dense_weight must be from 0 to 1, got {self.dense_weight}")

    @property
    def depth(self) -> int:
        """Chunks that each leg ranks."""
        if self.mode == "hybrid" or self.hops > 1:
            return max(_MIN_DEPTH, 2 * self.top_k)
        return self.top_k


@dataclass(slots=True)
class Searcher:
    """The legs of one index.

    Attributes:
        analyser: Makes search terms.
        embedder: Embeds questions, None without a dense leg.
        dense: The dense leg, None without one.
        expansion: How far a second hop goes.
    """

    analyser: Analyser
    embedder: Embedder | None = None
    dense: DenseLeg | None = None
    expansion: Expansion = field(default_factory=Expansion)

    def embed(self, request: Request) -> Vectors | None:
        """The question's vector, where the mode needs one: done before a snapshot is held."""
        if request.mode == "lexical" or self.embedder is None or not request.query.strip():
            return None
        return self.embedder.embed_query(request.query)

    def search(
        self, snapshot: Snapshot, request: Request, vector: Vectors | None
    ) -> list[Hit] | None:
        """Hits in order, or None where the snapshot is too old and a new one must be taken."""
        legs: dict[str, dict[int, float]] = {}
        terms = self.analyser.terms(request.query)
        if request.mode != "dense":
            legs["lexical"] = dict(snapshot.lexical(terms, request.depth, request.globs))
        if vector is not None and self.dense is not None:
            found = self.dense.search(snapshot, vector, request.depth, request.globs)
            if found is None:
                return None
            legs["dense"] = dict(found)
            missing = [i for i in legs.get("lexical", ()) if i not in legs["dense"]]
            extra = self.dense.scores(snapshot, vector, missing)
            legs["dense"].update((i, score) for i, score in extra.items() if score > 0)
        ranked = _ranked(_fused(legs, request))
        if request.hops > 1:
            reached = reach(snapshot, self.analyser, request.query, ranked, self.expansion)
            fused = expand(
                snapshot,
                reached,
                legs,
                lambda ids: self._scores(snapshot, ids, terms, vector, legs),
                lambda scores: _fused(scores, request),
                request.globs,
                self.expansion,
            )
            ranked = _ranked(fused)
        return _hits(snapshot, ranked[: request.top_k], legs)

    def _scores(
        self,
        snapshot: Snapshot,
        chunk_ids: Sequence[int],
        terms: Sequence[str],
        vector: Vectors | None,
        legs: Collection[str],
    ) -> dict[str, dict[int, float]]:
        """Scores of given chunks in the legs that take part."""
        scores: dict[str, dict[int, float]] = {}
        if "lexical" in legs:
            scores["lexical"] = snapshot.lexical_of(terms, chunk_ids)
        if vector is not None and self.dense is not None:
            found = self.dense.scores(snapshot, vector, chunk_ids)
            scores["dense"] = {i: score for i, score in found.items() if score > 0}
        return scores


def _fused(legs: Mapping[str, Mapping[int, float]], request: Request) -> Mapping[int, float]:
    if len(legs) == 1 and request.hops == 1:
        (fused,) = legs.values()
        return fused
    fuse = convex if request.fusion == "convex" else reciprocal_rank
    return fuse(legs, {"lexical": 1 - request.dense_weight, "dense": request.dense_weight})


def _ranked(scores: Mapping[int, float]) -> list[tuple[int, float]]:
    return sorted(scores.items(), key=lambda item: (-item[1], item[0]))


def _hits(
    snapshot: Snapshot,
    ranked: Sequence[tuple[int, float]],
    legs: Mapping[str, Mapping[int, float]],
) -> list[Hit]:
    rows = snapshot.chunks([chunk_id for chunk_id, _ in ranked])
    hits: list[Hit] = []
    for chunk_id, score in ranked:
        row = rows[chunk_id]
        hits.append(
            Hit(
                path=row.path,
                document_id=row.document_id,
                chunk_id=chunk_id,
                start=row.start,
                end=row.end,
                text=snapshot.text(row.document_id, row.start, row.end),
                title=row.title,
                headings=row.headings,
                page=row.page,
                last_page=row.last_page,
                score=score,
                scores={name: leg[chunk_id] for name, leg in legs.items() if chunk_id in leg},
            )
        )
    return hits
