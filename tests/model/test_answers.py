"""Answers: continued without a seam, chosen among samples, thought about, counted."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agentloop.model.constraint import Choice, JsonSchema, Regex
from agentloop.model.effort import LEVELS, SamplerOptions
from agentloop.model.engine import Timings
from agentloop.model.generation import Generation
from agentloop.model.lm import DiffusionLM
from agentloop.model.nucleus import keep_nucleus
from agentloop.model.policies import EntropyBound, Factor, Policy, Stability, Threshold
from agentloop.model.prompt_cache import PromptCache
from agentloop.model.request import chosen
from agentloop.model.totals import Totals
from agentloop.model.verification import log_p_left_to_right
from tests.model.tiny import tiny_lm, tiny_network

MEDIUM = LEVELS["medium"].sampler


@pytest.fixture(scope="module")
def lm() -> DiffusionLM:
    return tiny_lm()


POLICIES: list[Policy] = [
    Threshold(0.6),
    Factor(1.5),
    EntropyBound(1.0),
    Stability(0.1, 2, 0.5),
    Threshold(1.0),
]


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(POLICIES),
    st.booleans(),
    st.sampled_from([None, 4]),
    st.sampled_from([1, 3, 12]),
    st.sampled_from([0.0, 1.0]),
    st.sampled_from([1.0, 0.2]),
    st.integers(0, 2),
    st.sampled_from([r"[a-c]{2,9}(x|yz)*", r"(\d{1,3},){2}\d", r"a?b?c?(the|then|in)"]),
    st.integers(0, 10**6),
)
def test_every_way_to_refine_gives_an_accepted_text(
    policy: Policy,
    left_first: bool,
    window: int | None,
    steps: int,
    temperature: float,
    early_gap: float,
    reviews: int,
    pattern: str,
    seed: int,
) -> None:
    """All policies, orders, budgets, temperatures and reviews, over random constraints."""
    import re

    sampler = SamplerOptions(
        canvas_length=24,
        max_steps=steps,
        policy=policy,
        early_gap=early_gap,
        window=window,
        left_first=left_first,
        edit_threshold=0.3 * min(reviews, 1),
        max_revisions=4 * reviews,
        review_rounds=reviews,
    )
    answer = _LM.generate_sync(
        "hi", constraint=Regex(pattern), sampler=sampler, temperature=temperature, seed=seed
    )
    assert re.fullmatch(pattern, answer.text)
    canvases = -(-(answer.num_tokens + 1) // 24)
    assert answer.num_steps <= canvases * (steps + 4 * reviews + reviews)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("length", [8, 16, 32])
def test_an_answer_continues_without_a_seam(lm: DiffusionLM, length: int, seed: int) -> None:
    """Cut at any canvas: reading the first part as the answer so far gives the same rest.

    A canvas sees what was written as plain text, so its text depends on nothing else.
    """
    sampler = replace(MEDIUM, canvas_length=length)
    call: dict[str, Any] = {"sampler": sampler, "seed": seed}
    whole = lm.generate_sync("hi", max_tokens=4 * length, **call)
    for parts in (1, 2, 3):
        shorter = lm.generate_sync("hi", max_tokens=parts * length, **call)
        assert shorter.token_ids == whole.token_ids[: parts * length]


def test_a_bounded_budget_does_not_change_what_fits_it(lm: DiffusionLM) -> None:
    """Under a constraint: more room gives the same text, where the text ends by itself."""
    constraint = Regex("([a-f]{3},){9}end")
    sampler = replace(MEDIUM, canvas_length=16)
    texts = {
        lm.generate_sync("hi", constraint=constraint, sampler=sampler, max_tokens=n).text
        for n in (96, 128, 200)
    }
    assert len(texts) == 1


def test_cache_and_company_change_no_canvas(lm: DiffusionLM) -> None:
    """Long answers over many canvases: fresh cache, warm cache and a full batch agree."""
    sampler = replace(MEDIUM, canvas_length=16)
    calls: list[dict[str, Any]] = [
        {"messages": f"call {i}", "sampler": sampler, "seed": i, "max_tokens": 64} for i in range(6)
    ]
    cold = tiny_lm()
    alone: list[Generation] = []
    for call in calls:
        cold.engine.cache.clear()
        alone.append(cold.generate_sync(**call))

    async def together() -> list[Generation]:
        return await asyncio.gather(*(lm.generate(**call) for call in calls))

    assert [g.token_ids for g in asyncio.run(together())] == [g.token_ids for g in alone]
    assert [lm.generate_sync(**call).token_ids for call in calls] == [g.token_ids for g in alone]


def test_thinking_comes_first_and_is_told_apart(lm: DiffusionLM) -> None:
    """The thought is within its budget and not in the answer, which stays in its language."""
    plain = lm.generate_sync("hi", constraint=Choice(["then", "there"]), seed=1)
    thought = lm.generate_sync(
        "hi", constraint=Choice(["then", "there"]), thinking=12, seed=1, temperature=1.0
    )
    assert plain.thinking == ""
    assert thought.thinking
    assert len(lm.tokenizer.encode(thought.thinking).ids) <= 3 * 12
    assert thought.text in ("then", "there")
    assert thought.num_steps > plain.num_steps


def test_samples_ride_in_one_batch(lm: DiffusionLM) -> None:
    """Eight samples take the passes of the longest; the best by its score is given."""
    constraint = Regex("[a-z]{4,9}")
    before = lm.engine.statistics.num_steps
    best = lm.generate_sync("hi", constraint=constraint, samples=8, seed=3, temperature=1.0)
    assert lm.engine.statistics.num_steps - before < 40
    assert best.num_samples == 8
    alone = [
        lm.generate_sync(
            "hi", constraint=constraint, seed=3 + i * 1_000_003, temperature=1.0, verify=True
        )
        for i in range(8)
    ]
    scores = [g.p_verified or 0.0 for g in alone]
    assert best.text == alone[int(np.argmax(scores))].text


def made(value: str, score: float) -> Generation:
    return Generation(
        text=value,
        value=value,
        token_ids=(1,),
        num_steps=1,
        num_prompt_tokens=1,
        num_cached_tokens=0,
        p_valid=(1.0,),
        finish_reason="stop",
        seed=0,
        timings=Timings(),
        log_p=(score,),
    )


def test_majority_counts_values_and_verification_scores() -> None:
    """Votes first or the score alone; ties go to the first."""
    answers = [made("a", -3.0), made("b", -0.1), made("a", -2.0), made("c", -5.0)]
    assert chosen(answers, "majority") == (2, 2)
    assert chosen(answers, "verified") == (1, 1)
    assert chosen([made("a", -1.0), made("b", -1.0)], "majority") == (0, 1)
    scored = [replace(answers[0], log_p_verified=(-0.01,)), *answers[1:]]
    assert chosen(scored, "verified") == (0, 2)


def test_verification_is_the_chain_rule(lm: DiffusionLM) -> None:
    """Each token's score equals that of a fresh causal run over all that precedes it."""
    prompt = lm.prompt_ids("in the end")
    tokens = lm.tokenizer.encode("the name").ids
    keys = PromptCache(lm.engine.reader).read(prompt[:-1]).keys
    scores = log_p_left_to_right(lm.engine.reader, keys, prompt[-1], tokens)
    network = tiny_network()
    with torch.inference_mode():
        for i, token in enumerate(tokens):
            hidden, _ = network.read(torch.tensor([[*prompt, *tokens[:i]]]))
            logits = network.logits(hidden[0, -1]).clone()
            logits[lm.engine.mask_id] = -torch.inf
            assert scores[i] == pytest.approx(float(logits.log_softmax(-1)[token]), abs=1e-4)
    assert log_p_left_to_right(lm.engine.reader, keys, prompt[-1], []) == []


