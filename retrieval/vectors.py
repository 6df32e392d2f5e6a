"""A faiss index over the embeddings of one generation: a cache, never the truth.

The file is a line of JSON (what it belongs to, and a checksum) and faiss's own bytes. Whatever does
not fit the index in every field is ignored and made again from SQLite.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from agentloop.retrieval.snapshot import Scored

if TYPE_CHECKING:
    import faiss

FILE_NAME = "vectors.faiss"
_FORMAT = 1
_MAX_HEADER_LENGTH = 4096


@dataclass(frozen=True, slots=True)
class VectorStamp:
    """What a vector file belongs to.

    Attributes:
        index: Id of the index.
        embedder: Fingerprint of the embedder.
        token: Drawn anew at each writing and noted in the index: an index restored from an older
            copy does not accept a newer file, nor the other way round.
    """

    index: str
    embedder: str
    token: str


class VectorIndex:
    """Exact nearest neighbours by cosine; never changes, so threads may share it.

    Attributes:
        generation: Of the index when the vectors were read.
        max_id: Highest chunk id that had been given out by then: later chunks are above it.
    """

    def __init__(self, index: faiss.Index, generation: int, max_id: int) -> None:
        self._index = index
        self.generation = generation
        self.max_id = max_id

    @classmethod
    def build(cls, ids: NDArray[np.int64], matrix: NDArray[np.float32], generation: int) -> Self:
        """Index a matrix.

        Args:
            ids: (N,) int64 chunk ids, ascending.
            matrix: (N, D) float32, rows of unit length.
            generation: Of the snapshot they were read from.
        """
        import faiss

        index = faiss.IndexIDMap(faiss.IndexFlatIP(max(matrix.shape[1], 1)))
        if len(ids):
            index.add_with_ids(np.ascontiguousarray(matrix), ids)
        return cls(index, generation, int(ids[-1]) if len(ids) else 0)

    def __len__(self) -> int:
        return int(self._index.ntotal)

    def search(
        self, query: NDArray[np.float32], k: int, allowed: NDArray[np.int64] | None = None
    ) -> Scored:
        """The k chunks with the highest cosine, best first.

        Args:
            query: (D,) float32 of unit length.
            k: Most chunks to return.
            allowed: Only these chunk ids, None for all.
        """
        import faiss

        k = min(k, len(self))
        if k < 1:
            return []
        parameters = None
        if allowed is not None:
            parameters = faiss.SearchParameters()
            parameters.sel = faiss.IDSelectorBatch(allowed)
        scores, ids = self._index.search(query[None, :], k, params=parameters)
        return [(int(i), float(s)) for i, s in zip(ids[0], scores[0], strict=True) if i >= 0]

    def save(self, path: Path, stamp: VectorStamp) -> None:
        """Write the file, replacing it in one step: a reader finds the old one or the new one."""
        import faiss

        payload = faiss.serialize_index(self._index).tobytes()
        header = {
            "format": _FORMAT,
            **asdict(stamp),
            "generation": self.generation,
            "max_id": self.max_id,
            "sha256": hashlib.sha256(payload).hexdigest(),
        }
        temporary = path.with_suffix(f".{os.getpid()}.tmp")
        try:
            with temporary.open("wb") as file:
                file.write(json.dumps(header).encode() + b"\n")
                file.write(payload)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: Path, stamp: VectorStamp, generation: int) -> Self | None:
        """Read the file; None where it is missing, damaged, or another's.

        Args:
            path: The file.
            stamp: What it must belong to.
            generation: Of the index now; a file from its future is refused.
        """
        try:
            with path.open("rb") as file:
                header: dict[str, Any] = dict(json.loads(file.readline(_MAX_HEADER_LENGTH)))
                payload = file.read()
        except (OSError, ValueError, TypeError):
            return None
        expected = {
            "format": _FORMAT,
            **asdict(stamp),
            "sha256": hashlib.sha256(payload).hexdigest(),
        }
        if any(header.get(name) != value for name, value in expected.items()):
            return None
        if header["generation"] > generation:
            return None
        import faiss

        index = faiss.deserialize_index(np.frombuffer(payload, dtype=np.uint8))
        return cls(index, header["generation"], header["max_id"])
