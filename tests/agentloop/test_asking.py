"""Questions: a run waits for answers at any depth, and nothing runs twice for it."""

import asyncio
from collections import Counter
from typing import Literal

import pytest

from agentloop import END, START, Graph, both, each, llm, tool
from agentloop.asking import ask
from agentloop.errors import GraphError
from agentloop.stores import MemoryStore
from agentloop.testing import ScriptedModel
from tests.agentloop.recorded import S, go


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
