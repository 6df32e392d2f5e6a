"""A graph made ready to run: its steps numbered, its edges resolved, its functions inspected.

A flow is what the runner walks: after every step one arc to follow, or a table of arcs by the name
that a routing node returns. Parallel steps hold flows of their own. The rules a graph must keep
are in `agentloop.rules`; here a definition is taken to be right.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from agentloop.definition import Definition, SubStates, sub_states
from agentloop.loops import Loop, find_loops, innermost
from agentloop.state import StateSpec
from agentloop.steps import BothStep, EachStep, NodeStep, SubGraph, step_name


@dataclass(frozen=True, slots=True)
class Leaf:
    """A function to call with a draft; `choices` are what it may return to its route."""

    name: str
    call: Callable[..., Any]
    is_async: bool
    timeout_s: float | None = None
    num_retries: int = 0
    on_error: Leaf | Literal["raise", "skip"] = "raise"
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EachOp:
    """Run a body for every item of a field. `leaf` is set where the body is one node."""

    name: str
    body: Flow
    leaf: Leaf | None
    over: str
    into: str | None
    limit: int | None
    on_error: Leaf | Literal["raise", "skip"]


@dataclass(frozen=True, slots=True)
class BothOp:
    """Run several bodies at the same time; numbered where two have a step of the same name."""

    name: str
    branches: tuple[Flow, ...]
    is_numbered: bool


@dataclass(frozen=True, slots=True)
class SubOp:
    """Run another graph; `states` says how its state is made, `None` for the very same class."""

    name: str
    flow: Flow
    states: SubStates | None


Op: TypeAlias = Leaf | EachOp | BothOp | SubOp


@dataclass(frozen=True, slots=True)
class Arc:
    """Where to go next, `-1` for the end, and which routes start counting anew on the way."""

    target: int
    name: str
    resets: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Table:
    """Where a routing node may go, by the name it returns.

    Attributes:
        node: The routing node's name.
        arcs: The arc of every name.
        limit: How often the node may run per entry of its loop.
        stays: The names that keep the run inside that loop.
        then: Where to go instead of staying when the limit is reached.
    """

    node: str
    arcs: Mapping[str, Arc]
    limit: int | None = None
    stays: frozenset[str] = frozenset()
    then: Arc | None = None


@dataclass(slots=True)
class Flow:
    """Steps and what follows each; `way_out` is where a run goes at a limit of the whole run."""

    name: str
    spec: StateSpec[Any]
    ops: list[Op] = field(default_factory=lambda: [])
    exits: list[Arc | Table] = field(default_factory=lambda: [])
    first: int = 0
    way_out: Arc | None = None


def is_async(call: Callable[..., Any]) -> bool:
    """Whether calling gives something to await, as far as can be seen without calling."""
    inner = inspect.unwrap(call)
    while hasattr(inner, "func"):  # functools.partial
        inner = inner.func
    return inspect.iscoroutinefunction(inner) or inspect.iscoroutinefunction(
        getattr(inner, "__call__", None)  # noqa: B004 - the method itself is inspected
    )


def make_leaf(step: object, choices: tuple[str, ...] = ()) -> Leaf:
    """A function or node, inspected."""
    if isinstance(step, NodeStep):
        handler = step.on_error
        return Leaf(
            step.name,
            step.call,
            is_async(step.call),
            step.timeout_s,
            step.num_retries,
            make_leaf(handler, choices) if callable(handler) else handler,
            choices,
        )
    assert callable(step), "the rules let only functions through"
    return Leaf(step_name(step), step, is_async(step), choices=choices)


def make_op(step: object, spec: StateSpec[Any], choices: tuple[str, ...] = ()) -> Op:
    """One step, made ready to run."""
    if isinstance(step, EachStep):
        body = straight_flow(step.name, step.body, spec)
        only = body.ops[0] if len(body.ops) == 1 else None
        leaf = only if isinstance(only, Leaf) else None
        on_error = make_leaf(step.on_error) if callable(step.on_error) else step.on_error
        return EachOp(step.name, body, leaf, step.over, step.into, step.limit, on_error)
    if isinstance(step, BothStep):
        flows = tuple(
            straight_flow(f"{step.name}[{i}]", body, spec) for i, body in enumerate(step.branches)
        )
        names = [op.name for flow in flows for op in flow.ops]
        return BothOp(step.name, flows, is_numbered=len(set(names)) < len(names))
    if not isinstance(step, SubGraph):
        return make_leaf(step, choices)
    flow: Flow = step.flow
    states = None if flow.spec is spec else sub_states(spec, flow.spec)
    return SubOp(step.name, flow, states)


def straight_flow(name: str, steps: Iterable[object], spec: StateSpec[Any]) -> Flow:
    """A flow of steps that simply follow each other."""
    ops = [make_op(step, spec) for step in steps]
    names = [op.name for op in ops[1:]] + ["END"]
    arcs: list[Arc | Table] = [Arc(i, name) for i, name in enumerate(names, start=1)]
    arcs[-1] = Arc(-1, "END")
    return Flow(name, spec, ops, arcs)


def compile_flow(definition: Definition) -> Flow:
    """A definition that keeps the rules, as a flow."""
    numbers = {name: i for i, name in enumerate(definition.steps)} | {"END": -1}
    loops = find_loops(definition.successors(), "START")
    inner = {name: innermost(loops, name) for name in definition.routes}

    def arc(source: str, target: str) -> Arc:
        entered = [lp for lp in loops if target in lp.body and source not in lp.body]
        resets = tuple(
            numbers[name]
            for name, route in definition.routes.items()
            if route.limit is not None and inner[name] in entered
        )
        return Arc(numbers[target], target, resets)

    def choices(name: str) -> tuple[str, ...]:
        return definition.routes[name].targets if name in definition.routes else ()

    def leave(name: str) -> Arc | Table:
        route = definition.routes.get(name)
        if route is None:
            return arc(name, definition.edges[name])
        loop: Loop | None = inner[name]
        stays = loop.body.intersection(route.targets) if loop is not None else frozenset[str]()
        arcs = {target: arc(name, target) for target in route.targets}
        then = arc(name, route.then) if route.then is not None else None
        return Table(name, arcs, route.limit, stays, then)

    way_out = definition.limits.then
    return Flow(
        definition.name,
        definition.spec,
        [make_op(step, definition.spec, choices(name)) for name, step in definition.steps.items()],
        [leave(name) for name in definition.steps],
        numbers[definition.edges["START"]],
        Arc(numbers[way_out], way_out) if way_out is not None else None,
    )
