"""Running graphs: order, joins, failures, limits, time-outs, sync and async."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from agentloop import END, START, Graph, Log, Max, Merge, Sum, both, each, emit, llm, node
from agentloop.errors import GraphError, LimitError, StateError
from agentloop.events import Event
from agentloop.runs import RunResult
from agentloop.testing import ScriptedModel


class S(BaseModel):
    n: int = 0
    item: int = 0
    items: tuple[int, ...] = ()
    log: Log[str] = []
    total: Sum[int] = 0
    best: Max[int] = 0
    facts: Merge[str, int] = {}


async def one(s: S) -> None:
    s.log += ["one"]


async def two(s: S) -> None:
    s.log += ["two"]


async def three(s: S) -> None:
    s.log += ["three"]


def lasting(make: Callable[[], Awaitable[Any]]) -> Any:
    """Run a coroutine and check that it leaves no task behind."""

    async def main() -> Any:
        async with asyncio.timeout(30):
            result = await make()
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return result

    return asyncio.run(main())


def run(graph: Graph[S], state: S | None = None, **options: Any) -> RunResult[S]:
    """Run a graph on a fresh loop; nothing may be left running."""
    result: RunResult[S] = lasting(lambda: graph.run(state or S(), **options))
    return result


def test_a_chain_runs_in_order_and_leaves_the_start_state_alone() -> None:
    """Each node sees what those before it wrote; the caller's state is not changed."""
    start = S(log=["zero"])
    result = run(Graph(S).chain(START, one, two, END), start)
    assert result.state.log == ["zero", "one", "two"]
    assert type(result.state) is S
    assert result.state == S(log=["zero", "one", "two"])
    assert start.log == ["zero"]
    assert result.timings["one"].num == 1
    assert result.error is None


def test_an_empty_graph_gives_back_its_start() -> None:
    """START may lead straight to END."""
    assert run(Graph(S).chain(START, END), S(n=3)).state == S(n=3)


def test_plain_functions_run_in_a_thread() -> None:
    """A sync node does not hold up the loop, and its writes are recorded the same way."""
    threads: list[int] = []

    def blocking(s: S) -> None:
        threads.append(threading.get_ident())
        s.log += ["blocking"]

    assert run(Graph(S).chain(START, one, blocking, END)).state.log == ["one", "blocking"]
    assert threads != [threading.get_ident()]


@pytest.mark.parametrize("limit", [None, 1, 2, 5])
def test_each_keeps_the_order_of_the_items(limit: int | None) -> None:
    """Later items that finish first still come later in a Log; every reducer joins."""

    async def work(s: S, i: int) -> None:
        for _ in range(5 - i):
            await asyncio.sleep(0)
        s.log += [f"{i}"]
        s.total += i
        s.best = i
        s.facts[f"k{i}"] = i

    graph = Graph(S).chain(START, each(work, over="items", limit=limit), one, END)
    state = run(graph, S(items=(0, 1, 2, 3, 4))).state
    assert state.log == ["0", "1", "2", "3", "4", "one"]
    assert (state.total, state.best) == (10, 4)
    assert state.facts == {f"k{i}": i for i in range(5)}


def test_each_with_no_items_goes_on_once() -> None:
    """An empty field is no reason to stop or to skip what follows."""

    async def work(s: S, i: int) -> None:
        raise AssertionError("there are no items")

    result = run(Graph(S).chain(START, each(work, over="items"), one, END))
    assert result.state.log == ["one"]


def test_each_of_a_sequence_puts_the_item_into_a_field_of_its_branch() -> None:
    """The body sees its own item; after the join the field is as it was before."""

    async def read(s: S) -> None:
        s.log += [f"read {s.item}"]

    async def change(s: S) -> None:
        s.item *= 10
        s.log += [f"now {s.item}"]

    graph = Graph(S).chain(START, each([read, change], over="items", into="item"), one, END)
    state = run(graph, S(items=(1, 2), item=7)).state
    assert state.log == ["read 1", "now 10", "read 2", "now 20", "one"]
    assert state.item == 7


def test_branches_do_not_see_each_other() -> None:
    """Each branch works on the state at the fork plus its own writes."""
    seen: list[tuple[int, list[str]]] = []

    async def left(s: S) -> None:
        s.n = 5
        s.log += ["left"]
        await asyncio.sleep(0)
        seen.append((s.n, list(s.log)))

    async def right(s: S) -> None:
        await asyncio.sleep(0)
        s.log += ["right"]
        seen.append((s.n, list(s.log)))

    state = run(Graph(S).chain(START, one, both(left, right), END)).state
    assert sorted(seen) == [(0, ["one", "right"]), (5, ["one", "left"])]
    assert (state.n, state.log) == (5, ["one", "left", "right"])


