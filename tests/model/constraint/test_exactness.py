"""Z, marginals, best paths and draws on random automata, beside brute force, to 1e-9."""

from __future__ import annotations

import math
from collections import defaultdict
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

from agentloop.errors import ConstraintError
from agentloop.model.constraint.compiled import CompiledConstraint, compile_constraint
from agentloop.model.constraint.inference import CanvasPosterior, infer
from agentloop.model.constraint.vocabulary import Vocabulary
from tests.model.constraint.reference import MASK, Enumeration, automaton

VOCABULARY = Vocabulary([b"a", b"b", b"c", b"ab", b"bca", b"b", b"", b""], [7, 6])
LENGTH = 5
NUM_AUTOMATA = 16
LOCALITIES = (0.0, 0.4, 1.0)
CHI_SQUARE_SIGMAS = 5.0


@cache
def language(seed: int) -> tuple[CompiledConstraint, Enumeration]:
    """A random automaton of up to 7 states over three letters, and a canvas, some of it committed.

    The probabilities span from even to 30 nats apart.
    """
    generator = np.random.default_rng([seed, 1])
    while True:
        num_states = int(generator.integers(2, 8))
        targets = generator.integers(-num_states // 3, num_states, (num_states, 3))
        arcs = [
            (s, "abc"[b], int(t))
            for s, row in enumerate(targets)
            for b, t in enumerate(row)
            if t >= 0
        ]
        dfa = automaton(arcs, (generator.random(num_states) < 0.4).tolist())
        try:
            compiled = compile_constraint(dfa, VOCABULARY)
        except ConstraintError:
            continue
        logits = generator.normal(0, (0.1, 1.0, 4.0, 12.0)[seed % 4], (LENGTH, VOCABULARY.size))
        log_p = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        free = list(Enumeration(dfa, VOCABULARY, log_p, [MASK] * LENGTH).paths())
        if not 4 <= len(free) <= 400:
            continue
        tokens, _ = free[int(generator.integers(len(free)))]
        padded = [*tokens, *[7] * (LENGTH - len(tokens))]
        canvas = [t if generator.random() < 0.2 else MASK for t in padded]
        return compiled, Enumeration(dfa, VOCABULARY, log_p, canvas)


def weighed(seed: int, locality: float) -> tuple[CompiledConstraint, Enumeration]:
    """The same with weights between the plain product and the state-local ones."""
    compiled, case = language(seed)
    return compiled, Enumeration(case.dfa, VOCABULARY, case.log_p, case.tokens, locality)


def class_marginals(compiled: CompiledConstraint, case: Enumeration) -> NDArray[np.float64]:
    """(L, C) brute force: the posterior of each token, summed by its class."""
    expected = np.zeros((LENGTH, compiled.num_classes))
    by_token = case.marginals()
    for token, token_class in enumerate(compiled.automaton.token_class.tolist()):
        if token_class >= 0:
            expected[:, token_class] += by_token[:, token]
        else:
            assert not by_token[:, token].any()
    return expected


def text_of(posterior: CanvasPosterior) -> tuple[int, ...]:
    """The proposed tokens up to the end of text, every end of text written as the first."""
    tokens = posterior.tokens[: posterior.end + 1].tolist()
    return (*tokens[:-1], 7)


def texts(case: Enumeration) -> dict[tuple[int, ...], float]:
    """Weight of each text; the ends of text count as one token."""
    out: dict[tuple[int, ...], float] = defaultdict(float)
    for (tokens, _), weight in case.weights.items():
        out[(*tokens[:-1], 7)] += weight
    return out


@pytest.mark.parametrize("seed", range(NUM_AUTOMATA))
def test_sums_and_marginals_equal_brute_force(seed: int) -> None:
    """Log Z, every class's marginal, and the posterior of the end, to 1e-9 relative or absolute."""
    for locality in LOCALITIES:
        compiled, case = weighed(seed, locality)
        posterior = infer(compiled, case.log_p, case.tokens, locality=locality)
        plain = Enumeration(case.dfa, VOCABULARY, case.log_p, case.tokens)
        assert posterior.log_p_valid == pytest.approx(math.log(plain.total), rel=1e-9, abs=1e-9)
        expected = class_marginals(compiled, case)
        np.testing.assert_allclose(posterior.class_marginals, expected, rtol=1e-9, atol=1e-9)
        ends = np.diff(expected[:, compiled.automaton.eos_class], prepend=0.0)
        np.testing.assert_allclose(posterior.p_end, ends, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("seed", range(NUM_AUTOMATA))
def test_best_paths_equal_brute_force(seed: int) -> None:
    """The proposed text and the proposed states weigh as much as the best of all, to 1e-9."""
    for locality in LOCALITIES:
        compiled, case = weighed(seed, locality)
        posterior = infer(compiled, case.log_p, case.tokens, locality=locality, path="tokens")
        chosen = tuple(posterior.tokens[: posterior.end + 1].tolist())
        weight = next(w for (tokens, _), w in case.weights.items() if tokens == chosen)
        assert weight == pytest.approx(max(case.weights.values()), rel=1e-9)
        posterior = infer(compiled, case.log_p, case.tokens, locality=locality, path="states")
        chosen = tuple(posterior.tokens[: posterior.end + 1].tolist())
        passed = next(states for tokens, states in case.weights if tokens == chosen)
        by_states = case.state_path_weights()
        assert by_states[passed] == pytest.approx(max(by_states.values()), rel=1e-9)


@pytest.mark.parametrize("seed", range(0, NUM_AUTOMATA, 3))
@pytest.mark.parametrize("locality", [0.0, 1.0])
def test_draws_pass_a_chi_square_test(seed: int, locality: float) -> None:
    """Joint draws have the frequencies of the enumerated posterior."""
    compiled, case = weighed(seed, locality)
    weights = texts(case)
    index = {text: number for number, text in enumerate(weights)}
    num_draws = 400
    expected = np.array(list(weights.values())) / case.total * num_draws
    counts = np.zeros(len(index))
    generator = np.random.default_rng([seed, 2])
    for _ in range(num_draws):
        posterior = infer(
            compiled,
            case.log_p,
            case.tokens,
            locality=locality,
            temperature=1.0,
            generator=generator,
        )
        counts[index[text_of(posterior)]] += 1
    assert counts[expected < 1e-6].sum() == 0
    order = np.argsort(-expected)
    num_bins = max(int((expected >= 5).sum()), 1)  # the last takes all rarer texts as well
    counts = np.add.reduceat(counts[order], np.arange(num_bins))
    expected = np.add.reduceat(expected[order], np.arange(num_bins))
    statistic = float(((counts - expected) ** 2 / expected).sum())
    degrees = num_bins - 1
    assert statistic <= degrees + CHI_SQUARE_SIGMAS * math.sqrt(2 * degrees + 1)


def test_the_automata_differ() -> None:
    """The cases hold one text and many, committed positions and none, long odds and even ones."""
    cases = [language(seed) for seed in range(NUM_AUTOMATA)]
    sizes = [len(case.weights) for _, case in cases]
    assert min(sizes) < 20
    assert max(sizes) > 100
    assert len({compiled.num_states for compiled, _ in cases}) >= 4
    assert {any(t != MASK for t in case.tokens) for _, case in cases} == {True, False}
