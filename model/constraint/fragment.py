"""Pieces of a byte automaton with labelled exits, and the builder that stitches them together.

A fragment reads one value from its start state 0 and leaves through an exit that is numbered by
what was found out about the value. Stitching is deterministic by construction: what may follow a
value (`,`, `]`, `}`, `"`) never also continues it, so a fragment is copied with its exits renamed
and nothing is determinised again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from agentloop.model.constraint.characters import StateBudgetError
from agentloop.model.constraint.dfa import Dfa

Ints = NDArray[np.int32]
MAX_OWN_ARCS = 1_000_000
"""Arcs that are added to one fragment one by one; real schemas need thousands."""


def exit_of(label: int) -> int:
    """The target that stands for leaving through an exit."""
    return -1 - label


@dataclass(frozen=True, eq=False)
class Fragment:
    """Arcs with targets below 0 for exits, and states that may also leave without reading a byte.

    Attributes:
        num_states: Number of states; 0 is the start.
        sources: (A,) int32.
        arc_bytes: (A,) uint8.
        targets: (A,) int32, `exit_of(label)` for an exit.
        ends: (E, 2) int32: a state and the exit through which it may leave.
    """

    num_states: int
    sources: Ints
    arc_bytes: NDArray[np.uint8]
    targets: Ints
    ends: Ints

    @cached_property
    def offsets(self) -> Ints:
        """(S + 1,) int32, start of each state's arcs in `by_state`."""
        counts = np.bincount(self.sources, minlength=self.num_states)
        return np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)

    @cached_property
    def by_state(self) -> tuple[NDArray[np.uint8], Ints]:
        """Bytes and targets of the arcs, ordered by state."""
        order = np.argsort(self.sources, kind="stable")
        return self.arc_bytes[order], self.targets[order]

    @property
    def labels(self) -> set[int]:
        """The exits that some arc or state uses."""
        found = np.concatenate([self.targets[self.targets < 0], self.ends[:, 1]])
        return set((-1 - np.unique(found)).tolist())

    def without(self, dropped: set[int]) -> Fragment | None:
        """The fragment with some exits closed and what leads nowhere removed; None if empty."""
        gone = np.array([exit_of(label) for label in dropped], np.int32)
        keep = ~np.isin(self.targets, gone)
        ends = self.ends[~np.isin(self.ends[:, 1], gone)]
        sources, targets, arc_bytes = self.sources[keep], self.targets[keep], self.arc_bytes[keep]
        live = _leading_to_exit(self.num_states, sources, targets, ends)
        if not live[0]:
            return None
        number = np.cumsum(live, dtype=np.int32) - 1
        inner = targets >= 0
        kept = live[sources] & (~inner | live[targets])
        mapped = np.where(inner, number[targets], targets)[kept].astype(np.int32)
        ends = np.stack([number[ends[:, 0]], ends[:, 1]], axis=1).astype(np.int32)
        return Fragment(int(live.sum()), number[sources[kept]], arc_bytes[kept], mapped, ends)

    def to_dfa(self) -> Dfa:
        """The automaton that accepts at every exit."""
        final = self.num_states
        accepting = np.zeros(final + 1, np.bool_)
        accepting[self.ends[:, 0]] = True
        accepting[final] = True
        targets = np.where(self.targets < 0, final, self.targets)
        num_states = final + 1
        if not (self.targets < 0).any():
            accepting, num_states = accepting[:final], final
        assert num_states == len(accepting)
        return Dfa.from_arcs(self.sources, self.arc_bytes, targets, accepting)


def _leading_to_exit(
    num_states: int, sources: Ints, targets: Ints, ends: Ints
) -> NDArray[np.bool_]:
    live = np.zeros(num_states, np.bool_)
    live[ends[:, 0]] = True
    live[sources[targets < 0]] = True
    inner = targets >= 0
    order = np.argsort(targets[inner], kind="stable")
    before = sources[inner][order]
    starts = np.searchsorted(targets[inner][order], np.arange(num_states + 1)).tolist()
    stack: list[int] = np.flatnonzero(live).tolist()
    while stack:
        state = stack.pop()
        found = before[starts[state] : starts[state + 1]]
        fresh = np.unique(found[~live[found]])
        live[fresh] = True
        stack.extend(fresh.tolist())
    return live


