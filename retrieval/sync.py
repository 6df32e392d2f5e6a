"""Makes an index equal to a folder: what came, changed or went is brought up to date, file by file.

Each document is committed by itself, so a sync that is killed has lost at most the documents in
hand, and the next one goes on from there. Embedding runs over the documents of a batch together.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

from agentloop.errors import DocumentError
from agentloop.retrieval.document import SEARCHABLE, STATUSES, FileStatus, ParsedDocument
from agentloop.retrieval.folder_scan import FolderScan, scan
from agentloop.retrieval.parser import Parser, parse_ahead
from agentloop.retrieval.preparation import Preparation, Preparer
from agentloop.retrieval.store import FileState, Writer

OnProgress = Callable[[int, int, str], None]
_BATCH_CHUNKS = 256  # embedded together
_BATCH_FILES = 256  # committed soon after they were read, however small
_BATCH_CHARS = 4 << 20
_MTIME_GRAIN_NS = 2_000_000_000  # coarsest clock of a file system: FAT's


@dataclass(frozen=True, slots=True)
class FileProblem:
    """A file that is not searchable in full.

    Attributes:
        path: Relative to the synced folder.
        status: "partial", "no_text", "encrypted", "failed" or "unsupported".
        reason: Why.
    """

    path: str
    status: FileStatus
    reason: str


@dataclass(frozen=True, slots=True)
class SyncReport:
    """What a sync did.

    Attributes:
        added: Paths new to the index.
        changed: Paths whose content differs from before.
        removed: Paths that are gone from the folder and now from the index.
        num_unchanged: Files that needed nothing.
        statuses: Number of files of each status; they sum to `num_files`.
        problems: Every file that is not searchable in full, by path.
        num_chunks: Chunks written.
        seconds: Wall-clock time.
    """

    added: tuple[str, ...]
    changed: tuple[str, ...]
    removed: tuple[str, ...]
    num_unchanged: int
    statuses: Mapping[FileStatus, int]
    problems: tuple[FileProblem, ...]
    num_chunks: int
    seconds: float

    @property
    def num_files(self) -> int:
        """Files seen."""
        return sum(self.statuses.values())


@dataclass(slots=True)
class Sync:
    """One run over one folder; the caller holds the writer.

    Attributes:
        writer: Where documents go.
        preparer: Makes the preparer when the first document needs one: it may load a model.
        parser: Reads files.
        root: The folder.
        source: Name of the source, "" for an index of a single folder.
        on_progress: Told (files done, files in all, path).
    """

    writer: Writer
    preparer: Callable[[], Preparer]
    parser: Parser
    root: Path
    source: str
    on_progress: OnProgress | None = None
    added: list[str] = field(default_factory=list[str])
    changed: list[str] = field(default_factory=list[str])
    removed: list[str] = field(default_factory=list[str])
    problems: list[FileProblem] = field(default_factory=list[FileProblem])
    counts: Counter[FileStatus] = field(default_factory=Counter[FileStatus])
    num_untouched: int = 0
    num_chunks: int = 0
    known: dict[str, FileState] = field(default_factory=dict[str, FileState])
    _waiting: list[Preparation] = field(default_factory=list[Preparation])
    _prepare: Preparer | None = None
    _done: int = 0
    _total: int = 0

    @property
    def prefix(self) -> str:
        """What paths of this source begin with."""
        return f"{self.source}/" if self.source else ""

    def run(self, *, allow_empty: bool) -> SyncReport:
        """Bring the index up to date.

        Args:
            allow_empty: Whether a folder without files may empty the index.

        Raises:
            DocumentError: The folder is missing, empty, or not the one this source is of.
        """
        began = time.perf_counter()
        found = scan(self.root, self.prefix)
        self.known = self.writer.file_states(self.source)
        self._check(found, allow_empty)
        self._remove(found)
        self._total = found.num_seen
        for path in found.unsupported:
            self._tell(path, "unsupported", f"no loader for {Path(path).suffix!r} files")
        for path, reason in found.failed.items():
            self._tell(path, "failed", reason)
        self._read([file for file in found.files if not self._is_settled(file)])
        return SyncReport(
            added=tuple(self.added),
            changed=tuple(self.changed),
            removed=tuple(self.removed),
            num_unchanged=self.num_untouched,
            statuses={status: self.counts[status] for status in STATUSES},
            problems=tuple(sorted(self.problems, key=lambda problem: problem.path)),
            num_chunks=self.num_chunks,
            seconds=time.perf_counter() - began,
        )

    def _check(self, found: FolderScan, allow_empty: bool) -> None:
        root, before = str(self.root.resolve()), self.writer.source_root(self.source)
        if before is not None and before != root and Path(before).is_dir():
            raise DocumentError(
                f"this index holds the folder {before}; syncing {root} would replace it. Give "
                "source='a name' to keep both, or make another index"
            )
        if not found.num_seen and not allow_empty:
            raise DocumentError(
                f"{self.root} holds no files; nothing was changed. Give the folder of the "
                "documents, or allow_empty=True to empty the index"
            )
        if before != root:
            self.writer.set_source(self.source, root)

    def _remove(self, found: FolderScan) -> None:
        present = {file.path for file in found.files} | found.failed.keys()
        for path in sorted(self.known.keys() - present):
            if not path.startswith(tuple(found.unread)):
                self.writer.remove(path)
                self.removed.append(path)

    def _read(self, files: Sequence[FileState]) -> None:
        """Parse, prepare and store files that are new or changed."""
        paths = ((file, self._on_disk(file)) for file in files)
        with closing(parse_ahead(self.parser, paths)) as documents:
            for file, read_ns, document in documents:
                state = replace(file, read_ns=read_ns, sha256=document.sha256)
                before = self.known.get(file.path)
                if before is not None and _same_outcome(before, state, document):
                    self._untouched(before)
                    continue
                if self._prepare is None:
                    self._prepare = self.preparer()
                self._waiting.append(self._prepare.prepare(state, document))
                if self._is_batch_full():
                    self._flush()
        self._flush()

    def _on_disk(self, file: FileState) -> Path:
        return self.root / file.path.removeprefix(self.prefix)

    def _is_settled(self, file: FileState) -> bool:
        """Whether nothing is to be done, told by the file system or else by the content."""
        before = self.known.get(file.path)
        if before is None or before.status == "failed":
            return False  # a failed file is tried again: a limit may have been raised
        same = (file.size, file.mtime_ns) == (before.size, before.mtime_ns)
        if not (same and before.mtime_ns + _MTIME_GRAIN_NS < before.read_ns):
            if file.size != before.size:
                return False
            try:
                digest = _sha256(self._on_disk(file))
            except OSError as error:
                reason = f"the file cannot be read now ({error.strerror}); its last version is kept"
                self._tell(file.path, "failed", reason)
                return True
            if digest != before.sha256:
                return False
        self._untouched(before)
        return True

    def _untouched(self, before: FileState) -> None:
        status: FileStatus = before.status  # type: ignore[assignment]
        self.num_untouched += 1
        if status == "partial":
            self.problems.append(FileProblem(before.path, status, before.reason))
        self._tell(before.path, "unchanged" if status in SEARCHABLE else status, before.reason)

    def _is_batch_full(self) -> bool:
        return (
            len(self._waiting) >= _BATCH_FILES
            or sum(len(item.chunks) for item in self._waiting) >= _BATCH_CHUNKS
            or sum(len(item.document.text) for item in self._waiting) >= _BATCH_CHARS
        )

    def _flush(self) -> None:
        """Embed what waits, then commit it document by document."""
        waiting, self._waiting = self._waiting, []
        if self._prepare is not None:
            self._prepare.embed(waiting)
        for item in waiting:
            path, document = item.state.path, item.document
            self.writer.put(self.source, item.state, document, item.title, item.names, item.chunks)
            (self.changed if path in self.known else self.added).append(path)
            self.num_chunks += len(item.chunks)
            self._tell(path, document.status, document.reason)

    def _tell(self, path: str, status: FileStatus, reason: str) -> None:
        """Count a finished file and report it."""
        self.counts[status] += 1
        if status not in ("indexed", "unchanged"):
            self.problems.append(FileProblem(path, status, reason))
        self._done += 1
        if self.on_progress is not None:
            self.on_progress(self._done, self._total, path)


def _same_outcome(before: FileState, state: FileState, document: ParsedDocument) -> bool:
    """Whether reading again gave what the index already says, as with a file that keeps failing."""
    return (before.sha256, before.size, before.status, before.reason) == (
        state.sha256,
        state.size,
        document.status,
        document.reason,
    )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
