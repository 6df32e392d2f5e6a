"""A slice of the canvas suite over many schemas: all end, and end in what two judges accept."""

from __future__ import annotations

from collections import Counter

import pytest

from agentloop.errors import CanvasTooSmallError
from agentloop.model.constraint.inference import infer
from agentloop.model.sampler import MASKED, CanvasRow, SamplerOptions
from benchmarks.schema_canvases import (
    Language,
    RandomNetwork,
    cases,
    check,
    check_too_small,
    languages,
    run,
)
from tests.model.constraint.suite import groups


@pytest.fixture(scope="module")
def made() -> list[Language]:
    entries = [{**g, "id": g["group"]} for g in groups("draft2020-12", every=6)]
    return languages(entries, 40)


def test_canvases_over_many_schemas_are_valid(made: list[Language]) -> None:
    """40 schemas of the JSON-Schema-Test-Suite at 1, 4, 16 and 64 steps, random weights."""
    assert len(made) == 40
    todo = list(cases(made, 320))
    assert {(c.options.max_steps, c.options.temperature) for c in todo} == {
        (steps, temperature) for steps in (1, 4, 16, 64) for temperature in (0.0, 1.0)
    }
    assert Counter(c.language for c in todo) == {i: 8 for i in range(40)}
    counts = run(made, todo)
    assert counts["canvases"] == 320
    assert counts["passes"] > 3 * 320


def test_later_rounds_revise_and_vary(made: list[Language]) -> None:
    """Seeds beyond the first bring other windows, weightings, paths and networks."""
    small = [one for one in made if not one.is_large][:5]
    todo = list(cases(small, 160, skip=40))
    for values in (
        {c.options.window for c in todo},
        {c.options.weighting for c in todo},
        {c.options.path for c in todo},
        {c.options.left_first for c in todo},
    ):
        assert len(values) >= 2
    assert run(small, todo)["canvases"] == 160


def test_a_canvas_that_is_too_small_is_refused_before_the_first_step(made: list[Language]) -> None:
    """It is an error with both numbers, from the check and from the inference alike."""
    for language in made:
        check_too_small(language)
    language = max(made, key=lambda one: one.compiled.min_tokens)
    length = language.compiled.min_tokens - 1
    assert length >= 3
    network = RandomNetwork(language.compiled.vocabulary.size)
    row = CanvasRow(language.compiled, SamplerOptions(), length, 0)
    with pytest.raises(CanvasTooSmallError, match=f"at least {length + 1} tokens .* {length}"):
        infer(language.compiled, network.logits(length * [MASKED]), row.tokens)


def test_the_shortest_canvas_is_enough(made: list[Language]) -> None:
    """A canvas of exactly the tokens that are needed ends in a valid text."""
    for number, language in enumerate(made):
        length = language.compiled.min_tokens
        network = RandomNetwork(language.compiled.vocabulary.size, number)
        row = CanvasRow(language.compiled, SamplerOptions(max_steps=3), length, number)
        while not row.done:
            row.advance(network.logits(row.tokens.tolist()))
        check(language, row)
