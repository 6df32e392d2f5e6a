"""Adapters change nothing at first, learn alone, and equal the matrix they add."""

import copy

import pytest
import torch
from torch import nn

from agentloop.model.lora import add_adapters, is_adapter, product
from agentloop.model.tensors import random_normal
from tests.model.tiny import tiny_network


def test_fresh_adapters_change_nothing() -> None:
    """Before the first step a network answers exactly as without adapters."""
    plain = tiny_network()
    adapted = copy.deepcopy(plain)
    add_adapters(adapted, rank=4)
    tokens = torch.tensor([[3, 5, 7, 9]])
    assert torch.equal(plain.read(tokens)[0], adapted.read(tokens)[0])


def test_an_adapter_equals_the_matrix_it_adds() -> None:
    """Merged into the weights, the adapters give the same numbers up to rounding."""
    adapted = tiny_network()
    add_adapters(adapted, rank=3)
    parameters = dict(adapted.named_parameters())
    for number, (name, parameter) in enumerate(parameters.items()):
        if is_adapter(name):
            parameter.data = random_normal(tuple(parameter.shape), number, std=0.05)
    merged = tiny_network()
    for name, weight in merged.named_parameters():
        stem = name.removesuffix(".weight")
        if f"{stem}.up" in parameters:
            weight.data += product(parameters[f"{stem}.up"], parameters[f"{stem}.down"])
    tokens = torch.tensor([[3, 5, 7, 9]])
    assert torch.allclose(merged.read(tokens)[0], adapted.read(tokens)[0], atol=1e-4)


def test_every_matrix_but_the_head_gets_one() -> None:
    """Seven per block of a Llama layout; none for the embedding or the head."""
    network = tiny_network()
    add_adapters(network, rank=2)
    names = {name for name, _ in network.named_parameters() if is_adapter(name)}
    assert len(names) == 2 * 7 * network.config.num_layers
    assert not any("embed" in name or "head" in name for name in names)


def test_a_rank_below_one_is_refused() -> None:
    """A rank of zero would train nothing."""
    with pytest.raises(ValueError, match="at least 1, got 0"):
        add_adapters(nn.Linear(2, 2), rank=0)