def test_a_verified_answer_has_a_score_for_its_end(lm: DiffusionLM) -> None:
    """One number a token and one for the end of text; none without verification."""
    constraint = Regex("[a-z]{3,5}")
    answer = lm.generate_sync("hi", constraint=constraint, verify=True)
    assert answer.log_p_verified is not None
    assert len(answer.log_p_verified) == answer.num_tokens + 1
    assert 0 < (answer.p_verified or 0) < 1
    assert lm.generate_sync("hi", constraint=constraint).p_verified is None


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.floats(0.05, 1.0), st.sampled_from([0.3, 1.0, 2.0]))
def test_the_nucleus_is_the_smallest_that_holds_top_p(
    seed: int, top_p: float, temperature: float
) -> None:
    """Against a plain sort: what is kept reaches the share, and without its least does not."""
    rng = np.random.default_rng(seed)
    logits = torch.tensor(rng.normal(scale=3, size=(3, 40)), dtype=torch.float32)
    allowed = rng.random(40) < 0.7
    allowed[0] = True
    kept = keep_nucleus(logits, np.array([0, 2]), top_p, temperature, allowed)
    assert torch.equal(kept[1], logits[1])
    for row in (0, 2):
        scores = torch.where(torch.tensor(allowed), logits[row].double(), -torch.inf)
        p = torch.softmax(scores / temperature, -1)
        inside = torch.isfinite(kept[row])
        held = p[inside]
        assert float(held.sum()) >= top_p - 1e-5
        assert float(held.sum() - held.min()) < top_p + 1e-5
        assert bool((p[~inside] <= held.min() + 1e-7).all())


