"""What a model makes of constraints: its profile, the room of a call, and off the event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest

from agentloop.errors import CompileLimitError
from agentloop.model import request_builder
from agentloop.model.constraint import Choice, CompileOptions, JsonSchema, Regex, ToolCalls
from agentloop.model.constraint import compiled as compiled_module
from agentloop.model.constraint.compiled import ConstraintCache
from agentloop.model.lm import DiffusionLM
from tests.model.tiny import tiny_lm, tiny_network, tiny_tokenizer


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch) -> ConstraintCache:
    """A cache of the test's own, without a folder."""
    found = ConstraintCache()
    monkeypatch.setattr(compiled_module, "shared_cache", lambda: found)
    monkeypatch.setattr(request_builder, "shared_cache", lambda: found)
    return found


@pytest.fixture
def lm() -> Iterator[DiffusionLM]:
    """The tiny model."""
    with tiny_lm() as made:
        yield made


def text_of(length: int) -> JsonSchema:
    return JsonSchema({"type": "string", "maxLength": length})


def test_bounds_that_no_answer_can_break_are_dropped(lm: DiffusionLM) -> None:
    """A `maxLength` beyond the model's context costs no states and narrows nothing."""
    assert lm.vocabulary.longest == 4
    free = lm.compile(JsonSchema({"type": "string"})).num_states
    assert lm.compile(text_of(100_000)).num_states == free
    assert lm.compile(text_of(200), max_tokens=20).num_states == free
    assert lm.compile(text_of(200)).num_states > 200
    assert lm.compile(text_of(100), max_tokens=40).num_states > 100


def test_calls_of_similar_lengths_share_one_automaton(
    lm: DiffusionLM, cache: ConstraintCache
) -> None:
    """Lengths are rounded up, and matter only to constraints that bound lengths."""
    first = lm.compile(text_of(70), max_tokens=60)
    assert lm.compile(text_of(70), max_tokens=64) is first
    assert lm.compile(text_of(70), max_tokens=65) is not first
    for constraint in (Choice(["a", "b"]), Regex("[0-9]{3}"), JsonSchema({"type": "integer"})):
        assert lm.compile(constraint, max_tokens=5) is lm.compile(constraint, max_tokens=500)


def test_a_call_uses_what_was_compiled_ahead(lm: DiffusionLM, cache: ConstraintCache) -> None:
    """Compiling with the call's `max_tokens` leaves the call nothing to compile."""
    compiled = lm.compile(text_of(50), max_tokens=30)
    before = len(cache)
    answer = lm.generate_sync("hi", constraint=text_of(50), max_tokens=30, seed=1)
    assert isinstance(answer.value, str)
    assert len(cache) == before
    assert asyncio.run(lm.compile_aside(text_of(50), max_tokens=30)) is compiled


@pytest.mark.parametrize(
    ("whitespace", "spelt"), [("compact", '{"a":1,"b":[1,2]}'), ("spaced", '{"a": 1, "b": [1, 2]}')]
)
def test_a_model_writes_in_the_whitespace_of_its_profile(whitespace: Any, spelt: str) -> None:
    """The profile given to a model spells all its answers."""
    network = tiny_network()
    profile = CompileOptions(whitespace=whitespace)
    schema = JsonSchema({"const": {"a": 1, "b": [1, 2]}})
    with DiffusionLM(network, network, tiny_tokenizer(), profile=profile) as lm:
        assert lm.generate_sync("hi", constraint=schema).text == spelt


def test_a_profile_with_a_length_of_its_own_keeps_it() -> None:
    """What the user says about the length of texts is not loosened."""
    network = tiny_network()
    profile = CompileOptions(max_text_length=10)
    with DiffusionLM(network, network, tiny_tokenizer(), profile=profile) as lm:
        free = lm.compile(JsonSchema({"type": "string"})).num_states
        assert lm.compile(text_of(12)).num_states == free


def test_too_long_a_compilation_is_a_refusal(
    lm: DiffusionLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Processor time is bounded by default; the error says so and nothing is generated."""
    monkeypatch.setattr(request_builder, "MAX_COMPILE_S", 0.0)
    schema = JsonSchema({"type": "object", "properties": {"never seen": {"minLength": 3}}})
    with pytest.raises(CompileLimitError, match="processor time"):
        lm.generate_sync("hi", constraint=schema)
    with pytest.raises(CompileLimitError, match="processor time"):
        asyncio.run(lm.generate("hi", constraint=schema))


def tools(number: int) -> list[Any]:
    """Tools that share parts: each has two parameters of its own and an address that all have."""
    address = {
        "type": "object",
        "properties": {
            "street": {"type": "string", "maxLength": 40},
            "zip": {"type": "string", "pattern": "^[0-9]{5}$"},
            "country": {"enum": ["NO", "PE", "JP", "KE"]},
        },
        "required": ["street", "zip", "country"],
        "additionalProperties": False,
    }
    return [
        {
            "name": f"tool_{i}",
            "description": "",
            "parameters": {
                "type": "object",
                "properties": {
                    "to": address,
                    f"amount_{i}": {"type": "integer", "minimum": 0, "maximum": 100 + i},
                    "when": {"type": "string", "format": "date"},
                },
                "required": ["to"],
                "additionalProperties": False,
            },
        }
        for i in range(number)
    ]


def test_the_event_loop_turns_while_many_tools_are_compiled(lm: DiffusionLM) -> None:
    """Other tasks run all the while, and a second call for the same tools waits for the first."""

    async def main() -> tuple[int, bool]:
        ticks = 0
        begun = [asyncio.create_task(lm.compile_aside(ToolCalls(tools(12)))) for _ in range(2)]
        while not all(task.done() for task in begun):
            ticks += 1
            await asyncio.sleep(0)
            time.sleep(0.0005)
        return ticks, begun[0].result() is begun[1].result()

    ticks, is_same = asyncio.run(main())
    assert ticks > 5
    assert is_same
