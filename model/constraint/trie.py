"""A byte trie over token strings, in flat arrays ordered by level.

The lift walks it level by level, all nodes of a level at once. It knows nothing of automata.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class ByteTrie:
    """Nodes numbered by level; node 0 is the root and stands for the empty string.

    Attributes:
        parents: (N,) int32, the parent of each node; -1 for the root.
        node_bytes: (N,) uint8, the byte that leads to each node; 0 for the root.
        level_offsets: (D + 2,) int32, nodes of depth d are `level_offsets[d]:level_offsets[d + 1]`.
        string_nodes: (V,) int32, the node where each string ends; -1 for an empty string.
    """

    parents: Ints
    node_bytes: NDArray[np.uint8]
    level_offsets: Ints
    string_nodes: Ints

    @classmethod
    def from_strings(cls, strings: Sequence[bytes]) -> Self:
        """Build the trie of all non-empty strings; equal strings end at the same node."""
        lengths = np.fromiter(map(len, strings), np.int64, len(strings))
        starts = np.cumsum(lengths) - lengths
        flat = np.frombuffer(b"".join(strings), np.uint8)
        nodes = np.where(lengths > 0, 0, -1).astype(np.int64)
        parents, node_bytes, offsets = [np.array([-1])], [np.zeros(1, np.uint8)], [0, 1]
        active = np.flatnonzero(lengths > 0)
        depth = 0
        while len(active):
            keys = nodes[active] * 256 + flat[starts[active] + depth]
            distinct, which = np.unique(keys, return_inverse=True)
            nodes[active] = offsets[-1] + which
            parents.append(distinct >> 8)
            node_bytes.append((distinct & 255).astype(np.uint8))
            offsets.append(offsets[-1] + len(distinct))
            depth += 1
            active = active[lengths[active] > depth]
        return cls(
            np.concatenate(parents).astype(np.int32),
            np.concatenate(node_bytes),
            np.array(offsets, np.int32),
            nodes.astype(np.int32),
        )

    @property
    def num_nodes(self) -> int:
        """Number of nodes N, the root included."""
        return len(self.parents)

    @property
    def depth(self) -> int:
        """Length in bytes of the longest string."""
        return len(self.level_offsets) - 2
