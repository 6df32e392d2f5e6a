"""LangGraph's own conformance suite on our stores; `make langgraph` installs it and runs this."""

from __future__ import annotations

import asyncio
import itertools
import operator
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any

import pytest
from typing_extensions import TypedDict

from agentloop.errors import GraphError
from agentloop.langgraph_saver import JournalSaver
from agentloop.sqlite_store import SQLiteStore
from agentloop.stores import MemoryStore, Store


def test_without_langgraph_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """The module can be imported all the same."""
    monkeypatch.setattr("agentloop.langgraph_saver._base", None)
    with pytest.raises(GraphError, match=r"pip install 'agentloop\[langgraph\]'"):
        JournalSaver(MemoryStore())


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_the_conformance_suite_passes(kind: str, tmp_path: Path) -> None:
    """Every capability, base and extended, on both stores."""
    needed = "needs langgraph-checkpoint-conformance: make langgraph"
    suite: Any = pytest.importorskip("langgraph.checkpoint.conformance", reason=needed)
    numbers = itertools.count()

    async def saver() -> AsyncIterator[JournalSaver]:
        store: Store = (
            MemoryStore() if kind == "memory" else SQLiteStore(tmp_path / f"{next(numbers)}.db")
        )
        found = JournalSaver(store)
        yield found
        await found.aclose()

    report = asyncio.run(suite.validate(suite.checkpointer_test(name="JournalSaver")(saver)))
    failures = {
        name: result.failures for name, result in report.results.items() if not result.passed
    }
    assert failures == {}
    assert len(report.results) == 8


class S(TypedDict):
    x: int
    log: Annotated[list[str], operator.add]


def test_a_langgraph_run_is_resumed_from_our_file(tmp_path: Path) -> None:
    """Interrupted in one saver, continued in another on the same file; values are stored once."""
    needed = "needs langgraph: make langgraph"
    graphs: Any = pytest.importorskip("langgraph.graph", reason=needed)
    types: Any = pytest.importorskip("langgraph.types", reason=needed)

    def count(s: S) -> Any:
        return {"x": s["x"] + 1, "log": ["x" * 1000]}

    def approve(s: S) -> Any:
        return {"log": [types.interrupt("fine?")]}

    def build(saver: JournalSaver) -> Any:
        builder = graphs.StateGraph(S)
        builder.add_node("count", count)
        builder.add_node("approve", approve)
        builder.add_edge(graphs.START, "count")
        builder.add_edge("count", "approve")
        builder.add_edge("approve", graphs.END)
        return builder.compile(checkpointer=saver)

    config = {"configurable": {"thread_id": "t"}}
    path = tmp_path / "runs.db"
    for step in (1, 2):
        store = SQLiteStore(path)
        saver = JournalSaver(store)
        asked: Any = {"x": 0, "log": []} if step == 1 else types.Command(resume="yes")
        result = build(saver).invoke(asked, config)
        saver.close()
        store.close()
    assert (result["x"], result["log"][-1]) == (1, "yes")
