"""HTML pages give their visible text, in order, with structure."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agentloop.retrieval.web_page import load_web_page

MARKUP = [
    *("<p>", "</p>", "<b>", "<table>", "<tr>", "<td>", "</table>", "a", " ", "<pre>", "\n"),
    *("</pre>", "<h1>", "</h1>", "<br>", "<li>", "<!-- c -->", "&nbsp;", "<div", "</div>"),
]
PAGE = """<!doctype html><html><head><title> A  page </title><style>p {color: red}</style></head>
<body><script>var hidden = "secret";</script>
<h1>Top <em>title</em></h1>
<p>First   paragraph with <b>bold</b>, a<br>break.</p><div>Loose text <p>Inner</p> tail</div>
<h2>Part</h2><ul><li>one</li><li>two</li></ul>
<pre>  code
    indented</pre>
<table><caption>Ages</caption><tr><th>Name</th><th>Age</th></tr><tr><td>Anna</td><td>31</td></tr></table>
<noscript>enable scripts</noscript></body></html>"""


def test_structure_is_kept() -> None:
    """Headings nest, rows stay on a line, listings keep their lines, scripts are not text."""
    document = load_web_page(PAGE.encode())
    found = [(b.kind, document.text[b.start : b.end], b.headings) for b in document.blocks]
    top, part = ("Top title",), ("Top title", "Part")
    assert document.title == "A page"
    assert found == [
        ("heading", "Top title", top),
        ("paragraph", "First paragraph with bold, a\nbreak.", top),
        ("paragraph", "Loose text", top),
        ("paragraph", "Inner", top),
        ("paragraph", "tail", top),
        ("heading", "Part", part),
        ("list", "one", part),
        ("list", "two", part),
        ("code", "  code\n    indented", part),
        ("table", "Ages\nName | Age\nAnna | 31", part),
    ]


def test_empty_lines_of_breaks_part_paragraphs() -> None:
    """Pages that use two <br> for a paragraph are cut there."""
    document = load_web_page(b"<body>one<br><br>two<br>three</body>")
    assert [document.text[b.start : b.end] for b in document.blocks] == ["one", "two\nthree"]


def test_the_declared_charset_is_used() -> None:
    """<meta charset> decides where the bytes are not UTF-8."""
    page = '<meta charset="shift_jis"><p>日本語</p>'.encode("shift_jis")
    assert load_web_page(page).text == "日本語"


def test_depth_costs_no_stack() -> None:
    """A hostile page with 20,000 nested elements is read like any other."""
    page = b"<div>" * 20_000 + b"deep" + b"</div>" * 20_000
    assert "deep" in load_web_page(page).text


@given(st.lists(st.sampled_from(MARKUP), max_size=30))
def test_any_markup_gives_blocks_that_cover_the_text(parts: list[str]) -> None:
    """However broken the markup, the blocks are exact slices and leave out only white space."""
    document = load_web_page("".join(parts).encode())
    at = 0
    for block in document.blocks:
        assert not document.text[at : block.start].strip()
        assert document.text[block.start : block.end].strip()
        at = block.end
    assert at == len(document.text)
