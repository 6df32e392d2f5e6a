"""Citations: exact places in the stored text of an index, in characters and in bytes."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from agentloop.errors import RetrievalError
from agentloop.passages import Sentence
from agentloop.retrieval import Index


@dataclass(frozen=True, slots=True)
class Citation:
    """A stretch of a document; `index.text(document_id)[start:end] == quote`.

    Attributes:
        path: Document, relative to the synced folder.
        document_id: Its id in the index.
        start: First character in the document's stored text.
        end: One past the last character.
        start_byte: First byte of the stored text as UTF-8.
        end_byte: One past the last byte.
        quote: The characters there, exactly.
        page: 1-based page on which the passage around it begins, None in formats without pages.
        headings: Titles of the sections it lies in, outermost first.
    """

    path: str
    document_id: str
    start: int
    end: int
    start_byte: int
    end_byte: int
    quote: str
    page: int | None
    headings: tuple[str, ...]

    @property
    def heading(self) -> str:
        """Title of the innermost section, "" outside any."""
        return self.headings[-1] if self.headings else ""

    @property
    def place(self) -> str:
        """`file:start-end`, in characters."""
        return f"{self.path}:{self.start}-{self.end}"

    def to_json(self) -> dict[str, Any]:
        """A form that `json.dumps` takes."""
        return {**asdict(self), "headings": list(self.headings)}


def cite(index: Index, sentence: Sentence, start: int = 0, end: int | None = None) -> Citation:
    """The citation of a shown sentence, or of the characters `[start:end]` of it.

    Raises:
        RetrievalError: The document has changed since the search.
    """
    hit = sentence.hit
    first, last = sentence.stored(start, len(sentence.text) if end is None else end)
    before = index.text(hit.document_id, 0, last)
    quote = before[first:]
    if quote != hit.text[first - hit.start : last - hit.start]:
        raise RetrievalError(
            f"{hit.path} was changed by a sync while the question was answered; ask again"
        )
    start_byte = len(before[:first].encode())
    return Citation(
        path=hit.path,
        document_id=hit.document_id,
        start=first,
        end=last,
        start_byte=start_byte,
        end_byte=start_byte + len(quote.encode()),
        quote=quote,
        page=hit.page,
        headings=hit.headings,
    )
