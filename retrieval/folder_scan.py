"""The files of a folder, as they are on disk: what a sync compares with the index."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from agentloop.errors import DocumentError
from agentloop.retrieval.loaders import loader_for
from agentloop.retrieval.store import FileState


@dataclass(slots=True)
class FolderScan:
    """What was seen.

    Attributes:
        files: Files with a loader, by path.
        unsupported: Paths of the other files.
        failed: Path and reason of files that could not be looked at.
        unread: Folders that could not be listed, with a `/` at the end: what the index holds
            below them is left alone.
    """

    files: list[FileState] = field(default_factory=list[FileState])
    unsupported: list[str] = field(default_factory=list[str])
    failed: dict[str, str] = field(default_factory=dict[str, str])
    unread: list[str] = field(default_factory=list[str])

    @property
    def num_seen(self) -> int:
        """Files of every kind."""
        return len(self.files) + len(self.unsupported) + len(self.failed)


def scan(root: Path, prefix: str = "") -> FolderScan:
    """List a folder and everything below it, sorted by path.

    Names that begin with a dot are not seen, nor are links to folders and index folders.

    Args:
        root: The folder.
        prefix: Put before every path: the source's name and `/`.

    Raises:
        DocumentError: `root` is missing or no folder.
    """
    if not root.is_dir():
        what = "is not a folder" if root.exists() else "does not exist"
        raise DocumentError(f"{root} {what}; nothing was changed. Give the folder of the documents")
    found = FolderScan()
    for path, entry in _walk(root, prefix, found):
        _look(path, entry, found)
    return found


def _walk(root: Path, prefix: str, found: FolderScan) -> Iterator[tuple[str, os.DirEntry[str]]]:
    waiting: list[tuple[str, str]] = [(prefix, str(root))]
    while waiting:
        path, folder = waiting.pop()
        try:
            with os.scandir(folder) as listing:
                entries = sorted(listing, key=lambda entry: entry.name)
        except OSError as error:
            if not path or path == prefix:
                raise DocumentError(
                    f"{folder} cannot be read ({error}); nothing was changed"
                ) from error
            found.unread.append(path)
            found.failed[path] = f"the folder cannot be listed: {error.strerror}"
            continue
        if any(entry.name == "index.sqlite" for entry in entries):
            continue  # an index kept among the documents is not one of them
        below: list[tuple[str, str]] = []
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if entry.is_dir(follow_symlinks=False):
                below.append((f"{path}{entry.name}/", entry.path))
            elif not entry.is_dir():
                yield f"{path}{entry.name}", entry
        waiting.extend(reversed(below))


def _look(path: str, entry: os.DirEntry[str], found: FolderScan) -> None:
    try:
        path.encode()
    except UnicodeEncodeError:
        shown = path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        found.failed[shown] = "the file's name is not valid UTF-8: rename it"
        return
    try:
        status = entry.stat()
    except OSError as error:
        found.failed[path] = f"the file cannot be looked at: {error.strerror}"
        return
    if not entry.is_file() or loader_for(Path(path)) is None:
        found.unsupported.append(path)
        return
    found.files.append(FileState(path, status.st_size, status.st_mtime_ns))
