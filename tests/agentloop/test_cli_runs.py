"""The commands `agentloop runs ...`."""

from pathlib import Path

import pytest

from agentloop.__main__ import main
from agentloop.run_commands import load_graph
from agentloop.sqlite_store import SQLiteStore
from tests.agentloop.command import Ran, Run

AGENT = """
from pydantic import BaseModel
from agentloop import END, START, Graph, Log, ask, tool

class S(BaseModel):
    word: str = "tea"
    log: Log[str] = []

@tool(effect="once")
async def send(text: str) -> str:
    with open("sent.txt", "a") as file:
        file.write(text + "\\n")
    return f"sent {text}"

async def first(s: S):
    s.log += [s.word]

async def approve(s: S):
    s.log += [await ask(f"send {s.word}?", str)]

async def deliver(s: S):
    s.log += [await send(s.word)]

g = Graph(S).chain(START, first, approve, deliver, END)
other = Graph(S, name="other").chain(START, first, END)
"""


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the command where a store has one run that waits; the graph is in agent.py."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AGENTLOOP_CACHE", str(tmp_path / "cache"))
    Path("agent.py").write_text(AGENT)
    graph = load_graph("agent.py:g")
    store = SQLiteStore("runs.db")
    graph.run_sync(graph.state(), run="42", store=store)
    store.close()

    def call(*arguments: str) -> Ran:
        capsys.readouterr()
        code = main(("runs", *arguments))
        seen = capsys.readouterr()
        return Ran(code, seen.out, seen.err)

    return call


def test_runs_are_listed_and_shown(run: Run) -> None:
    """For people with what a run waits for; as JSON with everything."""
    listed = run("list", "runs.db")
    assert listed.code == 0
    assert listed.out.splitlines()[1].split()[:3] == ["42", "waiting", "3"]
    assert [info["name"] for info in run("list", "runs.db", "--json").json] == ["42"]
    assert run("list", "runs.db", "--status", "done", "--json").json == []
    shown = run("show", "runs.db", "42")
    assert "done     first" in shown.out
    assert "? approve:0: send tea?" in shown.out
    whole = run("show", "runs.db", "42", "--json").json
    assert whole["questions"] == {"approve:0": "send tea?"}
    assert whole["steps"]["first"]["patch"] == {"log": ["tea"]}


def test_a_run_is_answered_and_ends(run: Run) -> None:
    """An answer is JSON or a plain word; what happened does not happen again."""
    still = run("resume", "runs.db", "42", "--graph", "agent.py:g", "--json")
    assert (still.code, still.json["status"]) == (0, "waiting")
    done = run("resume", "runs.db", "42", "-g", "agent.py:g", "--answer", "approve:0=yes", "--json")
    assert done.json["status"] == "done"
    assert done.json["state"]["log"] == ["tea", "yes", "sent tea"]
    again = run("resume", "runs.db", "42", "-g", "agent.py:g")
    assert (again.code, again.out.splitlines()[0]) == (0, "42 done")
    assert Path("sent.txt").read_text() == "tea\n"


def test_a_run_is_forked_and_replayed(run: Run) -> None:
    """A fork goes on from its step; a replay calls nodes, and nothing outside."""
    run("resume", "runs.db", "42", "-g", "agent.py:g", "--answer", 'approve:0="yes"')
    assert run("fork", "runs.db", "42", "43", "--before", "approve").code == 0
    forked = run(
        "resume", "runs.db", "43", "-g", "agent.py:g", "--answer", "approve:0=no", "--json"
    )
    assert forked.json["state"]["log"] == ["tea", "no", "sent tea"]
    replayed = run("replay", "runs.db", "42", "-g", "agent.py:g", "--json")
    assert replayed.json["state"]["log"] == ["tea", "yes", "sent tea"]
    assert Path("sent.txt").read_text() == "tea\ntea\n"
    Path("changed.py").write_text(AGENT.replace("send {s.word}?", "SEND {s.word}?"))
    changed = run("replay", "runs.db", "42", "-g", "changed.py:g")
    assert changed.code == 1
    assert "but now it is ask" in changed.err


def test_old_runs_are_pruned(run: Run) -> None:
    """Only those that stand as named and are old enough; a dry run only names them."""
    assert run("prune", "runs.db", "--older-than", "0s", "--json").json == []
    options = ("--older-than", "0s", "--status", "waiting", "--json")
    assert run("prune", "runs.db", *options, "--dry-run").json == ["42"]
    assert run("prune", "runs.db", "--older-than", "1h", "--status", "waiting", "--json").json == []
    assert run("prune", "runs.db", *options).json == ["42"]
    assert run("list", "runs.db", "--json").json == []


def test_a_report_is_written(run: Run) -> None:
    """A page with the graph drawn on it if it is named."""
    assert run("report", "runs.db", "42", "--out", "42.html").code == 0
    assert "<svg" not in Path("42.html").read_text()
    assert run("report", "runs.db", "42", "-o", "42.html", "-g", "agent.py:g").code == 0
    assert "<svg" in Path("42.html").read_text()


WRONG = [
    (("list", "none.db"), "there is no store none.db"),
    (("show", "runs.db", "7"), "there is no run '7'"),
    (("list", "runs.db", "--status", "odd"), "--status 'odd' is none; use one of done, waiting"),
    (("prune", "runs.db", "--older-than", "soon"), "'soon' is no time; write 30d"),
    (("resume", "runs.db", "42", "-g", "agent"), "does not name a graph; write module:name"),
    (("resume", "runs.db", "42", "-g", "agent.py:h"), "has no graph 'h'; it has g, other"),
    (("resume", "runs.db", "42", "-g", "no.py:g"), "no.py cannot be loaded: there is no such file"),
    (("resume", "runs.db", "42", "-g", "no_such:g"), "no_such cannot be loaded"),
    (("resume", "runs.db", "42", "-g", "agent.py:other"), "was recorded with another graph"),
    (("resume", "runs.db", "42", "-g", "agent.py:g", "--answer", "x"), "has no value"),
    (("fork", "runs.db", "42", "43", "--before", "nope"), "has no step 'nope'; it has first"),
    (("fork", "runs.db", "42", "42", "--before", "first"), "run '42' is there already"),
    (("report", "runs.db", "42", "-o", "no/where.html"), "no/where.html cannot be written"),
]


@pytest.mark.parametrize(("arguments", "message"), WRONG)
def test_mistakes_are_told_and_lose_nothing(
    run: Run, arguments: tuple[str, ...], message: str
) -> None:
    """One paragraph on standard error, exit code 1, and the run is as it was."""
    before = Path("runs.db").stat().st_size
    ran = run(*arguments)
    assert (ran.code, ran.out) == (1, "")
    assert message in " ".join(ran.err.split())
    assert run("list", "runs.db", "--json").json[0]["status"] == "waiting"
    assert before > 0


def test_help_has_examples(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """For every command of the group."""
    for command in ("list", "show", "resume", "fork", "replay", "prune", "report"):
        assert main(("runs", command, "--help")) == 0
        assert f"agentloop runs {command} runs.db" in capsys.readouterr().out
