"""Random nested graphs as programs, and the sequential interpreter that says what they do.

A program is JSON: a list of steps `[kind, ...]`. `build` makes a graph of it, `interpret` does the
same one thing after the other.
"""

import asyncio
import itertools
import os
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Literal

from hypothesis import strategies as st
from pydantic import BaseModel

from agentloop import END, START, Graph, Log, Sum, both, each, node, tool
from agentloop.asking import ask
from agentloop.context import here, idempotency_key
from agentloop.steps import Each, End, Node, Step

Program = list[Any]


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
    kinds = ["step", "retry", "skip", "instead"]
    leaf = st.tuples(st.sampled_from(kinds), delay) | st.tuples(
        st.just("set"), delay, st.integers(1, 9)
    )
    if is_recorded:
        leaf |= st.tuples(st.sampled_from(["ask", "send", "pay", "both_calls"]), delay)
    failing = leaf | st.tuples(st.just("fail"), delay) if is_recorded else leaf
    loop = st.tuples(st.just("loop"), st.integers(1, 3), st.lists(leaf, min_size=1, max_size=2))
    return st.recursive(
        st.lists(leaf | loop, min_size=1, max_size=3),
        lambda body: st.lists(
            leaf
            | st.tuples(st.just("each"), st.sampled_from(["two", "none"]), body, st.just("raise"))
            | st.tuples(
                st.just("each"),
                st.just("two"),
                st.lists(failing, min_size=1, max_size=2) | body,
                st.just("skip"),
            )
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


class FailedError(Exception):
    """A step failed, or two branches wrote x."""


def interpret(program: Program, s: Plain) -> None:
    """Do one thing after the other."""
    for kind, *args in program:
        if kind == "set":
            s.x, s.wrote_x = args[1], True
        elif kind == "fail":
            raise FailedError
        elif kind == "graph":
            interpret(args[0], s)
        elif kind == "loop":
            for _ in range(args[0]):
                interpret(args[1], s)
                if not wants_more(s.trail, s.total):
                    break
        elif kind in ("both", "each"):
            bodies = (
                [(body, s.item) for body in args[0]]
                if kind == "both"
                else [(args[1], item) for item in getattr(S(), args[0])]
            )
            fork(s, bodies, is_skipping="skip" in args[2:])
        elif kind != "skip":
            s.trail.append(said(kind, s.item, s.x, len(s.trail)))
            s.total += kind in ("step", "retry")


def fork(s: Plain, branches: list[tuple[Program, int]], is_skipping: bool = False) -> None:
    """Run branches on copies and add up what they did, in their order."""
    start, writers = deepcopy(s), 0
    for body, item in branches:
        branch = deepcopy(start)
        branch.item, branch.wrote_x = item, False
        try:
            interpret(body, branch)
        except FailedError:
            if is_skipping:
                continue
            raise
        s.trail += branch.trail[len(start.trail) :]
        s.total += branch.total - start.total
        if branch.wrote_x:
            s.x, s.wrote_x, writers = branch.x, True, writers + 1
    if writers > 1:
        raise FailedError


def outcome(program: Program) -> list[Any] | None:
    """What the program leaves: trail, total and x; `None` if it fails."""
    plain = Plain()
    try:
        interpret(program, plain)
    except FailedError:
        return None
    return [plain.trail, plain.total, plain.x]


# ------------------------------------------------------------------ the same as a graph


def build(program: Program, numbers: "itertools.count[int]") -> Graph[S]:
    """A graph that does what a program says."""
    graph = Graph(S, name=f"graph{next(numbers)}")
    return graph.chain(_extend(graph, program, START, numbers), END)


def _extend(
    graph: Graph[S], program: Program, last: Step[S] | End, numbers: "itertools.count[int]"
) -> Step[S] | End:
    """Add a program after a step; loops are routes of the same graph. The new last step."""
    for kind, *args in program:
        if kind == "loop":
            head, after = _nothing(f"head{next(numbers)}"), _nothing(f"after{next(numbers)}")
            router = _router(f"router{next(numbers)}", head, after)
            graph.chain(_extend(graph, args[1], _follow(graph, last, head), numbers), router)
            graph.route(router, head, after, limit=args[0], then=after)
            last = after
        else:
            last = _follow(graph, last, _step([kind, *args], numbers))
    return last


def _follow(graph: Graph[S], last: Step[S] | End, step: Step[S]) -> Step[S]:
    graph.chain(last, step)
    return step


def _nothing(name: str) -> Node[S]:
    async def nothing(s: S) -> None: ...

    return node(nothing, name=name)


def _router(name: str, head: Node[S], after: Node[S]) -> Node[S]:
    async def router(s: S) -> str:
        return head.name if wants_more(s.trail, s.total) else after.name

    router.__annotations__["return"] = Literal[head.name, after.name]
    return node(router, name=name)


def _step(entry: list[Any], numbers: "itertools.count[int]") -> Step[S]:
    kind, *args = entry
    number = next(numbers)
    if kind == "each":
        body = build(args[1], numbers)
        steps: Each[S] = each(
            body, over=args[0], into="item", name=f"each{number}", on_error=args[2]
        )
        return steps
    if kind == "both":
        return both(*[build(body, numbers) for body in args[0]])
    if kind == "graph":
        return build(args[0], numbers)

    async def step(s: S) -> None:
        for _ in range(args[0]):
            await asyncio.sleep(0)
        await _act(kind, args, s)

    async def instead(s: S, error: Exception) -> None:
        s.trail += [said(kind, s.item, s.x, len(s.trail))]

    name = f"step{number}"
    if kind == "skip":
        return node(step, name=name, on_error="skip")
    if kind == "instead":
        return node(step, name=name, on_error=instead)
    return node(step, name=name, retries=int(kind == "retry"))


async def _act(kind: str, args: list[Any], s: S) -> None:
    """What a step does."""
    words = said(kind, s.item, s.x, len(s.trail))
    if kind == "set":
        s.x = args[1]
        return
    s.trail += [words]  # of no use if it fails
    place = here.get()
    if kind in ("fail", "skip", "instead") or (
        kind == "retry" and place is not None and place.attempt == 1
    ):
        raise ValueError(kind)
    if kind in ("step", "retry"):
        s.total += 1
    elif kind == "ask":
        assert await ask(words, str) == words
    elif kind == "send":
        assert await send(words) == words
    elif kind == "pay":
        assert await pay(words) == words
    elif kind == "both_calls":
        assert list(await asyncio.gather(send(f"{words}!"), pay(words))) == [f"{words}!", words]


# ------------------------------------------------------------------ effects

effects: list[tuple[str, str, str]] = []
"""What was done in this process: kind, key, text. Also written to `$EFFECTS`, where it is set."""


def _do(kind: str, text: str) -> None:
    effects.append((kind, idempotency_key(), text))
    if path := os.environ.get("EFFECTS"):
        with open(path, "a", encoding="utf-8") as file:
            file.write(f"{kind}\t{idempotency_key()}\t{text}\n")


@tool(effect="once")
async def send(text: str) -> str:
    """An effect that must never happen twice."""
    _do("send", text)
    await asyncio.sleep(0)
    return text


@tool(effect="idempotent")
async def pay(text: str) -> str:
    """An effect that may be repeated with the same key."""
    _do("pay", text)
    await asyncio.sleep(0)
    return text


def check_effects(done: list[tuple[str, str, str]]) -> None:
    """No `send` happened twice; a `pay` that did is the same payment."""
    sent = [key for kind, key, _ in done if kind == "send"]
    assert len(set(sent)) == len(sent), sent
    paid = {(key, text) for kind, key, text in done if kind == "pay"}
    assert len({key for key, _ in paid}) == len(paid), paid


def answer_to(question: Any) -> str:
    """The answer that the interpreter takes for granted, also for an interrupted effect."""
    return question if isinstance(question, str) else question["request"]["text"]
