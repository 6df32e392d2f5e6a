"""The commands `schema check`, `schema explain` and `schema draw`."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agentloop.__main__ import main
from tests.model.tiny import tiny_tokenizer

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 5},
        "mail": {"type": "string", "format": "email"},
        "on": {"type": "boolean", "colour": "red"},
    },
    "required": ["name"],
    "additionalProperties": False,
}


@pytest.fixture
def schema(tmp_path: Path) -> Path:
    """A file with a schema."""
    path = tmp_path / "schema.json"
    path.write_text(json.dumps(SCHEMA), encoding="utf-8")
    return path


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    capsys.readouterr()
    code = main(["schema", *map(str, arguments)])
    seen = capsys.readouterr()
    return code, seen.out, seen.err


def write(folder: Path, value: Any) -> Path:
    path = folder / "other.json"
    path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return path


def test_help_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    """Help of every command has an example of it."""
    for command in ("check", "explain", "draw"):
        code, out, _ = run(capsys, command, "--help")
        assert code == 0
        assert f"agentloop schema {command}" in out.split("Examples")[1]


def test_no_model_library_is_loaded() -> None:
    """Schemas are looked at without torch, so that the commands answer at once."""
    code = "import agentloop.schema_commands, sys; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_check_tells_what_is_not_exact_and_the_size(
    capsys: pytest.CaptureFixture[str], schema: Path
) -> None:
    """Bounded keywords and remarks with their places; states and a shortest value."""
    code, out, _ = run(capsys, "check", schema)
    assert code == 0
    assert "bounded  #/properties/mail format" in out
    assert "remark   #/properties/on colour" in out
    assert "maxLength" not in out
    assert 'a shortest value: {"name":""}' in out
    assert "maxLength" in run(capsys, "check", schema, "--all")[1]
    assert (
        "remark   #/properties/mail format" in run(capsys, "check", schema, "--annotate-formats")[1]
    )


def test_check_counts_tokens_with_a_tokenizer(
    capsys: pytest.CaptureFixture[str], schema: Path, tmp_path: Path
) -> None:
    """The fewest tokens are those of the shortest way to spell an answer, its end included."""
    path = tmp_path / "tokenizer.json"
    path.write_text(tiny_tokenizer().to_str(), encoding="utf-8")
    code, out, _ = run(capsys, "check", schema, "--tokenizer", path, "--json")
    assert code == 0
    found = json.loads(out)
    assert found["shortest"] == '{"name":""}'
    assert found["min_tokens"] == len(['{"', "name", '":', '"', '"}', "<end>"])
    assert {f["status"] for f in found["findings"]} == {"exact", "bounded", "remark"}
    code, _, err = run(capsys, "check", schema, "--tokenizer", schema)
    assert code == 1
    assert "is no tokenizer.json" in err


def test_check_lists_every_refusal(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """What is refused is listed past the first, and the exit code is 1."""
    bad = {"properties": {"a": {"pattern": "(x)\\1"}, "b": {"multipleOf": 0}}, "minItems": 2}
    code, out, _ = run(capsys, "check", write(tmp_path, bad))
    assert code == 1
    assert "refused  #/properties/a pattern" in out
    assert "refused  #/properties/b multipleOf" in out
    nothing = {"type": "string", "enum": [1]}
    code, out, _ = run(capsys, "check", write(tmp_path, nothing))
    assert code == 1
    assert "no value satisfies it" in out


def test_explain_points_at_the_place(
    capsys: pytest.CaptureFixture[str], schema: Path, tmp_path: Path
) -> None:
    """The line, a caret below the character, and one sentence; JSON has all fields."""
    code, out, _ = run(capsys, "explain", schema, '{"name": "Johanna"}')
    assert code == 1
    lines = out.splitlines()
    assert lines[0][lines[1].index("^")] == "n"
    assert "at /name: found" in lines[2]
    assert run(capsys, "explain", schema, '{"name": "Jo"}') == (0, "valid\n", "")
    text = tmp_path / "text.json"
    text.write_text('{\n  "name": "Jo",\n  "on": 1\n}', encoding="utf-8")
    code, out, _ = run(capsys, "explain", schema, "--file", text, "--json")
    assert code == 1
    found = json.loads(out)
    assert not found["valid"]
    assert found["rejection"]["pointer"] == "/on"
    assert (found["rejection"]["line"], found["rejection"]["column"]) == (3, 9)
    assert found["rejection"]["allowed"] == ["true", "false"]


def test_a_long_line_is_cut_around_the_place(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The caret stands below the character however far in the line it is."""
    text = json.dumps(["x" * 200, 7])
    items = write(tmp_path, {"items": {"type": "string"}})
    _, out, _ = run(capsys, "explain", items, text)
    lines = out.splitlines()
    assert len(lines[0]) < 80
    assert lines[0][lines[1].index("^")] == "7"


def test_draw_prints_a_drawing(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Mermaid by default, DOT on request; what is too large is refused."""
    flag = write(tmp_path, {"type": "boolean"})
    assert run(capsys, "draw", flag)[1].startswith("flowchart LR\n")
    assert run(capsys, "draw", flag, "--form", "dot")[1].startswith("digraph constraint {")
    code, out, err = run(capsys, "draw", flag, "--max-states", 1)
    assert (code, out) == (1, "")
    assert "more than max_states = 1" in err


def test_a_schema_may_come_from_standard_input(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`-` reads it there."""
    monkeypatch.setattr("sys.stdin", io.StringIO('{"type": "null"}'))
    assert run(capsys, "explain", "-", "null")[0] == 0


@pytest.mark.parametrize(
    ("content", "reason"),
    [("{", "is not JSON"), ("[1]", "holds list, expected a JSON schema"), (None, "cannot be read")],
)
def test_what_is_no_schema_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, content: str | None, reason: str
) -> None:
    """An error on standard error, nothing on standard output."""
    path = tmp_path / "missing.json" if content is None else write(tmp_path, content)
    for arguments in (("check", path), ("explain", path, "1"), ("draw", path)):
        code, out, err = run(capsys, *arguments)
        assert (code, out) == (1, "")
        assert reason in err
    assert "not both" in run(capsys, "explain", path)[2]
