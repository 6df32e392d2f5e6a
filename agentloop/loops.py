"""The loops of a directed graph, nested, and which steps they need a limit on.

Works on any graph, also on loops that can be entered at several places (agents that hand over to
each other). Knows nothing of nodes, states or runs.

Source: the loop nesting forest of B. Steensgaard, "Sequentializing program dependence graphs for
irreducible programs", Microsoft Research, 1993.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import networkx as nx


@dataclass(frozen=True)
class Loop:
    """A loop: the steps in it and those it is entered at."""

    body: frozenset[str]
    heads: frozenset[str]


def find_loops(graph: nx.DiGraph[str], entry: str) -> list[Loop]:
    """All loops that can be reached from the entry, outer ones before those they hold."""
    return list(_loops(graph, entry))


def _loops(graph: Any, entry: str) -> Iterator[Loop]:  # noqa: ANN401 - networkx views are not typed
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


def endless_cycle(graph: nx.DiGraph[str], loop: Loop, limited: Collection[str]) -> list[str] | None:
    """A cycle through the loop's head that passes none of the limited steps.

    Args:
        graph: The whole graph.
        loop: The loop to look at.
        limited: The steps that let the run through a bounded number of times per entry.

    Returns:
        The steps of the cycle, the first one again at the end; `None` if there is no such cycle.
    """
    free: Any = graph.subgraph(loop.body - set(limited))
    for head in sorted(loop.heads & set(free)):
        for last in sorted(free.pred[head]):
            if nx.has_path(free, head, last):
                return [*nx.shortest_path(free, head, last), head]
    return None
