"""What a server of the Model Context Protocol offers, as tools; what cannot be used is refused."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import anyio
import mcp_types as types
from mcp import Client, MCPError
from pydantic import ValidationError

from agentloop.bodies import JsonBody
from agentloop.context import Effect, idempotency_key
from agentloop.drafts import shorten
from agentloop.errors import GraphBuildError, ToolError
from agentloop.loosening import loosened
from agentloop.mcp_results import result_value
from agentloop.tools import Tool
from agentloop.toolset import ToolSet

logger = logging.getLogger("agentloop")

FAILURES = (
    MCPError,
    OSError,
    ValidationError,
    anyio.ClosedResourceError,
    anyio.BrokenResourceError,
    anyio.EndOfStream,
)
"""What the SDK raises when a server fails."""

MAX_TOOLS = 1000
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_MAX_DESCRIPTION = 1000
_MAX_SCHEMA = 100_000


@dataclass(frozen=True, slots=True)
class Terms:
    """How a server's tools are taken; described at `agentloop.mcp_client.connect`."""

    reads: Collection[str]
    trust_hints: bool
    prefix: str
    timeout_s: float | None
    max_result: int


class McpTool(Tool[..., Any]):
    """A tool of another program."""

    is_foreign = True

    @property
    def left_out(self) -> tuple[str, ...]:
        """What of its schema a model is not constrained by, because the engine refuses it.

        Arguments are checked against all of it in any case.
        """
        return loosened(self.spec).left_out


class McpTools(ToolSet):
    """The tools of a server.

    Attributes:
        server: What the server calls itself.
        refused: Tools that cannot be used, by name, with the reason.
    """

    def __init__(self, tools: Sequence[McpTool], server: str, refused: Mapping[str, str]) -> None:
        super().__init__(tools)
        self.server = server
        self.refused = dict(refused)


class _RemoteBody(JsonBody):
    """What a tool of another program does: send a request and wait for the result."""

    def __init__(self, client: Client, tool: types.Tool, max_length: int) -> None:
        super().__init__(tool.name, self._request, tool.output_schema)
        self._client = client
        self._max_length = max_length
        self._loop = asyncio.get_running_loop()

    async def _request(self, arguments: dict[str, Any]) -> Any:
        if asyncio.get_running_loop() is not self._loop:
            raise ToolError(
                f"tool {self._name!r} belongs to a connection of another event loop; run the graph "
                "with `await g.run(...)` inside `async with connect(...)`, not with run_sync",
                tool=self._name,
            )
        key = idempotency_key()
        meta = cast(types.RequestParamsMeta, {"idempotency-key": key}) if key else None
        try:
            result = await self._client.call_tool(self._name, arguments, meta=meta)
        except RuntimeError as error:  # the SDK's, for what does not fit the output schema
            raise ToolError(
                f"tool {self._name!r} gave no usable result: {reason_of(error)}", tool=self._name
            ) from error
        except FAILURES as error:
            raise ToolError(
                f"tool {self._name!r} could not be called: {reason_of(error)}; the server may have "
                "ended, connect again",
                tool=self._name,
            ) from error
        return result_value(self._name, result, self._max_length)


def offered_tools(
    client: Client, offered: Sequence[types.Tool], server: str, terms: Terms
) -> McpTools:
    """The tools that a server offers, and those that are refused.

    Raises:
        ToolError: `reads` names a tool that is not there.
    """
    unknown = sorted(set(terms.reads) - {tool.name for tool in offered})
    if unknown:
        names = ", ".join(sorted(tool.name for tool in offered)[:20]) or "none"
        raise ToolError(f"reads={unknown} names no tool of {server}; it has {names}")
    tools: dict[str, McpTool] = {}
    refused: dict[str, str] = {}
    for number, tool in enumerate(offered):
        try:
            made = _made(client, tool, number, terms)
            if made.name in tools:
                raise GraphBuildError("has the name of another")
            tools[made.name] = made
        except GraphBuildError as error:
            refused[shorten(tool.name)] = str(error)
            logger.warning("MCP server %s: tool %s %s", server, shorten(tool.name), error)
    return McpTools(list(tools.values()), server, refused)


def _made(client: Client, tool: types.Tool, number: int, terms: Terms) -> McpTool:
    """A server's tool as one of ours; `GraphBuildError` if it cannot be offered to a model."""
    if number >= MAX_TOOLS:
        raise GraphBuildError(f"is one of more than {MAX_TOOLS}")
    if not _NAME.fullmatch(tool.name):
        raise GraphBuildError("needs a name of 1 to 128 letters, digits, or . _ -")
    length = len(json.dumps(tool.input_schema)) + len(json.dumps(tool.output_schema))
    if length > _MAX_SCHEMA:
        raise GraphBuildError(f"has schemas of {length:,} characters, more than {_MAX_SCHEMA:,}")
    effect, sends = _conduct(tool, terms)
    return McpTool(
        f"{terms.prefix}{tool.name}",
        _description(tool),
        tool.input_schema,
        body=_RemoteBody(client, tool, terms.max_result),
        effect=effect,
        sends=sends,
        timeout_s=terms.timeout_s,
    )


def _description(tool: types.Tool) -> str:
    """What the server says of a tool, on one line of bounded length without control characters."""
    shown = "".join(c if c.isprintable() else " " for c in (tool.description or "")[:10_000])
    return " ".join(shown.split())[:_MAX_DESCRIPTION]


def _conduct(tool: types.Tool, terms: Terms) -> tuple[Effect, bool]:
    """A tool's effect, and whether its arguments count as told to others."""
    if tool.name in terms.reads:
        return "none", False
    hints = tool.annotations if terms.trust_hints else None
    if hints is None:
        return "once", True
    sends = hints.open_world_hint is not False
    if hints.read_only_hint:
        return "none", sends
    return ("idempotent" if hints.idempotent_hint else "once"), sends


def reason_of(error: BaseException) -> str:
    """What went wrong, in one short line; of a group of errors, the first."""
    while isinstance(error, BaseExceptionGroup):
        error = cast(BaseExceptionGroup[BaseException], error).exceptions[0]
    text = " ".join(str(error).split()) or type(error).__name__
    return text[:300]
