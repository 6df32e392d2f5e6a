"""Keys and values of prompts already read, in blocks, so that shared beginnings are read once.

A prompt is read in blocks of BLOCK tokens at fixed places, whether or not some are cached; so a
cached block holds bit for bit what reading it again would give. A block is found by all tokens up
to its end. Least recently used blocks go first when the budget is spent.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from agentloop.model.network import PromptKeys, Transformer
from agentloop.model.tensors import from_array

BLOCK = 128


@dataclass
class CacheStatistics:
    """Counts since the cache was made.

    Attributes:
        hit_tokens: Prompt tokens taken from the cache.
        read_tokens: Prompt tokens that were read.
        bytes: Memory held now.
    """

    hit_tokens: int = 0
    read_tokens: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class ReadPrompt:
    """A prompt's keys, and how many of its tokens came from the cache."""

    keys: PromptKeys
    cached_tokens: int


class PromptCache:
    """Reads prompts with a network, block by block, and keeps whole blocks.

    Not safe for use by several threads at once; the engine's thread owns it.
    """

    def __init__(self, reader: Transformer, budget_bytes: int = 512 * 2**20) -> None:
        self.reader = reader
        self.budget_bytes = budget_bytes
        self.statistics = CacheStatistics()
        self._blocks: OrderedDict[bytes, PromptKeys] = OrderedDict()

    def read(self, tokens: Sequence[int]) -> ReadPrompt:
        """Keys and values of all tokens, at positions 0 to len(tokens) - 1."""
        ids = np.asarray(tokens, np.int32)
        parts: list[PromptKeys] = []
        name = hashlib.sha256()
        cached = 0
        for start in range(0, len(ids), BLOCK):
            piece = ids[start : start + BLOCK]
            name.update(piece.tobytes())
            key = name.digest()
            block = self._blocks.get(key)
            if block is not None:
                self._blocks.move_to_end(key)
                cached += len(piece)
            else:
                block = self._read_block(piece, _joined(parts, self.reader))
                if len(piece) == BLOCK:
                    self._keep(key, block)
            parts.append(block)
        self.statistics.hit_tokens += cached
        self.statistics.read_tokens += len(ids) - cached
        return ReadPrompt(_joined(parts, self.reader), cached)

    @torch.inference_mode()
    def _read_block(
        self, piece: np.ndarray[tuple[int], np.dtype[np.int32]], past: PromptKeys
    ) -> PromptKeys:
        device = self.reader.embed_tokens.weight.device
        tokens = from_array(piece.astype(np.int64)).to(device)
        return self.reader.read(tokens[None], past if past.length else None)[1]

    def _keep(self, key: bytes, block: PromptKeys) -> None:
        self._blocks[key] = block
        self.statistics.bytes += _bytes_of(block)
        while self.statistics.bytes > self.budget_bytes and self._blocks:
            _, dropped = self._blocks.popitem(last=False)
            self.statistics.bytes -= _bytes_of(dropped)

    def clear(self) -> None:
        """Forget everything."""
        self._blocks.clear()
        self.statistics.bytes = 0


def _joined(parts: list[PromptKeys], reader: Transformer) -> PromptKeys:
    if len(parts) == 1:
        return parts[0]
    if not parts:
        c = reader.config
        weight = reader.embed_tokens.weight
        empty = weight.new_empty((1, c.num_kv_heads, 0, c.head_dim))
        return PromptKeys([empty] * c.num_layers, [empty] * c.num_layers)
    return PromptKeys(
        [torch.cat(layer, dim=2) for layer in zip(*(p.keys for p in parts), strict=True)],
        [torch.cat(layer, dim=2) for layer in zip(*(p.values for p in parts), strict=True)],
    )


def _bytes_of(block: PromptKeys) -> int:
    return sum(t.nbytes for t in (*block.keys, *block.values))
