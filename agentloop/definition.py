"""A graph as its user wrote it: named steps, edges and routes, before it is checked."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from agentloop.errors import GraphBuildError
from agentloop.reducers import type_name
from agentloop.state import StateSpec
from agentloop.steps import BothStep, EachStep, SubGraph, step_name


@dataclass(frozen=True)
class RouteDefinition:
    """Where a node may go: the names of its targets, and what bounds it."""

    targets: tuple[str, ...]
    limit: int | None
    then: str | None


@dataclass(frozen=True)
class LimitDefinition:
    """What a run of the graph may take in all, `None` for any amount, and where it goes then.

    Attributes:
        steps: Nodes that may begin.
        calls: Calls (`llm`, tools, steps) that may begin.
        tokens: Tokens of model calls.
        cost: Of models and tools, in their unit.
        seconds: Seconds that a run may take, the time between its sessions not counted.
        then: The step to go to, `"END"` to end there, `None` to fail.
    """

    steps: int | None = None
    calls: int | None = None
    tokens: int | None = None
    cost: float | None = None
    seconds: float | None = None
    then: str | None = None


@dataclass
class Definition:
    """The steps by name, and what follows each: one edge or a route."""

    name: str
    spec: StateSpec[Any]
    steps: dict[str, object] = field(default_factory=lambda: {})
    edges: dict[str, str] = field(default_factory=lambda: {})
    routes: dict[str, RouteDefinition] = field(default_factory=lambda: {})
    limits: LimitDefinition = LimitDefinition()

    def arrows(self) -> Iterator[tuple[str, str, str]]:
        """Every (source, target, label); the label says how a route's arrow is taken."""
        for source in ("START", *self.steps):
            route = self.routes.get(source)
            if route is None:
                if source in self.edges:
                    yield source, self.edges[source], ""
                continue
            for target in route.targets:
                yield source, target, target
            if route.then is not None and route.then not in route.targets:
                yield source, route.then, f"after {route.limit}"
        if self.limits.then is not None:
            yield "START", self.limits.then, "at a limit of the run"

    def graphs(self) -> list[SubGraph]:
        """The graphs that are steps of this one, those inside `each` and `both` included."""
        return [graph for step in self.steps.values() for graph in _graphs(step)]

    def successors(self) -> dict[str, list[str]]:
        """For every step and both ends, the names that may follow it."""
        following: dict[str, list[str]] = {name: [] for name in ("START", *self.steps, "END")}
        for source, target, _ in self.arrows():
            following[source].append(target)
        return following

    def outline(self) -> dict[str, Any]:
        """Everything about the graph that a recorded run depends on, as JSON data."""
        way_out = {} if self.limits.then is None else {"then": self.limits.then}
        return {
            **way_out,
            "state": self.spec.state.model_json_schema(),
            "steps": {name: step_outline(step) for name, step in self.steps.items()},
            "edges": self.edges,
            "routes": {
                name: [list(route.targets), route.limit, route.then]
                for name, route in self.routes.items()
            },
        }

    def fingerprint(self) -> str:
        """A hash of the outline: 16 hex digits."""
        text = json.dumps(self.outline(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def _graphs(step: object) -> Iterator[SubGraph]:
    if isinstance(step, SubGraph):
        yield step
    bodies = (step.body,) if isinstance(step, EachStep) else ()
    for body in step.branches if isinstance(step, BothStep) else bodies:
        for inner in body:
            yield from _graphs(inner)


def step_outline(step: object) -> Any:
    """What a step is, without its code."""
    if isinstance(step, EachStep):
        body = [step_outline(inner) for inner in step.body]
        return {"each": body, "over": step.over, "into": step.into}
    if isinstance(step, BothStep):
        return {"both": [[step_outline(inner) for inner in body] for body in step.branches]}
    if isinstance(step, SubGraph):
        return {"graph": step.name, "fingerprint": step.fingerprint}
    return step_name(step)


@dataclass(frozen=True)
class SubStates:
    """How the state of a graph inside another is made and read back.

    Attributes:
        shared: The fields both states have; passed in, and what is written to them passed back.
        own: The sub-graph's other fields; they start at their defaults each time.
    """

    shared: tuple[str, ...]
    own: tuple[str, ...]
    spec: StateSpec[Any]

    def enter(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The values that the sub-graph starts with."""
        fields = self.spec.state.model_fields
        start: dict[str, Any] = {name: values[name] for name in self.shared}
        for name in self.own:
            start[name] = fields[name].get_default(call_default_factory=True, validated_data=start)
        return start

    def leave(self, patch: Mapping[str, Any]) -> dict[str, Any]:
        """The part of a sub-graph's patch that the outer state has."""
        return {name: patch[name] for name in self.shared if name in patch}


def sub_states(outer: StateSpec[Any], inner: StateSpec[Any]) -> SubStates:
    """Match the states of a graph and of one inside it.

    Raises:
        GraphBuildError: A shared field has another type in each, or a required field has no source.
    """
    ours, theirs = outer.state.model_fields, inner.state.model_fields
    shared = tuple(name for name in theirs if name in ours)
    names = f"{inner.state.__name__}.{{0}}", f"{outer.state.__name__}.{{0}}"
    for name in shared:
        types = theirs[name].annotation, ours[name].annotation
        if types[0] != types[1] or inner.reducers.get(name) != outer.reducers.get(name):
            a, b = (f"{n.format(name)}: {type_name(t)}" for n, t in zip(names, types, strict=True))
            raise GraphBuildError(
                f"{a} and {b} differ, but fields of one name are passed between a graph and its "
                "sub-graph; give both the same type, or the field another name"
            )
    own = tuple(name for name in theirs if name not in ours)
    for name in own:
        if theirs[name].is_required():
            raise GraphBuildError(
                f"{names[0].format(name)} has no default and {outer.state.__name__} has no such "
                f"field to take it from; give it a default, or add it to {outer.state.__name__}"
            )
    return SubStates(shared, own, inner)
