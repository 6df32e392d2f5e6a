"""`agentloop bench engine`: measures a model, in tables or as JSON."""

import json
from pathlib import Path

from typer.testing import CliRunner

from agentloop.cli import app
from tests.model.tiny import write_folder


def test_the_numbers_come_as_json(tmp_path: Path) -> None:
    """Chosen groups are measured on a model folder; every number is positive."""
    write_folder(tmp_path)
    arguments = ["bench", "engine", "--model", str(tmp_path), "--repeat", "1", "--json"]
    result = CliRunner().invoke(app, [*arguments, "--only", "passes", "--only", "decision"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert set(found) == {"machine", "passes", "decision"}
    assert all(n > 0 for numbers in found["passes"].values() for n in numbers.values())
    assert found["decision"]["decision_ms"] > 0


def test_tables_name_their_groups(tmp_path: Path) -> None:
    """Without --json each group is a table; a prefix that is shared costs less with the cache."""
    write_folder(tmp_path)
    arguments = ["bench", "engine", "--model", str(tmp_path), "--repeat", "1"]
    result = CliRunner().invoke(app, [*arguments, "--only", "ceilings"])
    assert result.exit_code == 0, result.output
    assert "gop per s" in result.stdout


def test_an_unknown_group_is_refused() -> None:
    """The message lists the groups there are."""
    result = CliRunner().invoke(app, ["bench", "engine", "--only", "heat"])
    assert result.exit_code == 2
    assert "heat" in result.output
    assert "ceilings" in result.output
