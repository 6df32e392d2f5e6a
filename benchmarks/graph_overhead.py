"""What a graph costs per node, beside plain asyncio and other engines where they are installed.

    python -m benchmarks.graph_overhead            # every engine, each in a process of its own
    python -m benchmarks.graph_overhead agentloop  # one engine, in this process

`make compare-graphs` does so in a virtual environment that has the other engines.

Shapes (every node reads a number and writes it plus one):
    linear100   100 nodes after each other
    loop1000    one routing node, 1000 rounds
    fanout100   one planner, 100 parallel workers that yield once, one join
    runs100x5   100 runs of 5 nodes at the same time
    barrier     beside a 50 ms branch one of 5 x 10 ms; ideal 50 ms, in milliseconds of wall time

Figures are microseconds of CPU per node, the least of the repetitions after one warm-up. Wall time
is left out on purpose: on a busy machine it measures the neighbours.
"""

from __future__ import annotations

import asyncio
import atexit
import importlib.util
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from pydantic import BaseModel

from agentloop import END, START, Graph, Log, both, each, node
from benchmarks.graph_rivals import NEEDS, RIVALS, Shape

NUM_REPETITIONS = int(os.environ.get("REPETITIONS", "7"))
SLOW_S = 5.0  # a shape whose warm-up takes longer is repeated once
NUM_NODES = {"linear100": 100, "loop1000": 1000, "fanout100": 100, "runs100x5": 500, "barrier": 1}

Engine = Callable[[], dict[str, Shape]]


def floor() -> dict[str, Shape]:
    """Plain asyncio with no graph: what any engine costs at least."""

    async def increment(x: int) -> int:
        return x + 1

    async def work(i: int) -> int:
        await asyncio.sleep(0)
        return i + 1

    async def chain(num: int) -> int:
        x = 0
        for _ in range(num):
            x = await increment(x)
        return x

    async def fan_out() -> None:
        assert sum(await asyncio.gather(*(work(i) for i in range(100)))) == 5050

    async def barrier() -> None:
        async def quick() -> None:
            for _ in range(5):
                await asyncio.sleep(0.01)

        await asyncio.gather(asyncio.sleep(0.05), quick())

    return {
        "linear100": lambda: chain(100),
        "loop1000": lambda: chain(1000),
        "fanout100": fan_out,
        "runs100x5": lambda: asyncio.gather(*(chain(5) for _ in range(100))),
        "barrier": barrier,
    }


class State(BaseModel):
    """What the nodes of every shape work on."""

    x: int = 0
    items: tuple[int, ...] = ()
    results: Log[int] = []


async def increment(s: State) -> None:
    """The node of the chains."""
    s.x += 1


async def again(s: State) -> Literal["again", "END"]:
    """The node of the loop."""
    s.x += 1
    return "again" if s.x < 1000 else "END"


async def plan(s: State) -> None:
    """The node ahead of the workers."""
    s.items = tuple(range(100))


async def work(s: State, i: int) -> None:
    """One of the workers."""
    await asyncio.sleep(0)
    s.results.append(i + 1)


async def join(s: State) -> None:
    """The node after the workers."""
    s.x = sum(s.results)


async def slow(s: State) -> None:
    """The branch that takes 50 ms at once."""
    await asyncio.sleep(0.05)


async def quick(s: State) -> None:
    """A fifth of the branch that takes 50 ms in steps."""
    await asyncio.sleep(0.01)


def chain(num: int) -> Graph[State]:
    """A graph of nodes that follow each other."""
    nodes = [node(increment, name=f"increment{i}") for i in range(num)]
    return Graph(State).chain(START, *nodes, END)


def agentloop(store: str | None = None) -> dict[str, Shape]:
    """This package, with everything on: validated drafts, events, timings, and a journal or not."""
    names = itertools.count()
    linear, short = chain(100), chain(5)
    loop = Graph(State).chain(START, again).route(again, again, END, limit=10**9, then=END)
    fan = Graph(State).chain(START, plan, each(work, over="items"), join, END)
    steps = [node(quick, name=f"quick{i}") for i in range(5)]
    branches = Graph(State).chain(START, both(slow, [*steps]), END)

    async def run(graph: Graph[State], expected: int) -> None:
        name = f"run{next(names)}"
        assert (await graph.run(State(), run=name, store=store)).state.x == expected

    return {
        "linear100": lambda: run(linear, 100),
        "loop1000": lambda: run(loop, 1000),
        "fanout100": lambda: run(fan, 5050),
        "runs100x5": lambda: asyncio.gather(*(run(short, 5) for _ in range(100))),
        "barrier": lambda: run(branches, 0),
    }


def agentloop_sqlite() -> dict[str, Shape]:
    """The same, every run recorded in a SQLite file, synchronous=FULL."""
    folder = tempfile.mkdtemp(prefix="graph_overhead")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return agentloop(str(Path(folder) / "runs.db"))


ENGINES: dict[str, Engine] = {
    "floor": floor,
    "agentloop": agentloop,
    "agentloop+db": agentloop_sqlite,
    **RIVALS,
}


async def measure(name: str) -> dict[str, float]:
    """Microseconds of CPU per node of every shape; for `barrier` milliseconds of wall time."""
    found: dict[str, float] = {}
    for shape, run in ENGINES[name]().items():
        started = time.perf_counter()
        await run()
        is_slow = time.perf_counter() - started > SLOW_S
        best = float("inf")
        clock = time.perf_counter if shape == "barrier" else time.process_time
        for _ in range(1 if is_slow else NUM_REPETITIONS):
            started = clock()
            await run()
            best = min(best, clock() - started)
        scale = 1e3 if shape == "barrier" else 1e6
        found[shape] = round(best / NUM_NODES[shape] * scale, 2)
    return found


def main(names: list[str]) -> None:
    """Measure one engine here, or several in processes of their own."""
    if len(names) == 1:
        print(json.dumps(asyncio.run(measure(names[0]))))
        return
    shapes = list(NUM_NODES)
    print(f"{'':16}" + "".join(f"{shape:>12}" for shape in shapes))
    for name in names or list(ENGINES):
        if importlib.util.find_spec(NEEDS.get(name, "agentloop")) is None:
            print(f"{name:16}  (not installed)")
            continue
        command = [sys.executable, "-m", "benchmarks.graph_overhead", name]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        found = json.loads(output)
        figures = "".join(f"{found.get(shape, '-'):>12}" for shape in shapes)
        print(f"{name:16}{figures}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
