"""The rules that a graph must keep, checked before it first runs.

Each rule names the culprit and the call that fixes it.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Iterable
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel

from agentloop.definition import Definition
from agentloop.errors import GraphBuildError
from agentloop.loops import ancestors, descendants, endless_cycle, find_loops, innermost
from agentloop.reducers import type_name
from agentloop.steps import BothStep, EachStep, NodeStep, SubGraph, step_name


def check_rules(definition: Definition) -> None:
    """Check every rule.

    Raises:
        GraphBuildError: With the first rule that is broken.
    """
    _check_ends(definition)
    for name, step in definition.steps.items():
        _check_step(step, name, definition)
    for name in definition.routes:
        _check_route(name, definition)
    _check_reachable(definition)
    _check_loops(definition)


def _check_ends(definition: Definition) -> None:
    if "START" not in definition.edges:
        raise GraphBuildError(
            f"graph {definition.name} has no start; begin with g.chain(START, first, ...)"
        )
    for name in definition.steps:
        if name not in definition.edges and name not in definition.routes:
            raise GraphBuildError(
                f"nothing follows {name}; continue with g.chain({name}, next), "
                f"end with g.chain({name}, END), or branch with g.route({name}, ...)"
            )


def _check_reachable(definition: Definition) -> None:
    following = definition.successors()
    reached = descendants(following, "START")
    for name in definition.steps:
        if name not in reached:
            raise GraphBuildError(
                f"{name} cannot be reached from START; add g.chain(before, {name}) or a route to "
                "it, or leave it out"
            )
    ending = ancestors(following, "END")
    for name in definition.steps:
        if name not in ending:
            raise GraphBuildError(
                f"no way leads from {name} to END; add g.chain({name}, END), or a route out"
            )


def _check_loops(definition: Definition) -> None:
    following = definition.successors()
    loops = find_loops(following, "START")
    limited = {name: innermost(loops, name) for name, r in definition.routes.items() if r.limit}
    for loop in loops:
        cycle = endless_cycle(following, loop, [n for n, own in limited.items() if own == loop])
        if cycle is not None:
            routing = next((n for n in cycle if n in definition.routes), cycle[0])
            raise GraphBuildError(
                f"endless loop {' -> '.join(cycle)}: nothing bounds it; "
                f"give g.route({routing}, ..., limit=n, then=...)"
            )
    for name, inner in limited.items():
        route = definition.routes[name]
        if inner is None:
            raise GraphBuildError(
                f"g.route({name}, ..., limit={route.limit}) bounds nothing: no target leads back "
                f"to {name}; leave the limit out"
            )
        if route.then is not None and route.then in inner.body:
            raise GraphBuildError(
                f"g.route({name}, ..., then={route.then}) leads back to {name}, so the limit would "
                "not end the loop; let then= be a step outside it"
            )


def evaluated_return(call: Callable[..., Any]) -> object:
    """The return annotation of a function, a string evaluated where the function was written.

    Raises:
        GraphBuildError: The annotation names something that cannot be found.
    """
    inner = inspect.unwrap(call)
    annotation = getattr(inner, "__annotations__", {}).get("return")
    if not isinstance(annotation, str):
        return annotation
    scope: dict[str, Any] = dict(getattr(inner, "__globals__", {}))
    code = getattr(inner, "__code__", None)
    for name, cell in zip(
        getattr(code, "co_freevars", ()), getattr(inner, "__closure__", None) or (), strict=True
    ):
        try:
            scope[name] = cell.cell_contents
        except ValueError:  # a name of the enclosing function that is not bound yet
            continue
    scope.setdefault("Literal", Literal)
    try:
        return typing.get_type_hints(_Returning(annotation), scope)["return"]
    except Exception as error:
        raise GraphBuildError(
            f"the return annotation {annotation!r} of {step_name(call)} cannot be evaluated: "
            f"{error}; use names of the module that defines it"
        ) from error


class _Returning:
    """Something with one annotation, for `typing.get_type_hints`."""

    def __init__(self, annotation: str) -> None:
        self.__annotations__ = {"return": annotation}


def literal_names(annotation: object) -> tuple[object, ...] | None:
    """The values of a `Literal` (or a union of them), `None` for any other annotation."""
    if get_origin(annotation) is Literal:
        return get_args(annotation)
    if get_origin(annotation) in (Union, UnionType):
        parts = [literal_names(part) for part in get_args(annotation)]
        if all(part is not None for part in parts):
            return tuple(value for part in parts for value in part or ())
    return None


def _function(step: object) -> Callable[..., Any] | None:
    """The function of a leaf, `None` for composed steps."""
    if isinstance(step, NodeStep):
        return step.call
    if isinstance(step, EachStep | BothStep | SubGraph) or not callable(step):
        return None
    return step


def _check_route(name: str, definition: Definition) -> None:
    route = definition.routes[name]
    call = _function(definition.steps[name])
    if call is None:
        raise GraphBuildError(
            f"{name} is not a single function, so it returns no choice; route from a node after it"
        )
    literal = ", ".join(repr(target) for target in route.targets)
    names = literal_names(evaluated_return(call))
    if names is None:
        raise GraphBuildError(
            f"{name} has a route but does not say what it returns; "
            f"write async def {name}(...) -> Literal[{literal}]"
        )
    if set(names) != set(route.targets):
        returned, targets = sorted(map(str, names)), sorted(route.targets)
        raise GraphBuildError(
            f"{name} returns {returned} but its route goes to {targets}; make them the same: "
            f"-> Literal[{literal}] or g.route({name}, {', '.join(returned)})"
        )


def _check_arguments(call: Callable[..., Any], name: str, arguments: list[str]) -> None:
    """Check that a function can be called with so many positional arguments."""
    try:
        signature = inspect.signature(call)
    except ValueError:  # some builtins have none
        return
    try:
        signature.bind(*arguments)
    except TypeError as error:
        raise GraphBuildError(
            f"{name} is called with ({', '.join(arguments)}) but is {name}{signature}: {error}; "
            f"write async def {name}({', '.join(arguments)})"
        ) from error


def _check_leaf(step: object, name: str, definition: Definition, arguments: list[str]) -> None:
    call = _function(step)
    if call is None:
        if not isinstance(step, SubGraph):
            raise GraphBuildError(
                f"{name} ({step!r}) is not a step; a step is a function, node(), each(), both() "
                "or a Graph"
            )
        return
    _check_arguments(call, name, arguments)
    if isinstance(step, NodeStep):
        _check_on_error(step.on_error, f"node({name})", [*arguments, "error"])
    try:
        returned = literal_names(evaluated_return(call))
    except GraphBuildError:  # only a route needs it
        returned = None
    if returned is not None and name not in definition.routes:
        targets = ", ".join(map(str, returned))
        raise GraphBuildError(
            f"{name} returns a choice of {targets} but nothing follows it; add "
            f"g.route({name}, {targets}) (inside each() and both(), in a sub-graph)"
        )


def _check_step(step: object, name: str, definition: Definition) -> None:
    if isinstance(step, EachStep):
        _check_each(step, definition)
    elif isinstance(step, BothStep):
        for body in step.branches:
            _check_body(body, definition)
    else:
        _check_leaf(step, name, definition, ["s"])


def _check_body(body: Iterable[object], definition: Definition) -> None:
    inner = Definition(definition.name, definition.spec)  # no routes: a body is straight
    seen: set[str] = set()
    for step in body:
        name = step_name(step)
        if name in seen:
            raise GraphBuildError(f"{name} stands twice in one branch; use node({name}, name=...)")
        seen.add(name)
        _check_step(step, name, inner)


def _check_each(step: EachStep, definition: Definition) -> None:
    state = definition.spec.state
    call = f"each({step.name}, over={step.over!r})"
    _check_iterable(state, step.over, call)
    if step.into is not None:
        if step.into not in state.model_fields:
            raise GraphBuildError(f"{call} has into={step.into!r}, {_no_field(state, step.into)}")
        _check_body(step.body, definition)
    elif len(step.body) == 1 and _function(step.body[0]) is not None:
        inner = Definition(definition.name, definition.spec)
        _check_leaf(step.body[0], step_name(step.body[0]), inner, ["s", "item"])
    else:
        raise GraphBuildError(
            f"{call} has a body that takes no item; say which field holds it: into='...'"
        )
    _check_on_error(step.on_error, call, ["s", "item", "error"])


def _check_on_error(on_error: object, owner: str, arguments: list[str]) -> None:
    if callable(on_error):
        _check_arguments(on_error, step_name(on_error), arguments)
    elif on_error not in ("raise", "skip"):
        raise GraphBuildError(
            f"{owner} has on_error={on_error!r}; use 'raise', 'skip' or a function"
        )


def _no_field(state: type[BaseModel], field: str) -> str:
    return f"but {state.__name__} has no field {field!r}; it has {', '.join(state.model_fields)}"


def _check_iterable(state: type[BaseModel], field: str, call: str) -> None:
    if field not in state.model_fields:
        raise GraphBuildError(f"{call} takes its items from a field, {_no_field(state, field)}")
    annotation = state.model_fields[field].annotation
    kind = get_origin(annotation) or annotation
    if kind not in (tuple, list, Any):
        raise GraphBuildError(
            f"{call} needs items in order, but {state.__name__}.{field} is "
            f"{type_name(annotation)}; make it tuple[..., ...] or Log[...]"
        )
