"""Parsing happens elsewhere, within limits, and always ends in a status."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentloop.retrieval.document import ParsedDocument
from agentloop.retrieval.loaders import Limits, load
from agentloop.retrieval.parser import Parser
from agentloop.retrieval.parser_worker import parse


def test_a_parsed_document_travels_unchanged(docs: Path) -> None:
    """What the other process reads is what reading here would give."""
    file = docs / "a.md"
    file.write_text("# Head\n\nText with ünïcödé 日本語 \U0001f680.\n")
    with Parser(Limits()) as parser:
        there = parser.parse(file)
    assert there == load(file, Limits())
    assert there.status == "indexed"
    assert ParsedDocument.from_json(there.to_json()) == there


def test_a_file_that_takes_too_long_is_given_up(docs: Path) -> None:
    """The process is ended, and the next file is read by another."""
    (docs / "slow.html").write_text("<p>word</p>" * 200_000)
    (docs / "quick.txt").write_text("quick")
    with Parser(Limits(timeout_s=0.001)) as parser:
        slow = parser.parse(docs / "slow.html")
        parser.limits = Limits()
        quick = parser.parse(docs / "quick.txt")
    assert (slow.status, slow.reason) == (
        "failed",
        "parsing took longer than 0.001 s: raise timeout_s",
    )
    assert quick.status == "indexed"


def test_a_file_that_needs_too_much_memory_fails_alone(docs: Path) -> None:
    """The limit stops the parser, not the program."""
    (docs / "big.txt").write_bytes(b"word " * 4_000_000 + "\U0001f680".encode())
    (docs / "quick.txt").write_text("quick")
    with Parser(Limits(max_memory_bytes=120 << 20)) as parser:
        big = parser.parse(docs / "big.txt")
        quick = parser.parse(docs / "quick.txt")
    assert big.status == "failed"
    assert "memory" in big.reason or "died" in big.reason
    assert quick.status == "indexed"


def test_a_dead_parser_is_replaced(docs: Path) -> None:
    """Whatever killed it, the next file is read."""
    (docs / "quick.txt").write_text("quick")
    with Parser(Limits()) as parser:
        parser.parse(docs / "quick.txt")
        assert parser.process is not None
        parser.process.kill()
        parser.process.wait()
        assert parser.parse(docs / "quick.txt").status == "indexed"


def test_a_vanished_file_fails(docs: Path) -> None:
    """It may go between listing and reading."""
    with Parser(Limits()) as parser:
        document = parser.parse(docs / "gone.txt")
    assert document.status == "failed"
    assert "FileNotFoundError" in document.reason


@pytest.mark.parametrize("error", [MemoryError, RecursionError, ZeroDivisionError])
def test_no_exception_leaves_a_parser(
    docs: Path, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loader's bug is one file's failure."""

    def broken(data: bytes, out_of_time: object) -> ParsedDocument:
        raise error

    monkeypatch.setitem(load.__globals__["LOADERS"], ".txt", broken)
    (docs / "a.txt").write_text("text")
    limits = {"max_file_bytes": 10, "timeout_s": 1, "max_memory_bytes": 1}
    document = parse({"path": str(docs / "a.txt"), "limits": limits})
    assert document.status == "failed"
    assert document.reason
