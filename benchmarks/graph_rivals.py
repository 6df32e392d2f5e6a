"""The shapes of `graph_overhead` in other engines, each as its own documentation writes them."""

from __future__ import annotations

import asyncio
import atexit
import importlib
import itertools
import operator
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from operator import add
from pathlib import Path
from typing import Annotated, Any

from typing_extensions import TypedDict

Shape = Callable[[], Awaitable[object]]

os.environ.setdefault("LANGSMITH_TRACING", "false")
os.environ.setdefault("DO_NOT_TRACK", "1")
os.environ.setdefault("BURR_USAGE_ANALYTICS_DISABLED", "true")


def scratch_file() -> str:
    """The name of a new file in a folder that is removed at the end."""
    folder = tempfile.mkdtemp(prefix="graph_rivals")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return str(Path(folder) / "runs.db")


class Dict(TypedDict):
    """The state, as LangGraph's own examples write it."""

    x: int
    results: Annotated[list[int], add]


async def _increment(s: Dict) -> dict[str, Any]:
    return {"x": s["x"] + 1}


async def _work(i: int) -> dict[str, Any]:
    await asyncio.sleep(0)
    return {"results": [i + 1]}


async def _join(s: Dict) -> dict[str, Any]:
    return {"x": sum(s["results"])}


async def _slow(s: Dict) -> dict[str, Any]:
    await asyncio.sleep(0.05)
    return {}


async def _quick(s: Dict) -> dict[str, Any]:
    await asyncio.sleep(0.01)
    return {}


def _langgraph_shapes() -> dict[str, Any]:
    graphs: Any = importlib.import_module("langgraph.graph")
    send: Any = importlib.import_module("langgraph.types").Send

    def chained(num: int, step: Any) -> Any:
        graph = graphs.StateGraph(Dict)
        names = [f"n{i}" for i in range(num)]
        for name in names:
            graph.add_node(name, step)
        for source, target in itertools.pairwise([graphs.START, *names, graphs.END]):
            graph.add_edge(source, target)
        return graph

    def more(s: Dict) -> str:
        return "again" if s["x"] < 1000 else graphs.END

    def send_all(s: Dict) -> list[Any]:
        return [send("work", i) for i in range(100)]

    loop = graphs.StateGraph(Dict)
    loop.add_node("again", _increment)
    loop.add_edge(graphs.START, "again")
    loop.add_conditional_edges("again", more, ["again", graphs.END])
    fan = graphs.StateGraph(Dict)
    for name, step in (("plan", _increment), ("work", _work), ("join", _join)):
        fan.add_node(name, step)
    fan.add_edge(graphs.START, "plan")
    fan.add_conditional_edges("plan", send_all, ["work"])
    fan.add_edge("work", "join")
    fan.add_edge("join", graphs.END)
    branches = chained(5, _quick)
    branches.add_node("slow", _slow)
    branches.add_edge(graphs.START, "slow")
    branches.add_edge("slow", graphs.END)
    return {
        "linear100": chained(100, _increment),
        "runs100x5": chained(5, _increment),
        "loop1000": loop,
        "fanout100": fan,
        "barrier": branches,
    }


def langgraph(saver: Any = None) -> dict[str, Shape]:
    """LangGraph, without a checkpointer or with a function that opens one."""
    shapes = _langgraph_shapes()
    names = itertools.count()
    opened: list[Any] = []
    compiled: dict[str, Any] = {}

    async def run(shape: str, expected: int) -> None:
        if shape not in compiled:
            if saver is not None and not opened:
                opened.extend(await saver())
            checkpointer = opened[0] if opened else None
            compiled[shape] = shapes[shape].compile(checkpointer=checkpointer)
        options = {"recursion_limit": 100_000, "configurable": {"thread_id": str(next(names))}}
        state = await compiled[shape].ainvoke({"x": 0, "results": []}, options)
        assert state["x"] == expected

    return {
        "linear100": lambda: run("linear100", 100),
        "loop1000": lambda: run("loop1000", 1000),
        "fanout100": lambda: run("fanout100", 5050),
        "runs100x5": lambda: asyncio.gather(*(run("runs100x5", 5) for _ in range(100))),
        "barrier": lambda: run("barrier", 0),
    }


def langgraph_sqlite() -> dict[str, Shape]:
    """LangGraph with its own SQLite checkpointer."""

    async def saver() -> tuple[Any, Any]:
        module: Any = importlib.import_module("langgraph.checkpoint.sqlite.aio")
        manager: Any = module.AsyncSqliteSaver.from_conn_string(scratch_file())
        return await manager.__aenter__(), manager  # the connection lives as long as the manager

    return langgraph(saver)


class Counted:
    """The state of pydantic-graph's shapes."""

    def __init__(self) -> None:
        self.x = 0


def _pydantic_chain(module: Any, num: int) -> Any:
    g = module.GraphBuilder(state_type=Counted, output_type=int)

    async def increment(ctx: Any) -> int:
        ctx.state.x += 1
        return int(ctx.state.x)

    steps = [g.step(increment, node_id=f"n{number}") for number in range(num)]
    for source, target in itertools.pairwise([g.start_node, *steps, g.end_node]):
        g.add(g.edge_from(source).to(target))
    return g.build()


def _pydantic_loop(module: Any) -> Any:
    g = module.GraphBuilder(state_type=Counted, output_type=int)

    async def body(ctx: Any) -> bool:
        ctx.state.x += 1
        return bool(ctx.state.x < 1000)

    async def last(ctx: Any) -> int:
        return int(ctx.state.x)

    first, end = g.step(body, node_id="body"), g.step(last, node_id="last")
    again = g.match(bool, matches=partial(operator.is_, True)).to(first)
    over = g.match(bool, matches=partial(operator.is_, False)).to(end)
    g.add(
        g.edge_from(g.start_node).to(first),
        g.edge_from(first).to(g.decision().branch(again).branch(over)),
        g.edge_from(end).to(g.end_node),
    )
    return g.build()


