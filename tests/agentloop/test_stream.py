"""Streaming a run's events to readers that are slow, gone or cancelled."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from pydantic import BaseModel

from agentloop import END, START, Graph, Log, emit
from agentloop.events import Aside, Event


class S(BaseModel):
    log: Log[str] = []


async def one(s: S) -> None:
    emit("note", "in one")
    await asyncio.sleep(0)
    s.log += ["one"]


def threaded(s: S) -> None:
    emit("note", "from a thread")
    s.log += ["threaded"]


async def fails(s: S) -> None:
    raise ValueError("broken")


def lasting(make: Callable[[], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        async with asyncio.timeout(30):
            return await make()

    return asyncio.run(main())


def test_a_stream_gives_every_event_and_ends() -> None:
    """The reader sees what the result holds, in order, events from threads included."""
    graph = Graph(S).chain(START, one, threaded, END)

    async def main() -> None:
        stream = graph.stream(S(), run="r")
        seen = [event async for event in stream]
        result = await stream.result()
        assert seen == result.events
        assert [event.kind for event in seen] == [
            "run.start",
            "node.start",
            "note",
            "node.end",
            "node.start",
            "note",
            "node.end",
            "run.end",
        ]
        assert result.state.log == ["one", "threaded"]

    lasting(main)


def test_a_stream_ends_with_the_runs_error() -> None:
    """All events up to the failure come first, then the node's own exception."""
    graph = Graph(S).chain(START, one, fails, END)

    async def main() -> list[str]:
        kinds: list[str] = []

        async def read() -> None:
            async for event in graph.stream(S()):
                kinds.append(event.kind)

        with pytest.raises(ValueError, match="broken"):
            await read()
        return kinds

    assert lasting(main)[-2:] == ["node.error", "run.error"]


def test_a_slow_reader_does_not_hold_up_the_run() -> None:
    """The run ends while its reader is still at the first event; nothing is lost."""
    graph = Graph(S).chain(START, one, threaded, END)

    async def main() -> None:
        stream = graph.stream(S())
        first = await anext(stream)
        result = await stream.result()
        assert first.kind == "run.start"
        rest = [event async for event in stream]
        assert [first, *rest] == result.events

    lasting(main)


def test_a_reader_that_goes_away_lets_the_run_finish() -> None:
    """Breaking out of the loop neither blocks nor cancels the run."""

    async def main() -> None:
        done = asyncio.Event()

        async def last(s: S) -> None:
            done.set()

        async for _ in Graph(S).chain(START, one, last, END).stream(S()):
            break
        await done.wait()

    lasting(main)


def test_leaving_the_streams_block_early_cancels_the_run() -> None:
    """`async with` ties the run to the block, and waits until it has stopped."""

    async def main() -> None:
        stopped: list[str] = []

        async def waits(s: S) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                stopped.append("waits")

        async with Graph(S).chain(START, one, waits, END).stream(S()) as events:
            async for event in events:
                if event.path == "waits":
                    break
        assert stopped == ["waits"]
        assert asyncio.all_tasks() == {asyncio.current_task()}

    lasting(main)


def test_two_readers_may_wait_on_one_run() -> None:
    """A stream that is read from two tasks gives each event once."""
    graph = Graph(S).chain(START, one, one_more, END)

    async def main() -> None:
        stream = graph.stream(S())
        seen: list[Any] = []

        async def read() -> None:
            async for event in stream:
                seen.append(event)

        await asyncio.gather(read(), read())
        assert seen == (await stream.result()).events

    lasting(main)


async def one_more(s: S) -> None:
    await asyncio.sleep(0)


def test_a_slow_listener_does_not_hold_up_the_run() -> None:
    """Aside from the run it gets every event, in order, also after the run is over."""
    gate = threading.Event()
    seen: list[Event] = []

    def slow(event: Event) -> None:
        gate.wait(20)
        seen.append(event)
        if event.kind == "note":
            raise RuntimeError("a consumer's fault")

    with Aside(slow) as listener:
        graph = Graph(S).chain(START, one, threaded, END)
        result = lasting(lambda: graph.run(S(), on_event=listener))
        assert result.state.log == ["one", "threaded"]
        assert seen == []
        gate.set()
    assert seen == result.events