def test_a_wide_nucleus_is_exact_too() -> None:
    """Where the likeliest few hundred do not hold the share, all are sorted."""
    kept = keep_nucleus(torch.zeros(1, 4096), np.array([0]), 0.5, 1.0, np.ones(4096, np.bool_))
    assert int(torch.isfinite(kept).sum()) == 2048


def test_top_p_narrows_what_is_drawn(lm: DiffusionLM) -> None:
    """A tiny nucleus draws what temperature 0 with one commit a step would choose."""
    constraint = Regex("[a-z]{6}")
    one = replace(MEDIUM, policy=Threshold(1.0))
    narrow = {
        lm.generate_sync(
            "hi", constraint=constraint, sampler=one, temperature=1.0, top_p=1e-6, seed=s
        ).text
        for s in range(6)
    }
    wide = {
        lm.generate_sync("hi", constraint=constraint, sampler=one, temperature=1.0, seed=s).text
        for s in range(6)
    }
    assert (len(narrow), len(wide)) == (1, 6)


def test_numbers_of_a_call_and_their_totals(lm: DiffusionLM) -> None:
    """Positions, passes and tokens add up, for one call and over all."""
    model = tiny_lm()
    sampler = replace(MEDIUM, canvas_length=16)
    calls = [
        model.generate_sync("hi " * 80, constraint=Regex("[a-z]{20}"), sampler=sampler, seed=i)
        for i in range(3)
    ]
    first = calls[0]
    assert first.num_computed >= first.num_steps
    assert first.utilisation == first.num_tokens / first.num_computed
    assert len(first.log_p) == first.num_tokens
    assert all(p <= 0 for p in first.log_p)
    metrics = model.totals.metrics()
    assert metrics["num_calls"] == 3
    for name in ("num_steps", "num_tokens", "num_computed", "num_cached_tokens"):
        assert metrics[name] == sum(getattr(g, name) for g in calls)
    assert metrics["hit_rate"] == pytest.approx(
        sum(g.num_cached_tokens for g in calls) / sum(g.num_prompt_tokens for g in calls)
    )
    assert 0 < metrics["utilisation"] < 1
    assert (Totals().hit_rate, Totals().utilisation) == (0.0, 0.0)


def test_a_schedule_of_temperatures_ends_sure(lm: DiffusionLM) -> None:
    """From hot to zero: the first token varies with the seed, and the text stays accepted."""
    constraint = Regex("[a-z]{8}")
    one = replace(MEDIUM, policy=Threshold(1.0))
    texts = [
        lm.generate_sync(
            "hi", constraint=constraint, sampler=one, temperature=(2.0, 0.0), seed=s
        ).text
        for s in range(6)
    ]
    assert len({text[0] for text in texts}) > 1
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    value = lm.generate_sync("hi", constraint=JsonSchema(schema), temperature=(1.0, 0.1)).value
    assert isinstance(value["a"], int)


_LM = tiny_lm()
