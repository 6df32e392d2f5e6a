"""Markdown is kept as its source, with blocks and heading paths."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agentloop.retrieval.markdown import load_markdown

SOURCE = """---
title: "The Handbook"
tags: [a, b]
---
Intro text
over two lines.

# Install

## Linux
Run this:
```sh
# not a heading
make | tee log
```
- first
- second

| a | b |
|---|---|
| 1 | 2 |

Windows
-------
Text before
| c | d |
| - | - |
| 3 | 4 |
after.
"""


def test_blocks_have_their_kinds_and_sections() -> None:
    """Front matter, listings, lists and tables are told apart; headings nest by level."""
    document = load_markdown(SOURCE.encode())
    found = [(b.kind, SOURCE[b.start : b.end], b.headings) for b in document.blocks]
    linux, windows = ("Install", "Linux"), ("Install", "Windows")
    assert document.title == "The Handbook"
    assert found == [
        ("metadata", '---\ntitle: "The Handbook"\ntags: [a, b]\n---', ()),
        ("paragraph", "Intro text\nover two lines.", ()),
        ("heading", "# Install", ("Install",)),
        ("heading", "## Linux", linux),
        ("paragraph", "Run this:", linux),
        ("code", "```sh\n# not a heading\nmake | tee log\n```", linux),
        ("list", "- first\n- second", linux),
        ("table", "| a | b |\n|---|---|\n| 1 | 2 |", linux),
        ("heading", "Windows\n-------", windows),
        ("paragraph", "Text before", windows),
        ("table", "| c | d |\n| - | - |\n| 3 | 4 |", windows),
        ("paragraph", "after.", windows),
    ]


def test_the_first_heading_is_the_title() -> None:
    """Without front matter a document is called what its first heading says."""
    assert load_markdown(b"Text.\n\n# My  Page #\n").title == "My Page"


def test_an_unclosed_listing_runs_to_the_end() -> None:
    """As in CommonMark: nothing after the fence is lost."""
    blocks = load_markdown(b"```\na\n\nb\n").blocks
    assert [(b.kind, b.start, b.end) for b in blocks] == [("code", 0, 8)]


@given(st.text(st.sampled_from("#-=`~|:.1 \nab*>"), max_size=120))
def test_blocks_cover_everything_in_order(source: str) -> None:
    """Whatever the source, blocks are in order, do not overlap, and leave out only white space."""
    document = load_markdown(source.encode())
    at = 0
    for block in document.blocks:
        assert not document.text[at : block.start].strip()
        assert block.start < block.end
        at = block.end
    assert not document.text[at:].strip()
