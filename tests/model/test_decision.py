"""Decisions: one pass, exact probabilities that sum to one, many at once, calibrated."""

from __future__ import annotations

import asyncio
import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agentloop.errors import ContextLengthError, ModelError
from agentloop.model.calibration import fit_temperature, tempered
from agentloop.model.constraint.decisions import compile_decision
from agentloop.model.decision import Question
from agentloop.model.lm import DiffusionLM
from agentloop.model.prompts import Message
from tests.model.tiny import tiny_lm, tiny_network

STATE: list[Message] = [{"role": "user", "content": "the name in the end " * 9}]


@pytest.fixture(scope="module")
def lm() -> DiffusionLM:
    return tiny_lm()


def test_a_decision_takes_one_pass_and_sums_to_one(lm: DiffusionLM) -> None:
    """The choice is the likeliest, every option has its probability, one batch was run."""
    before = lm.engine.statistics.num_steps
    made = lm.decide_sync("Who?", ["then", "there", "in"], state=STATE)
    assert lm.engine.statistics.num_steps == before + 1
    assert list(made.probabilities) == ["then", "there", "in"]
    assert sum(made.probabilities.values()) == pytest.approx(1.0, abs=1e-12)
    assert made.confidence == max(made.probabilities.values())


def test_probabilities_are_those_of_a_canvas_by_itself(lm: DiffusionLM) -> None:
    """Against the network run directly on a canvas of masks and the compiled decision."""
    options = ["then", "there", "in"]
    made = lm.decide_sync("Who?", options, state=STATE)
    asked: Message = {"role": "user", "content": "Who?\nAnswer with one of: then, there, in."}
    prompt = lm.prompt_ids([*STATE, asked])
    length = 1 + max(len(lm.tokenizer.encode(o).ids) for o in options)
    network = tiny_network()
    ids = torch.tensor([[[prompt[-1], *[lm.engine.mask_id] * length]]])
    places = torch.arange(len(prompt) - 1, len(prompt) + length)
    with torch.inference_mode():
        _, keys = network.read(torch.tensor([prompt[:-1]]))
        hidden = network.refine(network.embed_tokens(ids), places, keys)[0, 0]
        logits = network.logits(hidden[:-1]).clone()
        logits[:, lm.engine.mask_id] = -torch.inf
    expected = compile_decision(options, lm.vocabulary).posterior(logits)
    for name, p in expected.items():
        assert made.probabilities[name] == pytest.approx(p, rel=1e-3)


def test_many_decisions_about_one_state_share_the_pass(lm: DiffusionLM) -> None:
    """Twelve questions at once: one batch, and the same answers as one by one."""
    questions = [Question(f"Is it {i}?", ["yes", "no", "in"][: 2 + i % 2]) for i in range(12)]
    before = lm.engine.statistics.num_steps
    made = asyncio.run(lm.decide_all(questions, state=STATE))
    assert lm.engine.statistics.num_steps == before + 1
    alone = [lm.decide_sync(q.text, q.options, state=STATE) for q in questions]
    assert [d.probabilities for d in made] == [d.probabilities for d in alone]


def test_one_option_is_certain(lm: DiffusionLM) -> None:
    """There is nothing to decide."""
    made = lm.decide_sync("Who?", ["me"])
    assert (made.choice, made.probabilities) == ("me", {"me": 1.0})


def test_options_that_begin_each_other_are_told_apart(lm: DiffusionLM) -> None:
    """Such as "the" and "then": both have a part of the probability."""
    made = lm.decide_sync("Who?", ["the", "then", "the name"])
    assert all(0 < p < 1 for p in made.probabilities.values())


def test_calibration_sharpens_or_flattens(lm: DiffusionLM) -> None:
    """A high temperature makes options alike, a low one certain; the order stays."""
    plain, flat, sharp = (
        lm.decide_sync("Who?", ["a", "b", "c"], calibration=t) for t in (1.0, 50.0, 0.02)
    )
    assert max(flat.probabilities.values()) < 0.4
    assert sharp.confidence > plain.confidence
    assert plain.choice == flat.choice == sharp.choice


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([0.4, 1.0, 2.5]))
def test_the_fitted_temperature_is_the_best_of_a_grid(seed: int, true: float) -> None:
    """No temperature of a fine grid explains the right options better."""
    rng = np.random.default_rng(seed)
    observed: list[dict[str, float]] = []
    right: list[str] = []
    for _ in range(40):
        p = dict(zip("abc", rng.dirichlet(np.ones(3)).tolist(), strict=True))
        observed.append(p)
        weights = tempered(p, true)
        right.append(str(rng.choice(list(weights), p=list(weights.values()))))

    def loss(temperature: float) -> float:
        return -sum(
            math.log(max(tempered(p, temperature)[o], 1e-300))
            for p, o in zip(observed, right, strict=True)
        )

    fitted = fit_temperature(observed, right)
    grid = [0.05 * 1.05**k for k in range(123)]
    assert loss(fitted) <= min(map(loss, grid)) + 1e-6


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(1e-6, 1.0), min_size=1, max_size=5), st.floats(0.1, 10.0))
def test_tempering_sums_to_one_and_keeps_the_order(weights: list[float], t: float) -> None:
    """At any temperature."""
    total = sum(weights)
    p = {str(i): w / total for i, w in enumerate(weights)}
    out = tempered(p, t)
    assert sum(out.values()) == pytest.approx(1.0)
    for a, b in itertools.combinations(p, 2):
        if p[a] > p[b]:
            assert out[a] >= out[b]


def test_wrong_arguments_are_named(lm: DiffusionLM) -> None:
    """Options must be distinct texts, the prompt must fit, and data to fit must match."""
    with pytest.raises(ModelError, match="has no options, expected at least one"):
        lm.decide_sync("Who?", [])
    with pytest.raises(ModelError, match="expected no empty text"):
        lm.decide_sync("Who?", ["a", ""])
    with pytest.raises(ModelError, match=r"hold \['a'\] more than once"):
        lm.decide_sync("Who?", ["a", "b", "a"])
    with pytest.raises(ContextLengthError, match="context is 1,024"):
        lm.decide_sync("word " * 2000, ["a", "b"])
    with pytest.raises(ModelError, match="0 decisions and 0 right options"):
        fit_temperature([], [])
    with pytest.raises(ModelError, match="'c' is none of the options"):
        fit_temperature([{"a": 1.0}], ["c"])
