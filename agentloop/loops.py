"""The loops of a directed graph, nested, and which steps they need a limit on.

Works on any graph, also on loops that can be entered at several places (agents that hand over to
each other). Knows nothing of nodes, states or runs.

Source: the loop nesting forest of B. Steensgaard, "Sequentializing program dependence graphs for
irreducible programs", Microsoft Research, 1993.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import networkx as nx  # type: ignore[import-untyped]  # its types are a package of their own


@dataclass(frozen=True)
class Loop:
    """A loop: the steps in it and those it is entered at."""

    body: frozenset[str]
    heads: frozenset[str]


Successors: TypeAlias = Mapping[str, Iterable[str]]  # for every step, what may follow it


def _graph(following: Successors) -> Any:
    graph: Any = nx.DiGraph()  # pyright: ignore[reportUnknownVariableType]  # views have no types
    graph.add_nodes_from(following)
    graph.add_edges_from((u, v) for u, targets in following.items() for v in targets)
    return graph


def descendants(following: Successors, step: str) -> set[str]:
    """The steps that can be reached from a step."""
    found: set[str] = nx.descendants(_graph(following), step)  # pyright: ignore[reportUnknownMemberType]
    return found


def ancestors(following: Successors, step: str) -> set[str]:
    """The steps that a step can be reached from."""
    found: set[str] = nx.ancestors(_graph(following), step)  # pyright: ignore[reportUnknownMemberType]
    return found


def find_loops(following: Successors, entry: str) -> list[Loop]:
    """All loops, outer ones before those they hold; the run comes in at the entry."""
    return list(_loops(_graph(following), entry))


def _loops(graph: Any, entry: str) -> Iterator[Loop]:
    for component in nx.strongly_connected_components(graph):
        first = next(iter(component))
        if len(component) == 1 and not graph.has_edge(first, first):
            continue
        heads = {v for v in component if v == entry or not component.issuperset(graph.pred[v])}
        yield Loop(frozenset(component), frozenset(heads))
        inner: Any = graph.subgraph(component).copy()
        inner.remove_edges_from([(u, v) for u, v in inner.edges if v in heads])
        yield from _loops(inner, entry)


def innermost(loops: list[Loop], step: str) -> Loop | None:
    """The smallest loop that a step is in."""
    holding = [loop for loop in loops if step in loop.body]
    return min(holding, key=lambda loop: len(loop.body), default=None)


def endless_cycle(following: Successors, loop: Loop, limited: Collection[str]) -> list[str] | None:
    """A cycle through the loop's head that passes none of the limited steps.

    Args:
        following: The whole graph.
        loop: The loop to look at.
        limited: The steps that let the run through a bounded number of times per entry.

    Returns:
        The steps of the cycle, the first one again at the end; `None` if there is no such cycle.
    """
    free: Any = _graph(following).subgraph(loop.body - set(limited))
    for head in sorted(loop.heads & set(free)):
        for last in sorted(free.pred[head]):
            if nx.has_path(free, head, last):
                path: list[str] = cast(Any, nx).shortest_path(free, head, last)
                return [*path, head]
    return None
