"""Random nested graphs do what a small sequential interpreter does, under any scheduling."""

import asyncio
import itertools
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Literal

from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from agentloop import END, START, Graph, Log, Sum, both, each, node, tool
from agentloop.asking import ask
from agentloop.context import idempotency_key
from agentloop.errors import StateError
from agentloop.runs import RunResult
from agentloop.steps import End, Node, Step
from agentloop.stores import MemoryStore, Store
from agentloop.testing import killed_after

Program = list[tuple[Any, ...]]


class S(BaseModel):
    trail: Log[str] = []
    total: Sum[int] = 0
    x: int = 0
    item: int = 0
    two: tuple[int, ...] = (1, 2)
    none: tuple[int, ...] = ()


def programs(*, is_recorded: bool = False) -> st.SearchStrategy[Program]:
    """Programs of nested steps; delays vary what finishes first."""
    delay = st.integers(0, 6)
    leaf = st.tuples(st.just("step"), delay) | st.tuples(st.just("set"), delay, st.integers(1, 9))
    if is_recorded:
        leaf |= st.tuples(st.sampled_from(["ask", "send"]), delay)
    loop = st.tuples(st.just("loop"), st.integers(1, 3), st.lists(leaf, min_size=1, max_size=2))
    return st.recursive(
        st.lists(leaf | loop, min_size=1, max_size=3),
        lambda body: st.lists(
            leaf
            | st.tuples(st.just("each"), st.sampled_from(["two", "none"]), body)
            | st.tuples(st.just("both"), st.lists(body, min_size=2, max_size=3))
            | st.tuples(st.just("graph"), body)
            | st.tuples(st.just("loop"), st.integers(1, 3), body),
            min_size=1,
            max_size=3,
        ),
        max_leaves=12,
    )


def wants_more(trail: list[str], total: int) -> bool:
    """What every router answers by: any function of the state, true most of the time."""
    return (7 * len(trail) + 3 * total) % 11 < 9


def said(kind: str, item: int, x: int, length: int) -> str:
    """What a step says, and what a question or an effect answers: any function of the state."""
    return f"{kind} {item} {x} {length}"


# ------------------------------------------------------------------ the interpreter


@dataclass
class Plain:
    trail: list[str] = field(default_factory=lambda: [])
    total: int = 0
    x: int = 0
    item: int = 0
    wrote_x: bool = False


class ConflictError(Exception):
    """Two branches wrote x."""


def interpret(program: Program, s: Plain) -> None:
    """Do one thing after the other."""
    for kind, *args in program:
        if kind in ("step", "ask", "send"):
            s.trail.append(said(kind, s.item, s.x, len(s.trail)))
            s.total += kind == "step"
        elif kind == "set":
            s.x, s.wrote_x = args[1], True
        elif kind == "graph":
            interpret(args[0], s)
        elif kind == "loop":
            for _ in range(args[0]):
                interpret(args[1], s)
                if not wants_more(s.trail, s.total):
                    break
        elif kind == "both":
            fork(s, [(body, s.item) for body in args[0]])
        else:
            fork(s, [(args[1], i) for i in getattr(S(), args[0])])


def fork(s: Plain, branches: list[tuple[Program, int]]) -> None:
    """Run branches on copies and add up what they did, in their order."""
    start, writers = deepcopy(s), 0
    for body, item in branches:
        branch = deepcopy(start)
        branch.item, branch.wrote_x = item, False
        interpret(body, branch)
        s.trail += branch.trail[len(start.trail) :]
        s.total += branch.total - start.total
        if branch.wrote_x:
            s.x, s.wrote_x, writers = branch.x, True, writers + 1
    if writers > 1:
        raise ConflictError


# ------------------------------------------------------------------ the same as a graph


def build(program: Program, numbers: "itertools.count[int]") -> Graph[S]:
    """A graph that does what a program says."""
    graph = Graph(S, name=f"graph{next(numbers)}")
    return graph.chain(extend(graph, program, START, numbers), END)


