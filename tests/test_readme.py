"""Every code block of the front page does what it says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from agentloop.__main__ import main
from agentloop.model.lm import DiffusionLM

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NOTE = "The bridge was built in 1871. It is made of iron.\n"
TOOLS = (
    '[{"name": "wake", "description": "Wake.", "parameters": {"type": "object", '
    '"properties": {"hour": {"type": "integer"}}, "required": ["hour"]}}]'
)


def blocks(language: str) -> list[str]:
    """The front page's code blocks in a language."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return [code for found, code in BLOCK.findall(text) if found == language]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, default_lm: DiffusionLM) -> DiffusionLM:
    """A working folder with the files that the page speaks of; the model is loaded once."""
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "bridge.txt").write_text(NOTE)
    (tmp_path / "tools.json").write_text(TOOLS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(DiffusionLM, "load", Mock(return_value=default_lm))
    monkeypatch.setattr(DiffusionLM, "close", Mock())
    return default_lm


@pytest.mark.weights
def test_the_python_blocks_run_one_after_the_other(
    place: DiffusionLM, capsys: pytest.CaptureFixture[str]
) -> None:
    """The graph gives what its comment says, the citation is exact, the tool is called."""
    names: dict[str, Any] = {"__name__": "readme"}
    for code in blocks("python"):
        exec(compile(code, "README.md", "exec", dont_inherit=True), names)
    assert capsys.readouterr().out.startswith("6\n")
    found = names["found"]
    assert found.text is None or found.text in found.citations[0].quote
    assert all(citation.quote in NOTE for citation in found.citations)
    assert len(blocks("python")) == 3


@pytest.mark.weights
def test_the_commands_run(
    place: DiffusionLM,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every `agentloop` line ends well and prints something; every `make` target exists."""
    monkeypatch.setenv("AGENTLOOP_CACHE", str(tmp_path / "cache"))
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    lines = [line for block in blocks("console") for line in block.splitlines()]
    for line in lines:
        command, *arguments = shlex.split(line, comments=True)
        if command == "make":
            assert f"\n{arguments[0]}:" in makefile
        else:
            assert command == "agentloop"
            assert main(arguments) == 0
            assert capsys.readouterr().out.strip()
    assert len(lines) == 5


def test_links_lead_somewhere() -> None:
    """Every file that the page links to exists."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    targets = re.findall(r"\]\(([^)#]+)\)", text)
    assert targets
    assert [target for target in targets if not (ROOT / target).exists()] == []