def test_branches_may_share_steps() -> None:
    """The same node in two branches runs in both; its paths tell them apart."""
    result = run(Graph(S).chain(START, both([one, two], [three, one]), END))
    assert result.state.log == ["one", "two", "three", "one"]
    paths = [event.path for event in result.events if event.kind == "node.end"]
    name = "one-two+three-one"
    assert sorted(paths) == [
        f"{name}[0]/one",
        f"{name}[0]/two",
        f"{name}[1]/one",
        f"{name}[1]/three",
    ]


def test_two_writers_of_a_plain_field_are_a_conflict() -> None:
    """The error names the field and the branches; neither value wins."""

    async def left(s: S) -> None:
        s.n = 1

    async def right(s: S) -> None:
        s.n = 1

    graph = Graph(S).chain(START, both(left, [one, right]), END)
    with pytest.raises(StateError) as caught:
        run(graph)
    assert str(caught.value) == (
        "2 parallel branches of left+one-right wrote S.n: left+one-right/left, "
        "left+one-right/one-right; make it Log, Sum, Max or Merge, or write it after the branches "
        "join"
    )
    assert caught.value.field == "n"
    assert run(graph, check=False).state.n == 0


def test_two_writers_of_a_merge_key_are_a_conflict() -> None:
    """Different keys merge; the same key from two items is reported with the key."""

    async def work(s: S, i: int) -> None:
        s.facts[f"k{i % 2}"] = i

    graph = Graph(S).chain(START, each(work, over="items"), END)
    assert run(graph, S(items=(0, 1))).state.facts == {"k0": 0, "k1": 1}
    with pytest.raises(StateError, match=r"wrote S.facts\['k0'\]: work\[0\], work\[2\]; give"):
        run(graph, S(items=(0, 1, 2)))


def test_a_fast_branch_does_not_wait_for_a_slow_one() -> None:
    """There is no barrier: the slow branch ends only once the fast one has run all its steps."""

    async def main() -> list[str]:
        gate = asyncio.Event()

        async def slow(s: S) -> None:
            await gate.wait()
            s.log += ["slow"]

        async def opens(s: S) -> None:
            gate.set()

        graph = Graph(S).chain(START, both(slow, [one, two, three, opens]), END)
        return (await graph.run(S())).state.log

    assert lasting(main) == ["slow", "one", "two", "three"]


def test_a_failing_branch_keeps_finished_siblings_and_cancels_the_rest() -> None:
    """What was committed stays, what was running is cancelled, and no task is left."""
    cancelled: list[str] = []

    async def waits(s: S) -> None:
        s.n = 9
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.append("waits")

    async def fails(s: S) -> None:
        s.total += 1
        for _ in range(5):
            await asyncio.sleep(0)
        raise ValueError("broken")

    graph = Graph(S).chain(START, one, both(two, [three, waits], fails), END)
    result = run(graph, check=False)
    assert isinstance(result.error, ValueError)
    assert cancelled == ["waits"]
    assert result.state.log == ["one", "two", "three"]
    assert (result.state.n, result.state.total) == (0, 0)
    kinds = [(event.kind, event.path) for event in result.events]
    assert ("node.error", "two+three-waits+fails/fails") in kinds
    assert kinds[-1] == ("run.error", "")


def test_a_failure_is_raised_as_it_is_with_a_note_where() -> None:
    """The caller catches the node's own exception, its cause kept, and reads where it came from."""

    async def fails(s: S, i: int) -> None:
        if i == 1:
            try:
                raise KeyError("deep")
            except KeyError as error:
                raise ValueError("broken") from error

    graph = Graph(S).chain(START, each(fails, over="items"), END)
    with pytest.raises(ValueError, match="broken") as caught:
        run(graph, S(items=(0, 1)), run="mine")
    assert caught.value.__notes__ == ["in node 'fails' at 'fails[1]' of run 'mine'"]
    assert isinstance(caught.value.__cause__, KeyError)


def test_each_can_skip_what_fails_or_put_something_in_its_place() -> None:
    """`on_error` decides for each item; a failed item's writes are never kept."""

    async def work(s: S, i: int) -> None:
        s.log += [f"try {i}"]
        if i == 1:
            raise ValueError("one is bad")
        s.log += [f"done {i}"]

    async def instead(s: S, i: int, error: Exception) -> None:
        s.log += [f"{i}: {error}"]

    skipping = Graph(S).chain(START, each(work, over="items", on_error="skip"), END)
    result = run(skipping, S(items=(0, 1, 2)))
    assert result.state.log == ["try 0", "done 0", "try 2", "done 2"]
    assert [event.path for event in result.events if event.kind == "skip"] == ["work[1]"]
    replacing = Graph(S).chain(START, each(work, over="items", on_error=instead), END)
    state = run(replacing, S(items=(0, 1, 2))).state
    assert state.log == ["try 0", "done 0", "1: one is bad", "try 2", "done 2"]


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


