"""Loops and limits: exact, per loop and per run."""

import asyncio
from typing import Literal

import pytest

from agentloop import END, START, Graph, both, each, llm, node
from agentloop.errors import GraphError, LimitError
from agentloop.testing import ScriptedModel
from tests.agentloop.running import Meter, S, one, run, three, two


@pytest.mark.parametrize("limit", [1, 2, 3, 7])
def test_a_loop_runs_its_router_exactly_as_often_as_its_limit(limit: int) -> None:
    """At its last visit an answer that would stay in the loop goes to `then`."""

    async def verify(s: S) -> Literal["one", "two"]:
        s.total += 1
        return "one"

    graph = Graph(S).chain(START, one, verify).route(verify, one, two, limit=limit, then=three)
    graph.chain(two, END).chain(three, END)
    result = run(graph)
    assert result.state.total == limit
    assert result.state.log == ["one"] * limit + ["three"]
    assert [event.data for event in result.events if event.kind == "limit"] == [
        {"asked": "one", "then": "three"}
    ]


def test_an_answer_that_leaves_the_loop_counts_at_the_last_visit() -> None:
    """The limit only stops staying: leaving is always possible, to any target."""

    async def verify(s: S) -> Literal["one", "two"]:
        s.total += 1
        return "one" if s.total < 3 else "two"

    graph = Graph(S).chain(START, one, verify).route(verify, one, two, limit=3, then=three)
    result = run(graph.chain(two, END).chain(three, END))
    assert result.state.log == ["one", "one", "one", "two"]


def test_a_loop_without_a_way_out_fails_at_its_limit() -> None:
    """The error says which node, which limit, and how to add a way out."""

    async def verify(s: S) -> Literal["verify", "END"]:
        return "verify"

    graph = Graph(S).chain(START, verify).route(verify, verify, END, limit=4)
    with pytest.raises(LimitError, match=r"'verify' asked for verify after 4 visits.*then=\.\.\."):
        run(graph)


def test_the_limit_of_an_inner_loop_counts_anew_at_every_entry() -> None:
    """Nested loops multiply: 3 rounds outside, each with 2 visits inside."""

    async def inner(s: S) -> Literal["inner", "outer"]:
        s.log += ["inner"]
        return "inner"

    async def outer(s: S) -> Literal["one", "END"]:
        s.log += ["outer"]
        return "one"

    graph = Graph(S).chain(START, one, inner).route(inner, inner, outer, limit=2, then=outer)
    graph.route(outer, one, END, limit=3, then=END)
    assert run(graph).state.log == ["one", "inner", "inner", "outer"] * 3


def test_a_run_stops_at_its_own_limit_of_steps() -> None:
    """`max_steps` bounds the whole run, and the result still has what was committed."""
    graph = Graph(S).chain(START, one, two, three, END)
    assert run(graph, max_steps=3).state.log == ["one", "two", "three"]
    result = run(graph, max_steps=2, check=False)
    assert isinstance(result.error, LimitError)
    assert "limit of 2 steps before three" in str(result.error)
    assert result.state.log == ["one", "two"]
    with pytest.raises(GraphError, match="max_steps is 0"):
        run(graph, max_steps=0)


def test_a_run_stops_at_its_limits_of_calls_and_seconds() -> None:
    """What was committed stays, and the error names the limit and what reached it."""

    async def asks(s: S, i: int) -> None:
        s.log += [await llm(str, f"{i}")]

    async def waits(s: S) -> None:
        await asyncio.Event().wait()

    model = ScriptedModel(lambda call: call.prompt)
    graph = Graph(S).chain(START, each(asks, over="items", limit=1), END)
    start = S(items=(1, 2, 3))
    assert run(graph, start, model=model, max_calls=3).state.log == ["1", "2", "3"]
    result = run(graph, start, model=model, max_calls=2, check=False)
    assert isinstance(result.error, LimitError)
    assert r"limit of 2 calls before asks[2]:0 (llm str)" in str(result.error)
    assert result.state.log == ["1", "2"]
    result = run(Graph(S).chain(START, one, waits, END), timeout_s=0.01, check=False)
    assert isinstance(result.error, LimitError)
    assert "longer than its timeout_s of 0.01 s" in str(result.error)
    assert result.state.log == ["one"]
    with pytest.raises(GraphError, match="timeout_s is 0; use more than 0"):
        run(graph, timeout_s=0)


def test_a_router_that_returns_something_else_is_reported() -> None:
    """Neither an unknown name nor a value that nothing routes on passes silently."""

    async def verify(s: S) -> Literal["one", "two"]:
        return "onw"  # type: ignore[return-value]  # pyright: ignore[reportReturnType] - the mistake

    graph = Graph(S).chain(START, verify).route(verify, one, two).chain(one, END).chain(two, END)
    with pytest.raises(GraphError, match="returned 'onw', which is none of its targets"):
        run(graph)

    async def answers(s: S) -> str:
        return "result"

    with pytest.raises(GraphError, match="'answers' returned 'result', but nothing routes on it"):
        run(Graph(S).chain(START, answers, END))


def test_a_limit_of_the_whole_run_is_not_passed_over() -> None:
    """Neither `skip` nor retries go on after the run has reached its limit."""

    async def work(s: S, i: int) -> None:
        await llm(str, f"{i}")

    graph = Graph(S).chain(START, each(work, over="items", on_error="skip", limit=1), END)
    model = ScriptedModel(lambda call: call.prompt)
    result = run(graph, S(items=(1, 2, 3)), model=model, max_calls=2, check=False)
    assert isinstance(result.error, LimitError)
    skipping = Graph(S).chain(START, one, node(two, on_error="skip", retries=3), END)
    assert isinstance(run(skipping, max_steps=1, check=False).error, LimitError)


@pytest.mark.parametrize(("limit", "most"), [(None, 8), (1, 1), (3, 3), (20, 8)])
def test_each_works_on_no_more_items_at_once_than_its_limit(limit: int | None, most: int) -> None:
    """The limit is reached and never passed."""
    meter = Meter()

    async def work(s: S, i: int) -> None:
        await meter.work()

    run(Graph(S).chain(START, each(work, over="items", limit=limit), END), S(items=(0,) * 8))
    assert meter.most == most


def test_a_run_works_on_no_more_nodes_at_once_than_its_concurrency() -> None:
    """The run's own limit holds across nested parallel steps."""
    meter = Meter()

    async def work(s: S, i: int) -> None:
        await meter.work()

    async def alone(s: S) -> None:
        await meter.work()

    graph = Graph(S).chain(START, both(each(work, over="items"), alone), END)
    run(graph, S(items=(0,) * 8), concurrency=3)
    assert meter.most == 3
