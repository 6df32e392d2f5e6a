"""Chunks are exact slices within a limit, cut where the document allows it."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentloop.retrieval.chunker import Chunk, Chunker, approximate_tokens
from agentloop.retrieval.document import BlockKind
from agentloop.retrieval.markdown import load_markdown
from agentloop.retrieval.plain_text import load_plain_text


def chunked(text: str, max_tokens: int = 20, overlap: int = 0) -> list[Chunk]:
    document = load_markdown(text.encode())
    assert document.text == text
    return Chunker(approximate_tokens, max_tokens, overlap).chunks(text, document.blocks)


def texts(text: str, max_tokens: int = 20, overlap: int = 0) -> list[str]:
    return [text[c.start : c.end] for c in chunked(text, max_tokens, overlap)]


PARTS = [
    *("# Head\n", "## Sub\n", "A short one. ", "Another sentence, longer than the first. ", "\n\n"),
    *("| a | b |\n|---|---|\n| 1 | 2 |\n", "```\nx = 1\ny = 2\n```\n", "- item\n", "word "),
    *("supercalifragilisticexpialidocious" * 4 + " ", "日本語の文章です。", "---\nt: 1\n---\n"),
]
SOURCES = st.lists(st.sampled_from(PARTS), max_size=40).map("".join)


@settings(max_examples=200)
@given(SOURCES, st.integers(3, 40), st.integers(0, 12), st.booleans())
def test_chunks_are_slices_in_order_and_cover_the_text(
    text: str, max_tokens: int, overlap: int, is_plain: bool
) -> None:
    """Requirement 3: exact slices, starts increase strictly, nothing lost, none over the limit."""
    load = load_plain_text if is_plain else load_markdown
    document = load(text.encode())
    chunker = Chunker(approximate_tokens, max_tokens, min(overlap, max_tokens - 1))
    chunks = chunker.chunks(document.text, document.blocks)
    covered = 0
    for before, chunk in zip([None, *chunks], chunks, strict=False):
        assert 0 <= chunk.start < chunk.end <= len(text)
        assert before is None or (before.start < chunk.start and before.end < chunk.end)
        assert not text[covered : chunk.start].strip()
        piece = text[chunk.start : chunk.end]
        assert piece.strip() == piece.strip("\n ")
        assert approximate_tokens([piece])[0] <= max_tokens
        covered = chunk.end
    assert not text[covered:].strip()
    if not overlap:
        assert all(a.end <= b.start for a, b in pairwise(chunks))


def test_sections_are_not_mixed() -> None:
    """A heading begins a chunk and goes with the text below it."""
    assert texts("# One\n\nText of one.\n\n# Two\n\nText of two.\n") == [
        "# One\n\nText of one.",
        "# Two\n\nText of two.",
    ]
    nested = chunked("# One\n\n## Sub\n\nText.\n")
    assert [(c.start, c.headings) for c in nested] == [(0, ("One", "Sub"))]


def test_cuts_fall_between_sentences() -> None:
    """A long paragraph is cut after a full stop, not within a sentence."""
    text = "The first sentence is here. The second sentence is here. The third sentence is here."
    assert texts(text, 14) == [
        "The first sentence is here. The second sentence is here.",
        "The third sentence is here.",
    ]


@pytest.mark.parametrize(
    ("block", "kind"),
    [
        ("| a | b |\n|---|---|\n| 1 | 2 |\n| 3 | 4 |", "table"),
        ("```\none()\ntwo()\nthree()\n```", "code"),
    ],
)
def test_tables_and_listings_that_fit_are_kept_whole(block: str, kind: BlockKind) -> None:
    """Text before them fills its own chunk rather than take their first lines."""
    text = f"Words that come before it here.\n\n{block}\n\nAnd words that come after it here.\n"
    (size,) = approximate_tokens([block])
    at = text.index(block)
    assert [(c.start, c.end, c.kind) for c in chunked(text, size + 3)] == [
        (0, 31, "paragraph"),
        (at, at + len(block), kind),
        (at + len(block) + 2, len(text) - 1, "paragraph"),
    ]


def test_a_table_that_does_not_fit_is_cut_between_rows() -> None:
    """No row is torn."""
    rows = [f"| row {at} | value {at} |" for at in range(12)]
    text = "| a | b |\n|---|---|\n" + "\n".join(rows)
    pieces = texts(text, 30)
    assert len(pieces) > 1
    assert [line for piece in pieces for line in piece.split("\n")] == text.split("\n")


def test_overlap_repeats_whole_sentences() -> None:
    """The next chunk of a section begins with the last sentences of the one before."""
    text = "One is here. Two is here. Three is here. Four is here. Five is here."
    pieces = texts(text, 12, 4)
    assert pieces[0] == "One is here. Two is here. Three is here."
    assert pieces[1].startswith("Three is here. Four is here.")


@given(st.text(st.sampled_from("ab \n:#-"), max_size=200))
def test_metadata_moves_no_cut(noise: str) -> None:
    """Requirement 11: whatever the front matter holds, the body is cut alike."""
    body = "# Title\n\n" + "A sentence of some length stands here. " * 12
    line = noise.replace("\n", " ").strip()
    head = f"---\ntitle: {line}\nx: {line} {line}\n---\n\n"
    alone = texts(body, 30)
    assert [piece for piece in texts(head + body, 30) if piece in body] == alone


def test_an_overlap_as_long_as_the_chunk_is_refused() -> None:
    """It would never get on; the message says what is allowed."""
    with pytest.raises(ValueError, match="from 0 to below max_tokens=8, got 8"):
        Chunker(approximate_tokens, 8, 8)


def test_a_word_that_the_tokenizer_calls_unknown_is_still_cut() -> None:
    """An encoded file on one line does not become one chunk of any size."""
    text = "QUJD" * 20_000
    document = load_plain_text(text.encode())
    chunks = Chunker(lambda texts: [1] * len(texts), 50).chunks(text, document.blocks)
    assert max(chunk.end - chunk.start for chunk in chunks) <= 17 * 50
    assert "".join(text[chunk.start : chunk.end] for chunk in chunks) == text
