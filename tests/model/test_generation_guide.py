"""Every code block of the guide to generation runs as it stands."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from agentloop.model.call_options import OPTION_NAMES
from agentloop.model.effort import LEVELS
from agentloop.model.lm import DiffusionLM
from tests.model.tiny import tiny_lm

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "generation.md"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_blocks_run_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a tiny random model in place of the default one; what they assert holds."""
    monkeypatch.setattr(DiffusionLM, "load", Mock(return_value=tiny_lm()))
    blocks = BLOCK.findall(GUIDE.read_text(encoding="utf-8"))
    names: dict[str, Any] = {"__name__": "guide"}

    async def run() -> None:
        for block in blocks:
            code = compile(
                block, "generation.md", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True
            )
            done = eval(code, names)
            if inspect.isawaitable(done):
                await done

    asyncio.run(run())
    assert len(blocks) == 11


def test_the_table_of_options_is_complete() -> None:
    """One row for each option, and no other."""
    rows = re.findall(r"^\| `(\w+)` \|", GUIDE.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(rows) == sorted(OPTION_NAMES)


def test_the_table_of_efforts_says_what_they_are() -> None:
    """Passes and samples of each level, as the code has them."""
    text = GUIDE.read_text(encoding="utf-8")
    for name, level in LEVELS.items():
        row = re.search(rf"^\| {name} \| (\d+)\D.*\| (\d) \| (yes|no) \|$", text, re.MULTILINE)
        assert row is not None
        assert int(row[1]) == level.sampler.max_steps
        assert (int(row[2]), row[3] == "yes") == (level.samples, level.verify)
