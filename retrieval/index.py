"""The face of this package: an index of local documents that is synced and searched."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from agentloop.errors import RetrievalError
from agentloop.retrieval import schema
from agentloop.retrieval.analyser import Analyser
from agentloop.retrieval.chunker import Chunker, approximate_tokens
from agentloop.retrieval.consistency import FsckReport, examine
from agentloop.retrieval.dense import DenseLeg
from agentloop.retrieval.embedder import Embedder, SentenceEmbedder
from agentloop.retrieval.loaders import Limits
from agentloop.retrieval.parser import Parser
from agentloop.retrieval.preparation import DEFAULT_CHUNK_TOKENS, ChunkSettings, Preparer
from agentloop.retrieval.search import (
    DEFAULT_DENSE_WEIGHT,
    Fusion,
    Hit,
    Mode,
    Request,
    Searcher,
)
from agentloop.retrieval.snapshot import DocumentInfo
from agentloop.retrieval.store import FILE_NAME, Store
from agentloop.retrieval.sync import OnProgress, Sync, SyncReport

NO_EMBEDDER = "none"  # recorded in place of a fingerprint by an index for lexical search alone


@dataclass(frozen=True, slots=True)
class IndexStats:
    """Sizes of an index.

    Attributes:
        num_documents: Files known, searchable or not.
        num_chunks: Searchable passages.
        num_embedded: Passages with a vector.
        num_chars: Characters of stored text.
        num_bytes: Size on disk, caches included.
        generation: Counter of the content, higher after every change.
        embedder: Fingerprint of the embedder, "none" without one.
    """

    num_documents: int
    num_chunks: int
    num_embedded: int
    num_chars: int
    num_bytes: int
    generation: int
    embedder: str


class Index:
    """Local documents, searchable; open one with `Index.open`. May be shared by threads.

    Attributes:
        path: The index's folder.
        embedder: Embeds passages and questions, None without a dense leg.
    """

    def __init__(
        self, store: Store, embedder: Embedder | None, settings: ChunkSettings, analyser: Analyser
    ) -> None:
        self.path = store.folder
        self.embedder = embedder
        self._store = store
        self._settings = settings
        self._analyser = analyser
        dense = None if embedder is None else DenseLeg(store.folder, embedder.fingerprint)
        self._dense = dense
        self._searcher = Searcher(analyser, embedder, dense)

    @classmethod
    def open(
        cls,
        path: str | Path,
        embedder: Embedder | str | Path | None = "auto",
        *,
        create: bool = True,
        chunk_tokens: int | None = None,
        overlap_tokens: int | None = None,
        language: str | None = None,
    ) -> Self:
        """Open an index folder, or make a new one.

        Args:
            path: A folder that holds the index and nothing else.
            embedder: "auto" takes the one that the index was made with, all-MiniLM-L6-v2 for a new
                index; a folder of a sentence-transformers model; any `Embedder`; or None for
                lexical search alone.
            create: Whether a missing index may be made.
            chunk_tokens: Limit of a chunk, chosen when the index is made; 200 by default.
            overlap_tokens: Repeated between chunks, chosen when the index is made; 0 by default.
            language: Snowball language of words in Latin script, chosen when the index is made;
                "english" by default.

        Raises:
            RetrievalError: There is no index and `create` is false, the folder holds other files,
                or the index was made with another embedder or other settings.
            IndexCorruptError: The index file is damaged, foreign, or of another version.
        """
        folder = Path(path)
        embedder = _embedder(folder, embedder)
        meta = {
            "embedder": NO_EMBEDDER if embedder is None else embedder.fingerprint,
            "chunk_tokens": str(DEFAULT_CHUNK_TOKENS if chunk_tokens is None else chunk_tokens),
            "overlap_tokens": str(overlap_tokens or 0),
            "language": language or "english",
        }
        Chunker(approximate_tokens, int(meta["chunk_tokens"]), int(meta["overlap_tokens"]))
        meta["analyser"] = Analyser(meta["language"]).fingerprint
        store = Store.open(folder, create=create, meta=meta)
        with store.snapshot() as snapshot:
            recorded = {name: snapshot.meta(name) for name in meta}
        _check_embedder(folder, recorded["embedder"], embedder)
        _check_settings(
            folder,
            recorded,
            {"chunk_tokens": chunk_tokens, "overlap_tokens": overlap_tokens, "language": language},
        )
        settings = ChunkSettings(int(recorded["chunk_tokens"]), int(recorded["overlap_tokens"]))
        return cls(store, embedder, settings, Analyser(recorded["language"]))

    @staticmethod
    def exists(path: str | Path) -> bool:
        """Whether a folder holds an index (it may still be damaged)."""
        return not schema.is_blank(Path(path) / FILE_NAME)

    def close(self) -> None:
        """Give back what is open; a search in another thread still ends."""
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def sync(
        self,
        folder: str | Path,
        on_progress: OnProgress | None = None,
        *,
        source: str = "",
        allow_empty: bool = False,
        limits: Limits | None = None,
        wait_s: float = 0.0,
    ) -> SyncReport:
        """Make the index equal to a folder: add, change and remove documents.

        Every document is committed by itself: a sync that is stopped, however rudely, keeps what it
        has done, and the next one does the rest. Searches go on meanwhile.

        Args:
            folder: The documents; everything below it is read, names that begin with a dot are not.
            on_progress: Called with (files done, files in all, path) after each file.
            source: A name for the folder where one index holds several; it leads their paths.
            allow_empty: Whether a folder without files may empty the index.
            limits: What one file may cost.
            wait_s: How long to wait for another writer, in seconds.

        Raises:
            DocumentError: The folder is missing or empty, or the index holds another one.
            RetrievalError: Another process is writing, or the index has embeddings and was opened
                without its embedder.
        """
        if source and (source.startswith(".") or "/" in source or source != source.strip()):
            raise ValueError(f"source must be a plain name without '/', got {source!r}")
        with self._store.snapshot() as snapshot:
            recorded = snapshot.meta("embedder")
        if recorded != NO_EMBEDDER and self.embedder is None:
            raise RetrievalError(
                f"the index {self.path} has embeddings but was opened with embedder=None, which "
                "can search it but not write it: open it with embedder='auto' or its own embedder"
            )
        with self._store.writer(wait_s) as writer, Parser(limits or Limits()) as parser:
            run = Sync(writer, self._preparer, parser, Path(folder), source, on_progress)
            with writer.unhurried():
                report = run.run(allow_empty=allow_empty)
            if self._dense is not None:
                with self._store.snapshot() as snapshot:
                    self._dense.refresh(snapshot, writer)
        return report

    def _preparer(self) -> Preparer:
        return Preparer(self._analyser, self.embedder, self._settings)

    def search(
        self,
        query: str,
        top_k: int = 5,
        mode: Mode | None = None,
        *,
        paths: str | Sequence[str] = (),
        fusion: Fusion = "convex",
        dense_weight: float = DEFAULT_DENSE_WEIGHT,
        hops: int = 1,
    ) -> list[Hit]:
        """The passages that fit a question best.

        Args:
            query: A question or key words.
            top_k: Most hits to return; fewer only where fewer passages fit at all.
            mode: "hybrid" (default), "lexical" or "dense"; an index without embeddings is always
                searched lexically by default.
            paths: Only documents whose path matches a pattern, or one of several: `*` stands for
                anything, `/` included, `?` for one character, `[ab]` for one of those.
            fusion: How the legs of a hybrid search become one ranking: "convex" or "rrf".
            dense_weight: Share of the dense leg in fusion, 0 to 1.
            hops: 2 also follows names from the best passages to those that answer what they leave
                open, for questions that no single passage answers; worse for those that one does.

        Raises:
            RetrievalError: A dense search of an index without embeddings, or a closed index.
        """
        if mode is None:
            mode = "lexical" if self.embedder is None else "hybrid"
        elif mode != "lexical" and self.embedder is None:
            raise RetrievalError(
                f"mode={mode!r} needs embeddings, and the index {self.path} was opened without an "
                "embedder: search with mode='lexical'"
            )
        globs = (paths,) if isinstance(paths, str) else tuple(paths)
        request = Request(query, top_k, mode, fusion, dense_weight, globs, hops)
        vector = self._searcher.embed(request)
        while True:
            with self._store.snapshot() as snapshot:
                hits = self._searcher.search(snapshot, request, vector)
            if hits is not None:
                return hits

    async def asearch(
        self,
        query: str,
        top_k: int = 5,
        mode: Mode | None = None,
        *,
        paths: str | Sequence[str] = (),
        fusion: Fusion = "convex",
        dense_weight: float = DEFAULT_DENSE_WEIGHT,
        hops: int = 1,
    ) -> list[Hit]:
        """`search` in a thread, for use from the event loop."""
        return await asyncio.to_thread(
            self.search,
            query,
            top_k,
            mode,
            paths=paths,
            fusion=fusion,
            dense_weight=dense_weight,
            hops=hops,
        )

    def text(self, document_id: str, start: int = 0, end: int | None = None) -> str:
        """The stored text of a document, or the slice `[start:end]` of it, in characters.

        Raises:
            RetrievalError: No document has this id, or the slice is not within its text.
        """
        with self._store.snapshot() as snapshot:
            return snapshot.text(document_id, start, end)

    def documents(self, paths: str | Sequence[str] = ()) -> list[DocumentInfo]:
        """Every file the index knows, searchable or not, by path; `paths` as in `search`."""
        globs = (paths,) if isinstance(paths, str) else tuple(paths)
        with self._store.snapshot() as snapshot:
            return snapshot.documents(globs)

    def stats(self) -> IndexStats:
        """Sizes of the index."""
        with self._store.snapshot() as snapshot:
            documents = snapshot.documents()
            return IndexStats(
                num_documents=len(documents),
                num_chunks=snapshot.count("chunks"),
                num_embedded=snapshot.count("embeddings"),
                num_chars=sum(document.num_chars for document in documents),
                num_bytes=sum(f.stat().st_size for f in self.path.iterdir() if f.is_file()),
                generation=snapshot.generation,
                embedder=snapshot.meta("embedder"),
            )

    def compact(self, wait_s: float = 0.0) -> None:
        """Give the space of removed documents back; needs as much again while it runs.

        Args:
            wait_s: How long to wait for another writer, in seconds.

        Raises:
            RetrievalError: Another process is writing.
        """
        with self._store.writer(wait_s) as writer:
            writer.compact()

    def fsck(self) -> FsckReport:
        """Examine every row of the index against every other; changes nothing."""
        return examine(self._store)


def _embedder(folder: Path, given: Embedder | str | Path | None) -> Embedder | None:
    """The embedder that `Index.open` was given or that "auto" stands for."""
    if given is None or isinstance(given, Embedder):
        return given
    if given != "auto":
        return SentenceEmbedder(given)
    if not schema.is_blank(folder / FILE_NAME):
        store = Store.open(folder, create=False, meta={})
        try:
            with store.snapshot() as snapshot:
                if snapshot.meta("embedder") == NO_EMBEDDER:
                    return None
        finally:
            store.close()
    return SentenceEmbedder.default()


def _check_settings(
    folder: Path, recorded: Mapping[str, str], given: Mapping[str, int | str | None]
) -> None:
    for name, value in given.items():
        if value is not None and str(value) != recorded[name]:
            raise RetrievalError(
                f"the index {folder} was made with {name}={recorded[name]}, not {value}: leave "
                f"{name} out, or make another index"
            )


def _check_embedder(folder: Path, recorded: str, embedder: Embedder | None) -> None:
    if embedder is None or embedder.fingerprint == recorded:
        return
    if recorded == NO_EMBEDDER:
        raise RetrievalError(
            f"the index {folder} was made without embeddings: open it with embedder=None, or sync "
            "into a new index with this embedder"
        )
    raise RetrievalError(
        f"the index {folder} was made with another embedder ({recorded}, given "
        f"{embedder.fingerprint}): their vectors cannot be compared, whatever their width. Open it "
        "with the embedder it was made with, or sync into a new index"
    )
