"""The page about agents: its code runs, its lines are counted, its tables name what there is."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from agentloop.testing import ScriptedModel
from agentloop.tools import ToolOptions
from benchmarks.same_agent import ours, world
from benchmarks.same_agent.__main__ import num_lines

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "agents.md").read_text(encoding="utf-8")
SCRIPT: list[Any] = [
    [{"name": "read_mail", "arguments": {}}],
    [{"name": "send_money", "arguments": {"amount": 900, "receiver": "mallory"}}],
    [],
    "Lunch on Friday.",
]


def test_the_page_runs(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Every block, one after the other, prints what the page is about."""
    monkeypatch.chdir(ROOT)
    names: dict[str, Any] = {"model": ScriptedModel(SCRIPT), "__name__": "page"}
    for code in re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL):
        exec(compile(code, "docs/agents.md", "exec"), names)
    out = capsys.readouterr().out
    assert "send_money {'amount': 900, 'receiver': 'mallory'} send_money changes something" in out
    assert "Lunch on Friday.\n" in out
    assert "['greet', 'triple'] {'result': 6}" in out
    assert "payer" in out


def test_the_page_names_every_option_of_a_tool() -> None:
    """The table has a row for each option there is, and for no other."""
    table = PAGE.partition("## A model's answer")[0]
    rows = re.findall(r"^\| `(\w+)=", table, re.MULTILINE)
    assert set(rows) == set(ToolOptions.__annotations__)


def test_the_same_agent_takes_so_many_lines(tmp_path: Path) -> None:
    """Ours at most 20; the page says what is counted, and shows the very lines."""
    lines = {name: num_lines(name) for name in ("ours", "in_langgraph", "in_pydantic_graph")}
    assert lines["ours"] <= 20
    stated = re.search(r"These (\d+) lines are (\d+) in LangGraph and (\d+) in pydantic", PAGE)
    assert stated is not None
    assert tuple(map(int, stated.groups())) == tuple(lines.values())
    text = (ROOT / "benchmarks/same_agent/ours.py").read_text(encoding="utf-8")
    assert text.split("# agent\n")[1].split("# end\n")[0].strip() in PAGE
    world.reset()
    result = asyncio.run(ours.main("Which river flows through the capital?", str(tmp_path)))
    assert result["is_approved"]
