"""Forced text: found where there is no choice, spelt as the tokenizer does, free of cost."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentloop.model.constraint import Choice, JsonSchema, Regex, ToolCalls
from agentloop.model.constraint.allowed import allowed_tokens
from agentloop.model.effort import SamplerOptions
from agentloop.model.forced import ForcedText
from agentloop.model.lm import DiffusionLM
from agentloop.model.sampler import MASKED, CanvasRow
from tests.model.tiny import tiny_lm


@pytest.fixture(scope="module")
def lm() -> DiffusionLM:
    return tiny_lm()


def forced_of(lm: DiffusionLM, constraint: object) -> ForcedText:
    compiled = lm.compile(constraint)  # type: ignore[arg-type]  # any constraint
    return ForcedText(compiled, lambda text: lm.tokenizer.encode(text).ids)


words = st.lists(st.text("abc", min_size=1, max_size=6), min_size=1, max_size=4, unique=True)


@settings(max_examples=60, deadline=None)
@given(words)
def test_the_stretch_is_the_common_beginning(options: list[str]) -> None:
    """From the start, what all texts share is forced, and the end where one text is all."""
    forced = forced_of(_LM, Choice(options))
    stretch = forced.after(0)
    shared = ""
    for letters in zip(*options, strict=False):
        if len(set(letters)) > 1:
            break
        shared += letters[0]
    assert _LM.vocabulary.text(stretch.tokens).decode() == shared
    ends = bool(stretch.tokens) and stretch.tokens[-1] in _LM.vocabulary.eos_ids
    assert ends == (len(options) == 1)


@settings(max_examples=40, deadline=None)
@given(words, st.integers(0, 3))
def test_only_one_next_byte_is_left_where_something_is_forced(
    options: list[str], extra: int
) -> None:
    """Against the exact allowed set: at the first slot all allowed tokens begin alike."""
    constraint = Choice(options)
    forced = forced_of(_LM, constraint)
    compiled = forced.compiled
    canvas = np.full(compiled.min_tokens + 8 + extra, MASKED)
    allowed = allowed_tokens(compiled, canvas, 0)
    first = {_LM.vocabulary.token_bytes[int(t)][:1] for t in allowed}
    assert bool(forced.after(0).tokens) == (len(first) == 1)


def test_spelling_is_the_tokenizers(lm: DiffusionLM) -> None:
    """The key's tokens are merged as the tokenizer merges them, not byte by byte."""
    schema = {
        "type": "object",
        "properties": {"name": {"type": "boolean"}},
        "required": ["name"],
        "additionalProperties": False,
    }
    stretch = forced_of(lm, JsonSchema(schema)).after(0)
    assert list(stretch.tokens) == lm.tokenizer.encode('{"name":').ids


def test_a_call_with_one_possible_answer_costs_no_pass(lm: DiffusionLM) -> None:
    """However long: nothing is asked of the network, and the numbers say so."""
    text = "the name in the end is true, " * 12
    before = lm.engine.statistics.num_steps
    answer = lm.generate_sync("hi", constraint=Choice([text]), max_tokens=400)
    assert answer.text == text
    assert (answer.num_steps, answer.num_computed, lm.engine.statistics.num_steps) == (0, 0, before)
    assert answer.p_valid == ()


def test_forced_text_between_decisions_is_committed_at_once(lm: DiffusionLM) -> None:
    """After the name of a tool is settled, its argument's frame needs no further pass."""
    constraint = Regex("(a|b)" + "-in the name of the end-" + "(c|d)")
    answer = lm.generate_sync("hi", constraint=constraint)
    assert answer.num_steps == 2
    assert [p for p in answer.log_p if p != 0.0].__len__() == 2


def test_a_tight_canvas_is_never_spoilt(lm: DiffusionLM) -> None:
    """Where the tokenizer's spelling would need more slots than there are, a shorter one is."""
    tools = [
        {
            "name": "name",
            "description": "",
            "parameters": {
                "type": "object",
                "properties": {"the": {"enum": ["inner", "thane"]}},
                "required": ["the"],
                "additionalProperties": False,
            },
        }
    ]
    compiled = lm.compile(ToolCalls(tools, min=1))  # type: ignore[arg-type]  # plain dicts
    answer = lm.generate_sync(
        "hi",
        constraint=ToolCalls(tools, min=1),  # type: ignore[arg-type]  # as above
        max_tokens=compiled.min_tokens,
    )
    assert answer.value[0].name == "name"


def test_committed_text_further_right_is_left_alone(lm: DiffusionLM) -> None:
    """Where a slot to the right is fixed, forced text is left to the exact inference."""
    compiled = lm.compile(Choice(["name", "the name"]))
    forced = ForcedText(compiled, lambda text: lm.tokenizer.encode(text).ids)
    length = 6
    fixed = np.full(length, MASKED)
    fixed[3] = lm.vocabulary.token_bytes.index(b"e")
    row = CanvasRow(compiled, SamplerOptions(), length, 0, fixed=fixed, forced=forced)
    assert (row.tokens == fixed).all()


_LM = tiny_lm()
