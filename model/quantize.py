"""Four-bit storage of weight deltas: two codes a byte, one float16 scale per group of 32 or less.

Codes are symmetric, -7..7. Each group's scale is the one of a few candidates with the least squared
error, which matters at four bits: the largest value of a group is an outlier more often than not.
"""

from __future__ import annotations

import torch
from torch import Tensor

GROUP = 32  # halved until it divides the columns
LARGEST_CODE = 7
_SHRINKS = (1.0, 0.92, 0.84, 0.76, 0.68)  # candidate scales, as parts of the full range


def quantize(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Codes and scales of a matrix.

    Args:
        weight: (rows, columns) float; columns even.

    Returns:
        Packed codes (rows, columns / 2) uint8 and scales (rows, groups) float16.
    """
    rows, columns = weight.shape
    size = GROUP
    while columns % size:
        size //= 2
    groups = weight.float().reshape(rows, columns // size, size)
    full = groups.abs().amax(-1, keepdim=True) / LARGEST_CODE
    best_error = torch.full_like(full, float("inf"))
    best_scale = full.half().float()
    for shrink in _SHRINKS:
        scale = (full * shrink).half().float()
        error = (_codes(groups, scale) * scale - groups).square().sum(-1, keepdim=True)
        better = error < best_error
        best_error = torch.where(better, error, best_error)
        best_scale = torch.where(better, scale, best_scale)
    codes = (_codes(groups, best_scale) + 8).to(torch.uint8).reshape(rows, columns)
    return codes[:, 0::2] | (codes[:, 1::2] << 4), best_scale.squeeze(-1).half()


def _codes(groups: Tensor, scale: Tensor) -> Tensor:
    safe = torch.where(scale > 0, scale, torch.ones_like(scale))
    return (groups / safe).round().clamp(-LARGEST_CODE, LARGEST_CODE)


def dequantize(packed: Tensor, scales: Tensor) -> Tensor:
    """The float32 matrix (rows, columns) of `quantize`'s codes and scales."""
    rows, half = packed.shape
    codes = torch.stack([packed & 15, packed >> 4], dim=-1).float() - 8
    grouped = codes.reshape(rows, scales.shape[1], -1) * scales.float().unsqueeze(-1)
    return grouped.reshape(rows, half * 2)