def _pydantic_fan(module: Any) -> Any:
    g = module.GraphBuilder(state_type=Counted, output_type=list[int])

    async def plan(ctx: Any) -> list[int]:
        return list(range(100))

    async def work(ctx: Any) -> int:
        await asyncio.sleep(0)
        return int(ctx.inputs) + 1

    first, each = g.step(plan, node_id="plan"), g.step(work, node_id="work")
    join = g.join(module.reduce_list_append, initial_factory=list[int])
    g.add(
        g.edge_from(g.start_node).to(first),
        g.edge_from(first).map().to(each),
        g.edge_from(each).to(join),
        g.edge_from(join).to(g.end_node),
    )
    return g.build()


def pydantic_graph() -> dict[str, Shape]:
    """pydantic-graph's builder, which records nothing."""
    module: Any = importlib.import_module("pydantic_graph")
    linear, short = _pydantic_chain(module, 100), _pydantic_chain(module, 5)
    looped, fanned = _pydantic_loop(module), _pydantic_fan(module)

    async def run(graph: Any) -> Any:
        return await graph.run(state=Counted())

    return {
        "linear100": lambda: run(linear),
        "loop1000": lambda: run(looped),
        "fanout100": lambda: run(fanned),
        "runs100x5": lambda: asyncio.gather(*(run(short) for _ in range(100))),
    }


def _burr_fan(core: Any) -> Any:
    """Burr's action that maps another one over 100 states."""
    parallelism: Any = importlib.import_module("burr.core.parallelism")

    async def work(state: Any) -> Any:
        await asyncio.sleep(0)
        return state.update(y=state["i"] + 1)

    worker = core.action(reads=["i"], writes=["y"])(work)

    async def states(self: Any, state: Any, context: Any, inputs: Any) -> AsyncIterator[Any]:
        for number in range(100):
            yield state.update(i=number)

    async def reduce(self: Any, state: Any, states: Any) -> Any:
        return state.update(x=sum([one["y"] async for one in states]))

    def action(self: Any, state: Any, inputs: Any) -> Any:
        return worker

    def fields(self: Any) -> list[str]:
        return ["x"]

    def is_async(self: Any) -> bool:
        return True

    body: dict[str, Any] = {"action": action, "is_async": is_async}
    body |= {"states": states, "reduce": reduce}
    body |= {"reads": property(fields), "writes": property(fields)}
    return type("Fan", (parallelism.MapStates,), body)()


def burr(is_recorded: bool = False) -> dict[str, Shape]:
    """Burr, with or without its SQLite persister."""
    core: Any = importlib.import_module("burr.core")
    condition: Any = importlib.import_module("burr.core.action").Condition
    names = itertools.count()
    opened: list[Any] = []

    async def add_one(state: Any) -> Any:
        return state.update(x=state["x"] + 1)

    async def give(state: Any) -> Any:
        return state

    increment = core.action(reads=["x"], writes=["x"])(add_one)
    last = core.action(reads=["x"], writes=[])(give)

    async def build(actions: dict[str, Any], arrows: list[Any], entry: str) -> Any:
        builder = core.ApplicationBuilder().with_actions(**actions).with_transitions(*arrows)
        builder = builder.with_entrypoint(entry).with_state(x=0)
        if not is_recorded:
            return builder.build()
        if not opened:
            module: Any = importlib.import_module("burr.integrations.persisters.b_aiosqlite")
            opened.append(await module.AsyncSQLitePersister.from_values(scratch_file(), "s"))
            await opened[0].initialize()
        builder = builder.with_state_persister(opened[0])
        return await builder.with_identifiers(app_id=str(next(names)), partition_key="p").abuild()

    async def chain(num: int) -> None:
        actions = {f"n{i}": increment for i in range(num)}
        arrows = [(f"n{i}", f"n{i + 1}") for i in range(num - 1)]
        app = await build(actions, arrows, "n0")
        _, _, state = await app.arun(halt_after=[f"n{num - 1}"])
        assert state["x"] == num

    async def loop() -> None:
        more = condition.expr("x < 1000")
        arrows = [("body", "body", more), ("body", "last")]
        app = await build({"body": increment, "last": last}, arrows, "body")
        _, _, state = await app.arun(halt_after=["last"])
        assert state["x"] == 1000

    async def fan() -> None:
        app = await build({"fan": _burr_fan(core)}, [], "fan")
        _, _, state = await app.arun(halt_after=["fan"])
        assert state["x"] == 5050

    return {
        "linear100": lambda: chain(100),
        "loop1000": loop,
        "fanout100": fan,
        "runs100x5": lambda: asyncio.gather(*(chain(5) for _ in range(100))),
    }


def burr_sqlite() -> dict[str, Shape]:
    """Burr with its SQLite persister."""
    return burr(is_recorded=True)


RIVALS: dict[str, Callable[[], dict[str, Shape]]] = {
    "langgraph": langgraph,
    "langgraph+db": langgraph_sqlite,
    "pydantic-graph": pydantic_graph,
    "burr": burr,
    "burr+db": burr_sqlite,
}
NEEDS = {
    "langgraph": "langgraph",
    "langgraph+db": "langgraph",
    "pydantic-graph": "pydantic_graph",
    "burr": "burr",
    "burr+db": "burr",
}
