r"""Texts as bytes: UTF-8, and the canonical escapes of a JSON string.

The canonical spelling of a string is that of `json.dumps(ensure_ascii=False)`: only `"`, `\` and
control characters are escaped, each in its shortest form. Surrogates have no UTF-8 and no spelling.
"""

from __future__ import annotations

import json
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from agentloop.model.constraint.characters import NUM_CODE_POINTS, CharDfa
from agentloop.model.constraint.fragment import Fragment, exit_of

Ints = NDArray[np.int32]
QUOTE = 0x22
Targets = tuple[tuple[int, int, int], ...]
"""Code points lo to hi lead to a target; ascending and disjoint."""

ESCAPES: dict[int, bytes] = {
    point: json.dumps(chr(point), ensure_ascii=False)[1:-1].encode()
    for point in [*range(0x20), 0x22, 0x5C]
}
_ESCAPED: Ints = np.array(sorted(ESCAPES), np.int32)
_PLAIN: Ints = np.array([p for p in range(0x80) if p not in ESCAPES], np.int32)
_LENGTHS = ((0x80, 0x7FF, 0xC0, 1), (0x800, 0xFFFF, 0xE0, 2), (0x10000, 0x10FFFF, 0xF0, 3))
_SURROGATES = (0xD800, 0xDFFF)


def escape(text: str) -> bytes:
    """The canonical spelling of a string's content, without its quotes."""
    return json.dumps(text, ensure_ascii=False)[1:-1].encode()


