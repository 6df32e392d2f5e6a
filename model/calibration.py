"""Calibration of decisions: one temperature that makes stated probabilities match what happens."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from agentloop.errors import ModelError


def fit_temperature(
    observed: Sequence[Mapping[str, float]], right: Sequence[str], *, num_rounds: int = 60
) -> float:
    """The calibration temperature under which some decisions predicted best what was right.

    Minimises the mean negative log-probability of the right option over temperatures from 0.05 to
    20 by golden section; the probabilities are those at temperature 1.
    Source: Guo et al. 2017, section 4.2, with one temperature.

    Args:
        observed: Probabilities of past decisions.
        right: The option that was right in each.
        num_rounds: Rounds of the search; each narrows it by 0.618.

    Raises:
        ModelError: There is nothing to fit, or a right option is none of its decision's.
    """
    if len(observed) != len(right) or not right:
        raise ModelError(
            f"{len(observed)} decisions and {len(right)} right options were given, expected as "
            "many of both and at least one"
        )
    for probabilities, option in zip(observed, right, strict=True):
        if option not in probabilities:
            raise ModelError(f"{option!r} is none of the options {list(probabilities)}")
    logs = [np.log(np.maximum(list(p.values()), 1e-300)) for p in observed]
    places = [list(p).index(option) for p, option in zip(observed, right, strict=True)]

    def loss(log_temperature: float) -> float:
        return sum(
            _surprise(log_p / math.exp(log_temperature), place)
            for log_p, place in zip(logs, places, strict=True)
        )

    low, high = math.log(0.05), math.log(20.0)
    golden = (math.sqrt(5.0) - 1.0) / 2.0
    for _ in range(num_rounds):
        left, right_end = high - golden * (high - low), low + golden * (high - low)
        if loss(left) <= loss(right_end):
            high = right_end
        else:
            low = left
    return math.exp((low + high) / 2.0)


def _surprise(scores: NDArray[np.float64], place: int) -> float:
    """Negative log of the softmax of some scores at a place."""
    highest = float(scores.max())
    return highest + math.log(float(np.exp(scores - highest).sum())) - float(scores[place])


def tempered(probabilities: Mapping[str, float], temperature: float) -> dict[str, float]:
    """Probabilities at a calibration temperature: proportional to p ** (1 / temperature)."""
    names = list(probabilities)
    scores = np.log(np.maximum(list(probabilities.values()), 1e-300)) / temperature
    weights = np.exp(scores - scores.max())
    return dict(zip(names, (weights / weights.sum()).tolist(), strict=True))
