"""Class sums and tokens within a class agree with a softmax over the whole vocabulary."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from agentloop.model.constraint.class_weights import ClassWeights
from agentloop.model.constraint.dfa import Dfa
from agentloop.model.constraint.lift import lift
from agentloop.model.constraint.logit_source import DeviceLogits, GatherLayout, HostLogits
from agentloop.model.constraint.token_automaton import TokenAutomaton
from agentloop.model.constraint.vocabulary import Vocabulary
from tests.model.constraint.reference import automaton

# One class holds most tokens ("x" runs), some classes are small, some tokens are allowed nowhere.
MOSTLY = Vocabulary([b"x" * n for n in range(1, 41)] + [b"a", b"ab", b"b", b"zz", b""], [44])
MOSTLY_DFA = automaton([(0, "x", 0), (0, "a", 1), (1, "b", 0)], [True, False])
# Every run of "x" has a length that matters, so no class is large.
SPLIT_DFA = automaton([(n, "x", n + 1) for n in range(30)] + [(0, "a", 3)], [False] * 30 + [True])


def expected_sums(
    lifted: TokenAutomaton, logits: NDArray[np.float64], scale: float
) -> NDArray[np.float64]:
    scaled = logits * scale
    p = np.exp(scaled - np.logaddexp.reduce(scaled, axis=1)[:, None])
    columns = [p[:, lifted.tokens_of(c)].sum(axis=1) for c in range(lifted.num_classes)]
    return np.stack([*columns, np.ones(len(p))], axis=1)


@pytest.mark.parametrize("dfa", [MOSTLY_DFA, SPLIT_DFA], ids=["one large class", "many classes"])
@pytest.mark.parametrize("spread", [1.0, 30.0, 300.0])
@pytest.mark.parametrize("offset", [-500.0, -3.0, 20.0, 1000.0])
def test_class_sums_are_those_of_the_softmax(dfa: Dfa, spread: float, offset: float) -> None:
    """Also where the large class is improbable, probabilities underflow, or logits are shifted."""
    lifted = lift(dfa, MOSTLY)
    generator = np.random.default_rng(1)
    logits = generator.normal(offset, spread, (20, MOSTLY.size)).astype(np.float32)
    logits[0, :40] -= 200.0
    exact = logits.astype(np.float64)
    for scale in (1.0, 2.5):
        reference = np.maximum(expected_sums(lifted, exact, scale), 1e-300)
        masked = np.full(20, -1)
        double = ClassWeights(lifted, exact, masked, 1 / scale).sums
        np.testing.assert_allclose(np.log(double), np.log(reference), rtol=1e-9, atol=1e-9)
        single = ClassWeights(lifted, logits, masked, 1 / scale).sums
        np.testing.assert_allclose(np.log(single), np.log(reference), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("dfa", [MOSTLY_DFA, SPLIT_DFA], ids=["one large class", "many classes"])
def test_an_accelerator_gives_the_sums_of_the_host(dfa: Dfa) -> None:
    """The code for accelerators, run here in host memory, gives the same numbers."""
    layout = GatherLayout.of(lift(dfa, MOSTLY))
    logits = torch.randn((9, MOSTLY.size), generator=torch.Generator().manual_seed(2)) * 20
    host, device = HostLogits(logits.numpy()), DeviceLogits(logits)
    for rows in (np.arange(9), np.array([2, 5])):
        top = logits.numpy()[rows].max(axis=1)
        ours, theirs = (s.sum_rows(rows, layout, 1.5, top) for s in (host, device))
        np.testing.assert_allclose(ours.groups, theirs.groups, rtol=1e-4)
        np.testing.assert_allclose(ours.log_norms, theirs.log_norms, rtol=1e-5)
        ours_best, theirs_best = host.best(rows), device.best(rows)
        assert ours_best[0].tolist() == theirs_best[0].tolist()
        np.testing.assert_array_equal(ours_best[1], theirs_best[1])
        if layout.remainder >= 0:
            np.testing.assert_allclose(ours.remainders, theirs.remainders, rtol=1e-4)
    columns = np.array([3, 41, 0])
    np.testing.assert_array_equal(host.row(4), device.row(4))
    np.testing.assert_array_equal(host.gather(4, columns), device.gather(4, columns))
    rows = np.array([8, 0])
    np.testing.assert_array_equal(host.at(rows, columns[1:]), device.at(rows, columns[1:]))


def test_low_temperatures_keep_the_order_of_improbable_tokens() -> None:
    """Where every allowed token underflows in float32, the better one still wins."""
    lifted = lift(automaton([(0, "a", 1), (0, "b", 2)], [False, True, True]), MOSTLY)
    logits = np.zeros((1, MOSTLY.size), np.float32)
    logits[0, 40], logits[0, 42] = -20.0, -19.5
    sums = ClassWeights(lifted, logits, np.array([-1]), 0.1).sums
    a, b = lifted.token_class[[40, 42]]
    assert np.log(sums[0, b] / sums[0, a]) == pytest.approx(5.0, rel=1e-5)


def test_committed_rows_are_not_read() -> None:
    """A committed position has its own class and nothing of its logits, NaN included."""
    lifted = lift(MOSTLY_DFA, MOSTLY)
    logits = np.zeros((3, MOSTLY.size))
    logits[1:] = np.nan
    sums = ClassWeights(lifted, logits, np.array([-1, 40, 44])).sums
    assert (
        sums[1].tolist() == (np.arange(lifted.num_classes + 1) == lifted.token_class[40]).tolist()
    )
    ended = np.isin(np.arange(lifted.num_classes + 1), [lifted.eos_class, lifted.tail_class])
    assert sums[2].tolist() == ended.tolist()


def test_draws_within_a_class_follow_the_model() -> None:
    """Uniform numbers over [0, 1) draw each token of a class as often as it is probable."""
    lifted = lift(MOSTLY_DFA, MOSTLY)
    logits = np.random.default_rng(3).normal(0, 1, (1, MOSTLY.size))
    weights = ClassWeights(lifted, logits, np.array([-1]), 0.5)
    large = int(lifted.token_class[0])
    uniforms = (np.arange(4000) + 0.5) / 4000
    drawn = [weights.draw_token(0, large, float(u)) for u in uniforms]
    members = lifted.tokens_of(large)
    assert members.tolist() == [*range(40), 41]
    p = np.exp(logits[0, members] * 2)
    frequencies = np.bincount(drawn, minlength=MOSTLY.size)[members] / 4000
    np.testing.assert_allclose(frequencies, p / p.sum(), atol=1e-3)
    assert weights.draw_token(0, large, float(np.nextafter(1.0, 0.0))) == 41
    nothing = np.full((1, MOSTLY.size), -np.inf)
    nothing[0, 43] = 0.0
    assert ClassWeights(lifted, nothing, np.array([-1])).draw_token(0, large, 0.5) == 20


def test_entropies_of_classes_are_those_of_their_tokens() -> None:
    """Moments are the sums of p log p; a committed position has none."""
    lifted = lift(MOSTLY_DFA, MOSTLY)
    logits = np.random.default_rng(5).normal(0, 3, (2, MOSTLY.size))
    weights = ClassWeights(lifted, logits, np.array([-1, 40]), 0.5)
    log_p = 2 * logits[0] - np.logaddexp.reduce(2 * logits[0])
    expected = [(np.exp(p) * p).sum() for p in (log_p[lifted.tokens_of(c)] for c in range(4))]
    np.testing.assert_allclose(weights.moments(0), [*expected, 0.0], rtol=1e-9)
    assert not weights.moments(1).any()


def test_the_best_token_of_some_classes_is_found_however_many_are_better() -> None:
    """Classes without any of the tokens that the model likes most still give their best one."""
    lifted = lift(MOSTLY_DFA, MOSTLY)
    logits = np.zeros((2, MOSTLY.size), np.float32)
    logits[0, :42] = np.arange(50, 92)
    logits[0, 42] = 3.0
    logits[1] = -np.inf
    logits[1, 43] = 0.0
    weights = ClassWeights(lifted, logits, np.array([-1, -1]))
    classes = np.arange(lifted.num_classes + 1) == lifted.token_class[42]
    assert weights.best_in(0, classes) == 42
    assert weights.best_in(0, ~classes) == 41
    assert weights.best_in(1, classes) == 42
