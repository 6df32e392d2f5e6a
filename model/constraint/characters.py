"""Automata over code points: the algebra that string and number constraints are computed in.

A table is complete (every state has a target for every class of code points) and deterministic, so
complement is a change of labels and intersection is a walk over pairs. Bytes, escapes and JSON are
unknown here: `spelling` turns these automata into bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from agentloop.errors import ConstraintError
from agentloop.model.constraint.work import check_work

NUM_CODE_POINTS = 0x110000
MAX_STATES = 20_000
"""Largest automaton over code points that is built before a clear refusal."""

MAX_MINIMISED = 1_500
"""Largest product that is made smaller; a counter of characters takes too many rounds."""

Ints = NDArray[np.int32]
Ranges = tuple[tuple[int, int], ...]
"""Code points as inclusive ranges, ascending and disjoint."""

State = TypeVar("State", bound=Hashable)

_MIX: NDArray[np.uint64] = np.random.default_rng(7).integers(
    1, 2**63, 1 << 13, dtype=np.uint64, endpoint=False
) | np.uint64(1)


class StateBudgetError(ConstraintError):
    """An automaton would need more states than the budget allows.

    Attributes:
        pointer: JSON pointer of the innermost schema it happened in, "" where there is none.
    """

    pointer = ""
    is_about_steps = False
    """Whether it took too long to explore, instead of coming out too large."""
    is_about_size = False
    """Whether the whole came out too large, instead of one string or number in it."""

    def locate(self, pointer: str | None) -> None:
        """Note where it happened, unless an inner place was noted before."""
        if pointer and not self.pointer:
            self.pointer = pointer


@dataclass(frozen=True, eq=False)
class CharDfa:
    """A complete deterministic automaton over code points; the start state is 0.

    Attributes:
        cuts: (K,) int32, first code point of each class of consecutive code points; cuts[0] == 0.
        table: (S, K) int32, target of each state for each class.
        labels: (S,) int32, -1 where a text that ends here is rejected, else what it is labelled.
    """

    cuts: Ints
    table: Ints
    labels: Ints

    @property
    def num_states(self) -> int:
        """Number of states S."""
        return len(self.labels)

    @cached_property
    def _rows(self) -> list[list[int]]:
        rows: list[list[int]] = self.table.tolist()
        return rows

    def label(self, text: str) -> int:
        """The label of a text, -1 where it is rejected."""
        points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
        state = 0
        rows = self._rows
        columns: list[int] = (np.searchsorted(self.cuts, points, side="right") - 1).tolist()
        for column in columns:
            state = rows[state][column]
        return int(self.labels[state])

    def accepts(self, text: str) -> bool:
        """Whether a text is in the language."""
        return self.label(text) >= 0

    @cached_property
    def live(self) -> NDArray[np.bool_]:
        """(S,) bool: the states from which some text is still accepted."""
        return distances(self.table, self.labels >= 0) >= 0

    @property
    def is_empty(self) -> bool:
        """Whether no text at all is accepted."""
        return not bool(self.live[0])

    def complement(self) -> CharDfa:
        """The automaton of every other text."""
        return CharDfa(self.cuts, self.table, np.where(self.labels >= 0, -1, 0).astype(np.int32))

    def __and__(self, other: CharDfa) -> CharDfa:
        return product([self, other], lambda flags: 0 if all(flags) else -1)

    def __or__(self, other: CharDfa) -> CharDfa:
        return product([self, other], lambda flags: 0 if any(flags) else -1)

    def __sub__(self, other: CharDfa) -> CharDfa:
        return self & other.complement()

    def minimised(self) -> CharDfa:
        """The smallest automaton with the same labels (Moore's partition refinement).

        Source: Moore, Gedanken-experiments on sequential machines, 1956.
        """
        ends = self.labels >= 0
        start = np.stack([self.labels, distances(self.table, ends), distances(self.table, ~ends)])
        # Equivalent states are as far from accepting and from rejecting as each other; starting
        # with that tells the states of a counter apart at once, instead of one per round.
        colour = np.unique(start, axis=1, return_inverse=True)[1].astype(np.int64).ravel()
        num_colours = 0
        mix = _mixers(self.table.shape[1] + 1)
        while True:
            found = int(colour.max()) + 1
            if found == num_colours:
                break
            num_colours = found
            check_work()
            tags = _scramble(colour)
            signature = tags * mix[0] + (tags[self.table] * mix[1:]).sum(axis=1, dtype=np.uint64)
            colour = np.unique(signature, return_inverse=True)[1].astype(np.int64)
        return self._merged(colour, num_colours)

    def _merged(self, colour: NDArray[np.int64], num_colours: int) -> CharDfa:
        first = np.full(num_colours, self.num_states, np.int64)
        np.minimum.at(first, colour, np.arange(self.num_states))
        order = np.argsort(first, kind="stable")  # keeps the start state first
        rank = np.empty(num_colours, np.int32)
        rank[order] = np.arange(num_colours, dtype=np.int32)
        table = rank[colour[self.table[first[order]]]]
        changed = np.concatenate([[True], (table[:, 1:] != table[:, :-1]).any(axis=0)])
        return CharDfa(self.cuts[changed], table[:, changed], self.labels[first[order]])


def _mixers(count: int) -> NDArray[np.uint64]:
    repeats = -(-count // len(_MIX))
    return np.tile(_MIX, repeats)[:count] if repeats > 1 else _MIX[:count]


def _scramble(values: NDArray[np.int64]) -> NDArray[np.uint64]:
    """splitmix64's finaliser: nearby numbers become unrelated ones, so sums tell sets apart."""
    z = values.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def distances(table: Ints, goals: NDArray[np.bool_]) -> Ints:
    """Steps from each state of a complete table (S, K) to the nearest goal, -1 for none: (S,)."""
    num_states, num_classes = len(table), int(table.shape[1])
    order = np.argsort(table, axis=None, kind="stable")
    sources = order // num_classes
    starts = np.asarray(np.searchsorted(table.ravel()[order], np.arange(num_states + 1)))
    found = np.where(goals, 0, -1).astype(np.int32)
    level = np.flatnonzero(goals)
    steps = 0
    while len(level):
        steps += 1
        counts = starts[level + 1] - starts[level]
        within = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
        before = sources[np.repeat(starts[level], counts) + within]
        level = np.unique(before[found[before] < 0])
        found[level] = steps
    return found


def product(automata: Sequence[CharDfa], label: Callable[[Sequence[bool]], int]) -> CharDfa:
    """The automaton that runs several at once and labels a text by who accepts it.

    Args:
        automata: At least one automaton.
        label: Given for each automaton whether it accepts, the label, -1 to reject.

    Raises:
        StateBudgetError: More than MAX_STATES tuples of states are reachable.
    """
    cuts = np.unique(np.concatenate([a.cuts for a in automata])).astype(np.int32)
    tables = [a.table[:, np.searchsorted(a.cuts, cuts, side="right") - 1] for a in automata]
    sizes = [a.num_states for a in automata]
    current = tables[0].astype(np.int64)
    pairs = np.arange(sizes[0], dtype=np.int64)[:, None]
    for table, size in zip(tables[1:], sizes[1:], strict=True):
        current, pairs = _pair(current, pairs, table, size)
    flags = np.stack([a.labels[pairs[:, i]] >= 0 for i, a in enumerate(automata)], axis=1)
    rows, inverse = np.unique(flags, axis=0, return_inverse=True)
    verdicts = np.array([label(row.tolist()) for row in rows], np.int32)
    found = CharDfa(cuts, current.astype(np.int32), verdicts[inverse.ravel()])
    return found.minimised() if found.num_states <= MAX_MINIMISED else found


def _pair(
    left: NDArray[np.int64], pairs: NDArray[np.int64], right: Ints, size: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Reachable pairs of two complete tables, breadth first; `pairs` names the left's parts."""
    known = np.zeros(len(left) * size, np.bool_)
    known[0] = True
    frontier = np.zeros(1, np.int64)
    seen: list[NDArray[np.int64]] = []
    targets: list[NDArray[np.int64]] = []
    total = 0
    while len(frontier):
        check_work()
        total += len(frontier)
        if total > MAX_STATES:
            raise StateBudgetError(
                f"a string constraint needs more than {MAX_STATES:,} states; simplify its patterns"
                " or lower its length bounds"
            )
        seen.append(frontier)
        reached = left[frontier // size] * size + right[frontier % size]
        targets.append(reached)
        fresh = reached.ravel()
        frontier = np.unique(fresh[~known[fresh]])
        known[frontier] = True
    codes = np.concatenate(seen)
    order = np.argsort(codes)
    table = order[np.searchsorted(codes[order], np.concatenate(targets))]
    parts = np.concatenate([pairs[codes // size], (codes % size)[:, None]], axis=1)
    return table, parts


def explore(
    start: State,
    step: Callable[[State, int], State | None],
    is_accepting: Callable[[State], bool],
    symbols: Sequence[Ranges],
) -> CharDfa:
    """Build an automaton from a step function over few symbols.

    Args:
        start: The start state.
        step: The next state for a state and the index of a symbol; None is the dead state.
        is_accepting: Whether a text may end in a state.
        symbols: The code points of each symbol; all others are dead.
    """
    index: dict[State, int] = {start: 0}
    states = [start]
    rows: list[list[int]] = []
    for state in states:
        check_work()
        row: list[int] = []
        for symbol in range(len(symbols)):
            target = step(state, symbol)
            if target is None:
                row.append(-1)
                continue
            if target not in index:
                index[target] = len(states)
                states.append(target)
            row.append(index[target])
        rows.append(row)
        if len(states) > MAX_STATES:
            raise StateBudgetError(f"a string constraint needs more than {MAX_STATES:,} states")
    labels = [0 if is_accepting(state) else -1 for state in states]
    return from_rows(rows, labels, symbols)


def from_rows(
    rows: Sequence[Sequence[int]], labels: Sequence[int], symbols: Sequence[Ranges]
) -> CharDfa:
    """An automaton from rows of targets per symbol; -1 and code points of no symbol are dead."""
    cuts = {0}
    for ranges in symbols:
        for lo, hi in ranges:
            cuts.add(lo)
            if hi + 1 < NUM_CODE_POINTS:
                cuts.add(hi + 1)
    ordered = np.array(sorted(cuts), np.int32)
    column = np.full(len(ordered), len(symbols), np.int64)
    for i, ranges in enumerate(symbols):
        for lo, hi in ranges:
            column[np.searchsorted(ordered, lo) : np.searchsorted(ordered, hi + 1)] = i
    dead = len(rows)
    by_symbol = np.full((dead + 1, len(symbols) + 1), dead, np.int32)
    if symbols:
        by_symbol[:dead, :-1] = np.array(rows, np.int32).reshape(dead, len(symbols))
    by_symbol[by_symbol < 0] = dead
    return CharDfa(ordered, by_symbol[:, column], np.array([*labels, -1], np.int32)).minimised()


ANY_POINT: Ranges = ((0, NUM_CODE_POINTS - 1),)


@lru_cache(maxsize=1)
def everything() -> CharDfa:
    """The automaton of every text."""
    zeros = np.zeros(1, np.int32)
    return CharDfa(zeros, zeros[None], zeros)


@lru_cache(maxsize=1)
def nothing() -> CharDfa:
    """The automaton of no text."""
    return everything().complement()


@lru_cache(maxsize=256)
def of_length(lo: int, hi: int | None) -> CharDfa:
    """Texts of lo to hi code points, hi None for no upper bound."""
    last = lo if hi is None else hi + 1
    if last > MAX_STATES:
        raise StateBudgetError(
            f"a length bound of {hi or lo:,} needs more than {MAX_STATES:,} states"
        )
    numbers = np.arange(last + 1, dtype=np.int32)
    table = np.minimum(numbers + 1, last)[:, None]
    accepting = (numbers >= lo) & ((hi is None) | (numbers <= (hi or 0)))
    return CharDfa(np.zeros(1, np.int32), table, np.where(accepting, 0, -1).astype(np.int32))


def of_words(words: Iterable[str]) -> CharDfa:
    """The automaton of a finite set of texts."""
    trie: list[dict[str, int]] = [{}]
    ends: set[int] = set()
    for word in words:
        node = 0
        for char in word:
            if char not in trie[node]:
                trie[node][char] = len(trie)
                trie.append({})
            node = trie[node][char]
        ends.add(node)
        if len(trie) > MAX_STATES:
            raise StateBudgetError(f"a set of words needs more than {MAX_STATES:,} states")
    letters = sorted({char for node in trie for char in node})
    rows = [[node.get(char, -1) for char in letters] for node in trie]
    labels = [0 if i in ends else -1 for i in range(len(trie))]
    return from_rows(rows, labels, [((ord(c), ord(c)),) for c in letters])
