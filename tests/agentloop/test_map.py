"""Many runs of one graph."""

import asyncio

import pytest

from agentloop import END, START, Graph
from tests.agentloop.running import Meter, S, lasting


def test_map_keeps_the_order_of_its_inputs_and_bounds_what_runs_at_once() -> None:
    """Results come in input order whatever finished first; inputs are drawn as needed."""
    meter = Meter()

    async def work(s: S) -> None:
        for _ in range(10 - s.n):
            await asyncio.sleep(0)
        await meter.work()
        s.total += s.n

    graph = Graph(S).chain(START, work, END)
    results = lasting(lambda: graph.map((S(n=i) for i in range(10)), concurrency=4))
    assert [result.state.total for result in results] == list(range(10))
    assert meter.most == 4
    assert lasting(lambda: graph.map([])) == []


def test_map_raises_the_first_failure_or_returns_all_of_them() -> None:
    """With `check` the others are cancelled; without, each result has its own error."""

    async def work(s: S) -> None:
        if s.n == 2:
            raise ValueError("two is bad")

    graph = Graph(S).chain(START, work, END)
    states = [S(n=i) for i in range(4)]
    with pytest.raises(ValueError, match="two is bad"):
        lasting(lambda: graph.map(states))
    results = lasting(lambda: graph.map(states, check=False))
    assert [result.error is not None for result in results] == [False, False, True, False]
