"""Fragments end to end: what is needed where the end of one is not marked."""

from __future__ import annotations

import numpy as np

from agentloop.model.constraint.characters import StateBudgetError
from agentloop.model.constraint.fragment import Fragment, exit_of
from agentloop.model.constraint.work import check_work


def content_of(fragment: Fragment) -> Fragment:
    """A JSON string's content without its closing quote, of a fragment with one exit.

    Inside a JSON string the bare quote only ever closes it, so every arc to the exit reads one.
    """
    leaves = fragment.targets < 0
    ends = np.stack([fragment.sources[leaves], fragment.targets[leaves]], axis=1)
    return Fragment(
        fragment.num_states,
        fragment.sources[~leaves],
        fragment.arc_bytes[~leaves],
        fragment.targets[~leaves],
        ends.astype(np.int32),
    )


def deterministic(fragment: Fragment, max_states: int) -> Fragment:
    """The same texts by a fragment in which no state has two arcs of a byte; it has one exit.

    Raises:
        StateBudgetError: It takes more than `max_states` states.
    """
    keys = fragment.sources.astype(np.int64) * 256 + fragment.arc_bytes
    if len(np.unique(keys)) == len(keys):
        return fragment
    arcs = _arcs_by_state(fragment)
    ending = set(fragment.ends[:, 0].tolist())
    start = frozenset([0])
    number = {start: 0}
    todo = [start]
    rows: list[tuple[int, int, int]] = []
    ends: list[tuple[int, int]] = []
    while todo:
        check_work()
        states = todo.pop()
        source = number[states]
        if states & ending:
            ends.append((source, exit_of(0)))
        for byte, reached in _reached(arcs, states).items():
            inner = frozenset(target for target in reached if target >= 0)
            if len(inner) < len(reached):
                rows.append((source, byte, exit_of(0)))  # a closing quote: nothing follows
                continue
            if inner not in number:
                number[inner] = len(number)
                todo.append(inner)
            rows.append((source, byte, number[inner]))
        if len(number) > max_states:
            error = StateBudgetError(f"a template needs more than max_states = {max_states:,}")
            error.is_about_size = True
            raise error
    table = np.array(rows, np.int32).reshape(-1, 3)
    return Fragment(
        len(number),
        table[:, 0],
        table[:, 1].astype(np.uint8),
        table[:, 2],
        np.array(ends, np.int32).reshape(-1, 2),
    )


def _arcs_by_state(fragment: Fragment) -> list[list[tuple[int, int]]]:
    found = [list[tuple[int, int]]() for _ in range(fragment.num_states)]
    sources: list[int] = fragment.sources.tolist()
    arcs: list[tuple[int, int]] = np.stack([fragment.arc_bytes, fragment.targets], 1).tolist()
    for source, (byte, target) in zip(sources, arcs, strict=True):
        found[source].append((byte, target))
    return found


def _reached(arcs: list[list[tuple[int, int]]], states: frozenset[int]) -> dict[int, set[int]]:
    found: dict[int, set[int]] = {}
    for state in states:
        for byte, target in arcs[state]:
            found.setdefault(byte, set()).add(target)
    return found
