"""A slice of the validity suite: every canvas of every combination ends in valid JSON."""

import json

import pytest

from benchmarks.canvases import Case, cases, check, languages, refine
from tests.model.tiny import tiny_lm

NUM_SCHEMAS = 50


@pytest.fixture(scope="module")
def texts() -> list[tuple[Case, str]]:
    lm = tiny_lm()
    made = languages(NUM_SCHEMAS)
    todo = list(cases(NUM_SCHEMAS, 400))
    jobs = [refine(lm, made[case.schema], case) for case in todo]
    lm.engine.submit(jobs)
    return [
        (case, json.dumps(check(lm, made[case.schema], job.future.result(250))))
        for case, job in zip(todo, jobs, strict=True)
    ]


def test_every_canvas_is_valid(texts: list[tuple[Case, str]]) -> None:
    """50 schemas at 1, 4, 16 and 64 steps, temperature 0 and 1, with random weights."""
    assert len(texts) == 400
    assert {case.max_steps for case, _ in texts} == {1, 4, 16, 64}
    assert {case.temperature for case, _ in texts} == {0.0, 1.0}


def test_the_canvases_differ(texts: list[tuple[Case, str]]) -> None:
    """The suite is not one text over and over."""
    assert len({text for _, text in texts}) > 250
