"""Limits of a whole run, and the way out that a graph names for them."""

import asyncio
from dataclasses import dataclass
from typing import Any, Literal

import pytest

from agentloop import END, START, Graph, ask, both, each, llm, node
from agentloop.errors import GraphBuildError, LimitError
from agentloop.steps import Each
from agentloop.stores import MemoryStore
from agentloop.testing import ScriptedModel, killed_after
from tests.agentloop.running import S, one, run, three, two


async def asks(s: S, i: int) -> None:
    """One model call, which says its item."""
    s.log += [await llm(str, f"{i}")]


async def finish(s: S) -> None:
    """The way out."""
    s.log += [f"finish after {len(s.log)}"]


def echo() -> ScriptedModel:
    return ScriptedModel(lambda call: call.prompt)


def graph(**limits: Any) -> Graph[S]:
    """Items one after the other, then `two`; at a limit `finish`."""
    g = Graph(S).chain(START, each(asks, over="items", limit=1), two, END)
    return g.limit(**limits, then=finish).chain(finish, END)


ITEMS = S(items=(1, 2, 3, 4))


def test_a_run_at_its_limit_takes_the_way_out_with_what_was_committed() -> None:
    """Exactly as many calls or nodes begin as may; then the named step runs, without limits."""
    for limits in ({"calls": 2}, {"steps": 2}):
        result = run(graph(**limits), ITEMS, model=echo())
        assert (result.status, result.state.log) == ("done", ["1", "2", "finish after 2"])
        (event,) = [event for event in result.events if event.kind == "limit"]
        assert event.data["then"] == "finish"
        assert "limit of 2" in event.data["asked"]
    whole = run(graph(calls=4, steps=6), ITEMS, model=echo())
    assert whole.state.log == ["1", "2", "3", "4", "two"]


def test_a_limit_given_to_the_run_takes_the_graphs_way_out() -> None:
    """The tighter of both limits counts."""
    g = graph(calls=3)
    assert run(g, ITEMS, model=echo(), max_calls=1).state.log == ["1", "finish after 1"]
    assert run(g, ITEMS, model=echo(), max_calls=9).state.log == ["1", "2", "3", "finish after 3"]


@dataclass(frozen=True, slots=True)
class Priced:
    text: str
    value: str
    num_tokens: int = 10
    num_steps: int = 1
    cost: float = 0.25


class PricedModel:
    async def generate(self, messages: Any, **_: Any) -> Priced:
        text = messages[-1]["content"]
        return Priced(text, text)


@pytest.mark.parametrize("limits", [{"tokens": 20}, {"tokens": 11}, {"cost": 0.5}, {"cost": 0.3}])
def test_no_call_begins_once_its_tokens_or_cost_are_spent(limits: dict[str, Any]) -> None:
    """A call that has begun is finished and counted; the next one does not begin."""
    result = run(graph(**limits), ITEMS, model=PricedModel())
    assert result.state.log == ["1", "2", "finish after 2"]
    assert (result.num_calls, result.num_tokens, result.cost) == (2, 20, 0.5)


def test_a_run_out_of_time_takes_the_way_out() -> None:
    """What is running is cancelled; the way out has no limit of time."""

    async def waits(s: S) -> None:
        await asyncio.Event().wait()

    async def late(s: S) -> None:
        await asyncio.sleep(0.05)
        s.log += ["late"]

    g = Graph(S).chain(START, one, both(waits, two), END).limit(seconds=0.02, then=late)
    result = run(g.chain(late, END))
    assert (result.status, result.state.log) == ("done", ["one", "two", "late"])


def test_a_way_out_may_be_the_end_or_a_step_of_the_main_line() -> None:
    """END ends the run well; a step that ran already runs as another visit."""
    g = Graph(S).chain(START, one, two, three, END).limit(steps=2, then=END)
    assert run(g).state.log == ["one", "two"]
    again = Graph(S).chain(START, one, two, three, END).limit(steps=2, then=two)
    result = run(again)
    assert result.state.log == ["one", "two", "two", "three"]
    assert [e.path for e in result.events if e.kind == "node.end"][-2:] == ["two#2", "three#2"]


