"""What tests of recorded runs share: a state, a store cut short, and a way to run."""

import asyncio
from typing import Any

from pydantic import BaseModel

from agentloop import Graph, Log, Merge, Sum
from agentloop.runs import RunResult
from agentloop.stores import MemoryStore, Row, Store


class Item(BaseModel, frozen=True):
    name: str
    size: float = 0.5


class S(BaseModel):
    n: int = 0
    items: tuple[int, ...] = (1, 2, 3)
    log: Log[str] = []
    total: Sum[int] = 0
    facts: Merge[str, Item] = {}
    found: Item | None = None
    limit: float = 0.0


def resumed(rows: list[Row], name: str = "r") -> MemoryStore:
    """A store in which a run was killed after these rows."""
    store = MemoryStore()

    async def fill() -> None:
        log = await store.open(name)
        for row in rows:
            log.append(row)
        await log.close("running")

    asyncio.run(fill())
    return store


def go(graph: Graph[S], store: Store, state: S | None = None, **options: Any) -> RunResult[S]:
    return graph.run_sync(state, run="r", store=store, **options)


async def nothing(s: S) -> None: ...
