"""Tools of another program, by the Model Context Protocol, used by an agent in a recorded run.

python examples/07_mcp_tools.py

The other program is this same file, which serves two tools with `agentloop mcp serve`; any server
of the protocol takes its place. Needs the extra: pip install 'agentloop[mcp]'.
"""

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

from agentloop import agent, tool
from agentloop.agents import Conversation, Turn
from agentloop.mcp_client import connect
from agentloop.testing import ScriptedModel


@tool
async def stock(item: str) -> int:
    """How many of an item are left."""
    return {"tea": 3}.get(item, 0)


@tool(effect="once")
async def order(item: str, number: int) -> str:
    """Order some of an item."""
    return f"ordered {number} {item}"


served = [stock, order]
HERE = Path(__file__)
SERVER = [sys.executable, "-m", "agentloop", "mcp", "serve", f"{HERE.stem}:served"]

SCRIPT: list[Any] = [
    [{"name": "shop.stock", "arguments": {"item": "tea"}}],
    [{"name": "shop.order", "arguments": {"item": "tea", "number": 7}}],
    [],
    "There were 3, so I ordered 7.",
]


async def main() -> None:
    """Connect, show what is offered, and let an agent use it."""
    os.chdir(HERE.parent)
    async with connect(SERVER, reads=["stock"], prefix="shop.") as tools:
        for one in tools:
            print(f"{one.name}: {one.description} ({one.effect})")
        question = Conversation(turns=[Turn(role="user", content="Make sure we have 10 teas.")])
        result = await agent(tools, max_rounds=4).run(question, model=ScriptedModel(SCRIPT))
    for turn in result.state.turns:
        print(f"{turn.role:>9}: {turn.content}")


if __name__ == "__main__":
    asyncio.run(main())
