"""Documents made on the spot, and indexes over them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from agentloop.retrieval import HashingEmbedder, Index

Placed = tuple[float, float, str]  # x, y in points from the lower left corner, text
MakePdf = Callable[..., bytes]


def pdf_bytes(
    *pages: Sequence[Placed] | str,
    title: str = "",
    bookmarks: Sequence[tuple[str, int]] = (),
    encrypted: bool = False,
) -> bytes:
    """A small PDF file.

    Args:
        pages: Texts with their places, in drawing order; or "picture" for a page that is a scan.
        title: For the document's information.
        bookmarks: Title and 1-based page.
        encrypted: Ask for a password that nobody has.
    """
    objects: dict[int, str] = {
        1: "<< /Type /Catalog /Pages 2 0 R /Outlines 6 0 R >>",
        3: "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
        4: f"<< /Title ({title}) >>",
        5: "<< /Filter /Standard /V 1 /R 2 /P -4 /O <" + "41" * 32 + "> /U <" + "42" * 32 + "> >>",
    }
    kids: list[int] = []
    for page in pages:
        number = 100 + 3 * len(kids)
        kids.append(number)
        drawing = "q 500 0 0 700 50 50 cm /Im Do Q"
        if not isinstance(page, str):
            shown = "".join(f"1 0 0 1 {x} {y} Tm ({text}) Tj\n" for x, y, text in page)
            drawing = f"BT /F 10 Tf\n{shown}ET"
        objects[number] = (
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents {number + 1} 0 R "
            f"/Resources << /Font << /F 3 0 R >> /XObject << /Im {number + 2} 0 R >> >> >>"
        )
        objects[number + 1] = f"<< /Length {len(drawing)} >>\nstream\n{drawing}\nendstream"
        objects[number + 2] = (
            "<< /Type /XObject /Subtype /Image /Width 1 /Height 1 /BitsPerComponent 8 "
            "/ColorSpace /DeviceGray /Length 1 >>\nstream\nA\nendstream"
        )
    objects[2] = f"<< /Type /Pages /Count {len(kids)} /Kids [{_references(kids)}] >>"
    marks = [10 + at for at in range(len(bookmarks))]
    ends = f"/First {marks[0]} 0 R /Last {marks[-1]} 0 R" if marks else ""
    objects[6] = f"<< /Type /Outlines /Count {len(marks)} {ends} >>"
    for at, (name, page_number) in enumerate(bookmarks):
        after = f"/Next {marks[at] + 1} 0 R" if at + 1 < len(marks) else ""
        objects[marks[at]] = (
            f"<< /Title ({name}) /Parent 6 0 R {after} /Dest [{kids[page_number - 1]} 0 R /Fit] >>"
        )
    return _file(objects, encrypted)


def _references(numbers: Sequence[int]) -> str:
    return " ".join(f"{number} 0 R" for number in numbers)


def _file(objects: dict[int, str], encrypted: bool) -> bytes:
    out, places = "%PDF-1.4\n", dict[int, int]()
    for number, body in sorted(objects.items()):
        places[number] = len(out)
        out += f"{number} 0 obj\n{body}\nendobj\n"
    table = "".join(f"{number} 1\n{place:010d} 00000 n \n" for number, place in places.items())
    extra = "/Encrypt 5 0 R /ID [<41> <41>]" if encrypted else ""
    size = max(objects) + 1
    trailer = f"trailer\n<< /Size {size} /Root 1 0 R /Info 4 0 R {extra} >>\n"
    out += f"xref\n0 1\n0000000000 65535 f \n{table}{trailer}"
    return (out + f"startxref\n{out.index('xref')}\n%%EOF\n").encode("latin-1")


@pytest.fixture
def make_pdf() -> MakePdf:
    return pdf_bytes


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    """An empty folder for documents."""
    folder = tmp_path / "docs"
    folder.mkdir()
    return folder


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    """An empty index with an embedder that needs no model."""
    with Index.open(tmp_path / "index", embedder=HashingEmbedder()) as opened:
        yield opened
