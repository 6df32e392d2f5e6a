"""Recorded runs: killed anywhere they go on as if nothing had happened."""

import asyncio
import itertools
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from agentloop import END, START, Graph, Log, Merge, Sum, both, each, llm, node, tool
from agentloop.asking import ask, now, random, sleep, step
from agentloop.context import RETRY, idempotency_key
from agentloop.errors import DeterminismError, GraphError, JournalError, StateError, ToolError
from agentloop.runs import RunResult
from agentloop.sqlite_store import SQLiteStore, sqlite_store
from agentloop.stores import MemoryStore, Row, Store
from agentloop.testing import ScriptedModel


class Item(BaseModel, frozen=True):
    name: str
    size: float = 0.5


class S(BaseModel):
    n: int = 0
    items: tuple[int, ...] = (1, 2, 3)
    log: Log[str] = []
    total: Sum[int] = 0
    facts: Merge[str, Item] = {}
    found: Item | None = None
    limit: float = 0.0


def resumed(rows: list[Row], name: str = "r") -> MemoryStore:
    """A store in which a run was killed after these rows."""
    store = MemoryStore()

    async def fill() -> None:
        log = await store.open(name)
        for row in rows:
            log.append(row)
        await log.close("running")

    asyncio.run(fill())
    return store


def go(graph: Graph[S], store: Store, state: S | None = None, **options: Any) -> RunResult[S]:
    return graph.run_sync(state, run="r", store=store, **options)


def test_a_finished_run_gives_its_result_again_without_running_anything() -> None:
    """Every value comes back as its own type, and no node is called."""
    calls: list[str] = []

    async def work(s: S) -> None:
        calls.append("work")
        s.n = 3
        s.limit = float("inf")
        s.log += ["a"]
        s.total += 2
        s.facts["k"] = Item(name="x", size=2.5)
        s.found = Item(name="y")

    graph = Graph(S).chain(START, work, END)
    store = MemoryStore()
    first = go(graph, store, S())
    again = go(graph, store)
    assert again.state == first.state
    assert again.state.facts == {"k": Item(name="x", size=2.5)}
    assert calls == ["work"]
    assert [info.status for info in store.runs()] == ["done"]
    assert "node.replay" in [event.kind for event in again.events]


def test_a_run_killed_after_any_row_ends_the_same_and_repeats_nothing_recorded() -> None:
    """Loops, parallel branches and sub-graphs all resume from their last recorded patch."""
    calls: Counter[str] = Counter()

    async def first(s: S) -> None:
        calls["first"] += 1
        s.total += 1

    async def work(s: S, i: int) -> None:
        calls[f"work{i}"] += 1
        await asyncio.sleep(0)
        s.log += [f"{i}.{s.total}"]

    async def inner(s: S) -> None:
        calls["inner"] += 1
        s.total += 10

    async def verify(s: S) -> Literal["first", "END"]:
        calls["verify"] += 1
        return "first" if s.total < 30 else "END"

    sub = Graph(S, name="sub").chain(START, inner, END)
    graph = Graph(S).chain(START, first, both(each(work, over="items"), sub), verify)
    graph.route(verify, first, END, limit=9)
    store = MemoryStore()
    whole = go(graph, store, S())
    assert whole.state.total == 33
    rows = store.rows("r")
    steps_in_all = sum(calls.values())
    for kept in range(1, len(rows) + 1):
        calls.clear()
        result = go(graph, resumed(rows[:kept]))
        assert result.state == whole.state
        num_recorded = sum(row.kind == "patch" for row in rows[:kept])
        assert sum(calls.values()) == steps_in_all - num_recorded


