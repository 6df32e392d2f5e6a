"""Policies agree with plain readings of their rules on random marginals."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from agentloop.errors import ModelError
from agentloop.model.policies import (
    Beliefs,
    EntropyBound,
    Factor,
    Policy,
    Stability,
    Threshold,
    divergence,
    has_gap,
)

Floats = NDArray[np.float64]


@dataclass
class Case:
    """Random beliefs about some positions, with the distributions they came from."""

    beliefs: Beliefs
    entropy: Floats


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Between 1 and 12 positions; coarse numbers, so that ties and exact limits happen."""
    n = draw(st.integers(1, 12))
    tenths = st.lists(st.integers(0, 20), min_size=n, max_size=n)
    confidence = np.array(draw(tenths)) / 20
    entropy = np.array(draw(tenths)) / 8
    num_stable = np.array(draw(st.lists(st.integers(1, 4), min_size=n, max_size=n)))
    shift = np.array(draw(tenths)) / 200
    return Case(Beliefs(confidence, num_stable, shift, lambda: entropy), entropy)


def longest(n: int, holds: list[bool]) -> int:
    """The largest count whose own and all smaller counts hold; `holds[k]` speaks of k + 1."""
    count = 0
    while count < n and holds[count]:
        count += 1
    return count


@given(cases(), st.integers(0, 20))
def test_threshold(case: Case, twentieths: int) -> None:
    """Positions up to the first below tau."""
    tau = twentieths / 20
    c = case.beliefs.confidence.tolist()
    assert Threshold(tau).count(case.beliefs) == longest(len(c), [p >= tau for p in c])


@given(cases(), st.integers(1, 40))
def test_factor(case: Case, tenths: int) -> None:
    """The most positions for which (n + 1)(1 - lowest) stays below the factor."""
    factor = tenths / 10
    c = case.beliefs.confidence.tolist()
    fits = [(n + 1) * (1 - min(c[:n])) < factor for n in range(1, len(c) + 1)]
    best = max((n for n in range(1, len(c) + 1) if fits[n - 1]), default=0)
    assert Factor(factor).count(case.beliefs) == best


@given(cases(), st.integers(0, 40))
def test_entropy_bound(case: Case, eighths: int) -> None:
    """The most positions whose entropies, without the largest, sum to at most gamma."""
    gamma, h = eighths / 8, case.entropy.tolist()
    fits = [sum(h[:n]) - max(h[:n]) <= gamma for n in range(1, len(h) + 1)]
    best = max((n for n in range(1, len(h) + 1) if fits[n - 1]), default=0)
    assert EntropyBound(gamma).count(case.beliefs) == best
    assert best >= 1  # one position alone is never bounded


@given(cases(), st.integers(0, 20), st.integers(1, 4), st.integers(0, 20))
def test_stability(case: Case, floor: int, passes: int, most: int) -> None:
    """Positions up to the first that is too unsure, too new or still moving."""
    policy = Stability(floor / 20, passes, most / 200)
    b = case.beliefs
    sure = [
        bool(p >= floor / 20 and k >= passes and s <= most / 200)
        for p, k, s in zip(b.confidence, b.num_stable, b.shift, strict=True)
    ]
    assert policy.count(b) == longest(len(sure), sure)


@given(cases(), st.integers(-20, 20))
def test_the_gap_never_promises_more_than_any_rival_leaves(case: Case, twentieths: int) -> None:
    """Whatever the rest of a position's probability does, the lead is at least the gap."""
    gap = twentieths / 20
    rng = np.random.default_rng(0)
    if not has_gap(case.beliefs.confidence, gap):
        return
    for c in case.beliefs.confidence:
        rivals = rng.dirichlet(np.ones(3)) * (1 - c)
        assert c - rivals.max() >= gap - 1e-9


def test_divergence_is_that_of_two_coins() -> None:
    """Zero for the same belief, infinite-like for a reversal, and the textbook number between."""
    moved = divergence(np.array([0.5, 0.3, 0.0]), np.array([0.5, 0.6, 1.0]))
    expected = 0.6 * np.log(0.6 / 0.3) + 0.4 * np.log(0.4 / 0.7)
    np.testing.assert_allclose(moved[:2], [0.0, expected], atol=1e-12)
    assert moved[2] > 20


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Threshold(1.5), "Threshold.tau is 1.5, expected between 0 and 1"),
        (lambda: Factor(0), "Factor.factor is 0, expected above 0"),
        (lambda: EntropyBound(-1), "EntropyBound.gamma is -1, expected at least 0"),
        (lambda: Stability(passes=0), "Stability.passes is 0, expected at least 1"),
    ],
)
def test_settings_out_of_range_are_named(make: type[Policy], message: str) -> None:
    """A number that cannot be meant is refused where it is given."""
    with pytest.raises(ModelError, match=message):
        make()


@given(
    cases(), st.sampled_from([Threshold(0.6), Factor(1.2), EntropyBound(0.8), Stability(passes=2)])
)
def test_what_stands_behind_a_doubtful_position_makes_no_difference(
    case: Case, policy: Policy
) -> None:
    """Asked about a part from the left, a policy says the same as far as the part goes."""
    beliefs = case.beliefs
    count = policy.count(beliefs)
    for size in range(1, len(beliefs.confidence) + 1):
        part = Beliefs(
            beliefs.confidence[:size],
            beliefs.num_stable[:size],
            beliefs.shift[:size],
            lambda: case.entropy[:size],  # noqa: B023 - asked for at once
        )
        assert policy.count(part) == min(count, size)
