"""PDF files give their text in reading order, page by page."""

from __future__ import annotations

from collections.abc import Callable

from agentloop.retrieval.pdf import load_pdf

MakePdf = Callable[..., bytes]
LEFT = [
    "The quick brown fox jumps over the lazy",
    "dog and then continues to run through the",
    "forest until night falls on the hills.",
]
RIGHT = [
    "Meanwhile the second column tells another",
    "story about ships that sail across oceans",
    "to reach the harbour of a distant town.",
]
CELLS = [["Name", "Age", "City"], ["Anna", "31", "Rome"], ["Bob", "45", "Oslo"]]


def test_pages_are_numbered_from_one(make_pdf: MakePdf) -> None:
    """Requirement 4: every block lies on a page between 1 and the number of pages."""
    document = load_pdf(make_pdf([(50, 700, "First page.")], [(50, 700, "Second page.")]))
    assert document.num_pages == 2
    assert [(document.text[b.start : b.end], b.page) for b in document.blocks] == [
        ("First page.", 1),
        ("Second page.", 2),
    ]


def test_columns_drawn_line_by_line_are_read_one_after_the_other(make_pdf: MakePdf) -> None:
    """Requirement 17: a sentence of a two-column page stays in one piece."""
    heading = (
        50,
        740,
        "A heading that runs across the whole page, from the left margin to the right",
    )
    page = [heading]
    for at, (left, right) in enumerate(zip(LEFT, RIGHT, strict=True)):
        page += [(50, 700 - 14 * at, left), (320, 700 - 14 * at, right)]
    page += [(320, 658, "The right column is longer.")]
    text = load_pdf(make_pdf(page)).text
    flat = " ".join(text.split())
    assert " ".join(LEFT) in flat
    assert " ".join([*RIGHT, "The right column is longer."]) in flat
    assert flat.index("A heading") < flat.index("The quick") < flat.index("Meanwhile")


def test_columns_drawn_one_after_the_other_are_left_alone(make_pdf: MakePdf) -> None:
    """Most files already draw in reading order."""
    page = [(50, 700 - 14 * at, line) for at, line in enumerate(LEFT)]
    page += [(320, 700 - 14 * at, line) for at, line in enumerate(RIGHT)]
    assert " ".join(load_pdf(make_pdf(page)).text.split()) == " ".join(LEFT + RIGHT)


def test_rows_of_a_table_stay_on_a_line_however_it_is_drawn(make_pdf: MakePdf) -> None:
    """Requirement 17: whether drawn by rows or by columns, a row reads across."""
    placed = [
        (50 + 130 * column, 600 - 14 * row, CELLS[row][column])
        for row in range(3)
        for column in range(3)
    ]
    expected = [" ".join(row) for row in CELLS]
    by_column = sorted(placed, key=lambda cell: cell[0])
    assert load_pdf(make_pdf(placed)).text.split("\n") == expected
    assert load_pdf(make_pdf(by_column)).text.split("\n") == expected


def test_a_scan_has_no_text(make_pdf: MakePdf) -> None:
    """Requirement 16: a file of pictures says so."""
    document = load_pdf(make_pdf("picture", "picture"))
    assert (document.status, document.reason) == ("no_text", "pages 1-2: no text (a scan?)")


def test_a_file_with_some_scanned_pages_is_partial(make_pdf: MakePdf) -> None:
    """The reason names the pages that are missing; an empty page is not one of them."""
    document = load_pdf(make_pdf("picture", [(50, 700, "Some text.")], [], "picture"))
    assert (document.status, document.reason) == ("partial", "pages 1, 4: no text (a scan?)")
    assert document.text == "Some text."


def test_a_file_with_a_password_is_encrypted(make_pdf: MakePdf) -> None:
    """It is reported, not skipped."""
    assert load_pdf(make_pdf([(50, 700, "secret")], encrypted=True)).status == "encrypted"


def test_a_damaged_file_fails_with_a_reason() -> None:
    """What pdfium says is passed on."""
    document = load_pdf(b"%PDF-1.7\nnothing of use")
    assert document.status == "failed"
    assert document.reason.startswith("not a readable PDF: ")


def test_bookmarks_are_headings(make_pdf: MakePdf) -> None:
    """A bookmark's title alone on a line is a heading; what follows lies in its section."""
    pages = [
        [(50, 700, "Preface"), (50, 680, "Some words.")],
        [(50, 700, "Chapter One"), (50, 680, "It began.")],
    ]
    data = make_pdf(*pages, title="A book", bookmarks=[("Preface", 1), ("Chapter One", 2)])
    document = load_pdf(data)
    assert document.title == "A book"
    assert [(b.kind, b.headings) for b in document.blocks] == [
        ("heading", ("Preface",)),
        ("paragraph", ("Preface",)),
        ("heading", ("Chapter One",)),
        ("paragraph", ("Chapter One",)),
    ]


def test_running_out_of_time_keeps_the_pages_read(make_pdf: MakePdf) -> None:
    """An endless file gives what could be read of it, and says what could not."""
    answers = iter([False, False, True, True])
    data = make_pdf(*[[(50, 700, f"Page {number}.")] for number in range(1, 5)])
    document = load_pdf(data, lambda: next(answers))
    assert (document.status, document.reason) == ("partial", "pages 3-4: out of time")
    assert document.text == "Page 1.\n\nPage 2."