class Builder:
    """Grows one fragment out of single arcs and copies of others. State 0 exists from the start."""

    def __init__(self, max_states: int, max_own_arcs: int | None = None) -> None:
        self.max_states = max_states
        self.max_own_arcs = MAX_OWN_ARCS if max_own_arcs is None else max_own_arcs
        self.num_states = 1
        self._own: dict[int, list[tuple[int, int]]] = {}
        self._num_own = 0
        self._arcs: list[tuple[Ints, NDArray[np.uint8], Ints]] = []
        self._ends: list[Ints] = []

    def state(self, count: int = 1) -> int:
        """The first of so many new states.

        Raises:
            StateBudgetError: The budget is used up.
        """
        first = self.num_states
        self.num_states += count
        if self.num_states > self.max_states:
            error = StateBudgetError(
                f"the automaton needs more than max_states = {self.max_states:,} states"
            )
            error.is_about_size = True
            raise error
        return first

    def arc(self, source: int, byte: int, target: int) -> None:
        """Add one arc.

        Raises:
            StateBudgetError: There are too many to add one by one.
        """
        self._own.setdefault(source, []).append((byte, target))
        self._num_own += 1
        if self._num_own > self.max_own_arcs:
            error = StateBudgetError(
                f"a quote or an object's keys need more than {self.max_own_arcs:,} arcs; there is"
                " too much text, or too many patterns or names that go together"
            )
            error.is_about_steps = True
            raise error

    def word(self, source: int, word: bytes, target: int) -> None:
        """Add a chain of arcs that reads a word of one byte or more."""
        for byte in word[:-1]:
            middle = self.state()
            self.arc(source, byte, middle)
            source = middle
        self.arc(source, word[-1], target)

    def arcs(self, sources: Ints, arc_bytes: NDArray[np.uint8], targets: Ints) -> None:
        """Add arcs between states that exist."""
        self._arcs.append((sources, arc_bytes, targets))

    def end(self, source: int, target: int) -> None:
        """Let a state behave as `target` (a state with arcs of its own, or an exit) as well."""
        self._ends.append(np.array([[source, target]], np.int32))

    def place(self, fragment: Fragment, start: int, exits: Sequence[int]) -> Ints:
        """Copy a fragment in; its start becomes `start`, its exits the given targets.

        Returns:
            (S,) int32, the new number of each of the fragment's states.
        """
        first = self.state(fragment.num_states - 1)
        renamed = np.empty(fragment.num_states + len(exits), np.int32)
        renamed[0] = start
        renamed[1 : fragment.num_states] = np.arange(first, first + fragment.num_states - 1)
        renamed[fragment.num_states :] = exits[::-1]  # so that index -1 - label finds an exit
        self._arcs.append(
            (renamed[fragment.sources], fragment.arc_bytes, renamed[fragment.targets])
        )
        if len(fragment.ends):
            self._ends.append(renamed[fragment.ends])
        return renamed[: fragment.num_states]

    def finish(self) -> Fragment:
        """The fragment built so far."""
        own = [(s, b, t) for s, arcs in self._own.items() for b, t in arcs]
        table = np.array(own, np.int32).reshape(-1, 3)
        parts = [*self._arcs, (table[:, 0], table[:, 1].astype(np.uint8), table[:, 2])]
        sources = np.concatenate([p[0] for p in parts])
        arc_bytes = np.concatenate([p[1] for p in parts])
        targets = np.concatenate([p[2] for p in parts])
        ends = np.concatenate([np.empty((0, 2), np.int32), *self._ends])
        inner = _closed(ends)
        if len(inner):
            order = np.argsort(sources, kind="stable")
            starts = np.asarray(np.searchsorted(sources[order], np.arange(self.num_states + 1)))
            counts = (starts[1:] - starts[:-1])[inner[:, 1]]
            within = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
            copied = order[np.repeat(starts[inner[:, 1]], counts) + within]
            sources = np.concatenate([sources, np.repeat(inner[:, 0], counts)])
            arc_bytes = np.concatenate([arc_bytes, arc_bytes[copied]])
            targets = np.concatenate([targets, targets[copied]])
        return Fragment(self.num_states, sources, arc_bytes, targets, _outer(ends, inner))


def _closed(ends: Ints) -> Ints:
    """The pairs of states that follow from "behaves as" step by step."""
    follows: dict[int, set[int]] = {}
    for source, target in ends[ends[:, 1] >= 0].tolist():
        follows.setdefault(source, set()).add(target)
    found: list[tuple[int, int]] = []
    for source in follows:
        seen: set[int] = set()
        stack = list(follows[source])
        while stack:
            target = stack.pop()
            if target not in seen:
                seen.add(target)
                stack.extend(follows.get(target, ()))
        found += [(source, target) for target in seen]
    return np.array(found, np.int32).reshape(-1, 2)


def _outer(ends: Ints, inner: Ints) -> Ints:
    """The exits through which each state may leave, directly or as another state."""
    outer = ends[ends[:, 1] < 0]
    if not len(inner) or not len(outer):
        return outer
    exits: dict[int, list[int]] = {}
    for state, target in outer.tolist():
        exits.setdefault(state, []).append(target)
    more = [(s, e) for s, t in inner.tolist() for e in exits.get(t, ())]
    return np.unique(np.concatenate([outer, np.array(more, np.int32).reshape(-1, 2)]), axis=0)


def of_words(words: Iterable[tuple[bytes, int]], max_states: int) -> Fragment:
    """A fragment that reads one of some distinct words, each with the exit it leaves through."""
    children: list[dict[int, int]] = [{}]
    ends: list[tuple[int, int]] = []
    for word, label in words:
        node = 0
        for byte in word:
            found = children[node].get(byte)
            if found is None:
                found = len(children)
                children[node][byte] = found
                children.append({})
            node = found
        ends.append((node, exit_of(label)))
        if len(children) > max_states:
            raise StateBudgetError(
                f"a set of words needs more than max_states = {max_states:,} states"
            )
    arcs = [(s, b, t) for s, row in enumerate(children) for b, t in row.items()]
    table = np.array(arcs, np.int32).reshape(-1, 3)
    return Fragment(
        len(children),
        table[:, 0],
        table[:, 1].astype(np.uint8),
        table[:, 2],
        np.array(ends, np.int32).reshape(-1, 2),
    )
