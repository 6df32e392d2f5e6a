"""What tests of running graphs share: a state, three nodes, and runs that may leave no task."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from pydantic import BaseModel

from agentloop import Graph, Log, Max, Merge, Sum
from agentloop.runs import RunResult


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


class Small(BaseModel):
    log: Log[str] = []
    note: str = "fresh"


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
