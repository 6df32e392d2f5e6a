"""What recorded runs cost on the disk and at their resumption.

python -m benchmarks.journal

resume      milliseconds of wall time to resume a finished run of 400 nodes, SQLite file open
disk        bytes of the file after 400 nodes that each append 1 KB to a Log
ratio       the same divided by the bytes that were appended
langgraph   bytes of LangGraph's own SQLite file for the same run, where it is installed
"""

from __future__ import annotations

import asyncio
import importlib.util
import tempfile
import time
from operator import add
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel
from typing_extensions import TypedDict

from agentloop import END, START, Graph, Log, node
from agentloop.sqlite_store import SQLiteStore
from benchmarks.graph_rivals import scratch_file

NUM_NODES = 400
NUM_BYTES = 1000


class State(BaseModel):
    """What the nodes append to."""

    log: Log[str] = []


async def append(s: State) -> None:
    """Append one kilobyte."""
    s.log.append("x" * NUM_BYTES)


class Dict(TypedDict):
    """The same for LangGraph."""

    log: Annotated[list[str], add]


async def langgraph_bytes() -> int:
    """The size of LangGraph's file after the same run."""
    graphs: Any = importlib.import_module("langgraph.graph")
    savers: Any = importlib.import_module("langgraph.checkpoint.sqlite.aio")

    async def append(s: Dict) -> dict[str, Any]:
        return {"log": ["x" * NUM_BYTES]}

    graph = graphs.StateGraph(Dict)
    names = [f"n{i}" for i in range(NUM_NODES)]
    for name in names:
        graph.add_node(name, append)
    for source, target in zip([graphs.START, *names], [*names, graphs.END], strict=True):
        graph.add_edge(source, target)
    path = scratch_file()
    async with savers.AsyncSqliteSaver.from_conn_string(path) as saver:
        options = {"recursion_limit": 10_000, "configurable": {"thread_id": "1"}}
        await graph.compile(checkpointer=saver).ainvoke({"log": []}, options)
    return size(Path(path))


def size(path: Path) -> int:
    """The bytes of a SQLite file with its log."""
    return sum(file.stat().st_size for file in path.parent.glob(f"{path.name}*"))


def main() -> None:
    """Measure and print."""
    steps = [node(append, name=f"append{i}") for i in range(NUM_NODES)]
    graph = Graph(State).chain(START, *steps, END)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "runs.db"
        store = SQLiteStore(path)
        graph.run_sync(State(), run="r", store=store)
        store.close()
        num_bytes = size(path)
        store = SQLiteStore(path)
        best_s = best_cpu_s = float("inf")
        for _ in range(40):
            started, started_cpu = time.perf_counter(), time.process_time()
            result = graph.run_sync(run="r", store=store)
            best_s = min(best_s, time.perf_counter() - started)
            best_cpu_s = min(best_cpu_s, time.process_time() - started_cpu)
            assert len(result.state.log) == NUM_NODES
        store.close()
    print(f"resume     {best_cpu_s * 1000:.1f} ms of CPU, {best_s * 1000:.1f} ms of wall time")
    print(f"disk       {num_bytes:,} bytes")
    print(f"ratio      {num_bytes / (NUM_NODES * NUM_BYTES):.2f}")
    if importlib.util.find_spec("langgraph") is not None:
        print(f"langgraph  {asyncio.run(langgraph_bytes()):,} bytes")


if __name__ == "__main__":
    main()
