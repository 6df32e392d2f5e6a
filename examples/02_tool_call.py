"""Tools: Python functions that a model may call, with arguments checked before anything runs.

python examples/02_tool_call.py
"""

import asyncio
from typing import Literal

from agentloop import ToolSet, call_tools, tool, use_model
from agentloop.model.lm import DiffusionLM
from agentloop.model.prompts import Message

Cuisine = Literal["American", "Chinese", "Indian", "Italian", "Japanese", "Mexican", "Thai"]


@tool
async def find_restaurants(cuisine: Cuisine, city: str) -> list[str]:
    """Find restaurants in a city that serve a certain food."""
    return [f"{cuisine} kitchen of {city}", f"{city} {cuisine} house"]


@tool
async def get_weather(city: str) -> str:
    """Tell the weather in a city."""
    return f"It is mild in {city}."


@tool(effect="once")
async def send_money(amount: int, receiver: str) -> str:
    """Send an amount of money to somebody."""
    return f"{amount} sent to {receiver}"


REQUESTS = (
    "I would like some Italian food in San Jose, please.",
    "What is the weather like in Oslo?",
    "Send 25 dollars to Maria.",
)


async def main() -> None:
    """Let the model choose a call for each request, and make it."""
    tools = ToolSet([find_restaurants, get_weather, send_money])
    with DiffusionLM.load("default") as lm, use_model(lm):
        for request in REQUESTS:
            messages: list[Message] = [{"role": "user", "content": request}]
            (call,) = await call_tools(tools, messages, min=1, execute=True)
            print(f"{request}\n  {call.name}({call.arguments})\n  -> {call.result}")


if __name__ == "__main__":
    asyncio.run(main())
