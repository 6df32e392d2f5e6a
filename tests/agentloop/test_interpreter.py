"""Random nested graphs do what a small sequential interpreter does, under any scheduling."""

import asyncio
import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from agentloop import Graph
from agentloop.runs import RunResult
from agentloop.stores import MemoryStore, Store
from agentloop.testing import ShuffledLoop, killed_after
from tests.agentloop.programs import (
    Program,
    S,
    answer_to,
    build,
    check_effects,
    effects,
    outcome,
    programs,
)


@settings(max_examples=80, deadline=None)
@given(programs(), st.integers(0, 1000))
def test_a_graph_equals_its_interpreter(program: Program, seed: int) -> None:
    """State and order are those of a sequential run; it fails where that fails."""
    graph = build(program, itertools.count())
    with asyncio.Runner(loop_factory=lambda: ShuffledLoop(seed)) as runner:
        result = runner.run(graph.run(S(), check=False))
    expected = outcome(program)
    state = result.state
    if expected is None:
        assert result.error is not None
    else:
        assert result.error is None
        assert [state.trail, state.total, state.x] == expected
        assert state.item == 0


def finish(graph: Graph[S], store: Store, state: S | None = None) -> RunResult[S]:
    """Run, and answer one question at a time until there is none."""
    result = graph.run_sync(state, run="r", store=store, check=False)
    while result.waiting and result.error is None:
        path = result.waiting[0]
        assert path not in [row.path for row in store.rows("r") if row.kind == "call"]
        answers = {path: answer_to(result.questions[path])}
        result = graph.run_sync(run="r", store=store, answers=answers, check=False)
    return result


@settings(max_examples=12, deadline=None)
@given(programs(is_recorded=True))
def test_a_run_resumed_after_any_row_equals_its_interpreter(program: Program) -> None:
    """Resumed from every prefix of its rows it ends the same; no effect recorded happens again."""
    expected = outcome(program)
    graph = build(program, itertools.count())
    store = MemoryStore()
    effects.clear()
    finish(graph, store, S())
    check_effects(effects)
    rows = store.rows("r")
    for num_rows in range(1, len(rows) + 1):
        effects.clear()
        killed = asyncio.run(killed_after(store, "r", num_rows))
        begun = {f"r/{row.path}" for row in rows[:num_rows] if row.kind == "intent"}
        result = finish(graph, killed)
        assert (result.error is not None) == (expected is None)
        if expected is not None:
            assert [result.state.trail, result.state.total, result.state.x] == expected
        assert not begun.intersection(key for kind, key, _ in effects if kind == "send")
        check_effects(effects)