def test_a_node_that_was_interrupted_gets_its_recorded_calls_again() -> None:
    """Calls that ended are not made again, even when they were gathered and ended out of order."""
    calls: Counter[str] = Counter()

    @tool
    async def look(turns: int) -> Item:
        calls[f"look{turns}"] += 1
        for _ in range(turns):
            await asyncio.sleep(0)
        return Item(name=f"{turns}")

    def size(of: str) -> float:
        calls["size"] += 1
        return len(of) / 2

    async def work(s: S) -> None:
        answer = await llm(Item, "which?")
        found = await asyncio.gather(look(9), look(1), look(5))
        when, chance = await now(), await random()
        assert when == await step(lambda: when)
        s.log += [answer.name, *(item.name for item in found), f"{await step(size, 'abc')}"]
        s.log += [f"{when} {chance}"]

    graph = Graph(S).chain(START, work, END)
    store = MemoryStore()
    whole = go(graph, store, S(), model=ScriptedModel([Item(name="first")]))
    rows = store.rows("r")
    kinds = [row.kind for row in rows]
    assert kinds == ["start", *["call"] * 8, "patch", "end"]
    for kept in range(2, len(rows)):
        calls.clear()
        again = go(graph, resumed(rows[:kept]), model=ScriptedModel([]))
        num_tools = sum("tool" in row.data.decode() for row in rows[:kept])
        assert again.state.log[:5] == whole.state.log[:5]
        if kept > 7:
            assert again.state == whole.state
        if kept < 9:
            assert calls["look9"] + calls["look1"] + calls["look5"] == max(0, 3 - num_tools)


def test_another_call_at_a_recorded_place_is_an_error_that_shows_both() -> None:
    """A node whose calls depend on something unrecorded is found out, not mixed up."""
    words = iter(["one", "two"])

    async def work(s: S) -> None:
        s.log += [await llm(str, next(words))]
        raise ValueError("stop")

    graph = Graph(S).chain(START, work, END)
    store = MemoryStore()
    go(graph, store, S(), model=ScriptedModel(["a"]), check=False)
    with pytest.raises(DeterminismError) as caught:
        go(graph, store, model=ScriptedModel(["b"]))
    assert "the call at work:0 was llm str" in str(caught.value)
    assert '"content":"one"' in str(caught.value)
    assert '"content":"two"' in str(caught.value)


def test_a_failed_run_goes_on_at_the_node_that_failed() -> None:
    """What was committed stays committed; the failing node runs again."""
    fails = [True]
    calls: list[str] = []

    async def first(s: S) -> None:
        calls.append("first")
        s.log += ["first"]

    async def second(s: S) -> None:
        calls.append("second")
        if fails:
            raise OSError("no network")
        s.log += ["second"]

    graph = Graph(S).chain(START, first, second, END)
    store = MemoryStore()
    with pytest.raises(OSError, match="no network"):
        go(graph, store, S())
    assert store.runs()[0].status == "failed"
    fails.clear()
    assert go(graph, store).state.log == ["first", "second"]
    assert calls == ["first", "second", "second"]


# ---------------------------------------------------------------- ask


def test_a_question_stops_the_run_until_it_is_answered() -> None:
    """Nothing that ran before it runs again, however often the run is resumed."""
    calls: Counter[str] = Counter()

    async def before(s: S) -> None:
        calls["before"] += 1

    async def approve(s: S) -> None:
        calls["approve"] += 1
        text = await llm(str, "draft")
        sure = await ask({"send": text}, bool)
        how_many = await ask("how many?", int)
        s.log += [f"{text} {sure} {how_many}"]

    graph = Graph(S).chain(START, before, approve, END)
    store, model = MemoryStore(), ScriptedModel(["letter"])
    result = go(graph, store, S(), model=model)
    assert (result.status, result.waiting) == ("waiting", ("approve:1",))
    assert result.questions == {"approve:1": {"send": "letter"}}
    assert store.runs()[0].status == "waiting"
    assert go(graph, store, model=model).waiting == ("approve:1",)
    with pytest.raises(GraphError, match=r"answer to approve:1 \(ask\) does not fit: .* again"):
        go(graph, store, answers={"approve:1": "perhaps"})
    with pytest.raises(GraphError, match="answers to nobody:0, but it waits for approve:1"):
        go(graph, store, answers={"nobody:0": 1})
    result = go(graph, store, answers={"approve:1": True})
    assert result.waiting == ("approve:2",)
    result = go(graph, store, answers={"approve:2": 3})
    assert result.state.log == ["letter True 3"]
    assert (calls["before"], len(model.calls)) == (1, 1)
    assert go(graph, store).state.log == ["letter True 3"]


