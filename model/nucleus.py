"""Nucleus sampling: the likeliest tokens of a position that hold a share of its probability."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from agentloop.model.tensors import from_array

_BINS_PER_NAT = 32
_NUM_BINS = 1024


def keep_nucleus(
    logits: Tensor,
    positions: NDArray[np.int64],
    top_p: float,
    temperature: float,
    allowed: NDArray[np.bool_],
) -> Tensor:
    """Logits (L, V) with minus infinity outside the nucleus of each of some positions.

    The nucleus is the smallest set of likeliest tokens whose probability at the temperature, among
    the tokens (V,) that are allowed anywhere, is at least `top_p`. Rows without a finite largest
    logit are left as they are. Source: Holtzman et al. 2020, eq. 2.
    """
    kept = logits.clone()
    columns = np.flatnonzero(allowed)
    rows = logits[from_array(positions)].cpu().float().numpy()
    for position, row in zip(positions.tolist(), rows, strict=True):
        scores = row.take(columns)
        highest = scores.max()
        if not np.isfinite(highest):
            continue
        inside = columns[_nucleus((highest - scores) / row.dtype.type(temperature), top_p)]
        narrowed = np.full_like(row, -np.inf)
        narrowed[inside] = row[inside]
        kept[position] = from_array(narrowed)
    return kept


def _nucleus(nats_below: NDArray[Any], top_p: float) -> NDArray[np.int64]:
    """The tokens of the nucleus, by how far (n,) each lies below the best one.

    Only those about as likely as the last one to be kept are sorted.
    """
    p = np.exp(-nats_below)
    bins = np.minimum(nats_below * _BINS_PER_NAT, _NUM_BINS - 1).astype(np.int64)
    running = np.cumsum(np.bincount(bins, p, _NUM_BINS), dtype=np.float64)
    goal = top_p * float(running[-1])
    last = int(np.searchsorted(running, goal))
    edge = np.flatnonzero(bins == last)
    edge = edge[np.argsort(nats_below[edge], kind="stable")]
    within = p[edge].astype(np.float64)
    ahead = np.cumsum(within) - within + (float(running[last - 1]) if last else 0.0)
    return np.append(np.flatnonzero(bins < last), edge[ahead < goal])
