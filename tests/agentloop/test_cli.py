"""The command: what it prints where, its exit codes, and what it says of bad input."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer.main

from agentloop.__main__ import main
from agentloop.cli import app
from agentloop.model.checkpoint import read_tensors
from agentloop.model.tensors import save_tensors
from tests.agentloop.command import Ran, Run
from tests.model.tiny import write_folder

DOCUMENTS = {
    "peru.txt": "Perú is big.\nIts capital\nis Lima.\n",
    "chile.md": "# Chile\n\nThe capital is Santiago.\n",
}
TOOLS = [
    {
        "name": "wake",
        "description": "Wake.",
        "parameters": {
            "type": "object",
            "properties": {"hour": {"type": "integer", "minimum": 0, "maximum": 23}},
            "required": ["hour"],
            "additionalProperties": False,
        },
    }
]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder with random weights."""
    folder = tmp_path_factory.mktemp("model") / "tiny"
    write_folder(folder)
    return folder


@pytest.fixture
def run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tiny: Path
) -> Run:
    """Runs the command with a cache of its own and random weights."""
    monkeypatch.setenv("AGENTLOOP_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("AGENTLOOP_MODEL", str(tiny))
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> Ran:
        capsys.readouterr()
        code = main(arguments)
        seen = capsys.readouterr()
        return Ran(code, seen.out, seen.err)

    return call


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    """A folder of two documents."""
    folder = tmp_path / "docs"
    folder.mkdir()
    for name, text in DOCUMENTS.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def assert_refused(ran: Ran, *parts: str) -> None:
    """Exit code 1, nothing on standard output, an error without a traceback that says all this."""
    assert ran.code == 1
    assert ran.out == ""
    assert ran.err.startswith("error: ")
    assert "Traceback" not in ran.err
    for part in parts:
        assert part in ran.err


def test_help_is_quick_and_has_examples(run: Run) -> None:
    """Help of every command has an example of it."""
    for command in ("index", "ask", "call", "watch", "demo"):
        ran = run(command, "--help")
        assert ran.code == 0
        assert f"agentloop {command}" in ran.out.split("Examples")[1]


def test_the_documentation_names_every_command_and_option() -> None:
    """docs/cli.md has a section for each command, and each option stands there or above."""
    page = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")
    shared, *sections = page.split("\n## ")
    told = {text.split()[1].strip("`"): text for text in sections}
    commands: Any = typer.main.get_command(app)
    assert list(told) == list(commands.commands)
    for name, command in commands.commands.items():
        for option in command.params:
            flag = next((o for o in option.opts if o.startswith("--")), None)
            assert flag is None or f"`{flag}" in told[name] + shared, (name, flag)


def test_importing_the_command_loads_no_model_library() -> None:
    """Help and mistakes answer at once."""
    code = "import agentloop.__main__, sys; print(sorted({'torch', 'numpy'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_version(run: Run) -> None:
    """The version is that of the installed package."""
    from importlib.metadata import version

    assert run("--version").out == f"agentloop {version('agentloop')}\n"


@pytest.mark.parametrize(
    "arguments",
    [["fly"], ["ask"], ["ask", "x", "y", "--effort", "huge"], ["watch", "x", "--delay", "-1"]],
)
def test_wrong_usage_has_its_own_code(run: Run, arguments: list[str]) -> None:
    """Unknown commands, missing arguments and values out of range end with 2."""
    ran = run(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert "agentloop" in ran.err


def test_an_interrupt_has_its_own_code(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C ends with 130 and without a traceback."""

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("agentloop.cli_documents.run_index", interrupted)
    ran = run("index", "docs")
    assert ran.code == 130
    assert "Traceback" not in ran.err


def test_index_and_ask(run: Run, docs: Path) -> None:
    """An indexed folder is asked by its name; every citation equals the file's bytes."""
    made = run("index", str(docs), "--lexical")
    assert (made.code, made.err) == (0, "")
    assert "2 files added" in made.out
    again = run("index", str(docs), "--lexical", "--json")
    assert again.json["unchanged"] == 2
    found = run("ask", str(docs), "capital", "--json", "--required", "--effort", "instant")
    assert found.code == 0
    assert found.json["index"] == again.json["index"]
    (citation,) = found.json["citations"]
    stored = DOCUMENTS[citation["path"]].encode()
    assert stored[citation["start_byte"] : citation["end_byte"]] == citation["quote"].encode()
    assert found.json["answer"] in " ".join(citation["quote"].split())
    assert found.json["steps"] >= 1
    shown = run("ask", again.json["index"], "capital", "--required", "--effort", "instant")
    assert found.json["answer"] in shown.out
    assert citation["quote"] in shown.out
    assert f"{citation['path']}:{citation['start']}-{citation['end']}" in shown.out
    assert "step" in shown.out.splitlines()[-1]


def test_ask_notices_changes_of_a_folder(run: Run, docs: Path) -> None:
    """A folder is synced before it is asked; what is not there is not answered."""
    assert run("index", str(docs), "--lexical").code == 0
    (docs / "new.txt").write_text("A zebra is striped.", encoding="utf-8")
    found = run("ask", str(docs), "zebra", "--json", "--required", "--effort", "instant")
    assert [c["path"] for c in found.json["citations"]] == ["new.txt"]
    nothing = run("ask", str(docs), "xylophone")
    assert "not in the documents" in nothing.out


def test_a_file_that_cannot_be_read_loses_nothing(run: Run, docs: Path) -> None:
    """It is named with the reason; the others are indexed."""
    (docs / "broken.pdf").write_bytes(b"%PDF-1.4 nothing")
    (docs / "picture.png").write_bytes(b"\x89PNG")
    ran = run("index", str(docs), "--lexical")
    assert ran.code == 0
    assert "broken.pdf  failed" in ran.out
    assert "picture.png  unsupported" in ran.out
    found = run("ask", str(docs), "capital", "--effort", "instant")
    assert found.code == 0
    assert "2 files not searchable in full" in found.err


def test_what_is_printed_of_a_citation_is_exact(run: Run, docs: Path) -> None:
    """Tabs, brackets and colons of a document come through a pipe unchanged."""
    text = "A [bold]zebra[/] is :smile: 3\tmetres  long.\r\n"
    (docs / "odd [x].txt").write_bytes(text.encode())
    assert run("index", str(docs), "--lexical").code == 0
    arguments = ("ask", str(docs), "zebra", "--required", "-e", "instant")
    (citation,) = run(*arguments, "--json").json["citations"]
    assert citation["quote"] in text
    shown = run(*arguments)
    assert citation["quote"] in shown.out
    assert f"odd [x].txt:{citation['start']}-{citation['end']}" in shown.out


def test_folders_that_are_missing_or_empty(run: Run, tmp_path: Path) -> None:
    """Each is named, and no index is made of it."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "file.txt").write_text("x")
    assert_refused(run("index", "gone"), "gone does not exist")
    assert_refused(run("ask", "gone", "What?"), "gone does not exist")
    assert_refused(run("index", "file.txt"), "file.txt is not a folder")
    assert_refused(run("index", "empty", "--lexical"), "empty", "no ")


def test_a_corrupt_index(run: Run, docs: Path, tmp_path: Path) -> None:
    """A damaged index is named; the documents are untouched."""
    assert run("index", str(docs), "--index", "idx", "--lexical").code == 0
    for path in (tmp_path / "idx").iterdir():
        path.write_bytes(b"not an index" * 400)
    assert_refused(run("ask", "idx", "capital"), "idx")
    assert (docs / "peru.txt").read_text(encoding="utf-8") == DOCUMENTS["peru.txt"]


def test_a_question_longer_than_the_context(run: Run, docs: Path) -> None:
    """Both lengths are named."""
    assert run("index", str(docs), "--lexical").code == 0
    ran = run("ask", str(docs), "capital " * 1000)
    assert_refused(ran, "but the model's context is", "shorten the prompt")


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A file of one tool."""
    path = tmp_path / "tools.json"
    path.write_text(json.dumps(TOOLS))
    return path


def test_call_prints_checked_calls(run: Run, tools: Path) -> None:
    """The call satisfies the schema, whatever the weights; JSON and text tell the same."""
    ran = run("call", str(tools), "Wake me at six", "--required", "--json", "-e", "instant")
    assert ran.code == 0
    (call,) = ran.json["calls"]
    assert call["name"] == "wake"
    assert 0 <= call["arguments"]["hour"] <= 23
    shown = run("call", str(tools), "Wake me at six", "--required", "-e", "instant")
    assert shown.out.splitlines()[0] == f"wake {json.dumps(call['arguments'])}"
    assert "step" in shown.out.splitlines()[1]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("[{", "tools.json:1:3 is not JSON"),
        ('"tools"', "expected a JSON list of tools"),
        ("[]", "holds an empty list"),
        ('[{"title": "x"}]', "tools.json#/0"),
        ('[{"name": "a", "parameters": {"type": "object", "minProperties": -1}}]', "'a'"),
        (json.dumps(TOOLS * 2), "'wake'"),
    ],
)
def test_files_that_hold_no_tools(run: Run, tools: Path, content: str, says: str) -> None:
    """Each mistake is told with its place, before the model is loaded."""
    tools.write_text(content)
    assert_refused(run("call", str(tools), "Wake me"), says)


def test_a_missing_file_of_tools(run: Run) -> None:
    """The file is named."""
    assert_refused(run("call", "gone.json", "Wake me"), "gone.json", "cannot be read")


def test_watch_prints_the_answer_alone_when_piped(run: Run, tmp_path: Path, tools: Path) -> None:
    """Every form of answer is kept to; without a terminal there is no drawing."""
    assert run("watch", "Wet?", "--choices", "yes, no").out in ("yes\n", "no\n")
    (tmp_path / "s.json").write_text('{"type": "integer", "minimum": 1, "maximum": 9}')
    assert run("watch", "How many?", "--schema", "s.json").out.strip() in "123456789"
    assert isinstance(run("watch", "Wake me", "--tools", str(tools)).json, list)
    assert run("watch", "Say something", "--max-tokens", "8", "-e", "instant").code == 0


def test_watch_refuses_what_it_cannot_do(run: Run, tmp_path: Path) -> None:
    """Schemas that are missing, no JSON, no schema or unsupported; two forms; a small canvas."""
    path = tmp_path / "s.json"
    assert_refused(run("watch", "x", "--schema", "gone.json"), "gone.json cannot be read")
    path.write_text("{")
    assert_refused(run("watch", "x", "--schema", "s.json"), "s.json:1:2 is not JSON")
    path.write_text("[1]")
    assert_refused(run("watch", "x", "--schema", "s.json"), "expected a JSON schema")
    path.write_text('{"type": "strong"}')
    assert_refused(run("watch", "x", "--schema", "s.json"), "'type'", "strong")
    path.write_text('{"type": "string", "pattern": "(a)\\\\1"}')
    assert_refused(run("watch", "x", "--schema", "s.json"), "not supported")
    path.write_text('{"const": "a long text"}')
    small = run("watch", "x", "--schema", "s.json", "--max-tokens", "3")
    assert_refused(small, "needs at least 14 tokens but the canvas has 3")
    both = run("watch", "x", "--schema", "s.json", "--choices", "a")
    assert_refused(both, "--schema and --choices are given")
    assert_refused(run("watch", "x", "--choices", " , "), "at least one")


def test_models_that_are_damaged(run: Run, tools: Path, tmp_path: Path) -> None:
    """A missing folder, a missing tensor, one too many: each is named."""
    arguments = ("call", str(tools), "Wake me", "--model")
    assert_refused(run(*arguments, "gone"), "'gone' is neither 'default' nor a folder")
    folder = tmp_path / "damaged"
    write_folder(folder)
    tensors = dict(read_tensors(folder))
    some = next(iter(tensors))
    less = {name: tensor for name, tensor in tensors.items() if name != some}
    save_tensors(less, folder / "model.safetensors")
    assert_refused(run(*arguments, str(folder)), some.removeprefix("model."))
    save_tensors({**tensors, "model.more": tensors[some].clone()}, folder / "model.safetensors")
    assert_refused(run(*arguments, str(folder)), "more")
