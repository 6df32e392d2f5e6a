"""From a parsed document to chunks with terms and vectors."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from agentloop.retrieval.analyser import Analyser
from agentloop.retrieval.chunker import Chunk, Chunker, approximate_tokens
from agentloop.retrieval.document import SEARCHABLE, ParsedDocument
from agentloop.retrieval.embedder import Embedder
from agentloop.retrieval.links import keys_of
from agentloop.retrieval.store import FileState, PreparedChunk

DEFAULT_CHUNK_TOKENS = 200
MAX_CONTEXT_TOKENS = 48  # of title and headings put before a chunk when it is embedded
_WORD_BREAK = re.compile(r"[_\-\s.]+")


@dataclass(frozen=True, slots=True)
class ChunkSettings:
    """How documents of an index are cut.

    Attributes:
        max_tokens: Limit of a chunk; also bounded by what the embedder reads.
        overlap_tokens: Repeated at the head of the next chunk, in whole sentences.
    """

    max_tokens: int = DEFAULT_CHUNK_TOKENS
    overlap_tokens: int = 0


@dataclass(slots=True)
class Preparation:
    """One document on its way into the index.

    Attributes:
        state: Its file.
        document: Text and blocks.
        title: Shown with hits, never empty.
        names: Keys that other documents may call it by, as `links.keys_of` forms them.
        chunks: Without vectors until `embed`.
        passages: What is embedded for each chunk.
    """

    state: FileState
    document: ParsedDocument
    title: str
    names: list[str]
    chunks: list[PreparedChunk]
    passages: list[str]


class Preparer:
    """Chunks, analyses and embeds documents of one index."""

    def __init__(
        self, analyser: Analyser, embedder: Embedder | None, settings: ChunkSettings
    ) -> None:
        self._analyser = analyser
        self._embedder = embedder
        limit = settings.max_tokens
        self._count = approximate_tokens
        if embedder is not None:
            limit = min(limit, max(embedder.max_tokens - MAX_CONTEXT_TOKENS, 1))
            self._count = embedder.count_tokens
        self._chunker = Chunker(self._count, limit, min(settings.overlap_tokens, limit - 1))

    def prepare(self, state: FileState, document: ParsedDocument) -> Preparation:
        """Cut and analyse a document; one that is not searchable has no chunks."""
        title = document.title or name_in_words(state.path)
        if document.status not in SEARCHABLE:
            return Preparation(state, document, title, [], [], [])
        chunks = self._chunker.chunks(document.text, document.blocks)
        texts = [document.text[chunk.start : chunk.end] for chunk in chunks]
        contexts = [context_of(title, c, text) for c, text in zip(chunks, texts, strict=True)]
        prepared = [
            PreparedChunk(chunk, self._terms(context), self._terms(text), None)
            for chunk, context, text in zip(chunks, contexts, texts, strict=True)
        ]
        passages: list[str] = []
        if self._embedder is not None:
            clipped = {context: self._clipped(context) for context in dict.fromkeys(contexts)}
            passages = [f"{clipped[c]}\n{t}".lstrip() for c, t in zip(contexts, texts, strict=True)]
        names = keys_of(document.title, _beginning(document), self._analyser)
        return Preparation(state, document, title, names, prepared, passages)

    def embed(self, batch: Sequence[Preparation]) -> None:
        """Fill in the vectors of several documents at once."""
        if self._embedder is None:
            return
        passages = [passage for item in batch for passage in item.passages]
        if not passages:
            return
        vectors = iter(self._embedder.embed_passages(passages))
        for item in batch:
            item.chunks = [replace(chunk, vector=next(vectors)) for chunk in item.chunks]

    def _terms(self, text: str) -> str:
        return " ".join(self._analyser.terms(text))

    def _clipped(self, context: str) -> str:
        """The first words of a context, as many as have their place beside a full chunk."""
        if self._count([context])[0] <= MAX_CONTEXT_TOKENS:
            return context
        words = context.split()
        total, kept = 0, 0
        for count in self._count(words):
            total += count
            if total > MAX_CONTEXT_TOKENS:
                break
            kept += 1
        return " ".join(words[:kept])


def _beginning(document: ParsedDocument) -> str:
    """The text of a document from its first block that is neither heading nor metadata."""
    kinds = ("heading", "metadata")
    first = next((block for block in document.blocks if block.kind not in kinds), None)
    return "" if first is None else document.text[first.start : first.end]


def name_in_words(path: str) -> str:
    """A title for a document that has none: its file name, `_` and `-` read as spaces."""
    stem = PurePosixPath(path).stem
    return _WORD_BREAK.sub(" ", stem).strip() or stem


def context_of(title: str, chunk: Chunk, text: str) -> str:
    """Title and headings that a chunk lies under, without those on a line of its own text.

    Names without a letter, like a file called 0042, say nothing and are left out.
    """
    own = {line.strip("#=- \t") for line in text.split("\n")}
    names = [name for name in dict.fromkeys([title, *chunk.headings]) if name not in own]
    return ". ".join(name for name in names if any(letter.isalpha() for letter in name))
