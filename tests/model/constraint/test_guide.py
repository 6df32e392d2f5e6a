"""The guide to constraints shows what happens."""

from __future__ import annotations

import doctest
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

from agentloop.model.constraint import CompileOptions

GUIDE = Path(__file__).parents[3] / "docs" / "constraints.md"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_every_block_of_the_guide_gives_what_it_shows() -> None:
    """Blocks run one after another, as in one session."""
    blocks = BLOCK.findall(GUIDE.read_text(encoding="utf-8"))
    assert len(blocks) >= 8
    names: dict[str, Any] = {}
    runner = doctest.DocTestRunner(optionflags=doctest.IGNORE_EXCEPTION_DETAIL)
    for number, block in enumerate(blocks):
        example = doctest.DocTestParser().get_doctest(block, names, f"block {number}", "", 0)
        runner.run(example, clear_globs=False)
        names.update(example.globs)
    assert runner.summarize(verbose=False).failed == 0


def test_the_guide_tells_every_option_and_its_default() -> None:
    """The table of options is that of the class."""
    text = GUIDE.read_text(encoding="utf-8").split("## Options")[1].split("```")[0]
    for field in fields(CompileOptions):
        if field.name == "max_indent":  # a detail of "tolerant"
            continue
        assert f"`{field.name}`" in text
        value = field.default
        shown = f"`{value!r}`".replace("'", '"') if not isinstance(value, int) else f"{value:,}"
        assert value is None or shown in text or f"`{value}`" in text, field.name