class _Arcs:
    """Arcs in the making; states are numbered on demand."""

    def __init__(self, num_states: int) -> None:
        self.num_states = num_states
        self.rows: list[tuple[int, int, int]] = []
        self.tables: list[NDArray[np.int64]] = []
        self._nodes: dict[tuple[int, Targets], int] = {}

    def state(self) -> int:
        self.num_states += 1
        return self.num_states - 1

    def tail(self, num_bytes: int, targets: Targets) -> int:
        """The state that reads so many continuation bytes; `targets` are relative code points."""
        if num_bytes == 0:
            return targets[0][2]
        key = (num_bytes, targets)
        found = self._nodes.get(key)
        if found is None:
            found = self._nodes[key] = self.state()
            self.blocks(found, 0x80, num_bytes, targets)
        return found

    def blocks(self, source: int, first: int, num_bytes: int, targets: Targets) -> None:
        """Arcs for one byte that selects a block of the code points that follow it."""
        size = 64 ** (num_bytes - 1)
        parts: dict[int, list[tuple[int, int, int]]] = {}
        for lo, hi, target in targets:
            for block in range(lo // size, hi // size + 1):
                base = block * size
                part = (max(lo - base, 0), min(hi - base, size - 1), target)
                parts.setdefault(block, []).append(part)
        for block, ranges in parts.items():
            after = self.tail(num_bytes - 1, tuple(ranges))
            self.rows.append((source, first | block, after))


def _beyond_ascii(arcs: _Arcs, source: int, targets: Targets) -> None:
    """Arcs from a state for all code points beyond ASCII."""
    for lo, hi, lead, num_bytes in _LENGTHS:
        clipped: list[tuple[int, int, int]] = []
        for low, high, target in targets:
            for a, b in (
                (low, min(high, _SURROGATES[0] - 1)),
                (max(low, _SURROGATES[1] + 1), high),
            ):
                if max(a, lo) <= min(b, hi):
                    clipped.append((max(a, lo), min(b, hi), target))
        if clipped:
            arcs.blocks(source, lead, num_bytes + 1, tuple(clipped))


@lru_cache(maxsize=1)
def _uniform() -> tuple[int, NDArray[np.int64]]:
    """The arcs from state 0 to state 1 by any one code point beyond ASCII, and their states."""
    arcs = _Arcs(2)
    _beyond_ascii(arcs, 0, ((0x80, NUM_CODE_POINTS - 1, 1),))
    return arcs.num_states, np.array(arcs.rows, np.int64)


def _groups(table: NDArray[np.integer]) -> tuple[list[list[int]], list[NDArray[np.int64]]]:
    """The distinct rows of a table, and for each the numbers of the rows that equal it."""
    rows, inverse = np.unique(table, axis=0, return_inverse=True)
    order = np.argsort(inverse.ravel(), kind="stable")
    bounds = np.searchsorted(inverse.ravel()[order], np.arange(len(rows) + 1))
    members = [order[bounds[i] : bounds[i + 1]] for i in range(len(rows))]
    return rows.tolist(), members


def _copy_leads(arcs: _Arcs, first_row: int, members: NDArray[np.int64]) -> None:
    """Repeat the arcs that leave the stand-in source -1 for every state that shares them."""
    leads = [row for row in arcs.rows[first_row:] if row[0] == -1]
    arcs.rows[first_row:] = [row for row in arcs.rows[first_row:] if row[0] != -1]
    if not leads:
        return
    table = np.tile(np.array(leads, np.int64), (len(members), 1))
    table[:, 0] = np.repeat(members, len(leads))
    arcs.tables.append(table)


def _add_beyond_ascii(arcs: _Arcs, dfa: CharDfa, table: Ints) -> None:
    column = int(np.searchsorted(dfa.cuts, 0x80, side="right")) - 1
    starts = np.maximum(dfa.cuts[column:], 0x80).tolist()
    stops = [*(start - 1 for start in starts[1:]), NUM_CODE_POINTS - 1]
    for row, members in zip(*_groups(table[:, column:]), strict=True):
        if max(row) < 0:
            continue
        if min(row) == max(row):
            count, template = _uniform()
            renamed = np.arange(-2, count - 2) + arcs.num_states
            renamed[0], renamed[1] = -1, row[0]
            arcs.num_states += count - 2
            copied = np.stack(
                [renamed[template[:, 0]], template[:, 1], renamed[template[:, 2]]], axis=1
            )
            leads = copied[copied[:, 0] == -1]
            arcs.tables.append(copied[copied[:, 0] != -1])
            spread = np.tile(leads, (len(members), 1))
            spread[:, 0] = np.repeat(members, len(leads))
            arcs.tables.append(spread)
            continue
        first_row = len(arcs.rows)
        _beyond_ascii(arcs, -1, _merged(starts, stops, row))
        _copy_leads(arcs, first_row, members)


def _merged(starts: list[int], stops: list[int], row: list[int]) -> Targets:
    found: list[tuple[int, int, int]] = []
    for lo, hi, target in zip(starts, stops, row, strict=True):
        if target < 0:
            continue
        if found and found[-1][2] == target and found[-1][1] + 1 == lo:
            found[-1] = (found[-1][0], hi, target)
        else:
            found.append((lo, hi, target))
    return tuple(found)


def _add_escapes(arcs: _Arcs, dfa: CharDfa, table: Ints) -> None:
    columns = np.searchsorted(dfa.cuts, _ESCAPED, side="right") - 1
    for row, members in zip(*_groups(table[:, columns]), strict=True):
        nodes: dict[bytes, int] = {b"": -1}
        first_row = len(arcs.rows)
        for point, target in zip(_ESCAPED.tolist(), row, strict=True):
            if target < 0:
                continue
            word = ESCAPES[point]
            for length in range(1, len(word)):
                if word[:length] not in nodes:
                    nodes[word[:length]] = arcs.state()
                    arcs.rows.append(
                        (nodes[word[: length - 1]], word[length - 1], nodes[word[:length]])
                    )
            arcs.rows.append((nodes[word[:-1]], word[-1], target))
        _copy_leads(arcs, first_row, members)


def spell_out(dfa: CharDfa, *, in_json: bool) -> Fragment | None:
    """The bytes of the texts of an automaton; exits are its labels. None if it accepts nothing.

    Args:
        dfa: The texts.
        in_json: Whether to spell the content of a JSON string up to and with its closing quote,
            instead of plain UTF-8.
    """
    if dfa.is_empty:
        return None
    live = dfa.live
    number = np.where(live, np.cumsum(live) - 1, -1).astype(np.int32)
    table = number[dfa.table[live]]
    labels = dfa.labels[live]
    arcs = _Arcs(int(live.sum()))
    ascii_points = _PLAIN if in_json else np.arange(0x80, dtype=np.int32)
    plain = table[:, np.searchsorted(dfa.cuts, ascii_points, side="right") - 1]
    states, columns = np.nonzero(plain >= 0)
    ascii_arcs = np.stack([states, ascii_points[columns], plain[states, columns]], axis=1)
    arcs.tables.append(ascii_arcs.astype(np.int64))
    _add_beyond_ascii(arcs, dfa, table)
    accepting = np.flatnonzero(labels >= 0)
    ends = np.stack([accepting, -1 - labels[accepting]], axis=1).astype(np.int32)
    if in_json:
        _add_escapes(arcs, dfa, table)
        quotes = np.full(len(accepting), QUOTE)
        closing = np.stack([accepting, quotes, ends[:, 1]], axis=1)
        arcs.tables.append(closing.astype(np.int64))
        ends = np.empty((0, 2), np.int32)
    arcs.tables.append(np.array(arcs.rows, np.int64).reshape(-1, 3))
    rows = np.concatenate(arcs.tables)
    return Fragment(
        arcs.num_states,
        rows[:, 0].astype(np.int32),
        rows[:, 1].astype(np.uint8),
        rows[:, 2].astype(np.int32),
        ends,
    )


assert exit_of(0) == -1