def test_questions_in_parallel_branches_wait_together_and_the_rest_goes_on() -> None:
    """A branch that waits holds up nobody else; joins happen once, after all answers."""
    calls: Counter[str] = Counter()

    async def question(s: S, i: int) -> None:
        if i == 2:
            s.log += ["no question"]
        else:
            s.log += [f"{i}: {await ask(f'item {i}?', str)}"]
        calls[f"done{i}"] += 1

    async def aside(s: S) -> None:
        calls["aside"] += 1

    async def after(s: S) -> None:
        calls["after"] += 1
        s.total += len(s.log)

    graph = Graph(S).chain(START, both([each(question, over="items"), after], aside), END)
    store = MemoryStore()
    result = go(graph, store, S())
    first, second = result.waiting
    assert list(result.questions.values()) == ["item 1?", "item 3?"]
    assert calls == {"done2": 1, "aside": 1}
    assert result.state.log == ["no question"]
    assert go(graph, store, answers={second: "late"}).waiting == (first,)
    result = go(graph, store, answers={first: "yes"})
    assert result.state.log == ["1: yes", "no question", "3: late"]
    assert result.state.total == 3
    assert calls == {"done1": 1, "done2": 1, "done3": 1, "aside": 1, "after": 1}


def test_every_visit_of_a_loop_may_ask_and_so_may_graphs_inside_graphs() -> None:
    """A question's path tells visits apart, at any depth."""

    async def inner(s: S) -> Literal["inner", "END"]:
        s.log += [await ask(len(s.log), str)]
        return "inner" if len(s.log) < 3 else "END"

    sub = Graph(S, name="sub").chain(START, inner).route(inner, inner, END, limit=5)
    outer = Graph(S, name="outer").chain(START, sub, END)
    graph = Graph(S).chain(START, outer, END)
    store = MemoryStore()
    result = go(graph, store, S())
    asked: list[str] = []
    while result.waiting:
        asked += result.waiting
        result = go(graph, store, answers={result.waiting[0]: f"answer {len(asked)}"})
    assert asked == ["outer/sub/inner:0", "outer/sub/inner#2:0", "outer/sub/inner#3:0"]
    assert result.state.log == ["answer 1", "answer 2", "answer 3"]


def test_questions_may_be_gathered_with_other_calls() -> None:
    """Both questions are asked at once, and a call beside them is not cut off."""

    @tool
    async def slow(turns: int) -> int:
        for _ in range(turns):
            await asyncio.sleep(0)
        return turns

    async def work(s: S) -> None:
        a, b, c = await asyncio.gather(ask("a?", int), slow(20), ask("c?", int))
        s.total += a + b + c

    graph = Graph(S).chain(START, work, END)
    store = MemoryStore()
    result = go(graph, store, S())
    assert result.questions == {"work:0": "a?", "work:2": "c?"}
    assert [row.kind for row in store.rows("r")] == ["start", "ask", "ask", "call"]
    result = go(graph, store, answers={"work:0": 1, "work:2": 300})
    assert result.state.total == 321


def test_asking_needs_a_store() -> None:
    """Outside a run, or in a run that is not recorded, the error says what to do."""

    async def work(s: S) -> None:
        await ask("?", bool)

    with pytest.raises(GraphError, match=r"needs a store to wait in: g\.run\(\.\.\., run="):
        Graph(S).chain(START, work, END).run_sync(S())
    with pytest.raises(GraphError, match="works inside a node of a run"):
        asyncio.run(ask("?", bool))


# ---------------------------------------------------------------- effects


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


def test_skipped_items_stay_skipped() -> None:
    """An item that failed and was left out is not tried again; what took its place stays."""
    calls: Counter[int] = Counter()

    async def work(s: S, i: int) -> None:
        calls[i] += 1
        if i == 2:
            raise ValueError("two")
        s.log += [f"{i}"]

    async def instead(s: S, i: int, error: Exception) -> None:
        s.log += [f"{error}"]

    async def last(s: S) -> None:
        await ask("?", bool)

    for on_error, log in (("skip", ["1", "3"]), (instead, ["1", "two", "3"])):
        calls.clear()
        body: Any = each(work, over="items", on_error=on_error)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - both kinds
        graph = Graph(S).chain(START, body, last, END)
        store = MemoryStore()
        assert go(graph, store, S()).waiting
        assert go(graph, store, answers={"last:0": True}).state.log == log
        assert calls == {1: 1, 2: 1, 3: 1}