def test_a_graph_is_a_step_of_another_on_the_same_state() -> None:
    """Its steps run in place; its events carry its name in their path."""
    sub = Graph(S, name="sub").chain(START, two, three, END)
    result = run(Graph(S).chain(START, one, sub, node(one, name="last"), END))
    assert result.state.log == ["one", "two", "three", "one"]
    paths = [event.path for event in result.events if event.kind == "node.end"]
    assert paths == ["one", "sub/two", "sub/three", "last"]


def test_a_graph_that_changes_after_it_was_used_changes_in_those_that_hold_it() -> None:
    """In a notebook a cell that adds a step to an inner graph is enough."""
    sub = Graph(S, name="sub").chain(START, one)
    graph = Graph(S).chain(START, both(sub, two), END)
    with pytest.raises(GraphError, match="nothing follows one"):
        graph.check()
    sub.route(choice, three, END).chain(one, choice).chain(three, END)
    assert run(graph).state.log == ["one", "three", "two"]
    before = graph.fingerprint
    more = Graph(S, name="more").chain(START, sub, END)
    assert run(more).state.log == ["one", "three"]
    sub.chain(node(three, name="four"), END)
    with pytest.raises(GraphError, match="four cannot be reached"):
        run(more)
    with pytest.raises(GraphError, match="four cannot be reached"):
        assert graph.fingerprint != before


async def choice(s: S) -> Literal["three", "END"]:
    return "three"


class Small(BaseModel):
    log: Log[str] = []
    note: str = "fresh"


def test_a_graph_on_another_state_shares_the_fields_of_the_same_name() -> None:
    """Shared fields pass in and out; the others start at their defaults every time."""

    async def work(s: Small) -> None:
        s.log += [f"{s.note} {len(s.log)}"]
        s.note = "used"

    sub = Graph(Small).chain(START, work, END)
    again = Graph(Small, name="again").chain(START, work, END)
    assert run(Graph(S).chain(START, one, sub, again, END)).state.log == [
        "one",
        "fresh 1",
        "fresh 2",
    ]


def test_graphs_run_inside_each_and_both() -> None:
    """Loops belong to graphs, and graphs may be the bodies of parallel steps."""

    async def grow(s: S) -> Literal["grow", "END"]:
        s.total += s.item
        return "grow"

    loop = Graph(S, name="loop").chain(START, grow).route(grow, grow, END, limit=2, then=END)
    graph = Graph(S).chain(START, each(loop, over="items", into="item"), both(loop, one), END)
    result = run(graph, S(items=(1, 10), item=100))
    assert result.state.total == 2 * 11 + 2 * 100
    assert "loop[1]/loop/grow#2" in [event.path for event in result.events]


def test_a_run_inside_a_node_is_a_run_of_its_own() -> None:
    """A node may run another graph; afterwards its own calls are its own again."""
    sub = Graph(S).chain(START, one, END)

    async def outer(s: S) -> None:
        inner = await sub.run(S(), run="inner")
        emit("after", inner.run)
        s.log += inner.state.log

    result = run(Graph(S).chain(START, outer, END), run="outer")
    assert result.state.log == ["one"]
    assert [(e.run, e.path, e.data) for e in result.events if e.kind == "after"] == [
        ("outer", "outer", "inner")
    ]


def test_a_timeout_leaves_no_partial_patch() -> None:
    """Async and sync nodes fail with TimeoutError; what they wrote is not kept, then or later."""
    release, late = threading.Event(), threading.Event()
    refused: list[str] = []

    async def slow(s: S) -> None:
        s.n = 1
        await asyncio.Event().wait()

    def blocking(s: S) -> None:
        s.n = 1
        release.wait(20)
        try:
            s.n = 2
        except StateError as error:
            refused.append(str(error))
        late.set()

    for step in (slow, blocking):
        graph = Graph(S).chain(START, one, node(step, timeout_s=0.01), END)
        release.clear()
        result = run_with(graph, release)
        assert isinstance(result.error, TimeoutError)
        assert f"{step.__name__!r} took longer than its timeout of 0.01 s" in str(result.error)
        assert result.state == S(log=["one"])
    assert late.wait(20)
    assert len(refused) == 1
    assert "the node is over" in refused[0]


def run_with(graph: Graph[S], release: threading.Event) -> RunResult[S]:
    """Run a graph whose thread waits until the run is over."""

    async def main() -> RunResult[S]:
        result = await graph.run(S(), check=False)
        release.set()
        return result

    result: RunResult[S] = lasting(main)
    return result


def test_a_time_limit_of_the_nodes_own_is_not_taken_for_ours() -> None:
    """A TimeoutError that a node raises itself keeps its message."""

    async def slow(s: S) -> None:
        raise TimeoutError("the service")

    graph = Graph(S).chain(START, node(slow, timeout_s=60), END)
    with pytest.raises(TimeoutError, match="the service"):
        run(graph)


