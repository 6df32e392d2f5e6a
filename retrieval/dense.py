"""The dense leg: nearest chunks by cosine in exactly the caller's snapshot.

A faiss index of some earlier generation answers for what it holds; chunks that were removed since
are dropped, and those that came since are compared one by one. Chunk ids only grow, so "since" is
"above the highest id".
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from agentloop.retrieval.snapshot import Scored, Snapshot
from agentloop.retrieval.store import Writer
from agentloop.retrieval.vectors import FILE_NAME, VectorIndex, VectorStamp

_TAIL_LENGTH = 2048  # chunks compared one by one before the index is built anew ...
_TAIL_SHARE = 0.05  # ... or this share of the index, whichever is more

_Tail = tuple[NDArray[np.int64], NDArray[np.float32]]


class DenseLeg:
    """Searches the embeddings of one index; may be shared by threads."""

    def __init__(self, folder: Path, embedder: str) -> None:
        self._path = folder / FILE_NAME
        self._embedder = embedder
        self._lock = threading.Lock()
        self._base: VectorIndex | None = None
        self._tail: tuple[int, int, _Tail] | None = None  # generation, max_id of the base, rows

    def search(
        self,
        snapshot: Snapshot,
        query: NDArray[np.float32],
        limit: int,
        globs: Sequence[str] = (),
    ) -> Scored | None:
        """The chunks with the highest cosine above 0, best first.

        Args:
            snapshot: What to search.
            query: (D,) float32 of unit length.
            limit: Most chunks to return; fewer only where fewer exist.
            globs: Only documents whose path matches one of them.

        Returns:
            None where the snapshot is older than the index in memory: take a new one.
        """
        with self._lock:
            base = self._base_for(snapshot)
            if base.generation > snapshot.generation:
                return None
            ids, matrix = self._tail_for(snapshot, base)
        allowed = snapshot.chunk_ids(globs) if globs else None
        found = _live(snapshot, base, query, limit, allowed)
        if len(ids):
            scores = matrix @ query  # (N,)
            if allowed is not None:
                keep = np.isin(ids, allowed)
                ids, scores = ids[keep], scores[keep]
            found += list(zip(ids.tolist(), scores.tolist(), strict=True))
        found = [(chunk_id, score) for chunk_id, score in found if score > 0]
        return sorted(found, key=lambda item: (-item[1], item[0]))[:limit]

    def scores(
        self, snapshot: Snapshot, query: NDArray[np.float32], chunk_ids: Sequence[int]
    ) -> dict[int, float]:
        """Cosine of given chunks, read from the snapshot itself."""
        rows = snapshot.vectors_of(chunk_ids)
        return {chunk_id: float(vector @ query) for chunk_id, vector in rows.items()}

    def refresh(self, snapshot: Snapshot, writer: Writer) -> bool:
        """After a sync: build and save the file where the old one answers for too little.

        Returns:
            Whether a file was written.
        """
        with self._lock:
            base = self._base or self._load(snapshot)
            if base is not None:
                ids, _ = self._read_tail(snapshot, base)
                dead = len(base) + len(ids) - snapshot.count("embeddings")
                if len(ids) + dead <= _TAIL_SHARE * len(base):
                    return False
            base = self._build(snapshot)
            token = secrets.token_hex(8)
            base.save(self._path, self._stamp(snapshot, token))
            writer.set_meta(vectors_token=token)
            self._base, self._tail = base, None
            return True

    def _stamp(self, snapshot: Snapshot, token: str) -> VectorStamp:
        return VectorStamp(snapshot.meta("id"), self._embedder, token)

    def _load(self, snapshot: Snapshot) -> VectorIndex | None:
        stamp = self._stamp(snapshot, snapshot.meta("vectors_token"))
        return VectorIndex.load(self._path, stamp, snapshot.generation)

    def _build(self, snapshot: Snapshot) -> VectorIndex:
        return VectorIndex.build(*snapshot.vectors(), snapshot.generation)

    def _base_for(self, snapshot: Snapshot) -> VectorIndex:
        if self._base is None:
            self._base = self._load(snapshot) or self._build(snapshot)
        return self._base

    def _tail_for(self, snapshot: Snapshot, base: VectorIndex) -> _Tail:
        key = (snapshot.generation, base.max_id)
        if self._tail is None or self._tail[:2] != key:
            self._tail = (*key, self._read_tail(snapshot, base))
        if len(self._tail[2][0]) > max(_TAIL_LENGTH, _TAIL_SHARE * len(base)):
            self._base = self._build(snapshot)
            # This search still uses the older base with its tail: both fit the snapshot.
        return self._tail[2]

    def _read_tail(self, snapshot: Snapshot, base: VectorIndex) -> _Tail:
        return snapshot.vectors(after=base.max_id)


def _live(
    snapshot: Snapshot,
    base: VectorIndex,
    query: NDArray[np.float32],
    limit: int,
    allowed: NDArray[np.int64] | None,
) -> Scored:
    """Best chunks of the base that the snapshot still has: `limit` of them if as many exist."""
    depth = limit
    while True:
        found = base.search(query, depth, allowed)
        alive = snapshot.live([chunk_id for chunk_id, _ in found])
        live = [item for item in found if item[0] in alive]
        if len(live) >= limit or len(found) < depth:
            return live[:limit]
        depth *= 4
