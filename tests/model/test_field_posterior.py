"""What a model believes about a field agrees with what its own answers are scored by."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from agentloop.errors import CanvasTooSmallError, ConstraintError
from agentloop.model.constraint import Choice, JsonSchema, Object
from agentloop.model.lm import DiffusionLM
from tests.model.tiny import tiny_lm


@pytest.fixture(scope="module")
def lm() -> Iterator[DiffusionLM]:
    """The tiny model."""
    with tiny_lm() as made:
        yield made


def test_a_field_with_one_value_is_certain(lm: DiffusionLM) -> None:
    """What the constraint leaves no choice about is believed whatever the weights say."""
    belief = asyncio.run(lm.field_posterior("hi", Object(a=Choice(["x"])), "/a"))
    assert belief.values == {"x": pytest.approx(1.0)}
    assert belief.p_present == pytest.approx(1.0)


def test_fields_of_one_answer_are_consistent(lm: DiffusionLM) -> None:
    """Two fields that always agree are believed alike; all values sum to one."""
    same = {"oneOf": [{"properties": {k: {"const": v} for k in "ab"}} for v in ("x", "yy", "z")]}
    keys = {"properties": {"a": {"enum": ["x", "yy", "z"]}, "b": {"enum": ["x", "yy", "z"]}}}
    schema = JsonSchema({**keys, **same, "required": ["a", "b"], "type": "object"})
    one = asyncio.run(lm.field_posterior("hi", schema, "/a", max_tokens=30))
    other = asyncio.run(lm.field_posterior("hi", schema, "/b", max_tokens=30))
    assert sum(one.values.values()) == pytest.approx(1.0)
    for value in ("x", "yy", "z"):
        assert one.values[value] == pytest.approx(other.values[value], abs=1e-6)


def test_what_cannot_be_asked_is_refused(lm: DiffusionLM) -> None:
    """A field that is not there, and a canvas that is too short, are told before any pass."""
    with pytest.raises(ConstraintError, match="no field"):
        asyncio.run(lm.field_posterior("hi", Object(a=Choice(["x"])), "/b"))
    with pytest.raises(CanvasTooSmallError):
        asyncio.run(lm.field_posterior("hi", Object(a=Choice(["x"])), "/a", max_tokens=2))