def extend(
    graph: Graph[S], program: Program, last: Step[S] | End, numbers: "itertools.count[int]"
) -> Step[S] | End:
    """Add a program after a step; loops are routes of the same graph. The new last step."""
    for kind, *args in program:
        if kind == "loop":
            head, after = nothing(f"head{next(numbers)}"), nothing(f"after{next(numbers)}")
            router = make_router(f"router{next(numbers)}", head, after)
            graph.chain(extend(graph, args[1], graph_step(graph, last, head), numbers), router)
            graph.route(router, head, after, limit=args[0], then=after)
            last = after
        else:
            last = graph_step(graph, last, make_step((kind, *args), numbers))
    return last


def graph_step(graph: Graph[S], last: Step[S] | End, step: Step[S]) -> Step[S]:
    graph.chain(last, step)
    return step


def nothing(name: str) -> Node[S]:
    async def nothing(s: S) -> None: ...

    return node(nothing, name=name)


def make_router(name: str, head: Node[S], after: Node[S]) -> Node[S]:
    async def router(s: S) -> str:
        return head.name if wants_more(s.trail, s.total) else after.name

    router.__annotations__["return"] = Literal[head.name, after.name]
    return node(router, name=name)


def make_step(entry: tuple[Any, ...], numbers: "itertools.count[int]") -> Step[S]:
    kind, *args = entry
    number = next(numbers)
    if kind == "each":
        return each(build(args[1], numbers), over=args[0], into="item", name=f"each{number}")
    if kind == "both":
        return both(*[build(body, numbers) for body in args[0]])
    if kind == "graph":
        return build(args[0], numbers)

    async def step(s: S) -> None:
        for _ in range(args[0]):
            await asyncio.sleep(0)
        if kind == "set":
            s.x = args[1]
        elif kind == "ask":
            s.trail += [await ask(said(kind, s.item, s.x, len(s.trail)), str)]
        elif kind == "send":
            s.trail += [await send(said(kind, s.item, s.x, len(s.trail)))]
        else:
            s.trail += [said(kind, s.item, s.x, len(s.trail))]
            s.total += 1

    step.__name__ = f"step{number}"
    return step


@settings(max_examples=150, deadline=None)
@given(programs())
def test_a_graph_equals_its_interpreter(program: Program) -> None:
    """State and order are those of a sequential run; conflicts are found where it finds them."""
    plain = Plain()
    graph = build(program, itertools.count())
    try:
        interpret(program, plain)
    except ConflictError:
        result = graph.run_sync(S(), check=False)
        assert isinstance(result.error, StateError)
        assert result.error.field == "x"
        return
    state = graph.run_sync(S()).state
    assert (state.trail, state.total, state.x) == (plain.trail, plain.total, plain.x)
    assert state.item == 0


# ------------------------------------------------------------------ recorded, killed and resumed

sent: list[str] = []


@tool(effect="once")
async def send(text: str) -> str:
    """An effect that must never happen twice."""
    sent.append(idempotency_key())
    return text


def finish(graph: Graph[S], store: Store, state: S | None = None) -> RunResult[S]:
    """Run, and answer one question at a time until there is none."""
    result = graph.run_sync(state, run="r", store=store)
    while result.waiting:
        path = result.waiting[0]
        assert path not in [row.path for row in store.rows("r") if row.kind == "call"]
        question = result.questions[path]
        answer = question if isinstance(question, str) else question["request"]["text"]
        result = graph.run_sync(run="r", store=store, answers={path: answer})
    return result


@settings(max_examples=40, deadline=None)
@given(programs(is_recorded=True))
def test_a_run_killed_at_any_row_equals_its_interpreter(program: Program) -> None:
    """Resumed from every prefix of its rows it ends the same; no effect recorded happens again."""
    plain = Plain()
    try:
        interpret(program, plain)
    except ConflictError:
        return
    graph = build(program, itertools.count())
    store = MemoryStore()
    sent.clear()
    whole = finish(graph, store, S()).state
    assert (whole.trail, whole.total, whole.x) == (plain.trail, plain.total, plain.x)
    assert len(set(sent)) == len(sent)
    rows = store.rows("r")
    for num_rows in range(1, len(rows)):
        sent.clear()
        killed = asyncio.run(killed_after(store, "r", num_rows))
        begun = {f"r/{row.path}" for row in rows[:num_rows] if row.kind == "intent"}
        assert finish(graph, killed).state == whole
        assert not begun.intersection(sent)
        assert len(set(sent)) == len(sent)
