"""Effects: recorded before they run, never repeated, or repeated with the same key."""

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agentloop import END, START, Graph, llm, node, tool
from agentloop.context import RETRY, idempotency_key
from agentloop.errors import GraphError
from agentloop.stores import MemoryStore, Row
from agentloop.testing import ScriptedModel
from tests.agentloop.recorded import S, go, resumed


def test_an_effect_is_recorded_before_it_runs_and_its_result_before_anything_depends_on_it() -> (
    None
):
    """The rows are safe in that order: flushed before the effect, and again after it."""
    events: list[str] = []

    class Watched(MemoryStore):
        async def open(self, run: str) -> Any:
            log: Any = await super().open(run)

            class Log:
                rows = log.rows
                status = log.status

                def append(self, row: Row) -> None:
                    events.append(row.kind)
                    log.append(row)

                async def flush(self) -> None:
                    events.append("flush")

                async def close(self, status: str) -> None:
                    await log.close(status)

            return Log()

    @tool(effect="once")
    async def send(to: str) -> str:
        events.append(f"sent with {idempotency_key()}")
        return to

    async def work(s: S) -> None:
        s.log += [await send("Ann")]

    go(Graph(S).chain(START, work, END), Watched(), S())
    around = ["intent", "flush", "sent with r/work:0", "call", "flush"]
    assert events == ["start", *around, "patch", "end"]


def test_an_effect_interrupted_in_the_middle_is_never_run_again_by_itself() -> None:
    """Nobody knows whether it happened, so the run asks: its result, or RETRY."""
    sent: list[str] = []

    @tool(effect="once")
    async def send(to: str) -> int:
        sent.append(idempotency_key())
        return len(sent)

    async def work(s: S) -> None:
        s.total += await send("Ann")

    graph = Graph(S).chain(START, work, END)
    store = MemoryStore()
    go(graph, store, S())
    rows = store.rows("r")
    assert [row.kind for row in rows] == ["start", "intent", "call", "patch", "end"]
    for kept in range(1, len(rows) + 1):
        sent.clear()
        store = resumed(rows[:kept])
        result = go(graph, store)
        if rows[kept - 1].kind != "intent":
            assert (result.state.total, len(sent)) == (1, int(kept == 1))
            continue
        assert (result.waiting, sent) == (("work:0",), [])
        assert result.questions["work:0"]["interrupted"] == "send"
        assert go(graph, store).waiting == ("work:0",)
        assert go(graph, resumed(rows[:kept]), answers={"work:0": 41}).state.total == 41
        assert sent == []
        assert go(graph, store, answers={"work:0": RETRY}).state.total == 1
        assert sent == ["r/work:0"]


def test_an_idempotent_effect_runs_again_with_the_same_key() -> None:
    """In retries of its node and in resumed runs alike."""
    keys: list[str] = []

    @tool(effect="idempotent")
    async def pay(amount: int) -> int:
        keys.append(idempotency_key())
        if len(keys) < 3:
            raise OSError("connection lost")
        return amount

    async def work(s: S) -> None:
        s.total += await pay(5)

    graph = Graph(S).chain(START, node(work, retries=1), END)
    store = MemoryStore()
    with pytest.raises(OSError, match="connection lost"):
        go(graph, store, S())
    assert go(graph, store).state.total == 5
    assert keys == ["r/work:0"] * 3


def test_a_retry_makes_its_pure_calls_anew_but_no_effect_twice() -> None:
    """A call that misled the first try does not mislead the second; what was sent stays sent."""
    sent: list[str] = []

    @tool(effect="once")
    async def send(to: str) -> int:
        sent.append(to)
        return 1

    async def work(s: S) -> None:
        s.total += await send("Ann")
        word = await llm(str, "word?")
        if word == "bad":
            raise ValueError("bad word")
        s.log += [word]

    graph = Graph(S).chain(START, node(work, retries=1), END)
    result = go(graph, MemoryStore(), S(), model=ScriptedModel(["bad", "good"]))
    assert (result.state.log, sent) == (["good"], ["Ann"])


def test_an_effect_past_the_limit_of_calls_was_not_begun() -> None:
    """The run may go on with a higher limit, and nobody has to say whether it happened."""

    @tool(effect="once")
    async def send(to: str) -> int:
        return 1

    async def work(s: S) -> None:
        s.total += await send("Ann") + await send("Bob")

    graph = Graph(S).chain(START, work, END)
    store = MemoryStore()
    assert isinstance(go(graph, store, S(), max_calls=1, check=False).error, GraphError)
    assert go(graph, store).state.total == 2


PROGRAM = """
import asyncio, os, sys
from pydantic import BaseModel
from agentloop import END, START, Graph, Log, each, node, tool
from agentloop.context import RETRY

class S(BaseModel):
    items: tuple[int, ...] = (0, 1, 2)
    log: Log[str] = []

def note(text):
    with open(sys.argv[2], "a") as file:
        file.write(text + "\\n")

@tool(effect="once")
async def send(i: int) -> str:
    note(f"send {i}")
    if sys.argv[3] == f"in send {i}":
        os.kill(os.getpid(), 9)
    return f"sent {i}"

async def first(s: S):
    note("first")
    s.log += ["first"]

async def work(s: S, i: int):
    note(f"work {i}")
    s.log += [await send(i)]
    if sys.argv[3] == f"after send {i}":
        os.kill(os.getpid(), 9)

async def last(s: S):
    note("last")
    s.log += ["last"]
    if sys.argv[3] == "last":
        os.kill(os.getpid(), 9)

graph = Graph(S).chain(START, first, each(work, over="items", limit=1), last, END)
answers = {"work[1]:0": "sent before the crash"} if sys.argv[3] == "answer" else None
result = graph.run_sync(S(), run="r", store=sys.argv[1], answers=answers)
note(f"{result.status} {result.waiting} {result.state.log}")
"""


def child(tmp_path: Path, when: str) -> tuple[int, list[str]]:
    """Run the program in a process that is killed at a place; what it noted."""
    notes = tmp_path / "notes"
    notes.unlink(missing_ok=True)
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "runs.db"), str(notes), when]
    done = subprocess.run(command, check=False)
    return done.returncode, notes.read_text().splitlines()


def test_a_killed_process_is_continued_by_another(tmp_path: Path) -> None:
    """Killed after an effect: its result is on the disk, and no effect happens twice."""
    killed, notes = child(tmp_path, "after send 1")
    assert killed == -signal.SIGKILL
    assert notes == ["first", "work 0", "send 0", "work 1", "send 1"]
    killed, notes = child(tmp_path, "last")
    assert killed == -signal.SIGKILL
    assert [one for one in notes if one.startswith("send")] == ["send 2"]
    code, notes = child(tmp_path, "never")
    assert code == 0
    assert [one for one in notes if one.startswith("send")] == []
    assert notes[-1] == "done () ['first', 'sent 0', 'sent 1', 'sent 2', 'last']"


def test_a_process_killed_inside_an_effect_leaves_a_question(tmp_path: Path) -> None:
    """The next process does not repeat it, but says that it has to be told."""
    assert child(tmp_path, "in send 1")[0] == -signal.SIGKILL
    code, notes = child(tmp_path, "never")
    assert code == 0
    assert "send 1" not in notes
    assert notes[-1] == "waiting ('work[1]:0',) ['first', 'sent 0', 'sent 2']"
    code, notes = child(tmp_path, "answer")
    assert code == 0
    expected = ["first", "sent 0", "sent before the crash", "sent 2", "last"]
    assert notes[-1] == f"done () {expected}"
