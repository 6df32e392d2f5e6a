"""The events of a run, read while it goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from types import TracebackType
from typing import Any, Generic, TypeVar

from pydantic import BaseModel

from agentloop.events import Event, RunEvents
from agentloop.flow import Flow
from agentloop.runs import Options, RunResult, execute

S = TypeVar("S", bound=BaseModel)


class EventStream(Generic[S]):
    """The events of a run while it goes on: `async for event in g.stream(...)`.

    The run never waits for the reader. The stream ends when the run does, and then raises the
    run's error if there is one. A reader that just stops lets the run go on to its end; leaving
    `async with g.stream(...) as events:` early cancels it.
    """

    def __init__(self, flow: Flow, state: S | None, options: Options, name: str | None) -> None:
        self._log = RunEvents(options.listeners)
        self._num_seen = 0
        self._start: Callable[[], Coroutine[Any, Any, RunResult[S]]] = lambda: execute(
            flow, state, options, name, self._log
        )
        self._task: asyncio.Task[RunResult[S]] | None = None

    def _running(self) -> asyncio.Task[RunResult[S]]:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._start())
            _streaming.add(self._task)
            self._task.add_done_callback(_streaming.discard)
        return self._task

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        task = self._running()
        events = self._log.events
        while await self._log.wait(self._num_seen):
            if self._num_seen < len(events):  # another reader of this stream may have been first
                self._num_seen += 1
                return events[self._num_seen - 1]
        result = await task
        if result.error is not None:
            raise result.error
        raise StopAsyncIteration

    async def result(self) -> RunResult[S]:
        """Wait for the run's end and give its result; a failure is in it."""
        return await asyncio.shield(self._running())

    async def __aenter__(self) -> EventStream[S]:
        self._running()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        task = self._running()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


_streaming: set[asyncio.Task[Any]] = set()  # the loop itself holds tasks only weakly
