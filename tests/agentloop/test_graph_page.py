"""The pages about graphs: their code runs and prints what they say, their tests exist."""

import ast
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_code_of_the_page_prints_what_its_comments_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All blocks one after the other; what follows `# ` behind a print is what it prints."""
    monkeypatch.chdir(tmp_path)
    code = BLOCK.findall((ROOT / "docs/graph.md").read_text(encoding="utf-8"))
    assert len(code) >= 8
    names: dict[str, Any] = {"__name__": "page"}
    for block in code:
        exec(compile(block, "docs/graph.md", "exec", dont_inherit=True), names)
        expected = re.findall(r"^\s*print\(.*\)  # (.*)$", block, re.MULTILINE)
        assert capsys.readouterr().out.splitlines() == expected


def promised() -> dict[str, list[tuple[str, str]]]:
    """The tests that the page of guarantees names, by guarantee."""
    text = (ROOT / "docs/guarantees.md").read_text(encoding="utf-8")
    parts = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    return {
        part.splitlines()[0]: re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", part) for part in parts
    }


def test_every_guarantee_has_tests_that_exist() -> None:
    """25 of them, numbered, each with one test or more; no test is named that is not there."""
    found = promised()
    assert [title.split(" ")[0] for title in found] == [f"{n}" for n in range(1, 26)]
    known: dict[str, set[str]] = {}
    for title, tests in found.items():
        assert tests, f"guarantee {title} names no test"
        for path, name in tests:
            if path not in known:
                tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
                functions = (ast.FunctionDef, ast.AsyncFunctionDef)
                known[path] = {node.name for node in tree.body if isinstance(node, functions)}
            assert name in known[path], f"guarantee {title}: {path} has no {name}"
