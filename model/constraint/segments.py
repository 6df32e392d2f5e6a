"""Arithmetic on ragged arrays (many short segments inside one flat array), and draws."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
_BLOCK = 512  # weights that are summed up one by one for a draw
_BELOW_ONE = float(np.nextafter(1.0, 0.0))


def ragged(starts: NDArray[np.integer[Any]], counts: NDArray[np.integer[Any]]) -> tuple[Ints, Ints]:
    """Indices of all segments, one after another, and the segment each index belongs to.

    Args:
        starts: (n,) first index of each segment.
        counts: (n,) length of each segment.

    Returns:
        Two (sum(counts),) int64 arrays.

    Example:
        >>> ragged(np.array([5, 0]), np.array([2, 1]))
        (array([5, 6, 0]), array([0, 0, 1]))
    """
    owners = np.repeat(np.arange(len(counts)), counts)
    shift = starts - (np.cumsum(counts) - counts)
    return np.arange(len(owners)) + shift[owners], owners


def offsets_of(owners: NDArray[np.integer[Any]], num_segments: int) -> NDArray[np.int32]:
    """Offsets (num_segments + 1,) of a flat array sorted by its owners."""
    counts = np.bincount(owners, minlength=num_segments)
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)


def sum_segments(values: NDArray[Any], starts: NDArray[np.integer[Any]]) -> NDArray[Any]:
    """Sum of each non-empty segment; `starts` ascends and the last one runs to the end."""
    if len(starts) == 0:
        return values[:0]
    return np.add.reduceat(values, starts)


def sum_by_place(
    places: NDArray[np.integer[Any]], values: NDArray[np.float64], size: int
) -> NDArray[np.float64]:
    """Sum (size,) of the values that belong to each place."""
    sums: NDArray[Any] = np.bincount(places, values, size)
    return sums.astype(np.float64, copy=False)


def draw(weights: NDArray[np.floating[Any]], uniform: float) -> int:
    """Index drawn in proportion to weights, of which one is positive, by a number in [0, 1)."""
    if len(weights) <= _BLOCK:
        return _drawn(weights, uniform)[0]
    sums = np.add.reduceat(weights, np.arange(0, len(weights), _BLOCK), dtype=np.float64)
    block, rest = _drawn(sums, uniform)
    first = block * _BLOCK
    return first + _drawn(weights[first : first + _BLOCK], rest)[0]


def _drawn(weights: NDArray[np.floating[Any]], uniform: float) -> tuple[int, float]:
    """The index drawn, and the number in [0, 1) that is left to draw within it."""
    mass = np.cumsum(weights, dtype=np.float64)
    total = float(mass[-1])
    below = min(uniform * total, float(np.nextafter(total, 0.0)))  # the product may round up
    index = int(np.searchsorted(mass, below, side="right"))
    before = float(mass[index - 1]) if index else 0.0
    return index, min((below - before) / (float(mass[index]) - before), _BELOW_ONE)


class Growing:
    """An array of integers that is extended many times at a cost that goes with its length."""

    def __init__(self, values: Ints) -> None:
        self._buffer = values
        self._length = len(values)

    @property
    def values(self) -> Ints:
        """What it holds now; a view that later extensions leave as it is."""
        return self._buffer[: self._length]

    def extend(self, values: NDArray[np.integer[Any]]) -> None:
        """Add values at the end."""
        needed = self._length + len(values)
        if needed > len(self._buffer):
            grown = np.empty(max(needed, 2 * len(self._buffer)), np.int64)
            grown[: self._length] = self.values
            self._buffer = grown
        self._buffer[self._length : needed] = values
        self._length = needed
