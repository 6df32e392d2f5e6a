"""Several tools together: loaded from a file, chosen by a model, called with checked arguments."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, overload

from agentloop.drafts import shorten
from agentloop.errors import GraphBuildError, ToolError
from agentloop.json_data import as_array, as_object
from agentloop.model.prompts import Message, ToolSpec, tool_messages
from agentloop.model_calls import generate
from agentloop.tools import Tool


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that a model asked for, its arguments checked.

    Attributes:
        tool: The tool.
        arguments: Arguments that its schema accepts.
        result: What the function returned, if the call was executed.
        is_executed: Whether it was.
    """

    tool: Tool[..., Any]
    arguments: dict[str, Any]
    result: Any = None
    is_executed: bool = False

    @property
    def name(self) -> str:
        """The tool's name."""
        return self.tool.name


class ToolSet(Sequence[Tool[..., Any]]):
    """Tools with different names.

    Raises:
        GraphBuildError: Two tools have the same name.
    """

    def __init__(self, tools: Iterable[Tool[..., Any]]) -> None:
        self._tools = list(tools)
        self._by_name = {tool.name: tool for tool in self._tools}
        if len(self._by_name) < len(self._tools):
            names = [tool.name for tool in self._tools]
            twice = next(name for name in names if names.count(name) > 1)
            raise GraphBuildError(f"two tools are called {twice!r}; use @tool(name=...)")

    @classmethod
    def load(cls, path: str | PathLike[str]) -> ToolSet:
        """Read tools from a JSON file: a list of specifications, or an object with `tools`.

        A specification is `{"name", "description", "parameters"}`, or the same inside
        `{"type": "function", "function": {...}}` as OpenAI writes it. Such tools have no function.

        Raises:
            ToolError: The file cannot be read, is not JSON, or an entry is not a tool.
            GraphBuildError: Two tools have the same name, or a schema is not valid.
        """
        try:
            data: object = json.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise ToolError(f"{path} cannot be read: {error}; give a file of tools") from error
        except json.JSONDecodeError as error:
            raise ToolError(
                f"{path}:{error.lineno}:{error.colno} is not JSON: {error.msg}"
            ) from error
        wrapped = as_object(data)
        entries = as_array(data if wrapped is None else wrapped.get("tools"))
        if entries is None:
            raise ToolError(
                f"{path} holds {shorten(data)}, expected a JSON list of tools "
                '[{"name": ..., "description": ..., "parameters": {...}}]'
            )
        return cls(_from_entry(entry, f"{path}#/{i}") for i, entry in enumerate(entries))

    @property
    def specs(self) -> list[ToolSpec]:
        """The tools as a model sees them."""
        return [tool.spec for tool in self._tools]

    def named(self, name: str) -> Tool[..., Any]:
        """The tool of a name.

        Raises:
            ToolError: There is none; it lists those there are.
        """
        tool = self._by_name.get(name)
        if tool is None:
            names = ", ".join(sorted(self._by_name))
            raise ToolError(f"there is no tool {name!r}; there are {names}", tool=name)
        return tool

    @overload
    def __getitem__(self, index: int) -> Tool[..., Any]: ...
    @overload
    def __getitem__(self, index: slice) -> list[Tool[..., Any]]: ...
    def __getitem__(self, index: int | slice) -> Tool[..., Any] | list[Tool[..., Any]]:
        return self._tools[index]

    def __len__(self) -> int:
        return len(self._tools)

    def __iter__(self) -> Iterator[Tool[..., Any]]:
        return iter(self._tools)


def _from_entry(entry: object, place: str) -> Tool[..., Any]:
    known = as_object(entry) or {}
    known = as_object(known.get("function")) or known
    if not isinstance(known.get("name"), str):
        raise ToolError(
            f"{place} is {shorten(entry)}, which is not a tool; expected "
            '{"name": ..., "description": ..., "parameters": {...}}'
        )
    no_parameters: dict[str, Any] = {"type": "object", "properties": {}}
    parameters: dict[str, Any] = known.get("parameters") or no_parameters
    return Tool(known["name"], str(known.get("description") or ""), parameters)


async def call_tools(
    tools: Iterable[Tool[..., Any]],
    messages: Sequence[Message],
    *,
    min: int = 0,
    max: int = 1,
    execute: bool = False,
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
        effort: How many passes the model may take.
        max_tokens: The longest answer, in tokens.
        temperature: 0 for the likeliest answer.
        seed: Of the random choices, above temperature 0.

    Returns:
        The calls, every one checked against its tool's schema before any is executed.

    Raises:
        ToolError: The answer does not fit a tool's schema (a model that is decoded under the
            constraint cannot give such an answer).
    """
    known = tools if isinstance(tools, ToolSet) else ToolSet(tools)
    from agentloop.model.constraint import ToolCalls  # loads torch, so only when needed

    generation = await generate(
        tool_messages(known.specs, messages),
        ToolCalls(known.specs, min=min, max=max),
        name="tools",
        effort=effort,
        max_tokens=max_tokens,
        temperature=temperature,
        seed=seed,
    )
    calls = [_checked(known, call) for call in _call_list(generation.text)]
    if not execute:
        return calls
    return [
        ToolCall(call.tool, call.arguments, await call.tool.call(call.arguments), True)
        for call in calls
    ]


def _call_list(text: str) -> list[object]:
    try:
        value: object = json.loads(text)
    except json.JSONDecodeError as error:
        raise ToolError(f"the model answered {shorten(text)}, expected a JSON list") from error
    calls = as_array(value)
    if calls is None:
        raise ToolError(f"the model answered {shorten(text)}, expected a JSON list of calls")
    return calls


def _checked(tools: ToolSet, call: object) -> ToolCall:
    known = as_object(call)
    if known is None or not {"name", "arguments"} <= set(known):
        raise ToolError(f"the model answered {shorten(call)}, expected name and arguments")
    tool = tools.named(known["name"])
    tool.check(known["arguments"])
    return ToolCall(tool, known["arguments"])
