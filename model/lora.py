"""Low-rank adapters: a small trainable product beside each frozen matrix of a network.

y = x W' + x A' B' with A (r, in) and B (out, r); B begins at zero, so nothing changes before the
first step. Source: Hu et al. 2021 (LoRA), with the scale alpha / r folded into the learning rate.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from agentloop.model.tensors import random_normal

DOWN, UP = ".down", ".up"


class LowRankLinear(nn.Module):
    """A frozen linear layer and its adapter."""

    def __init__(self, linear: nn.Linear, rank: int, seed: int) -> None:
        super().__init__()
        self.weight = linear.weight
        self.bias = linear.bias
        shape = (rank, linear.in_features)
        down = random_normal(shape, seed, std=linear.in_features**-0.5)
        self.down = nn.Parameter(down.to(linear.weight))
        self.up = nn.Parameter(torch.zeros(linear.out_features, rank).to(linear.weight))

    def forward(self, x: Tensor) -> Tensor:
        """(..., in) to (..., out)."""
        return F.linear(x, self.weight, self.bias) + F.linear(F.linear(x, self.down), self.up)


def add_adapters(network: nn.Module, rank: int, seed: int = 0) -> None:
    """Put an adapter beside every linear layer of a network but its head; names stay.

    Raises:
        ValueError: `rank` is below 1.
    """
    if rank < 1:
        raise ValueError(f"an adapter needs a rank of at least 1, got {rank}")
    number = 0
    for parent in list(network.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.Linear) and name != "lm_head":
                setattr(parent, name, LowRankLinear(child, rank, seed * 100_003 + number))
                number += 1


def is_adapter(name: str) -> bool:
    """Whether a parameter's name is an adapter's."""
    return name.endswith((DOWN, UP))


def product(up: Tensor, down: Tensor) -> Tensor:
    """What an adapter adds to its matrix (out, in), in float32."""
    return up.float() @ down.float()
