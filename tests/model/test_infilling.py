"""Infilling: the gap satisfies its constraint, the whole its own, lengths compete by score."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import jsonschema
import pytest

from agentloop.errors import CanvasTooSmallError, ContradictionError, ModelError
from agentloop.model.constraint import Choice, JsonSchema, Regex
from agentloop.model.generation import Generation
from agentloop.model.infilling import open_gap, rewriting
from agentloop.model.lm import DiffusionLM
from agentloop.model.request_builder import RequestBuilder
from tests.model.tiny import tiny_lm

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "in": {"enum": ["then", "there"]}},
    "required": ["name", "in"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def lm() -> DiffusionLM:
    return tiny_lm()


def infill(lm: DiffusionLM, before: str, after: str, **options: Any) -> Generation:
    return asyncio.run(lm.infill(before, after, **options))


@pytest.mark.parametrize("seed", range(4))
def test_the_gap_satisfies_its_constraint(lm: DiffusionLM, seed: int) -> None:
    """Whatever follows, the text in between is accepted, and several lengths were tried."""
    pattern = r"[0-9]{4}-[a-z]{2,9}"
    filled = infill(
        lm, "name: ", " in the end", constraint=Regex(pattern), temperature=1.0, seed=seed
    )
    assert re.fullmatch(pattern, filled.text)
    assert filled.value == filled.text
    assert filled.num_samples > 1
    assert filled.log_p_verified is not None


@pytest.mark.parametrize("seed", range(4))
def test_the_whole_satisfies_its_constraint(lm: DiffusionLM, seed: int) -> None:
    """A region of a JSON text is filled so that the whole validates."""
    before, after = '{"name":"th', '","in":"there"}'
    filled = infill(
        lm, before, after, whole=JsonSchema(SCHEMA), temperature=1.0, seed=seed, max_tokens=12
    )
    whole = json.loads(before + filled.text + after)
    jsonschema.validate(whole, SCHEMA)
    assert filled.value == whole


def test_the_best_of_the_lengths_is_given(lm: DiffusionLM) -> None:
    """The answer is the candidate whose gap and end have the highest mean probability."""
    messages: list[Any] = [{"role": "user", "content": "Complete the text."}]
    options: Any = {"constraint": Regex("[a-z]{1,8}"), "seed": 0}
    builder = RequestBuilder(lm.config, lm.tokenizer, lm.vocabulary)
    gap = open_gap(builder, messages, "in ", " then", options, None)
    assert len(gap.jobs) == 6
    lm.engine.submit(gap.open_jobs)
    for job in gap.jobs:
        job.future.result(60)
    best = gap.generation(builder, lm.engine.writer)
    scores = {
        lm.vocabulary.text(job.row.text_tokens).decode(): sum(s) / len(s)
        for job in gap.jobs
        if (s := gap.score(job, lm.engine.writer))
    }
    assert best.text == max(scores, key=lambda text: scores[text])
    assert infill(lm, "in ", " then", **options).text == best.text


def test_a_gap_without_a_choice_costs_no_pass(lm: DiffusionLM) -> None:
    """One accepted text of one length is filled in by the constraint alone."""
    before = lm.engine.statistics.num_steps
    filled = infill(lm, "a ", " b", constraint=Choice(["th"]), max_tokens=1)
    assert (filled.text, filled.num_steps, lm.engine.statistics.num_steps) == ("th", 0, before)


def test_a_gap_that_cannot_be_filled_is_refused(lm: DiffusionLM) -> None:
    """The error says where the text around the gap fails, or how many tokens are needed."""
    with pytest.raises(ContradictionError, match="allowed there"):
        infill(lm, '{"nome":"', '","in":"there"}', whole=JsonSchema(SCHEMA))
    with pytest.raises(ContradictionError):
        infill(lm, '{"name":"', '","in":"x"}', whole=JsonSchema(SCHEMA))
    with pytest.raises(CanvasTooSmallError, match="needs at least"):
        infill(lm, "a", "b", constraint=Regex("[a-f]{40}"), max_tokens=8)


def test_a_region_is_rewritten_in_its_place(lm: DiffusionLM) -> None:
    """The prompt marks the region and gives the instruction; the answer fits the constraint."""
    before, after, messages = rewriting("the cat sat", (4, 7), "Another animal.")
    assert (before, after) == ("the ", " sat")
    assert messages[0]["content"] == "Another animal.\n\nthe [cat] sat"
    filled = asyncio.run(
        lm.rewrite("the cat sat", (4, 7), "Another animal.", constraint=Choice(["hen", "rat"]))
    )
    assert filled.text in ("hen", "rat")
    with pytest.raises(ModelError, match=r"the region is \(4, 99\), expected characters from 0"):
        asyncio.run(lm.rewrite("the cat sat", (4, 99), "x"))
