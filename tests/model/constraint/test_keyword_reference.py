"""The page about keywords says what the code does."""

from __future__ import annotations

from pathlib import Path

from agentloop.model.constraint.formats import FORMATS
from agentloop.model.constraint.keyword_reference import keyword_reference
from agentloop.model.constraint.rules import ASSERTING

PAGE = Path(__file__).resolve().parents[3] / "docs" / "json-schema.md"


def test_the_page_is_up_to_date() -> None:
    """docs/json-schema.md is what the tables of keywords and formats give."""
    assert PAGE.read_text() == keyword_reference()


def test_every_keyword_and_format_is_listed() -> None:
    """Nothing that is asserted is missing from the page."""
    page = PAGE.read_text()
    assert [name for name in [*ASSERTING, *FORMATS] if f"`{name}`" not in page] == []
