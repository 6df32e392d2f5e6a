"""Keys and values of a text in all layers, in one buffer that has room for positions to come.

What was read before lies ahead of the room; what a pass adds is written behind it, and stays only
if `length` is moved over it. So a canvas that is refined again and again copies no prompt.

Letters: N layers, K key/value heads, d head width.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from agentloop.model.config import ModelConfig


@dataclass
class Keys:
    """A buffer of keys and values.

    Attributes:
        keys: (N, K, capacity, d), rotated.
        values: (N, K, capacity, d).
        length: Positions that hold a text; behind them is room.
    """

    keys: Tensor
    values: Tensor
    length: int = 0

    @classmethod
    def empty(
        cls, config: ModelConfig, capacity: int, dtype: torch.dtype, device: torch.device
    ) -> Keys:
        """Room for `capacity` positions."""
        shape = (config.num_layers, config.num_kv_heads, capacity, config.head_dim)
        keys, values = (torch.empty(shape, dtype=dtype, device=device) for _ in range(2))
        return cls(keys, values)

    @property
    def capacity(self) -> int:
        """Positions that there is room for in all."""
        return self.keys.shape[2]

    @property
    def num_bytes(self) -> int:
        """Memory held."""
        return self.keys.nbytes + self.values.nbytes

    def prefix(self, length: int) -> Keys:
        """The first `length` positions, in the same buffer."""
        return Keys(self.keys, self.values, length)

    def put(self, block: Keys) -> None:
        """Copy the positions of a block behind the text, and take them into it."""
        stop = self.length + block.length
        self.keys[:, :, self.length : stop] = block.keys[:, :, : block.length]
        self.values[:, :, self.length : stop] = block.values[:, :, : block.length]
        self.length = stop

    def copied(self, start: int, stop: int, room: int = 0) -> Keys:
        """Positions from start to stop in a buffer of their own, with further room."""
        shape = (*self.keys.shape[:2], stop - start + room, self.keys.shape[3])
        piece = Keys(self.keys.new_empty(shape), self.values.new_empty(shape), stop - start)
        piece.keys[:, :, : piece.length] = self.keys[:, :, start:stop]
        piece.values[:, :, : piece.length] = self.values[:, :, start:stop]
        return piece
