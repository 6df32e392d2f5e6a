"""Running graphs: order, joins, branches, graphs inside graphs, events."""

import asyncio
import threading
from typing import Literal

import pytest

from agentloop import END, START, Graph, both, each, emit, node
from agentloop.errors import GraphError, StateError
from tests.agentloop.running import S, Small, lasting, one, run, three, two


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


def test_a_state_of_another_class_is_refused() -> None:
    """The error says which class the graph runs on."""
    with pytest.raises(StateError, match="runs on S, got Small; start it with S"):
        asyncio.run(Graph(S).chain(START, END).run(Small()))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - the mistake


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