def test_another_failure_does_not_take_the_way_out() -> None:
    """A node's error is an error, also of a graph with limits; so is one on the way out."""

    async def fails(s: S) -> None:
        raise ValueError("broken")

    g = Graph(S).chain(START, fails, END).limit(steps=5, then=finish).chain(finish, END)
    with pytest.raises(ValueError, match="broken"):
        run(g)
    late = Graph(S).chain(START, one, two, END).limit(steps=1, then=fails).chain(fails, END)
    with pytest.raises(ValueError, match="broken"):
        run(late)


def test_a_run_on_its_way_out_is_resumed_on_it() -> None:
    """Killed after any row it ends the same: the main line does not go on behind the limit."""

    async def slow(s: S) -> None:
        for turn in range(3):
            await llm(str, f"slow {turn}")
        s.total += 1

    async def confirm(s: S) -> None:
        s.log += [await ask(f"{len(s.log)} are done, enough?", str)]

    g = Graph(S).chain(START, one, both(each(asks, over="items", limit=1), slow), two, END)
    g.limit(calls=4, then=confirm).chain(confirm, finish, END)
    store = MemoryStore()
    result = run(g, ITEMS, run="r", store=store, model=echo())
    assert result.waiting == ("confirm:0",)
    whole = run_on(g, store)
    rows = store.rows("r")
    num_limit = next(i for i, row in enumerate(rows) if row.kind == "limit")
    for num_rows in range(num_limit + 1, len(rows)):
        again = run_on(g, asyncio.run(killed_after(store, "r", num_rows)))
        assert again == whole
    for num_rows in range(1, num_limit):
        log = run_on(g, asyncio.run(killed_after(store, "r", num_rows))).log
        assert log[-2] == "yes"
        assert "two" not in log


def run_on(g: Graph[S], store: MemoryStore) -> S:
    """Go on, and say yes to what is asked."""
    result = asyncio.run(g.run(run="r", store=store, model=echo()))
    while result.waiting:
        answers = dict.fromkeys(result.waiting, "yes")
        result = asyncio.run(g.run(run="r", store=store, model=echo(), answers=answers))
    return result.state


def test_limits_are_checked_when_the_graph_is_built() -> None:
    """Neither nonsense nor a step without an end passes."""
    with pytest.raises(GraphBuildError, match=r"g.limit\(calls=0\): use more than 0"):
        graph(calls=0)
    with pytest.raises(GraphBuildError, match="a limit leads out, not to the start"):
        Graph(S).limit(steps=1, then=START)
    with pytest.raises(GraphBuildError, match="nothing follows finish"):
        Graph(S).chain(START, one, END).limit(steps=1, then=finish).check()
    g = Graph(S).chain(START, one, two, END).limit(steps=1)
    with pytest.raises(LimitError, match="limit of 1 steps before two"):
        run(g)


def test_what_a_skipped_step_asked_needs_no_answer() -> None:
    """Its questions are gone with it, and answers to them are ignored."""

    async def asking(s: S) -> None:
        s.log += [await ask("?", str)]

    async def sure(s: S) -> None:
        if await ask("sure?", bool):
            raise ValueError("changed my mind")

    body = Graph(S, name="body").chain(START, both(asking, sure), END)
    steps: Each[S] = each(body, over="items", into="item", on_error="skip")
    g = Graph(S).chain(START, steps, END)
    for given in ("sure", "both"):
        store = MemoryStore()
        asked = run(g, S(items=(1,)), run="r", store=store).waiting
        assert len(asked) == 2
        answers = {path: True if "sure" in path else "x" for path in asked}
        chosen = {p: a for p, a in answers.items() if given == "both" or given in p}
        result = asyncio.run(g.run(run="r", store=store, answers=chosen))
        assert (result.status, result.state.log) == ("done", [])


def test_a_loop_leaves_at_its_limit_of_visits_after_a_resume_as_before() -> None:
    """Visits made before the run was killed count: the limit is exact over all sessions."""

    async def again(s: S) -> Literal["again", "END"]:
        s.total += 1
        s.log += [await llm(str, f"round {s.total}")]
        return "again"

    last = node(two, name="out")
    g = Graph(S).chain(START, again).route(again, again, END, limit=4, then=last).chain(last, END)
    store = MemoryStore()
    whole = run(g, S(), run="r", store=store, model=echo()).state
    assert whole.total == 4
    for num_rows in range(1, len(store.rows("r"))):
        killed = asyncio.run(killed_after(store, "r", num_rows))
        assert run_on(g, killed) == whole
