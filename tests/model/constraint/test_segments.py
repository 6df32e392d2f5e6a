"""Arithmetic on ragged arrays and draws agree with plain loops."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import agentloop.model.constraint.segments as segments_module
from agentloop.model.constraint.segments import draw, ragged, sum_by_place


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from([0.0, 1e-300, 0.5, 1.0, 7.0]), min_size=1, max_size=40), st.data())
def test_a_draw_lands_where_the_running_sum_passes_the_number(
    weights: list[float], data: st.DataObject
) -> None:
    """In one piece or in blocks, single or double precision; never where the weight is 0."""
    values = np.array([*weights, 1.0])
    uniform = data.draw(st.sampled_from([0.0, 0.25, 0.7, float(np.nextafter(1.0, 0.0))]))
    passed = np.cumsum(values) > uniform * values.sum() * (1 - 1e-12)
    for block in (1, 4, 512):
        for given_values in (values, values.astype(np.float32)):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(segments_module, "_BLOCK", block)
                drawn = draw(given_values, uniform)
            assert given_values[drawn] > 0
            assert passed[drawn]
            assert np.cumsum(values)[drawn] - values[drawn] <= uniform * values.sum() + 1e-6


def test_segments_are_listed_and_summed() -> None:
    """Indices of ragged segments with their owners, and sums by place."""
    at, owners = ragged(np.array([4, 0, 9]), np.array([2, 0, 3]))
    assert at.tolist() == [4, 5, 9, 10, 11]
    assert owners.tolist() == [0, 0, 2, 2, 2]
    sums = sum_by_place(np.array([1, 1, 3]), np.array([0.5, 2.0, 1.0]), 5)
    assert sums.tolist() == [0.0, 2.5, 0.0, 1.0, 0.0]
    assert sum_by_place(np.empty(0, np.int64), np.empty(0), 2).dtype == np.float64
