"""Options of a call: one set of names for every way to call, each honoured or refused by name."""

from __future__ import annotations

from typing import Any

import pytest

from agentloop.errors import DeadlineError, ModelError
from agentloop.model.call_options import CallOptions, one_sample, settings_of
from agentloop.model.constraint import Choice
from agentloop.model.effort import LEVELS
from tests.model.tiny import tiny_lm


def test_defaults_are_those_of_medium() -> None:
    """Nothing given: one answer, no thinking, no verification, the sampler of medium."""
    settings = settings_of({"seed": 5})
    assert settings.sampler == LEVELS["medium"].sampler
    assert (settings.samples, settings.thinking_tokens, settings.verify) == (1, 0, False)
    assert settings.seed == 5


def test_a_seed_is_drawn_where_none_is_given() -> None:
    """Calls that draw get different ones; those at temperature 0 are the same each time."""
    assert len({settings_of({"temperature": 1.0}).seed for _ in range(8)}) > 4
    assert len({settings_of({"temperature": (0.0, 1.0)}).seed for _ in range(8)}) > 4
    assert {settings_of({"effort": "high"}).seed for _ in range(8)} == {0}


def test_effort_sets_samples_verification_and_thinking_where_allowed() -> None:
    """High means more samples, scored; it thinks only if the caller lets it."""
    level = LEVELS["high"]
    settings = settings_of({"effort": "high"})
    assert (settings.samples, settings.verify) == (level.samples, True)
    assert settings.thinking_tokens == 0
    assert settings_of({"effort": "high", "thinking": True}).thinking_tokens > 0
    assert settings_of({"effort": "instant", "thinking": True}).thinking_tokens == 0
    assert settings_of({"effort": "high", "thinking": 7}).thinking_tokens == 7
    assert settings_of({"effort": "high", "samples": 1, "verify": False}).verify is False


def test_a_pair_is_a_schedule_of_temperatures() -> None:
    """One number keeps, two go from the first to the second."""
    one = settings_of({"temperature": 0.5}).sampler
    assert (one.temperature, one.final_temperature) == (0.5, None)
    two = settings_of({"temperature": (1.0, 0.25)}).sampler
    assert (two.temperature, two.final_temperature) == (1.0, 0.25)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"efort": "low"}, "'efort' is not an option of a call; did you mean 'effort'"),
        (
            {"presence_penalty": 1},
            "'presence_penalty' is not an option .* options are choose,",
        ),
        ({"effort": "huge"}, "effort is 'huge', expected one of instant, low, medium, high"),
        ({"temperature": float("nan")}, "temperature is nan"),
        ({"temperature": (0.5, -1)}, r"temperature is \(0.5, -1\)"),
        ({"top_p": 0}, "top_p is 0, expected a number above 0"),
        ({"samples": 0}, "samples is 0, expected at least 1"),
        ({"max_tokens": 0}, "max_tokens is 0, expected at least 1"),
        ({"deadline_s": 0}, "deadline_s is 0, expected seconds above 0"),
        ({"thinking": -1}, "thinking is -1, expected at least 0"),
        ({"choose": "best"}, "choose is 'best', expected one of verified, majority"),
        ({"stop": [""]}, "stop holds an empty text"),
        ({"stop": "x", "constraint": Choice(["a"])}, r"stop is \('x',\) beside a constraint"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(options: Any, message: str) -> None:
    """The message names the option, what came and what was expected."""
    with pytest.raises(ModelError, match=message):
        settings_of(options)


def test_a_watched_call_makes_one_answer() -> None:
    """More samples are refused; an effort that would take more takes one."""
    high: CallOptions = {"effort": "high"}
    assert settings_of(one_sample(high)).samples == 1
    with pytest.raises(ModelError, match=r"samples is 3 .* use generate instead"):
        one_sample({"samples": 3})


def test_priority_and_deadline_reach_the_engine() -> None:
    """A deadline that cannot be met is an error that says so; a priority is that of the job."""
    lm = tiny_lm()
    with pytest.raises(DeadlineError, match="was not answered by its deadline"):
        lm.generate_sync("hi", max_tokens=300, deadline_s=1e-6)
    handle = lm.start("hi", max_tokens=16, priority=3)
    assert handle.job.priority == 3
    handle.cancel()
