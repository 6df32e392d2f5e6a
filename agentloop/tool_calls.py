"""Calls that a model chooses: asked for, checked, repaired within bounds, approved and made."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from agentloop.approval import Approval, Proposal, refusal, sources_of
from agentloop.drafts import shorten
from agentloop.errors import GraphError, ToolError
from agentloop.json_data import as_array, as_object
from agentloop.model.prompts import Message, tool_messages
from agentloop.model_calls import generate
from agentloop.tools import Tool
from agentloop.toolset import ToolSet

_ECHO_LENGTH = 2000


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that a model asked for, its arguments checked.

    Attributes:
        tool: The tool.
        arguments: Arguments that its schema accepts.
        result: What the function returned, if the call was executed.
        is_executed: Whether it was.
        refusal: Why it was not, if it should have been.
    """

    tool: Tool[..., Any]
    arguments: dict[str, Any]
    result: Any = None
    is_executed: bool = False
    refusal: str | None = None

    @property
    def name(self) -> str:
        """The tool's name."""
        return self.tool.name

    async def executed(self, approve: Approval, sources: Iterable[str] = ()) -> ToolCall:
        """The call made, if it needs no approval or gets it; its failure is raised."""
        why_not = await refusal(Proposal(self.tool, self.arguments, tuple(sources)), approve)
        if why_not is not None:
            return replace(self, refusal=why_not)
        return replace(self, result=await self.tool.call(self.arguments), is_executed=True)


async def call_tools(
    tools: Iterable[Tool[..., Any]],
    messages: Sequence[Message],
    *,
    min: int = 0,
    max: int = 1,
    execute: bool = False,
    approve: Approval = None,
    sources: Iterable[str] | None = None,
    repairs: int = 2,
    effort: str = "medium",
    max_tokens: int | None = None,
    temperature: float = 0.0,
    seed: int | None = None,
) -> list[ToolCall]:
    """Let the current model choose calls for a conversation.

    Args:
        tools: The tools it may call.
        messages: The conversation.
        min: The fewest calls; 0 lets it say that no tool fits.
        max: The most calls.
        execute: Whether to run them, one after the other, and fill in their results.
        approve: Which of them need somebody's yes before they run: `"tainted"` those that act
            after the model has read others' texts, `"effects"` all that act, or a policy.
        sources: Where others' texts in the conversation come from; by default a message of a tool
            counts as one.
        repairs: How often a model that answers with something else is told what is wrong and asked
            again. A model that is decoded under the constraint never is.
        effort: How many passes the model may take.
        max_tokens: The longest answer, in tokens.
        temperature: 0 for the likeliest answer.
        seed: Of the random choices, above temperature 0.

    Returns:
        The calls, every one checked against its tool's schema before any is executed.

    Raises:
        ToolError: The answer does not fit a tool's schema after all repairs; nothing ran.
    """
    if repairs < 0:
        raise GraphError(f"repairs is {repairs}; use 0 or more")
    known = tools if isinstance(tools, ToolSet) else ToolSet(tools)
    constraint = known.constraint(min, max)
    asked = tool_messages(known.specs, messages)
    for num_left in range(repairs, -1, -1):
        generation = await generate(
            asked,
            constraint,
            name="tools",
            effort=effort,
            max_tokens=max_tokens,
            temperature=temperature,
            seed=seed,
        )
        try:
            calls = read_calls(known, generation.text, min, max)
            break
        except ToolError as error:
            if not num_left:
                raise
            asked = [*asked, *_told(generation.text, error)]
    else:
        raise AssertionError("the last attempt breaks or raises")
    if not execute:
        return calls
    read = sources_of(messages) if sources is None else tuple(sources)
    return [await call.executed(approve, read) for call in calls]


def read_calls(tools: ToolSet, text: str, min: int, max: int) -> list[ToolCall]:
    """The calls that a model's answer holds, all checked.

    Raises:
        ToolError: It is not a list of so many calls, or a call is not one that a tool accepts.
    """
    try:
        value: object = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
        raise ToolError(
            f"the model answered {shorten(text)}, expected a JSON list of calls: {reason[:200]}"
        ) from error
    calls = as_array(value)
    if calls is None:
        raise ToolError(f"the model answered {shorten(text)}, expected a JSON list of calls")
    if not min <= len(calls) <= max:
        raise ToolError(f"the model answered with {len(calls)} calls, expected from {min} to {max}")
    return [_checked(tools, call) for call in calls]


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _checked(tools: ToolSet, call: object) -> ToolCall:
    known = as_object(call)
    if known is None or set(known) != {"name", "arguments"} or not isinstance(known["name"], str):
        raise ToolError(
            f"the model answered {shorten(call)}, expected an object of name and arguments alone"
        )
    tool = tools.named(known["name"])
    tool.check(known["arguments"])
    return ToolCall(tool, known["arguments"])


def _told(answer: str, error: ToolError) -> list[Message]:
    """A wrong answer and what is wrong with it, for the model to answer anew."""
    correction = f"{error}\nNothing was called. Answer again with the whole corrected list."
    return [
        {"role": "assistant", "content": answer[:_ECHO_LENGTH]},
        {"role": "user", "content": correction},
    ]
