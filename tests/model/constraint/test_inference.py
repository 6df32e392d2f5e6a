"""Inference on a canvas agrees with enumeration of all texts."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from agentloop.errors import (
    CanvasTooSmallError,
    ConstraintError,
    ContradictionError,
    DecodingError,
)
from agentloop.model.constraint.allowed import allowed_tokens
from agentloop.model.constraint.compiled import CompiledConstraint, compile_constraint
from agentloop.model.constraint.dfa import Dfa
from agentloop.model.constraint.inference import CanvasPosterior, infer
from agentloop.model.constraint.proposal import PathScore
from agentloop.model.constraint.vocabulary import Vocabulary
from tests.model.constraint.reference import (
    MASK,
    VOCABULARY,
    WIDE_VOCABULARY,
    Enumeration,
    automaton,
    dfas,
)

few = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)
EOS = VOCABULARY.eos_ids[0]


def assert_exact(got: object, expected: object) -> None:
    np.testing.assert_allclose(np.asarray(got), np.asarray(expected), rtol=1e-9, atol=1e-12)


def log_softmax(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    shifted = logits - logits.max(axis=1, keepdims=True)
    out: NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return out


def compile_or_skip(dfa: Dfa, length: int, vocabulary: Vocabulary) -> CompiledConstraint:
    try:
        compiled = compile_constraint(dfa, vocabulary)
    except ConstraintError:
        assume(False)
        raise
    assume(compiled.min_tokens <= length)
    return compiled


@st.composite
def canvases(draw: st.DrawFn) -> tuple[CompiledConstraint, Enumeration]:
    """A random language, beliefs, and a canvas with some tokens of an accepted text committed."""
    vocabulary = draw(st.sampled_from([VOCABULARY, WIDE_VOCABULARY]))
    length = draw(st.integers(1, 4))
    dfa = draw(dfas())
    compiled = compile_or_skip(dfa, length, vocabulary)
    generator = np.random.default_rng(draw(st.integers(0, 2**32)))
    spread = draw(st.sampled_from([0.0, 1.0, 5.0, 30.0]))
    log_p = log_softmax(generator.normal(0, spread, (length, vocabulary.size)))
    free = Enumeration(dfa, vocabulary, log_p, [MASK] * length)
    texts = list(free.paths())
    tokens, _ = texts[int(generator.integers(len(texts)))]
    padded = [*tokens, *[vocabulary.eos_ids[0]] * (length - len(tokens))]
    kept = draw(st.lists(st.booleans(), min_size=length, max_size=length))
    canvas = [t if keep else MASK for t, keep in zip(padded, kept, strict=True)]
    localities: list[float | list[float]] = [0.0, 0.5, 1.0, [1.0, 0.3, 0.0, 1.0][:length]]
    locality = draw(st.sampled_from(localities))
    return compiled, Enumeration(dfa, vocabulary, log_p, canvas, locality)


def run(
    compiled: CompiledConstraint,
    case: Enumeration,
    *,
    path: PathScore = "states",
    temperature: float = 0.0,
    generator: np.random.Generator | None = None,
) -> CanvasPosterior:
    return infer(
        compiled,
        case.log_p,
        case.tokens,
        locality=np.array(case.locality),
        path=path,
        temperature=temperature,
        generator=generator,
    )


@few
@given(canvases())
def test_the_probability_of_a_valid_text_equals_the_sum_over_all_texts(
    given_case: tuple[CompiledConstraint, Enumeration],
) -> None:
    """P(valid) is the summed product of probabilities whatever weighting proposes the text."""
    compiled, case = given_case
    product = Enumeration(case.dfa, case.vocabulary, case.log_p, case.tokens)
    assert_exact(run(compiled, case).log_p_valid, math.log(product.total))


@few
@given(canvases())
def test_the_probability_of_a_valid_beginning_equals_the_sum_over_all_beginnings(
    given_case: tuple[CompiledConstraint, Enumeration],
) -> None:
    """P(valid) up to a position sums the beginnings of accepted texts, each counted once."""
    compiled, case = given_case
    posterior = run(compiled, case)
    for position in range(case.length + 1):
        beginnings = {tokens[:position] for tokens, _ in case.weights}
        total = sum(math.prod(case.p(i, t) for i, t in enumerate(b)) for b in beginnings)
        assert_exact(posterior.log_p_valid_until(position), math.log(total))
    assert_exact(posterior.log_p_valid_until(case.length), posterior.log_p_valid)


@few
@given(canvases())
def test_marginals_equal_those_of_all_texts(
    given_case: tuple[CompiledConstraint, Enumeration],
) -> None:
    """Confidence, entropy, end, allowed and forced tokens are those of the enumerated posterior."""
    compiled, case = given_case
    posterior = run(compiled, case)
    marginals = case.marginals()
    expected = marginals[np.arange(case.length), posterior.tokens]
    ended = np.isin(posterior.tokens, case.vocabulary.eos_ids)
    expected[ended] = marginals[ended, case.vocabulary.eos_ids[0]]
    masked = np.array(case.tokens) == MASK
    assert_exact(posterior.confidence, np.where(masked, expected, 1.0))
    safe = np.where(marginals > 0, marginals, 1.0)
    entropy = np.where(masked, -(safe * np.log(safe)).sum(axis=1), 0.0)
    np.testing.assert_allclose(posterior.entropy, entropy, rtol=1e-8, atol=1e-9)
    ends = np.diff(marginals[:, case.vocabulary.eos_ids[0]], prepend=0.0)
    assert_exact(posterior.p_end, ends)


@few
@given(canvases())
def test_allowed_tokens_are_exactly_those_of_accepted_texts(
    given_case: tuple[CompiledConstraint, Enumeration],
) -> None:
    """A token is allowed if and only if some accepted text holds it; forced if it is alone."""
    compiled, case = given_case
    posterior = run(compiled, case)
    for i in range(case.length):
        held: set[int] = set()
        opened = [*case.tokens[:i], MASK, *case.tokens[i + 1 :]]
        for tokens, _ in Enumeration(case.dfa, case.vocabulary, case.log_p, opened).paths():
            held |= {tokens[i]} if i < len(tokens) - 1 else set(case.vocabulary.eos_ids)
        assert set(allowed_tokens(compiled, case.tokens, i).tolist()) == held
        if case.tokens[i] == MASK:
            assert set(posterior.allowed(i).tolist()) == held
            alone = len(held) == 1 or held == set(case.vocabulary.eos_ids)
            assert posterior.forced[i] == alone
        else:
            assert posterior.forced[i]


@few
@given(canvases())
def test_the_best_text_is_the_best_of_all_texts(
    given_case: tuple[CompiledConstraint, Enumeration],
) -> None:
    """At temperature 0, `path="tokens"` proposes a text of the largest weight."""
    compiled, case = given_case
    posterior = run(compiled, case, path="tokens")
    chosen = tuple(posterior.tokens[: posterior.end + 1].tolist())
    weight = next(w for (tokens, _), w in case.weights.items() if tokens == chosen)
    np.testing.assert_allclose(weight, max(case.weights.values()), rtol=1e-9)


@few
@given(canvases())
def test_the_greedy_text_takes_the_likeliest_token_that_can_be_completed(
    given_case: tuple[CompiledConstraint, Enumeration],
) -> None:
    """At temperature 0, `path="greedy"` is the argmax at every position, given those before it."""
    compiled, case = given_case
    posterior = run(compiled, case, path="greedy")
    eos = list(case.vocabulary.eos_ids)
    chosen = tuple(posterior.tokens[: posterior.end + 1].tolist())
    for i, token in enumerate(chosen):
        if case.tokens[i] != MASK:
            continue
        onward = {texts[i] for texts, _ in case.weights if texts[:i] == chosen[:i]}
        scores = {t: case.log_p[i, eos].max() if t in eos else case.log_p[i, t] for t in onward}
        assert scores[token] >= max(scores.values()) - 1e-9


@few
@given(canvases())
def test_the_best_path_of_states_sums_over_texts(
    given_case: tuple[CompiledConstraint, Enumeration],
) -> None:
    """At temperature 0, `path="states"` follows the states whose texts weigh most together."""
    compiled, case = given_case
    posterior = run(compiled, case, path="states")
    chosen = tuple(posterior.tokens[: posterior.end + 1].tolist())
    states = next(states for tokens, states in case.weights if tokens == chosen)
    by_states = case.state_path_weights()
    np.testing.assert_allclose(by_states[states], max(by_states.values()), rtol=1e-9)
    best = max(w for (_, passed), w in case.weights.items() if passed == states)
    np.testing.assert_allclose(case.weights[chosen, states], best, rtol=1e-9)


@few
@given(canvases(), st.data())
def test_any_subset_of_the_proposal_may_be_committed_and_masked_again(
    given_case: tuple[CompiledConstraint, Enumeration], data: st.DataObject
) -> None:
    """Whatever is committed or taken back, the next step finds an accepted text."""
    compiled, case = given_case
    tokens = list(case.tokens)
    for step in range(4):
        posterior = infer(
            compiled,
            case.log_p,
            tokens,
            temperature=data.draw(st.sampled_from([0.0, 1.0])),
            generator=step,
            path=data.draw(st.sampled_from(["states", "tokens"])),
        )
        assert case.dfa.accepts(case.vocabulary.text(posterior.tokens.tolist()))
        committed = [
            t if t != MASK else int(p) for t, p in zip(tokens, posterior.tokens, strict=True)
        ]
        assert committed == posterior.tokens.tolist()
        keep = data.draw(st.lists(st.booleans(), min_size=len(tokens), max_size=len(tokens)))
        tokens = [t if kept else MASK for t, kept in zip(committed, keep, strict=True)]


def test_draws_follow_the_posterior() -> None:
    """A chi-square test over all texts does not tell draws from the enumerated posterior."""
    arcs = [(0, "a", 1), (0, "b", 0), (1, "b", 0), (1, "a", 2), (2, "a", 2), (2, "b", 1)]
    dfa = automaton(arcs, [False, True, True])
    log_p = log_softmax(np.random.default_rng(3).normal(0, 1, (3, VOCABULARY.size)))
    compiled = compile_constraint(dfa, VOCABULARY)
    for locality in (0.0, 1.0):
        case = Enumeration(dfa, VOCABULARY, log_p, [MASK] * 3, locality)
        index = {tokens: n for n, (tokens, _) in enumerate(case.weights)}
        counts = np.zeros(len(index))
        generator = np.random.default_rng(11)
        for _ in range(2000):
            drawn = run(compiled, case, temperature=1.0, generator=generator)
            counts[index[tuple(drawn.tokens[: drawn.end + 1].tolist())]] += 1
        expected = np.array(list(case.weights.values())) / case.total * counts.sum()
        order = np.argsort(-expected)
        frequent = int((expected >= 5).sum()) - 1  # the last bin takes all rarer texts
        counts = np.add.reduceat(counts[order], np.arange(frequent + 1))
        expected = np.add.reduceat(expected[order], np.arange(frequent + 1))
        statistic = float(((counts - expected) ** 2 / expected).sum())
        degrees = len(expected) - 1
        assert statistic < degrees + 5 * math.sqrt(2 * degrees)


def test_temperature_divides_the_logits() -> None:
    """Confidence at temperature 2 is that of halved logits at temperature 1."""
    dfa = automaton([(0, "a", 0), (0, "b", 0)], [True])
    compiled = compile_constraint(dfa, VOCABULARY)
    logits = np.random.default_rng(5).normal(0, 3, (4, VOCABULARY.size))
    hot = infer(compiled, logits, [MASK] * 4, temperature=2.0, generator=9)
    halved = infer(compiled, logits / 2, [MASK] * 4, temperature=1.0, generator=9)
    assert hot.tokens.tolist() == halved.tokens.tolist()
    np.testing.assert_allclose(hot.confidence, halved.confidence, rtol=1e-12)


@few
@given(dfas(max_states=5), st.integers(0, 2**32), st.sampled_from([1e2, 1e4, 1e30, math.inf]))
def test_impossible_beliefs_still_give_accepted_text(dfa: Dfa, seed: int, size: float) -> None:
    """Logits that underflow, or forbid every allowed token, never leave the language."""
    length = 6
    compiled = compile_or_skip(dfa, length, VOCABULARY)
    generator = np.random.default_rng(seed)
    logits = generator.normal(0, 1, (length, VOCABULARY.size))
    if math.isinf(size):
        logits[:, :-1][generator.random((length, VOCABULARY.size - 1)) < 0.7] = -np.inf
    else:
        logits *= size
    for weighting in ("local", "product"):
        tokens = [MASK] * length
        while MASK in tokens:
            step = infer(
                compiled,
                logits.astype(np.float32),
                tokens,
                weighting=weighting,
                temperature=float(generator.integers(2)),
                generator=generator,
            )
            assert np.isfinite(step.log_p_valid)
            assert ((step.confidence >= 0) & (step.confidence <= 1)).all()
            for i in generator.permutation(length)[:2]:
                tokens[i] = int(step.tokens[i])
        assert dfa.accepts(VOCABULARY.text(tokens))


def test_sums_of_logs_take_over_where_scaled_sums_underflow() -> None:
    """Sixty improbable positions on the only accepted branch do not lose that branch."""
    length, eos = 60, 2
    vocabulary = Vocabulary([b"a", b"b", b""], [eos])
    dfa = automaton([(0, "a", 1), (1, "a", 1), (0, "b", 2), (2, "b", 2)], [False, True, True])
    logits = np.zeros((length, 3))
    logits[:, 1] = -40.0
    tokens = [MASK] * (length - 2) + [1, eos]
    compiled = compile_constraint(dfa, vocabulary)
    for locality in (0.0, 0.5):
        posterior = infer(compiled, logits, tokens, locality=locality)
        assert posterior.tokens.tolist() == [1] * (length - 1) + [eos]
        np.testing.assert_allclose(posterior.confidence, 1.0)
    log_p = log_softmax(logits)[0, 1]
    np.testing.assert_allclose(posterior.log_p_valid, (length - 2) * log_p, rtol=1e-12)


def test_torch_and_numpy_logits_agree() -> None:
    """float32 and bfloat16 tensors give the proposal of the float64 array they hold."""
    dfa = automaton([(0, "a", 1), (1, "b", 0)], [True, False])
    compiled = compile_constraint(dfa, VOCABULARY)
    logits = torch.randn((5, VOCABULARY.size), generator=torch.Generator().manual_seed(1))
    for values in (logits, logits.bfloat16()):
        ours = infer(compiled, values, [MASK] * 5)
        reference = infer(compiled, values.double().numpy(), [MASK] * 5)
        assert ours.tokens.tolist() == reference.tokens.tolist()
        np.testing.assert_allclose(ours.confidence, reference.confidence, rtol=1e-5)


def test_a_canvas_may_continue_another() -> None:
    """With room after it a canvas may stop inside the text, and the next starts at its state."""
    dfa = automaton([(i, "a", i + 1) for i in range(6)], [False] * 6 + [True])
    vocabulary = Vocabulary([b"a", b""], [1])
    compiled = compile_constraint(dfa, vocabulary)
    logits = np.zeros((4, 2))
    first = infer(compiled, logits, [MASK] * 4, room_after=3)
    assert first.tokens.tolist() == [0, 0, 0, 0]
    assert first.end == 4
    last = infer(compiled, logits, [MASK] * 4, start=int(first.states[-1]))
    assert last.tokens.tolist() == [0, 0, 1, 1]
    assert last.end == 2
    with pytest.raises(CanvasTooSmallError, match="at least 7 tokens but the canvas has 6"):
        infer(compiled, logits, [MASK] * 4, room_after=2)


def test_fixed_text_is_never_swallowed_by_the_tail() -> None:
    """A fixed token at the right edge keeps the text from ending before it."""
    dfa = automaton([(0, "a", 0), (0, "b", 0)], [True])
    compiled = compile_constraint(dfa, VOCABULARY)
    logits = np.zeros((5, VOCABULARY.size))
    logits[:, EOS] = 50.0
    posterior = infer(compiled, logits, [MASK, MASK, MASK, 1, MASK])
    assert posterior.end == 4
    assert posterior.tokens[3] == 1


def test_a_contradiction_names_the_place_and_what_was_allowed() -> None:
    """Fixed tokens that no text holds raise an error with the position and examples."""
    dfa = automaton([(0, "a", 1), (1, "b", 0)], [True, False])
    compiled = compile_constraint(dfa, VOCABULARY)
    with pytest.raises(ContradictionError) as caught:
        infer(compiled, np.zeros((4, VOCABULARY.size)), [0, 0, MASK, MASK])
    assert caught.value.position == 1
    assert caught.value.num_allowed == 3
    assert str(caught.value) == (
        "no accepted text holds the committed tokens: they stop being extendable at canvas "
        "position 1, which holds 'a'; allowed there after what precedes it: 'b', 'ba', 'b'; "
        "mask that position or change the fixed text"
    )
    with pytest.raises(ContradictionError, match="position 2, which holds special token 4"):
        infer(compiled, np.zeros((4, VOCABULARY.size)), [MASK, MASK, 4, MASK])


def test_wrong_input_is_refused_by_name() -> None:
    """Shapes, ids and logits that make no sense raise errors that say what came."""
    dfa = automaton([(0, "a", 0)], [True])
    compiled = compile_constraint(dfa, VOCABULARY)
    with pytest.raises(ConstraintError, match=r"V = 8; got tokens \(2,\) and logits \(2, 9\)"):
        infer(compiled, np.zeros((2, 9)), [MASK, MASK])
    with pytest.raises(ConstraintError, match="position 1 holds 8"):
        infer(compiled, np.zeros((2, 8)), [MASK, 8])
    with pytest.raises(DecodingError, match="position 1 have no finite sum"):
        infer(compiled, np.array([[0.0] * 8, [math.nan] * 8]), [MASK, MASK])
