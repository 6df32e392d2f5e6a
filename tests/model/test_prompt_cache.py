"""The prompt cache: exact, shared, bounded."""

import numpy as np
import pytest
import torch

from agentloop.model.keys import Keys
from agentloop.model.packed import PackedNetwork
from agentloop.model.products import Precision
from agentloop.model.prompt_cache import BLOCK, ROOM, PromptCache
from tests.model.tiny import tiny_network


@pytest.fixture(scope="module", params=["float32", "bfloat16"])
def reader(request: pytest.FixtureRequest) -> PackedNetwork:
    precision: Precision = request.param
    return PackedNetwork(tiny_network(), precision)


def random_tokens(length: int, seed: int = 0) -> list[int]:
    ids: list[int] = np.random.default_rng(seed).integers(0, 200, length).tolist()
    return ids


def assert_same(a: Keys, b: Keys) -> None:
    assert a.length == b.length
    for x, y in ((a.keys, b.keys), (a.values, b.values)):
        assert torch.equal(x[:, :, : a.length], y[:, :, : a.length])


@pytest.mark.parametrize("length", [1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 7])
def test_a_cached_prompt_equals_an_uncached_one(reader: PackedNetwork, length: int) -> None:
    """Keys from the cache are bit for bit those of a fresh read, whatever was read before."""
    tokens = random_tokens(length, seed=length)
    warm = PromptCache(reader)
    warm.read(tokens[: length // 2] + [7] * 200)
    warm.read(tokens + [5] * 300)
    cached = warm.read(tokens)
    fresh = PromptCache(reader).read(tokens)
    assert cached.cached_tokens == length // BLOCK * BLOCK
    assert_same(cached.keys, fresh.keys)
    assert fresh.keys.length == length
    assert warm.read(tokens).cached_tokens == length  # the end of a prompt is kept as well
    assert_same(warm.read(tokens).keys, fresh.keys)


@pytest.mark.parametrize("max_rows", [1, 100, 100_000])
def test_prompts_read_together_equal_them_read_alone(reader: PackedNetwork, max_rows: int) -> None:
    """Prompts of many lengths that share beginnings, read in passes of any size, are exact."""
    shared = random_tokens(2 * BLOCK + 9)
    prompts = [[*shared[: 30 * i], *random_tokens(11 * i + 1, seed=i)] for i in range(8)]
    cache = PromptCache(reader, max_rows=max_rows)
    readings = [cache.begin(prompt) for prompt in prompts]
    while not all(reading.is_done for reading in readings):
        cache.go_on([reading for reading in readings if not reading.is_done])
    for prompt, reading in zip(prompts, readings, strict=True):
        assert_same(reading.keys, PromptCache(reader).read(prompt).keys)


def test_a_beginning_that_prompts_share_is_read_once(reader: PackedNetwork) -> None:
    """Sixteen prompts with one beginning, read together: it goes through once, in two passes."""
    shared = random_tokens(4 * BLOCK)
    cache = PromptCache(reader)
    readings = [cache.begin([*shared, i, i + 1]) for i in range(16)]
    for _ in range(2):
        cache.go_on([reading for reading in readings if not reading.is_done])
    assert all(reading.is_done for reading in readings)
    assert cache.statistics.num_passes == 2
    assert cache.statistics.read_tokens == len(shared) + 2 * 16
    assert cache.statistics.hit_tokens == 15 * len(shared)
    assert cache.statistics.hit_rate == pytest.approx(15 * 256 / (16 * 258))


def test_the_cache_keeps_to_its_budget() -> None:
    """Old blocks go when the budget is spent, ends ahead of beginnings; answers stay right."""
    reader = PackedNetwork(tiny_network())
    budget = reader.num_key_bytes(8 * BLOCK + 2 * ROOM)
    cache = PromptCache(reader, budget_bytes=budget)
    prompts = [[i] * (2 * BLOCK) for i in range(5)]
    for prompt in prompts:
        cache.read(prompt)
        assert cache.statistics.bytes <= budget
    assert cache.statistics.evicted_bytes > 0
    again = cache.read(prompts[0])
    assert_same(again.keys, PromptCache(reader).read(prompts[0]).keys)
    assert cache.read(prompts[4]).cached_tokens == 2 * BLOCK
    cache.clear()
    assert cache.statistics.bytes == 0
    assert cache.read(prompts[4]).cached_tokens == 0
