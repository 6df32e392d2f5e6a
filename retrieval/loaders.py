"""Which loader reads which file, and one file read in full. Starts no process, knows no index."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path, PurePath

from agentloop.retrieval.document import FileStatus, ParsedDocument

DEFAULT_MAX_FILE_BYTES = 64 << 20
Loader = Callable[[bytes, Callable[[], bool]], ParsedDocument]


def _plain_text(data: bytes, out_of_time: Callable[[], bool]) -> ParsedDocument:
    from agentloop.retrieval.plain_text import load_plain_text

    return load_plain_text(data)


def _markdown(data: bytes, out_of_time: Callable[[], bool]) -> ParsedDocument:
    from agentloop.retrieval.markdown import load_markdown

    return load_markdown(data)


def _web_page(data: bytes, out_of_time: Callable[[], bool]) -> ParsedDocument:
    from agentloop.retrieval.web_page import load_web_page

    return load_web_page(data)


def _pdf(data: bytes, out_of_time: Callable[[], bool]) -> ParsedDocument:
    from agentloop.retrieval.pdf import load_pdf

    return load_pdf(data, out_of_time)


LOADERS: dict[str, Loader] = {
    ".txt": _plain_text,
    ".text": _plain_text,
    ".rst": _plain_text,
    ".log": _plain_text,
    "": _plain_text,  # README, LICENSE, copyright: where the bytes are text
    ".md": _markdown,
    ".markdown": _markdown,
    ".html": _web_page,
    ".htm": _web_page,
    ".xhtml": _web_page,
    ".pdf": _pdf,
}
_TEXT_BYTES = frozenset({7, 8, 9, 10, 12, 13, 27, *range(32, 256)})


@dataclass(frozen=True, slots=True)
class Limits:
    """What one file may cost.

    Attributes:
        max_file_bytes: A larger file is not read.
        timeout_s: Wall-clock seconds; a PDF keeps the pages read in the first half of it.
        max_memory_bytes: Address space of the process that parses, where the system can limit it.
    """

    max_file_bytes: int = DEFAULT_MAX_FILE_BYTES
    timeout_s: float = 60.0
    max_memory_bytes: int = 2 << 30


def loader_for(path: PurePath) -> Loader | None:
    """The loader for a file name, by its suffix; None where there is none."""
    return LOADERS.get(path.suffix.casefold())


def load(path: Path, limits: Limits) -> ParsedDocument:
    """Read and parse one file; whatever goes wrong becomes its status.

    Args:
        path: The file.
        limits: Size and time are held here, memory by the process around.
    """
    loader = loader_for(path)
    if loader is None:
        return ParsedDocument("unsupported", f"no loader for {path.suffix!r} files")
    size = path.stat().st_size
    if size > limits.max_file_bytes:
        return ParsedDocument(
            "failed",
            f"the file has {size:,} bytes, the limit is {limits.max_file_bytes:,}: "
            "raise max_file_bytes to read it",
        )
    data = path.read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    if not path.suffix and not _looks_like_text(data):
        return ParsedDocument(
            "unsupported", "no suffix, and the content is not text", sha256=digest
        )
    deadline = time.monotonic() + limits.timeout_s / 2
    document = loader(data, lambda: time.monotonic() > deadline)
    return replace(document, status=_status(document), sha256=digest, reason=_reason(document))


def _looks_like_text(data: bytes) -> bool:
    return all(byte in _TEXT_BYTES for byte in data[:4096])


def _status(document: ParsedDocument) -> FileStatus:
    return "no_text" if document.status == "indexed" and not document.blocks else document.status


def _reason(document: ParsedDocument) -> str:
    if document.status == "indexed" and not document.blocks:
        return "the file is empty or holds only white space and markup"
    return document.reason
