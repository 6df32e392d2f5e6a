"""`agentloop eval retrieval` from files of questions to a table and to JSON."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from agentloop.cli import app


def _prefix(folder: Path) -> Path:
    passages = [
        {"id": 1, "title": "Silent Harbour", "text": "A drama directed by Ada Lindqvist."},
        {"id": 2, "title": "Ada Lindqvist", "text": "She was born in Uppsala."},
    ]
    lines = "\n".join(json.dumps(passage) for passage in passages)
    (folder / "films_corpus.jsonl").write_text(lines)
    asked = {"question": "Who directed the drama Silent Harbour?", "gold": [1, 2]}
    (folder / "films_queries.jsonl").write_text(json.dumps(asked))
    return folder / "films"


def test_a_set_is_scored_by_leg(tmp_path: Path) -> None:
    """Every way to search has its row; JSON alone on standard output where it is asked for."""
    arguments = ["eval", "retrieval", str(_prefix(tmp_path)), "--lexical", "--work", str(tmp_path)]
    shown = CliRunner().invoke(app, arguments)
    assert shown.exit_code == 0, shown.output
    assert "| lexical, 2 hops | 100.0 (100.0-100.0; odd 100.0)" in shown.stdout
    found = json.loads(CliRunner().invoke(app, [*arguments, "--json", "--hidden"]).stdout)
    assert (found["set"], found["questions"]) == ("films-hidden", 1)
    assert [row["setup"] for row in found["outcomes"]] == ["lexical", "lexical, 2 hops"]
    assert found["outcomes"][0]["scores"]["recall@5"]["mean"] == 50.0
