"""Build errors: the rule, the culprit and the call that fixes it."""

from collections.abc import Callable
from typing import Any, Literal, cast

import pytest
from pydantic import BaseModel

from agentloop import END, START, Graph, Log, both, each, node
from agentloop.errors import GraphBuildError


class S(BaseModel):
    n: int = 0
    items: tuple[int, ...] = ()
    log: Log[str] = []


async def a(s: S) -> None: ...
async def b(s: S) -> None: ...
async def c(s: S) -> None: ...
async def item(s: S, i: int) -> None: ...
async def choose(s: S) -> Literal["a", "b"]:
    return "a"


async def again(s: S) -> Literal["again", "END"]:
    return "END"


def g() -> Graph[S]:
    return Graph(S)


class T(BaseModel):
    n: str = ""


class U(BaseModel):
    other: int


lam: Callable[[S], None] = lambda s: None  # noqa: E731 - what is refused is a lambda


def same_name() -> Callable[[S], None]:
    def a(s: S) -> None: ...

    return a


async def lonely(s: S, extra: int) -> None: ...


BROKEN: dict[str, tuple[Callable[[], Any], str]] = {
    "no start": (lambda: g().chain(a, END), "graph S has no start; begin with g.chain(START"),
    "dangling": (lambda: g().chain(START, a, b), "nothing follows b; continue with g.chain(b"),
    "unreachable": (
        lambda: g().chain(START, a, END).chain(b, END),
        "b cannot be reached from START; add g.chain(before, b)",
    ),
    "no end": (
        lambda: g().chain(START, choose).route(choose, a, b).chain(a, END).chain(b, c, b),
        "no way leads from b to END; add g.chain(b, END)",
    ),
    "two successors": (
        lambda: g().chain(START, a, b, END).chain(a, c),
        "a already leads to b, so it cannot lead to c as well; for parallel branches use both(b, c",
    ),
    "twice in a chain": (lambda: g().chain(START, a, b, a, END), "second use of the function"),
    "route after chain": (
        lambda: g().chain(START, choose, a, END).route(choose, a, b),
        "choose already leads to a; name all targets in one g.route(choose",
    ),
    "two routes": (
        lambda: g().route(choose, a, b).route(choose, a, b),
        "choose already leads to a, b; name all targets",
    ),
    "START inside": (lambda: g().chain(a, START), "START can only be first and END only last"),
    "END inside": (lambda: g().chain(START, END, a), "START can only be first and END only last"),
    "short chain": (lambda: g().chain(START), "chain() joins steps; give it two or more"),
    "literal differs": (
        lambda: g().chain(START, choose).route(choose, a, c).chain(a, END).chain(c, END),
        "choose returns ['a', 'b'] but its route goes to ['a', 'c']; make them the same: "
        "-> Literal['a', 'c'] or g.route(choose, a, b)",
    ),
    "no literal": (
        lambda: g().chain(START, a).route(a, b, c).chain(b, END).chain(c, END),
        "a has a route but does not say what it returns; write async def a(...) -> "
        "Literal['b', 'c']",
    ),
    "literal without route": (
        lambda: g().chain(START, choose, END),
        "choose returns a choice of a, b but nothing follows it; add g.route(choose, a, b)",
    ),
    "route of a composed step": (
        lambda: g().chain(START, a, END).route(both(a, b, name="x"), a).chain(START, a),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - the mistake
        "x is not a single function",
    ),
    "endless": (
        lambda: g().chain(START, again).route(again, again, END),
        "endless loop again -> again: nothing bounds it; give g.route(again, ..., limit=n",
    ),
    "limit without loop": (
        lambda: g().chain(START, choose).route(choose, a, b, limit=2).chain(a, END).chain(b, END),
        "g.route(choose, ..., limit=2) bounds nothing: no target leads back to choose",
    ),
    "then inside the loop": (
        lambda: g().chain(START, again).route(again, again, END, limit=2, then=again),
        "g.route(again, ..., then=again) leads back to again",
    ),
    "then without limit": (
        lambda: g().route(again, again, END, then=END),
        "has no limit after which to go there; add limit=n",
    ),
    "limit zero": (lambda: g().route(again, again, END, limit=0), "limit=0): use 1 or more"),
    "no targets": (lambda: g().route(again), "g.route(again, ...) needs targets"),
    "each over no field": (
        lambda: g().chain(START, each(item, over="itmes"), END),
        "each(item, over='itmes') takes its items from a field, but S has no field 'itmes'; it "
        "has n, items, log",
    ),
    "each over a number": (
        lambda: g().chain(START, each(item, over="n"), END),
        "S.n is int; make it tuple[..., ...] or Log[...]",
    ),
    "each body takes no item": (
        lambda: g().chain(START, each(a, over="items"), END),
        "a is called with (s, item) but is a(s:",
    ),
    "each of a sequence without into": (
        lambda: g().chain(START, each([a, b], over="items"), END),
        "each(a-b, over='items') has a body that takes no item; say which field holds it: into=",
    ),
    "each into no field": (
        lambda: g().chain(START, each(a, over="items", into="x"), END),
        "has into='x', but S has no field 'x'",
    ),
    "each limit": (lambda: each(item, over="items", limit=0), "limit=0; use 1 or more"),
    "each on_error": (
        lambda: g().chain(START, each(item, over="items", on_error="ignore"), END),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - the mistake
        "has on_error='ignore'; use 'raise', 'skip' or a function",
    ),
    "node on_error": (
        lambda: g().chain(START, node(b, on_error=a), END),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - the mistake
        "a is called with (s, error) but is a(s:",
    ),
    "node retries": (lambda: node(a, retries=-1), "node(a) has retries=-1"),
    "name with a path in it": (
        lambda: node(a, name="draft[2]"),
        "a step cannot be called 'draft[2]': paths such as draft[2]",
    ),
    "graph without a name": (lambda: Graph(S, name=" "), "a step cannot be called ' '"),
    "both of one": (lambda: both(a), "both() has 1 branches; give it two or more"),
    "both of nothing": (lambda: both(a, []), "both() has an empty sequence"),
    "both with END": (lambda: both(a, [b, END]), "has END inside"),  # type: ignore[list-item]  # pyright: ignore[reportArgumentType] - the mistake
    "twice in a branch": (
        lambda: g().chain(START, both(a, [b, b]), END),
        "b stands twice in one branch; use node(b, name=...)",
    ),
    "routing inside both": (
        lambda: g().chain(START, both(a, choose), END),
        "choose returns a choice of a, b but nothing follows it",
    ),
    "wrong arguments": (
        lambda: g().chain(START, lonely, END),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - the mistake
        "lonely is called with (s) but is lonely(s:",
    ),
    "same name": (
        lambda: g().chain(START, a, same_name(), END),
        "two different steps are called a; call one node(a, name=...)",
    ),
    "lambda": (lambda: g().chain(START, lam, END), "a step needs a name of its own, not <lambda>"),
    "not a step": (lambda: g().chain(START, 3, END), "3 is not a step; give a function"),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - the mistake
    "sub-graph with another type": (
        lambda: g().chain(START, Graph(T).chain(START, END), END),
        "T.n: str and S.n: int differ",
    ),
    "sub-graph that needs more": (
        lambda: g().chain(START, Graph(U).chain(START, END), END),
        "U.other has no default and S has no such field to take it from",
    ),
    "broken sub-graph": (
        lambda: g().chain(START, Graph(S, name="sub").chain(START, b), END),
        "nothing follows b",
    ),
    "unknown annotation": (
        lambda: g().chain(START, strange).route(strange, a, b).chain(a, END).chain(b, END),
        "the return annotation 'Nowhere' of strange cannot be evaluated",
    ),
    "not a model": (lambda: cast(Any, Graph)(int), "Graph takes a state class, got int"),
}


