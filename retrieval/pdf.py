"""PDF files through pdfium: text page by page in reading order, bookmarks as headings.

A page without text that shows pictures is a scan: a file of only such pages is "no_text", a file
with some of them is "partial". What this does not cover: pictures' text, form fields, annotations.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Protocol, cast

import pypdfium2  # type: ignore[import-untyped]  # ships without stubs: see the protocols below
import pypdfium2.raw as pdfium  # type: ignore[import-untyped]  # likewise

from agentloop.retrieval.document import FileStatus, HeadingPath, ParsedDocument, TextBuilder
from agentloop.retrieval.encoding import clean
from agentloop.retrieval.page_layout import Box, reading_order

_HYPHEN_BREAK = re.compile("[\ufffe\x02]\\s*")  # pdfium's mark of a word split over two lines
_SPACES = re.compile("[ \t\u00a0\u2028\u2029]+")
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f\uffff]")
_SENTENCE_END = re.compile(r"[.!?:。！？][\"'”’)\]]*$")
_SHORT_LINE = 0.8  # of the page's median line: a sentence that ends there ends its paragraph


class _Target(Protocol):
    def get_index(self) -> int | None: ...


class _Mark(Protocol):
    level: int

    def get_title(self) -> str: ...
    def get_dest(self) -> _Target | None: ...


class _TextPage(Protocol):
    def count_rects(self) -> int: ...
    def get_rect(self, index: int) -> tuple[float, float, float, float]: ...
    def get_text_range(self) -> str: ...
    def get_text_bounded(self, left: float, bottom: float, right: float, top: float) -> str: ...
    def close(self) -> None: ...


class _Page(Protocol):
    def get_textpage(self) -> _TextPage: ...
    def get_objects(self, filter: list[int], max_depth: int) -> Iterator[object]: ...
    def close(self) -> None: ...


class _Document(Protocol):
    def __len__(self) -> int: ...
    def __getitem__(self, index: int) -> _Page: ...
    def get_toc(self, max_depth: int) -> Iterator[_Mark]: ...
    def get_metadata_value(self, key: str) -> str: ...
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class _Bookmark:
    page: int  # 1-based
    level: int  # 1-based
    title: str


def load_pdf(data: bytes, out_of_time: Callable[[], bool] = lambda: False) -> ParsedDocument:
    """Parse a PDF file into blocks with pages and heading paths.

    Args:
        data: The whole file.
        out_of_time: Asked before each page; once true, the pages read so far are the result.
    """
    try:
        document = cast(_Document, pypdfium2.PdfDocument(data))
    except pypdfium2.PdfiumError as error:
        if cast(int, pdfium.FPDF_GetLastError()) == pdfium.FPDF_ERR_PASSWORD:  # pyright: ignore[reportUnknownMemberType] - no stubs
            return ParsedDocument("encrypted", "the file needs a password to be read")
        return ParsedDocument("failed", f"not a readable PDF: {error}")
    try:
        return _read(document, out_of_time)
    finally:
        document.close()


def _read(document: _Document, out_of_time: Callable[[], bool]) -> ParsedDocument:
    out, headings = TextBuilder(), HeadingPath()
    bookmarks = _bookmarks(document)
    missing: dict[str, list[int]] = {"no text (a scan?)": [], "damaged": [], "out of time": []}
    for number in range(1, len(document) + 1):
        if out_of_time():
            missing["out of time"].append(number)
            continue
        try:
            text, has_pictures = _page(document, number - 1)
        except pypdfium2.PdfiumError:
            missing["damaged"].append(number)
            continue
        if not text and has_pictures:
            missing["no text (a scan?)"].append(number)
        _add_page(out, text, number, [b for b in bookmarks if b.page == number], headings)
    status, reason = _status(bool(out.blocks), missing)
    return ParsedDocument(
        status,
        reason,
        text=out.text,
        blocks=tuple(out.blocks),
        title=clean(document.get_metadata_value("Title")).strip(),
        num_pages=len(document),
    )


def _status(has_text: bool, missing: dict[str, list[int]]) -> tuple[FileStatus, str]:
    reason = "; ".join(f"{_ranges(pages)}: {why}" for why, pages in missing.items() if pages)
    if has_text:
        return ("partial", reason) if reason else ("indexed", "")
    if missing["out of time"] or missing["damaged"]:
        return "failed", reason
    return "no_text", reason or "every page is empty"


def _ranges(pages: Sequence[int]) -> str:
    """`pages 1-3, 7` from [1, 2, 3, 7]."""
    runs: list[list[int]] = []
    for page in pages:
        if runs and runs[-1][1] == page - 1:
            runs[-1][1] = page
        else:
            runs.append([page, page])
    spans = ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
    return f"page {spans}" if len(pages) == 1 else f"pages {spans}"


def _bookmarks(document: _Document) -> list[_Bookmark]:
    found: list[_Bookmark] = []
    for mark in document.get_toc(max_depth=6):
        target = mark.get_dest()
        page = target.get_index() if target is not None else None
        title = " ".join(clean(mark.get_title()).split())
        if page is not None and title:
            found.append(_Bookmark(page + 1, mark.level + 1, title))
    return found


def _page(document: _Document, index: int) -> tuple[str, bool]:
    """Text of one page, and whether it shows pictures."""
    page = document[index]
    try:
        textpage = page.get_textpage()
        try:
            text = _tidy(_ordered(textpage))
        finally:
            textpage.close()
        has_pictures = not text and any(
            True for _ in page.get_objects(filter=[pdfium.FPDF_PAGEOBJ_IMAGE], max_depth=3)
        )
        return text, has_pictures
    finally:
        page.close()


def _ordered(textpage: _TextPage) -> str:
    rects = [textpage.get_rect(at) for at in range(textpage.count_rects())]
    order = reading_order([Box(*rect) for rect in rects])
    if order is None:
        return textpage.get_text_range()
    return "\n".join(
        " ".join(textpage.get_text_bounded(*rects[at]).strip() for at in row) for row in order
    )


def _tidy(text: str) -> str:
    """One space between words, no split words, no control characters, no empty lines."""
    text = _HYPHEN_BREAK.sub("", clean(text))
    text = _CONTROL.sub("\ufffd", _SPACES.sub(" ", text))
    return "\n".join(row for line in text.split("\n") if (row := line.strip()))


def _add_page(
    out: TextBuilder, text: str, number: int, marks: list[_Bookmark], headings: HeadingPath
) -> None:
    """The page's paragraphs; a bookmark whose title stands alone on a line is a heading there."""
    waiting = {_key(mark.title): mark for mark in marks}
    for paragraph in _paragraphs(text, waiting):
        mark = waiting.pop(_key(paragraph), None)
        if mark is not None:
            headings.enter(mark.level, mark.title)
        out.add(paragraph, "heading" if mark else "paragraph", number, headings.path)
    for mark in waiting.values():  # not found in the text: it holds from the next page on
        headings.enter(mark.level, mark.title)


def _key(title: str) -> str:
    return "".join(c for c in title.casefold() if c.isalnum())


def _paragraphs(text: str, titles: dict[str, _Bookmark]) -> Iterator[str]:
    lines = text.split("\n")
    short = _SHORT_LINE * median(len(line) for line in lines)
    rows: list[str] = []
    for line in lines:
        if titles and _key(line) in titles:
            yield "\n".join(rows)
            yield line
            rows = []
            continue
        rows.append(line)
        if len(line) < short and _SENTENCE_END.search(line):
            yield "\n".join(rows)
            rows = []
    yield "\n".join(rows)
