"""Every example runs as it stands, offline, and prints what it is about."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from agentloop.demo import DOCUMENTS, QUESTIONS, REQUESTS, TOOLS
from agentloop.toolset import ToolSet

ROOT = Path(__file__).resolve().parent.parent
NOWHERE = "http://127.0.0.1:9"
OFFLINE = {"http_proxy": NOWHERE, "https_proxy": NOWHERE, "no_proxy": "", "HF_HUB_OFFLINE": "1"}


def run(name: str) -> str:
    """What an example prints; it must end well and say nothing on standard error."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / name)],
        capture_output=True,
        text=True,
        encoding="utf-8",
        env={**os.environ, **OFFLINE},
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_every_example_is_tested() -> None:
    """A test names each file of the folder, below or elsewhere."""
    tests = [path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py")]
    names = [path.name for path in sorted((ROOT / "examples").glob("*.py"))]
    assert len(names) >= 4
    assert [name for name in names if not any(f'"{name}"' in text for text in tests)] == []


@pytest.mark.weights
def test_constrained_json() -> None:
    """A ticket within its bounds, a label of the two, a time of day."""
    out = run("01_constrained_json.py")
    assert re.search(
        r"ticket  Ticket\(product='(phone|laptop|watch)', urgency=[1-5], summary=", out
    )
    assert re.search(r"^label   (question|complaint)$", out, re.MULTILINE)
    assert re.search(r"^time    ([01]\d|2[0-3]):[0-5]\d$", out, re.MULTILINE)


@pytest.mark.weights
def test_tool_call() -> None:
    """Three requests, each with a call that was made."""
    out = run("02_tool_call.py")
    called = re.findall(
        r"^  (find_restaurants|get_weather|send_money)\(\{.*\}\)$", out, re.MULTILINE
    )
    assert len(called) == 3
    assert len(re.findall(r"^  -> ", out, re.MULTILINE)) == 3


@pytest.mark.weights
def test_rag_over_docs() -> None:
    """Three questions; every quote that is printed is one of the documents' texts."""
    out = run("03_rag_over_docs.py")
    assert f"{len(list(DOCUMENTS.iterdir()))} files" in out
    assert len(re.findall(r"^  \d+ steps, [\d,]+ ms$", out, re.MULTILINE)) == 3
    assert out.count("not in the documents") + len(re.findall(r":\d+-\d+: ['\"]", out)) == 3


@pytest.mark.weights
def test_agent_graph() -> None:
    """The plan's terms are words of the question; it reads at least once and at most twice."""
    out = run("04_agent_graph.py")
    assert out.startswith("flowchart TD")
    searched = re.search(r"searched for (.*); read (1|2) times", out)
    assert searched is not None
    question = "What is the capital of New Zealand, and who was it named after?"
    assert all(term in question for term in re.findall(r"'([^']*)'", searched[1]))


def test_agent_with_approval() -> None:
    """The payment that a mail asks for becomes a question, and is not made."""
    out = run("06_agent_with_approval.py")
    assert "asks for send_money({'amount': 900, 'receiver': 'mallory'})" in out
    assert "send_money was not called: the user did not approve it" in out
    assert "sent 900" not in out


def test_mcp_tools() -> None:
    """The tools of another process are listed with their effects and called."""
    out = run("07_mcp_tools.py")
    assert "shop.order: Order some of an item. (once)" in out
    assert 'tool: {"result":"ordered 7 tea"}' in out


def test_team() -> None:
    """The supervisor's choices in their order, and the answer."""
    out = run("08_team.py")
    assert out.startswith("flowchart TD")
    assert re.findall(r"^choose\S*: (\w+)$", out, re.MULTILINE) == [
        "researcher",
        "writer",
        "answer",
    ]
    assert "home to 134,591 people" in out


def test_the_demo_asks_what_its_documents_say() -> None:
    """Three questions, two requests, tools that load, documents of four kinds, all licensed."""
    assert (len(QUESTIONS), len(REQUESTS)) == (3, 2)
    assert len(ToolSet.load(TOOLS)) == 3
    assert json.loads(TOOLS.read_text(encoding="utf-8"))
    names = {path.name for path in DOCUMENTS.iterdir()}
    assert {Path(name).suffix for name in names} == {".txt", ".md", ".html", ".pdf"}
    licences = (DOCUMENTS / "LICENSES.md").read_text(encoding="utf-8")
    assert [name for name in names - {"LICENSES.md"} if name not in licences] == []
    assert sum(path.stat().st_size for path in DOCUMENTS.iterdir()) < 300_000
