"""An embedder without a model: words hashed into a vector. For tests, and where none may load."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np

from agentloop.retrieval.analyser import Analyser
from agentloop.retrieval.chunker import approximate_tokens
from agentloop.retrieval.embedder import Vectors, unit_rows


class HashingEmbedder:
    """Texts that share words have a cosine above 0; nothing is learned, and nothing is random.

    Attributes:
        dimension: Width D of a vector.
        max_tokens: Longest text that is embedded in one piece.
    """

    def __init__(self, dimension: int = 256, max_tokens: int = 254, salt: str = "") -> None:
        self.dimension = dimension
        self.max_tokens = max_tokens
        self._salt = salt
        self._analyser = Analyser()

    @property
    def fingerprint(self) -> str:
        """Names everything that decides a vector."""
        return f"hashing {self.dimension} {self._salt!r} {self._analyser.fingerprint}"

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Approximate tokens of each text."""
        return approximate_tokens(texts)

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        """(N, D) float32, rows of unit length; a text without words is all zeros."""
        rows = np.zeros((len(texts), self.dimension), dtype=np.float32)
        for row, text in zip(rows, texts, strict=True):
            for term in self._analyser.terms(text):
                row[zlib.crc32(f"{self._salt}{term}".encode()) % self.dimension] += 1.0
        return unit_rows(rows)

    def embed_query(self, text: str) -> Vectors:
        """(D,) float32 of unit length."""
        return self.embed_passages([text]).reshape(-1)
