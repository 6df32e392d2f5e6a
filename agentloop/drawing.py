"""Pictures of a graph: a networkx view and Mermaid text."""

from __future__ import annotations

import re
from typing import Any

import networkx as nx  # type: ignore[import-untyped]  # its types are a package of their own

from agentloop.definition import Definition
from agentloop.run_view import RunView
from agentloop.steps import BothStep, EachStep, SubGraph, step_name


def kind_of(step: object) -> str:
    """`node`, `each`, `both` or `graph`."""
    if isinstance(step, EachStep):
        return "each"
    if isinstance(step, BothStep):
        return "both"
    return "graph" if isinstance(step, SubGraph) else "node"


def as_networkx(definition: Definition) -> nx.DiGraph[str]:
    """The graph as networkx sees it.

    Nodes are step names with the attribute `kind` (`node`, `each`, `both`, `graph`, `end`), `over`
    for `each` and `branches` for `both`. Edges have `label` (the name a route returns) and, for
    routes, `limit`.
    """
    graph: nx.DiGraph[str] = nx.DiGraph(name=definition.name)
    graph.add_node("START", kind="end")
    for name, step in definition.steps.items():
        extra: dict[str, Any] = {}
        if isinstance(step, EachStep):
            extra = {"over": step.over, "body": [step_name(inner) for inner in step.body]}
        elif isinstance(step, BothStep):
            extra = {"branches": [[step_name(inner) for inner in body] for body in step.branches]}
        graph.add_node(name, kind=kind_of(step), **extra)
    graph.add_node("END", kind="end")
    for source, target, label in definition.arrows():
        route = definition.routes.get(source)
        limit = route.limit if route is not None else None
        graph.add_edge(source, target, label=label, limit=limit)
    return graph


def _quoted(text: str) -> str:
    return '"' + text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;") + '"'


class _Names:
    """Identifiers for Mermaid, one for every step."""

    def __init__(self) -> None:
        self._given: dict[str, str] = {}

    def __getitem__(self, name: str) -> str:
        if name not in self._given:
            plain = re.sub(r"\W", "_", name, flags=re.ASCII)
            self._given[name] = f"n{len(self._given)}_{plain}"
        return self._given[name]


def label_of(name: str, step: object) -> str:
    """What a step is called in a picture."""
    if isinstance(step, EachStep):
        limit = f", limit {step.limit}" if step.limit is not None else ""
        body = " → ".join(step_name(inner) for inner in step.body)
        return f"{body} for each of {step.over}{limit}"
    if isinstance(step, BothStep):
        bodies = [" → ".join(step_name(inner) for inner in body) for body in step.branches]
        return " ∥ ".join(bodies)
    return name


def _shape(name: str, step: object, took: str) -> str:
    """The Mermaid shape of a step, without its identifier."""
    text = _quoted(label_of(name, step) + (f" · {took}" if took else ""))
    kind = kind_of(step)
    return f"[/{text}/]" if kind == "graph" else f"[{text}]" if kind == "node" else f"[[{text}]]"


def took_of(name: str, run: RunView | None) -> str:
    """How often a step's nodes ran in a run, and how long in all; `""` if they did not."""
    if run is None:
        return ""
    own = re.compile(rf"{re.escape(name)}(#\d+)?([\[/].*)?")
    times = [
        step.took_s
        for step in run.steps.values()
        if step.status == "done" and own.fullmatch(step.path)
    ]
    return f"{len(times)}x, {sum(times) * 1000:.1f} ms" if times else ""


def as_mermaid(definition: Definition, run: RunView | None = None) -> str:
    """The graph as a Mermaid flowchart, for Markdown and web pages.

    Args:
        definition: The graph.
        run: A run, to show how often each step ran and how long.
    """
    names = _Names()
    lines = ["flowchart TD", f"  {names['START']}((START))"]
    for name, step in definition.steps.items():
        lines.append(f"  {names[name]}{_shape(name, step, took_of(name, run))}")
    lines.append(f"  {names['END']}((END))")
    for source, target, label in definition.arrows():
        route = definition.routes.get(source)
        arrow = "-.->" if route is not None else "-->"
        text = f"|{_quoted(label)}|" if label else ""
        lines.append(f"  {names[source]} {arrow}{text} {names[target]}")
    for name, route in definition.routes.items():
        if route.limit is not None:
            then = f", then {route.then}" if route.then is not None else ""
            lines.append(f"  %% {name}: at most {route.limit} visits{then}")
    return "\n".join(lines) + "\n"
