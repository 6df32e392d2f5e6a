"""Random nested graphs do what a small sequential interpreter does, under any scheduling."""

import asyncio
import itertools
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Literal

from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from agentloop import END, START, Graph, Log, Sum, both, each
from agentloop.errors import StateError
from agentloop.steps import Step

Program = list[tuple[Any, ...]]


class S(BaseModel):
    trail: Log[str] = []
    total: Sum[int] = 0
    x: int = 0
    item: int = 0
    two: tuple[int, ...] = (1, 2)
    none: tuple[int, ...] = ()


def programs() -> st.SearchStrategy[Program]:
    """Programs of nested steps; delays vary what finishes first."""
    delay = st.integers(0, 6)
    leaf = st.tuples(st.just("step"), delay) | st.tuples(st.just("set"), delay, st.integers(1, 9))
    return st.recursive(
        st.lists(leaf, min_size=1, max_size=3),
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
    """What every router answers by: any function of the state."""
    return (len(trail) + total) % 3 != 0


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
        if kind == "step":
            s.trail.append(f"{s.item}.{s.x}")
            s.total += 1
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
        elif kind == "each":
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
    return graph.chain(START, *[make_step(entry, numbers) for entry in program], END)


def make_step(entry: tuple[Any, ...], numbers: "itertools.count[int]") -> Step[S]:
    kind, *args = entry
    number = next(numbers)
    if kind == "each":
        return each(build(args[1], numbers), over=args[0], into="item", name=f"each{number}")
    if kind == "both":
        return both(*[build(body, numbers) for body in args[0]])
    if kind == "graph":
        return build(args[0], numbers)
    if kind == "loop":
        return build_loop(args[0], args[1], numbers)

    async def step(s: S) -> None:
        for _ in range(args[0]):
            await asyncio.sleep(0)
        if kind == "set":
            s.x = args[1]
        else:
            s.trail += [f"{s.item}.{s.x}"]
            s.total += 1

    step.__name__ = f"step{number}"
    return step


def build_loop(limit: int, body: Program, numbers: "itertools.count[int]") -> Graph[S]:
    async def router(s: S) -> Literal["body", "END"]:
        return "body" if wants_more(s.trail, s.total) else "END"

    inner = build(body, numbers)
    inner.name = "body"
    graph = Graph(S, name=f"loop{next(numbers)}").chain(START, inner, router)
    return graph.route(router, inner, END, limit=limit, then=END)


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
