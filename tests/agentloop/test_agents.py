"""The tool-calling agent: an ordinary graph with a bounded loop."""

import asyncio
from typing import Any

import pytest

from agentloop import tool
from agentloop.agents import Conversation, Turn, agent
from agentloop.testing import ModelCall, ScriptedModel


@tool
async def weather(city: str) -> str:
    """The weather of a city."""
    await asyncio.sleep(0)
    if city == "Atlantis":
        raise LookupError("no such city")
    return f"sun in {city}"


def wants(*cities: str) -> list[dict[str, Any]]:
    return [{"name": "weather", "arguments": {"city": city}} for city in cities]


def ask(model: ScriptedModel, **options: Any) -> Conversation:
    question = Conversation(turns=[Turn(role="user", content="How is it there?")])
    return agent([weather], "Be brief.", **options).run_sync(question, model=model).state


def test_an_agent_calls_tools_until_it_can_answer() -> None:
    """Calls of a round run together and are told in order; then the model answers in words."""
    model = ScriptedModel([wants("Rome", "Oslo"), wants("Bonn"), [], "Sunny."])
    state = ask(model)
    assert state.answer == "Sunny."
    assert [turn.content for turn in state.turns] == [
        "How is it there?",
        'weather({"city": "Rome"})',
        '"sun in Rome"',
        'weather({"city": "Oslo"})',
        '"sun in Oslo"',
        'weather({"city": "Bonn"})',
        '"sun in Bonn"',
        "Sunny.",
    ]
    assert model.calls[-1].messages[0] == {"role": "system", "content": "Be brief."}


def test_a_failing_tool_is_told_to_the_model() -> None:
    """The failure is a tool message, and the conversation goes on."""
    state = ask(ScriptedModel([wants("Atlantis"), [], "It sank."]))
    assert state.turns[2].content == "failed: LookupError: no such city"
    assert state.answer == "It sank."


@pytest.mark.parametrize("max_rounds", [1, 3])
def test_an_agent_decides_at_most_so_often_and_then_answers(max_rounds: int) -> None:
    """An agent that never stops asking for tools is stopped by its loop's limit."""

    def reply(call: ModelCall) -> Any:
        return "Enough." if call.constraint is None else wants("Rome")

    model = ScriptedModel(reply)
    assert ask(model, max_rounds=max_rounds).answer == "Enough."
    assert len(model.calls) == max_rounds + 1
