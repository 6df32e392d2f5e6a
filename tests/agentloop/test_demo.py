"""The demo: three cited answers and two checked calls, with what comes with the package."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from agentloop.__main__ import main
from agentloop.citations import Citation
from agentloop.demo import DOCUMENTS, QUESTIONS, REQUESTS, TOOLS, verify
from agentloop.errors import RetrievalError
from agentloop.model.lm import DiffusionLM
from agentloop.rag import Answer
from agentloop.retrieval import Index
from agentloop.toolset import ToolSet


@pytest.mark.weights
def test_the_demo_answers_and_calls(
    default_lm: DiffusionLM,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each question has an answer that stands in its quote; each call is one of the tools'."""
    monkeypatch.setenv("AGENTLOOP_CACHE", str(tmp_path))
    monkeypatch.setattr(DiffusionLM, "load", Mock(return_value=default_lm))
    monkeypatch.setattr(DiffusionLM, "close", Mock())
    assert main(["demo", "--effort", "low"]) == 0
    seen = capsys.readouterr()
    assert seen.err == ""
    for question in QUESTIONS:
        _, _, rest = seen.out.partition(f"? {question}\n")
        found = re.match(r"  (.+)\n  “((?:.|\n)+?)”\n  \S+:\d+-\d+", rest)
        assert found is not None
        assert found[1] in " ".join(found[2].split())
    for request in REQUESTS:
        called = re.search(rf"> {re.escape(request)}\n  (\w+) \{{.*\}}\n", seen.out)
        assert called is not None
        assert called[1] in {tool.name for tool in ToolSet.load(TOOLS)}
    assert len(re.findall(r"^  \d+ pass(?:es)?, [\d,]+ ms$", seen.out, re.MULTILINE)) == 5
    assert "3 citations equal the documents' bytes, 2 calls satisfy their schemas" in seen.out


def test_a_wrong_citation_would_be_noticed(tmp_path: Path) -> None:
    """The demo's check compares bytes: one off is an error."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.txt").write_text("é is a letter.")
    with Index.open(tmp_path / "index", embedder=None) as index:
        index.sync(tmp_path / "docs")
        (document,) = index.documents()
        right = Citation("a.txt", document.id, 0, 4, 0, 5, "é is", None, ())
        answer = Answer("?", "é", right, (right,), (), (), None, 0.0, 0.0)
        verify(index, answer)
        with pytest.raises(RetrievalError, match=r"a\.txt:0-4 holds"):
            verify(index, replace(answer, citations=(replace(right, end_byte=4),)))


def test_documents_come_with_the_package() -> None:
    """They lie beside the code, so that an installed wheel has them."""
    assert DOCUMENTS.is_dir()
    assert TOOLS.is_file()
    assert DOCUMENTS.parent == TOOLS.parent
