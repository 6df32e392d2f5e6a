"""One ranking out of several: published formulas, one function each.

A leg maps items to scores, higher is better; an item that a leg did not return is absent.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from typing import TypeVar

Item = TypeVar("Item", bound=Hashable)
RRF_K = 60  # the constant of the paper


def min_max(
    scores: Mapping[Item, float], among: Collection[Item] | None = None
) -> dict[Item, float]:
    """Scores scaled so that the best is 1 and the last 0; all are 1 where they are equal.

    Args:
        scores: Of one leg.
        among: The items whose best and last are meant, all where None; others are cut to 0 and 1.
    """
    ends = [score for item, score in scores.items() if among is None or item in among]
    if not ends:
        return dict.fromkeys(scores, 0.0)
    low, high = min(ends), max(ends)
    if high == low:
        return {item: float(score >= high) for item, score in scores.items()}
    return {item: min(max((s - low) / (high - low), 0.0), 1.0) for item, s in scores.items()}


def convex(
    legs: Mapping[str, Mapping[Item, float]],
    weights: Mapping[str, float],
    among: Collection[Item] | None = None,
) -> dict[Item, float]:
    """Weighted mean of min-max scaled scores; an absent item counts 0 in that leg.

    Source: Bruch, Gai, Ingber, "An Analysis of Fusion Functions for Hybrid Retrieval", 2023.

    Args:
        legs: Scores by leg.
        weights: Not negative, one for each leg; they are scaled to sum 1.
        among: The items that set the scale, as in `min_max`.
    """
    total = sum(weights[name] for name in legs) or 1.0
    fused: dict[Item, float] = {}
    for name, scores in legs.items():
        for item, score in min_max(scores, among).items():
            fused[item] = fused.get(item, 0.0) + weights[name] / total * score
    return fused


def reciprocal_rank(
    legs: Mapping[str, Mapping[Item, float]], weights: Mapping[str, float], k: int = RRF_K
) -> dict[Item, float]:
    """Sum of weight / (k + rank); equal scores share the better rank.

    Source: Cormack, Clarke, Buettcher, "Reciprocal Rank Fusion outperforms Condorcet" (2009).

    Args:
        legs: Scores by leg.
        weights: Not negative, one for each leg.
        k: Flattens the head of the ranking.
    """
    fused: dict[Item, float] = {}
    for name, scores in legs.items():
        rank, last = 0, float("inf")
        ordered = sorted(scores.items(), key=lambda item: -item[1])
        for place, (item, score) in enumerate(ordered, start=1):
            rank = rank if score == last else place
            last = score
            fused[item] = fused.get(item, 0.0) + weights[name] / (k + rank)
    return fused