# ---------------------------------------------------------------- what is refused


async def nothing(s: S) -> None: ...


def test_a_run_belongs_to_its_graph_and_its_state() -> None:
    """Another graph, another start, an unknown name or no name are refused, each with the fix."""
    graph = Graph(S).chain(START, nothing, END)
    longer = Graph(S).chain(START, nothing, node(nothing, name="more"), END)
    store = MemoryStore()
    go(graph, store, S())
    with pytest.raises(JournalError, match=r"recorded with another graph .* migrate=True"):
        go(longer, store)
    assert go(longer, store, migrate=True).state == S()
    assert go(longer, store).state == S()
    assert go(longer, store, S()).state == S()
    with pytest.raises(JournalError, match="started with another state; leave the state out"):
        go(longer, store, S(n=1))
    assert [info.status for info in store.runs()] == ["done"]
    with pytest.raises(JournalError, match="not in the store and no state was given"):
        graph.run_sync(run="other", store=store)
    with pytest.raises(GraphError, match="a recorded run needs a name"):
        graph.run_sync(S(), store=store)
    with pytest.raises(GraphError, match="a run needs a state to start with"):
        graph.run_sync()


DAMAGED: list[tuple[Callable[[Row], Row], str]] = [
    (lambda row: row._replace(data=b"{"), "damaged .* row at"),
    (lambda row: row._replace(data=b"[1]"), "damaged .* row at"),
    (lambda row: row._replace(data=b"\xff\x00"), "damaged .* row at"),
    (lambda row: row._replace(data=b'{"patch": {"n": "many"}}'), "row at|damaged row"),
    (lambda row: row._replace(data=b'{"patch": {"__class__": "os.system"}}'), "row at|damaged row"),
    (lambda row: row._replace(data=b'{"patch": {"log": {"x": 1}}}'), "row at|damaged row"),
    (lambda row: row._replace(data=b'{"patch": 3}'), "damaged row at"),
]


@pytest.mark.parametrize("case", range(len(DAMAGED)))
@pytest.mark.parametrize("place", [0, 1])
def test_a_hostile_row_is_data_and_is_refused(case: int, place: int) -> None:
    """Nothing in a store is executed or taken on trust: what is not valid stops the run."""
    damage, message = DAMAGED[case]

    async def work(s: S) -> None:
        s.n = 1

    graph = Graph(S).chain(START, work, END)
    store = MemoryStore()
    go(graph, store, S())
    rows = store.rows("r")
    rows[place] = damage(rows[place])
    with pytest.raises(JournalError, match=message if place else f"{message}|another graph"):
        go(graph, resumed(rows))


def test_a_recorded_choice_that_is_no_target_is_refused() -> None:
    """A row cannot send a run to a step that its route does not name."""

    async def choose(s: S) -> Literal["nothing", "END"]:
        return "END"

    graph = Graph(S).chain(START, choose).route(choose, nothing, END).chain(nothing, END)
    store = MemoryStore()
    go(graph, store, S())
    for choice in (b'"__import__"', b"3", b"[]", b"{}", b"null"):
        row = Row("choose", "patch", b'{"patch": {}, "choice": ' + choice + b"}")
        with pytest.raises(GraphError, match=r"none of its targets|has a damaged row at choose"):
            go(graph, resumed([store.rows("r")[0], row]))


def test_a_recorded_result_of_the_wrong_type_is_refused() -> None:
    """A tool's result is validated when it is read as when it was made."""

    @tool
    async def count() -> int:
        return 1

    async def work(s: S) -> None:
        s.total += await count()
        await ask("?", bool)

    graph = Graph(S).chain(START, work, END)
    store = MemoryStore()
    go(graph, store, S())
    rows = [
        row._replace(data=row.data.replace(b'"result":1', b'"result":"x"'))
        for row in store.rows("r")
    ]
    with pytest.raises(JournalError, match="the recorded result of count at work:0 is not valid"):
        go(graph, resumed(rows))


