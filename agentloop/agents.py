"""A tool-calling agent as an ordinary graph, which its user may read, draw and rebuild."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Literal

from pydantic import BaseModel
from pydantic_core import to_json

from agentloop.approval import Approval, Proposal, refusal
from agentloop.errors import JournalError, LimitError
from agentloop.graph import Graph
from agentloop.model.prompts import Message
from agentloop.model_calls import llm
from agentloop.reducers import Log
from agentloop.steps import END, START, each
from agentloop.tool_calls import call_tools
from agentloop.tools import Tool
from agentloop.toolset import ToolSet


class Turn(BaseModel, frozen=True):
    """One message of a conversation, as a value that a state can hold.

    Attributes:
        role: Who says it.
        content: What is said.
        source: Where it came from if others may have written it: a tool's or a document's name.
    """

    role: Literal["system", "user", "assistant", "tool"]
    content: str
    source: str = ""


class Wanted(BaseModel, frozen=True):
    """A call that the model asked for; the arguments are JSON text, since states hold values."""

    name: str
    arguments: str


class Conversation(BaseModel):
    """The state of an agent: what was said, what it wants to call, and its answer."""

    turns: Log[Turn] = []
    wanted: tuple[Wanted, ...] = ()
    answer: str = ""


def messages_of(turns: Iterable[Turn], instructions: str | None = None) -> list[Message]:
    """Turns as messages for a model, with instructions ahead."""
    system = [Turn(role="system", content=instructions)] if instructions else []
    return [{"role": turn.role, "content": turn.content} for turn in (*system, *turns)]


def sources_of(turns: Iterable[Turn]) -> tuple[str, ...]:
    """Where the texts of others in a conversation came from."""
    return tuple(dict.fromkeys(turn.source for turn in turns if turn.source))


def agent(
    tools: Iterable[Tool[..., Any]],
    instructions: str | None = None,
    *,
    name: str = "agent",
    max_rounds: int = 5,
    max_calls: int = 4,
    approve: Approval = None,
) -> Graph[Conversation]:
    """An agent that calls tools until none is needed, then answers.

    Args:
        tools: The tools it may call.
        instructions: What it is told ahead of the conversation.
        name: What the graph is called as a step of another.
        max_rounds: How often it may decide on calls; after the last it has to answer.
        max_calls: Calls of one round, which run at the same time.
        approve: Which calls wait for somebody's yes: `"tainted"` those that act after it has read
            what others may have written, `"effects"` all that act, or a policy of your own. Its
            runs then need a store to wait in.
    """
    known = tools if isinstance(tools, ToolSet) else ToolSet(tools)

    async def think(s: Conversation) -> Literal["act", "reply"]:
        calls = await call_tools(known, messages_of(s.turns, instructions), max=max_calls)
        s.wanted = tuple(Wanted(name=c.name, arguments=json.dumps(c.arguments)) for c in calls)
        return "act" if calls else "reply"

    async def act(s: Conversation, call: Wanted) -> None:
        tool, arguments = known.named(call.name), json.loads(call.arguments)
        result = await refusal(Proposal(tool, arguments, sources_of(s.turns)), approve)
        source = "" if tool.trusted or result is not None else tool.name
        try:
            if result is None:
                result = to_json(await tool.encoded(arguments)).decode()
        except (JournalError, LimitError):
            raise
        except Exception as error:  # the model can do something about it, so it is told
            result = f"failed: {type(error).__name__}: {error}"[:1000]
        s.turns.append(Turn(role="assistant", content=f"{call.name}({call.arguments})"))
        s.turns.append(Turn(role="tool", content=result, source=source))

    async def reply(s: Conversation) -> None:
        s.answer = await llm(str, *messages_of(s.turns, instructions))
        s.turns.append(Turn(role="assistant", content=s.answer))

    acting = each(act, over="wanted")
    graph = Graph(Conversation, name=name).chain(START, think).chain(acting, think)
    graph.route(think, acting, reply, limit=max_rounds, then=reply)
    return graph.chain(reply, END)
