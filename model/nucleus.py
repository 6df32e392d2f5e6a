"""Nucleus sampling: the likeliest tokens of a position that hold a share of its probability."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from agentloop.model.tensors import from_array

_FEW = 256  # tokens that hold the share at almost every position


def keep_nucleus(
    logits: Tensor,
    positions: NDArray[np.int64],
    top_p: float,
    temperature: float,
    allowed: NDArray[np.bool_],
) -> Tensor:
    """Logits (L, V) with minus infinity outside the nucleus of each of some positions.

    The nucleus is the smallest set of likeliest tokens whose probability at the temperature, among
    the tokens (V,) that are allowed anywhere, is at least `top_p`. Source: Holtzman et al. 2020,
    eq. 2.
    """
    kept = logits.clone()
    barred = from_array(~allowed)
    rows = logits[from_array(positions)].masked_fill(barred, float("-inf"))
    p = torch.softmax(rows.double() / temperature, dim=-1)
    width = p.shape[-1]
    likeliest = torch.topk(p, min(_FEW, width), dim=-1)
    for n, row in enumerate(positions.tolist()):
        sizes, ids = likeliest.values[n], likeliest.indices[n]
        if float(sizes.sum()) < top_p:
            sizes, ids = torch.sort(p[n], descending=True, stable=True)
        count = int((sizes.cumsum(0) - sizes < top_p).sum())
        inside = torch.zeros(width, dtype=torch.bool)
        inside[ids[:count]] = True
        kept[row] = torch.where(inside, logits[row], float("-inf"))
    return kept