def test_what_has_no_json_form_cannot_be_recorded() -> None:
    """The error names the node; without a store the same graph runs."""

    class Odd(BaseModel):
        thing: Any = None

    async def work(s: Odd) -> None:
        s.thing = object()

    graph = Graph(Odd).chain(START, work, END)
    graph.run_sync(Odd())
    with pytest.raises(JournalError, match="what node work wrote cannot be recorded as JSON"):
        graph.run_sync(Odd(), run="r", store=MemoryStore())


def test_a_wrong_answer_to_a_route_is_not_recorded() -> None:
    """Once the node is put right, the run goes on."""
    answers: Iterator[Any] = iter(["nowhere", "END"])

    async def choose(s: S) -> Literal["nothing", "END"]:
        return next(answers)

    graph = Graph(S).chain(START, choose).route(choose, nothing, END).chain(nothing, END)
    store = MemoryStore()
    with pytest.raises(GraphError, match="none of its targets"):
        go(graph, store, S())
    assert [row.kind for row in store.rows("r")] == ["start"]
    assert go(graph, store).status == "done"


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


def test_errors_of_nodes_are_the_same_with_a_store() -> None:
    """A wrong write persists nothing."""

    async def work(s: S) -> None:
        s.n = 5
        s.n = "many"  # type: ignore[assignment]  # pyright: ignore[reportAttributeAccessIssue] - the mistake

    store = MemoryStore()
    with pytest.raises(StateError):
        go(Graph(S).chain(START, work, END), store, S())
    assert [row.kind for row in store.rows("r")] == ["start"]


# ---------------------------------------------------------------- the SQLite file

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


def test_a_path_is_a_sqlite_file_that_many_runs_share(tmp_path: Path) -> None:
    """`map` with a store records every run; those there already are not run again."""
    calls = itertools.count()

    async def work(s: S) -> None:
        next(calls)
        s.total += s.n

    graph = Graph(S).chain(START, work, END)
    path = tmp_path / "runs.db"
    states = [S(n=i) for i in range(20)]

    async def main(num: int) -> list[int]:
        results = await graph.map(states[:num], run="batch", store=path)
        return [result.state.total for result in results]

    assert asyncio.run(main(10)) == list(range(10))
    assert asyncio.run(main(20)) == list(range(20))
    assert next(calls) == 20
    assert {info.status for info in sqlite_store(path).runs()} == {"done"}
    sqlite_store(path).close()


def test_a_cancelled_run_can_be_continued(tmp_path: Path) -> None:
    """Its writer lets go of it, and what was committed is there."""
    store = SQLiteStore(tmp_path / "runs.db")

    async def first(s: S) -> None:
        s.log += ["first"]

    async def waits(s: S) -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        task = asyncio.create_task(
            Graph(S).chain(START, first, waits, END).run(S(), run="r", store=store)
        )
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert [row.path for row in store.rows("r")] == ["", "first"]
    assert store.runs()[0].status == "running"
    again = Graph(S).chain(START, first, node(nothing, name="waits"), END)
    assert go(again, store).state.log == ["first"]


def test_sleep_is_over_when_its_time_has_passed() -> None:
    """A resumed run waits only for what is left."""

    async def work(s: S) -> None:
        await sleep(0.01)
        await ask("?", bool)

    graph = Graph(S).chain(START, work, END)
    store = MemoryStore()
    go(graph, store, S())
    rows = store.rows("r")
    assert [row.kind for row in rows] == ["start", "call", "ask"]
    assert go(graph, store, answers={"work:1": True}).status == "done"


def test_a_failing_step_is_not_recorded() -> None:
    """It is made again on resume, since it gave nothing."""
    calls = itertools.count()

    async def flaky(limit: int) -> int:
        if next(calls) < limit:
            raise ToolError("not yet")
        return limit

    async def work(s: S) -> None:
        s.total += await step(flaky, 1)

    graph = Graph(S).chain(START, work, END)
    store = MemoryStore()
    assert isinstance(go(graph, store, S(), check=False).error, ToolError)
    assert go(graph, store).state.total == 1