def test_retries_start_on_a_fresh_draft() -> None:
    """A failed attempt leaves nothing; the last failure is raised."""
    attempts: list[int] = []

    async def flaky(s: S) -> None:
        s.log += [f"attempt {len(attempts)}"]
        attempts.append(1)
        if len(attempts) < 3:
            raise ValueError("not yet")

    graph = Graph(S).chain(START, node(flaky, retries=2), END)
    result = run(graph)
    assert result.state.log == ["attempt 2"]
    assert [event.kind for event in result.events].count("node.retry") == 2
    attempts.clear()
    with pytest.raises(ValueError, match="not yet"):
        run(Graph(S).chain(START, node(flaky, retries=1), END))


def test_a_failing_node_can_be_skipped_or_have_another_run_in_its_place() -> None:
    """Retries come first; the handler works on a fresh draft and may choose the route."""
    attempts: list[int] = []

    async def fails(s: S) -> None:
        attempts.append(1)
        s.log += ["lost"]
        raise ValueError("broken")

    async def instead(s: S, error: Exception) -> None:
        s.log += [f"instead: {error}"]

    async def router(s: S) -> Literal["one", "two"]:
        raise ValueError("no idea")

    async def guess(s: S, error: Exception) -> str:
        return "two"

    steps = node(fails, retries=1, on_error=instead), node(fails, name="again", on_error="skip")
    result = run(Graph(S).chain(START, *steps, one, END))
    assert result.state.log == ["instead: broken", "one"]
    assert len(attempts) == 3
    choosing = node(router, on_error=guess)
    graph = Graph(S).chain(START, choosing).route(choosing, one, two)
    assert run(graph.chain(one, END).chain(two, END)).state.log == ["two"]


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


class Meter:
    """Counts how many pieces of work are going on at once."""

    def __init__(self) -> None:
        self.now = 0
        self.most = 0

    async def work(self) -> None:
        self.now += 1
        self.most = max(self.most, self.now)
        for _ in range(4):
            await asyncio.sleep(0)
        self.now -= 1


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


def test_run_sync_works_with_and_without_a_running_loop() -> None:
    """A notebook has a loop running; errors come through all the same."""
    graph = Graph(S).chain(START, one, END)
    assert graph.run_sync(S()).state.log == ["one"]

    async def notebook() -> list[str]:
        return graph.run_sync(S()).state.log

    assert asyncio.run(notebook()) == ["one"]

    async def fails(s: S) -> None:
        raise ValueError("broken")

    broken = Graph(S).chain(START, fails, END)

    async def failing_notebook() -> None:
        broken.run_sync(S())

    with pytest.raises(ValueError, match="broken"):
        broken.run_sync(S())
    with pytest.raises(ValueError, match="broken"):
        asyncio.run(failing_notebook())


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


def test_a_state_of_another_class_is_refused() -> None:
    """The error says which class the graph runs on."""
    with pytest.raises(StateError, match="runs on S, got Small; start it with S"):
        asyncio.run(Graph(S).chain(START, END).run(Small()))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - the mistake


def test_cancelling_a_run_cancels_its_branches() -> None:
    """The caller's cancellation passes through, and nothing keeps running."""
    stopped: list[int] = []

    async def waits(s: S, i: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append(i)

    graph = Graph(S).chain(START, each(waits, over="items"), END)

    async def main() -> None:
        task = asyncio.create_task(graph.run(S(items=(1, 2))))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    lasting(main)
    assert sorted(stopped) == [1, 2]


def test_events_tell_the_run_in_order() -> None:
    """One ordered stream: every node starts, then ends with its patch; own events are in place."""

    async def reports(s: S) -> None:
        emit("progress", 0.5)
        s.n = 4

    result = run(Graph(S).chain(START, one, reports, END), run="r1")
    assert [(e.run, e.path, e.kind, e.data) for e in result.events[:-1]] == [
        ("r1", "", "run.start", "S"),
        ("r1", "one", "node.start", None),
        ("r1", "one", "node.end", {"log": ["one"]}),
        ("r1", "reports", "node.start", None),
        ("r1", "reports", "progress", 0.5),
        ("r1", "reports", "node.end", {"n": 4}),
    ]
    assert result.events[-1].data == result.state
    times = [event.at_s for event in result.events]
    assert times == sorted(times)


def test_a_listener_that_fails_does_not_disturb_the_run(caplog: pytest.LogCaptureFixture) -> None:
    """What a consumer raises is logged, and the run goes on."""

    def listener(event: Event) -> None:
        raise RuntimeError("the page is gone")

    assert run(Graph(S).chain(START, one, END), on_event=listener).state.log == ["one"]
    assert "an event listener failed" in caplog.text
