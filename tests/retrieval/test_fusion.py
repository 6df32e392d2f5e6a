"""The published formulas, against their definitions written out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop.retrieval.fusion import convex, min_max, reciprocal_rank

LEGS = st.dictionaries(
    st.sampled_from(["lexical", "dense"]),
    st.dictionaries(st.integers(0, 9), st.floats(0.001, 100), max_size=8),
)
WEIGHTS = {"lexical": 0.3, "dense": 0.7}


@given(st.dictionaries(st.integers(), st.floats(-1e6, 1e6), min_size=1))
def test_min_max_spans_zero_to_one(scores: dict[int, float]) -> None:
    """The best item scores 1, the worst 0, and the order is kept."""
    scaled = min_max(scores)
    assert max(scaled.values()) == 1
    assert min(scaled.values()) in (0, 1)
    order = sorted(scores, key=lambda item: scores[item])
    assert [scaled[item] for item in order] == sorted(scaled.values())


@given(LEGS)
def test_reciprocal_rank_is_its_definition(legs: dict[str, dict[int, float]]) -> None:
    """Sum over legs of weight / (60 + number of better items + 1)."""
    expected = {
        item: sum(
            WEIGHTS[name] / (60 + 1 + sum(other > leg[item] for other in leg.values()))
            for name, leg in legs.items()
            if item in leg
        )
        for item in {item for leg in legs.values() for item in leg}
    }
    assert reciprocal_rank(legs, WEIGHTS) == pytest.approx(expected)


@given(LEGS)
def test_convex_is_its_definition(legs: dict[str, dict[int, float]]) -> None:
    """Weighted mean of the scaled scores, 0 where a leg has nothing."""
    total = sum(WEIGHTS[name] for name in legs)
    expected = {
        item: sum(WEIGHTS[name] / total * min_max(leg).get(item, 0) for name, leg in legs.items())
        for item in {item for leg in legs.values() for item in leg}
    }
    assert convex(legs, WEIGHTS) == pytest.approx(expected)
