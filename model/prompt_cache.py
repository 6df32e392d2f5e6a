"""Keys and values of prompts already read, in blocks, so that shared beginnings are read once.

A prompt is read in blocks of BLOCK tokens at fixed places, whether or not some are cached; so a
cached block holds bit for bit what reading it again would give. A block is found by all tokens up
to its end: blocks form a tree over token prefixes, in which prompts share what they have in common.
Prompts that are read together go through the network in one pass, and a block that several of them
lack is read once. Least recently used blocks go first when the budget is spent, ends of prompts
ahead of their beginnings.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from agentloop.model.keys import Keys
from agentloop.model.packed import PackedNetwork, Span

BLOCK = 64
ROOM = 136
"""Positions that follow a prompt in its buffer: a canvas and its anchor."""
READ_ROWS = 1024
"""Positions that are read in one pass at most; refinement steps go on between passes."""


@dataclass
class CacheStatistics:
    """Counts since the cache was made.

    Attributes:
        hit_tokens: Prompt tokens taken from the cache.
        read_tokens: Prompt tokens that were read.
        bytes: Memory held now.
        evicted_bytes: Memory that was given up to keep to the budget.
        num_passes: Passes of the reading network.
    """

    hit_tokens: int = 0
    read_tokens: int = 0
    bytes: int = 0
    evicted_bytes: int = 0
    num_passes: int = 0

    @property
    def hit_rate(self) -> float:
        """Share of prompt tokens that were taken from the cache; 0 before the first prompt."""
        total = self.hit_tokens + self.read_tokens
        return self.hit_tokens / total if total else 0.0


@dataclass
class Reading:
    """A prompt that is being read.

    Attributes:
        tokens: Its ids.
        keys: What was read so far, with room for a canvas; whole when `is_done`.
        cached_tokens: Tokens that came from the cache.
    """

    tokens: list[int]
    keys: Keys
    cached_tokens: int = 0
    names: list[bytes] = field(default_factory=list[bytes], repr=False)

    @property
    def is_done(self) -> bool:
        """Whether all tokens were read."""
        return self.keys.length >= len(self.tokens)

    @property
    def next_block(self) -> int:
        """Number of the first block that is not read."""
        return self.keys.length // BLOCK

    def block(self, number: int) -> list[int]:
        """Tokens of a block."""
        return self.tokens[number * BLOCK : (number + 1) * BLOCK]


class PromptCache:
    """Reads prompts with a network, block by block, and keeps the blocks.

    Not safe for use by several threads at once; the engine's thread owns it.

    Args:
        reader: The network.
        budget_bytes: Memory for what was read.
        max_rows: Tokens that are read in one pass at most, but at least one block.
    """

    def __init__(
        self,
        reader: PackedNetwork,
        budget_bytes: int = 512 * 2**20,
        max_rows: int = READ_ROWS,
    ) -> None:
        self.reader = reader
        self.budget_bytes = budget_bytes
        self.max_rows = max_rows
        self.statistics = CacheStatistics()
        self._kept: OrderedDict[bytes, Keys] = OrderedDict()

    def read(self, tokens: Sequence[int]) -> Reading:
        """Keys and values of all tokens, at positions 0 to len(tokens) - 1."""
        reading = self.begin(tokens)
        while not reading.is_done:
            self.go_on([reading])
        return reading

    def begin(self, tokens: Sequence[int]) -> Reading:
        """A prompt to be read by `go_on`; done at once where everything is cached."""
        ids = list(tokens)
        names = _names(ids)
        whole = self._kept.get(b"whole" + names[-1]) if names else None
        if whole is not None:
            reading = Reading(ids, whole, len(ids), names)
            self.statistics.hit_tokens += len(ids)
        else:
            reading = Reading(ids, self.reader.new_keys(len(ids) + ROOM), 0, names)
            self._take_cached(reading)
        if reading.is_done:
            self._finish(reading)
        return reading

    def go_on(self, readings: Sequence[Reading]) -> None:
        """One pass over blocks that some unfinished prompts lack, the first prompts first."""
        ids: list[int] = []
        spans: list[Span] = []
        new: list[tuple[Reading, int, int]] = []  # and where the read blocks start and stop
        claimed: set[bytes] = set()
        for reading in readings:
            self._take_cached(reading)
            start = number = reading.next_block
            while number < len(reading.names) and (not ids or len(ids) + BLOCK <= self.max_rows):
                if reading.names[number] in claimed:
                    break  # another prompt reads it in this pass
                claimed.add(reading.names[number])
                block = reading.block(number)
                place = number * BLOCK
                spans.append(Span(len(ids), len(ids) + len(block), reading.keys, place, True))
                ids += block
                number += 1
            new.append((reading, start, number))
        if ids:
            self.reader.run(ids, spans)
            self.statistics.num_passes += 1
            self.statistics.read_tokens += len(ids)
        for reading, start, stop in new:
            for number in range(start, stop):
                self._keep_block(reading, number)
            if reading.is_done:
                self._finish(reading)

    def _take_cached(self, reading: Reading) -> None:
        while not reading.is_done:
            block = self._kept.get(reading.names[reading.next_block])
            if block is None:
                return
            reading.keys.put(block)
            reading.cached_tokens += block.length
            self.statistics.hit_tokens += block.length

    def _keep_block(self, reading: Reading, number: int) -> None:
        start = number * BLOCK
        stop = start + len(reading.block(number))
        reading.keys.length = stop
        self._keep(reading.names[number], reading.keys.copied(start, stop))

    def _finish(self, reading: Reading) -> None:
        """Keep the whole prompt for the next call with it; mark its blocks as used, ends first."""
        if reading.names:
            self._keep(b"whole" + reading.names[-1], reading.keys)
        for name in reversed(reading.names):
            if name in self._kept:
                self._kept.move_to_end(name)

    def _keep(self, name: bytes, keys: Keys) -> None:
        if name not in self._kept:
            self._kept[name] = keys
            self.statistics.bytes += keys.num_bytes
        self._kept.move_to_end(name)
        while self.statistics.bytes > self.budget_bytes and self._kept:
            _, dropped = self._kept.popitem(last=False)
            self.statistics.bytes -= dropped.num_bytes
            self.statistics.evicted_bytes += dropped.num_bytes

    def clear(self) -> None:
        """Forget everything."""
        self._kept.clear()
        self.statistics.bytes = 0


def _names(ids: Sequence[int]) -> list[bytes]:
    """Of every block, the digest of all tokens up to its end."""
    digest = hashlib.sha256()
    names: list[bytes] = []
    for start in range(0, len(ids), BLOCK):
        digest.update(np.asarray(ids[start : start + BLOCK], np.int32).tobytes())
        names.append(digest.digest())
    return names