async def strange(s: S) -> None: ...


strange.__annotations__["return"] = "Nowhere"  # a name that only a type checker could see


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_rule_names_the_culprit_and_the_fix(name: str) -> None:
    """Every rule has its own error, raised before anything runs."""
    make, message = BROKEN[name]
    with pytest.raises(GraphBuildError) as caught:
        make().check()
    assert message in str(caught.value)


def test_a_graph_cannot_hold_itself() -> None:
    """Recursion is written as a loop."""
    graph = g()
    with pytest.raises(GraphBuildError, match="cannot be a step of itself"):
        graph.chain(START, graph, END)


def test_an_unbounded_cycle_of_several_steps_is_shown_whole() -> None:
    """The error lists the steps of the loop in order."""
    graph = g().chain(START, a, b, back).route(back, a, END)
    with pytest.raises(GraphBuildError, match="endless loop a -> b -> back -> a"):
        graph.check()
    bounded = g().chain(START, a, b, back).route(back, a, END, limit=2)
    bounded.check()


async def back(s: S) -> Literal["a", "END"]:
    return "END"


def test_an_outer_loop_needs_a_limit_of_its_own() -> None:
    """A limit inside an inner loop starts anew each time, so it cannot bound the outer one."""

    async def inner(s: S) -> Literal["inner", "outer"]:
        return "outer"

    async def outer(s: S) -> Literal["a", "END"]:
        return "END"

    graph = g().chain(START, a, inner).route(inner, inner, outer, limit=2)
    graph.route(outer, a, END)
    with pytest.raises(GraphBuildError, match="endless loop a -> inner -> outer -> a"):
        graph.check()


def test_steps_that_hand_over_to_each_other_are_bounded_one_by_one() -> None:
    """A loop may be entered at several places; it is endless until its steps have limits."""

    async def first(s: S) -> Literal["x", "y"]:
        return "x"

    async def x(s: S) -> Literal["y", "END"]:
        return "END"

    async def y(s: S) -> Literal["x", "END"]:
        return "END"

    def build(limit: int | None) -> Graph[S]:
        graph = g().chain(START, first).route(first, x, y)
        return graph.route(x, y, END, limit=limit).route(y, x, END, limit=limit)

    with pytest.raises(GraphBuildError, match="endless loop"):
        build(None).check()
    build(2).check()


def test_a_fixed_graph_checks_again() -> None:
    """A graph that failed its check can be completed and then runs."""
    graph = g().chain(START, a)
    with pytest.raises(GraphBuildError):
        graph.check()
    graph.chain(a, END).check()


def test_the_fingerprint_changes_with_structure_and_not_with_code() -> None:
    """Two graphs of the same steps are compatible; another step, edge, limit or field is not."""

    async def a(s: S) -> None:
        s.n = 1

    same = g().chain(START, a, b, END).fingerprint
    assert g().chain(START, node(lam, name="a"), b, END).fingerprint == same
    others: list[Graph[Any]] = [
        g().chain(START, a, END),
        g().chain(START, a, c, END),
        g().chain(START, a, both(b, c), END),
        Graph(T).chain(START, node(lambda s: None, name="a"), node(lambda s: None, name="b"), END),
    ]
    assert len({same, *(other.fingerprint for other in others)}) == 5
