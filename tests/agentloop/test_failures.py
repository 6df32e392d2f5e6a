"""Failures: what is kept, what is cancelled, retries, time-outs, what runs instead."""

import asyncio
import threading
from typing import Literal

import pytest

from agentloop import END, START, Graph, both, each, node
from agentloop.errors import StateError
from agentloop.events import Event
from agentloop.runs import RunResult
from tests.agentloop.running import S, lasting, one, run, three, two


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


def test_a_listener_that_fails_does_not_disturb_the_run(caplog: pytest.LogCaptureFixture) -> None:
    """What a consumer raises is logged, and the run goes on."""

    def listener(event: Event) -> None:
        raise RuntimeError("the page is gone")

    assert run(Graph(S).chain(START, one, END), on_event=listener).state.log == ["one"]
    assert "an event listener failed" in caplog.text
