"""A question against a snapshot: each leg ranks, the rankings are fused, the best become hits."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from agentloop.retrieval.analyser import Analyser
from agentloop.retrieval.bm25 import informative
from agentloop.retrieval.dense import DenseLeg
from agentloop.retrieval.embedder import Embedder, Vectors
from agentloop.retrieval.fusion import convex, reciprocal_rank
from agentloop.retrieval.links import Links
from agentloop.retrieval.second_hop import Expansion, Question, SecondHop
from agentloop.retrieval.snapshot import Snapshot

Mode = Literal["hybrid", "lexical", "dense"]
Fusion = Literal["convex", "rrf"]
MODES: tuple[Mode, ...] = get_args(Mode)
FUSIONS: tuple[Fusion, ...] = get_args(Fusion)
DEFAULT_DENSE_WEIGHT = 0.65
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
        scores: Score of each leg that found it: "lexical" is BM25, "dense" is the cosine; of a
            second hop what it adds or takes: "link" for being named, "shared" for answering what
            a passage with the same names leaves open, "cover" for repeating the best passage.
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
        terms = informative(snapshot, self.analyser.terms(request.query))
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
        scores = _fused(legs, request)
        if request.hops > 1 and scores:
            parts = self._second_hop(snapshot, request, terms, vector).expand(
                scores, legs, lambda found: _fused(found, request, scores)
            )
            scores = {chunk_id: sum(part.values()) for chunk_id, part in parts.items()}
            for name in ("link", "shared", "cover"):
                legs[name] = {i: part[name] for i, part in parts.items() if name in part}
        return _hits(snapshot, _ranked(scores)[: request.top_k], legs)

    def _second_hop(
        self,
        snapshot: Snapshot,
        request: Request,
        terms: Sequence[str],
        vector: Vectors | None,
    ) -> SecondHop:
        shares = {"hybrid": 1 - request.dense_weight, "lexical": 1.0, "dense": 0.0}
        question = Question(request.query, terms, vector, shares[request.mode])
        links = Links(snapshot, self.analyser, request.globs)
        return SecondHop(snapshot, links, question, self.expansion, request.globs)


def _fused(
    legs: Mapping[str, Mapping[int, float]],
    request: Request,
    among: Collection[int] | None = None,
) -> Mapping[int, float]:
    """One ranking, on a scale of 0 to 1 wherever more than one leg or hop takes part.

    Args:
        legs: Scores by leg.
        request: How to fuse.
        among: Chunks that set the scale, all where None.
    """
    if len(legs) == 1 and request.hops == 1:
        (fused,) = legs.values()
        return fused
    weights = {"lexical": 1 - request.dense_weight, "dense": request.dense_weight}
    if request.fusion == "convex":
        return convex(legs, weights, among)
    fused = reciprocal_rank(legs, weights)
    best = max(fused.values(), default=1.0) or 1.0
    return {item: score / best for item, score in fused.items()}


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
