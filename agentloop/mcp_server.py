"""Tools served to other programs by the Model Context Protocol, on this machine alone.

Arguments are checked before a tool runs and results after; what fails is told as a tool's error, so
that a model can do something about it. Nobody is asked for approval here: that is the business of
the program whose model makes the calls.

Needs the extra `mcp`: pip install 'agentloop[mcp]'.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from typing import Any

import mcp_types as types
from mcp.server import Server
from mcp.server.stdio import stdio_server
from pydantic import ValidationError

from agentloop.errors import GraphError, ToolError
from agentloop.json_data import as_object
from agentloop.mcp_results import cut
from agentloop.model.prompts import Schema
from agentloop.tools import Tool
from agentloop.toolset import ToolSet

logger = logging.getLogger("agentloop")
LOOPBACK = ("127.0.0.1", "::1", "localhost")
_ERROR_LENGTH = 1000


def mcp_server(
    tools: Iterable[Tool[..., Any]], *, name: str = "agentloop", instructions: str | None = None
) -> Server[Any]:
    """A server of tools. `agentloop.graph_tools` makes tools of graphs and of indices.

    Args:
        tools: The tools.
        name: What the server calls itself.
        instructions: What it tells its clients about the tools together.

    Raises:
        GraphBuildError: Two tools have the same name.
        ToolError: A tool has no function to run.
    """
    known = ToolSet(tools)
    for one in known:
        if not one.is_runnable:
            raise ToolError(f"tool {one.name!r} has no function to run, so it cannot be served")

    async def list_tools(_: object, __: types.PaginatedRequestParams | None) -> Any:
        return types.ListToolsResult(tools=[_described(one) for one in known])

    async def call_tool(_: object, params: types.CallToolRequestParams) -> Any:
        return await _called(known, params.name, params.arguments or {})

    return Server(
        name,
        version=version("agentloop"),
        instructions=instructions,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


async def serve_stdio(server: Server[Any]) -> None:
    """Serve the program that started this one, on standard input and output, until it hangs up."""
    async with stdio_server() as (reads, writes):
        await server.run(reads, writes, server.create_initialization_options())


async def serve_http(server: Server[Any], *, port: int = 8000, host: str = "127.0.0.1") -> None:
    """Serve programs of this machine at `http://HOST:PORT/mcp` until cancelled or interrupted.

    Requests that name another host or come from a web page elsewhere are refused.

    Raises:
        ToolError: The host is not this machine's own address, or the port is taken.
    """
    if host not in LOOPBACK:
        raise ToolError(
            f"host {host!r} is not this machine alone; use one of {', '.join(LOOPBACK)}: whoever "
            "reaches the server can run its tools"
        )
    import uvicorn  # comes with the SDK

    app = server.streamable_http_app(host=host)
    config = uvicorn.Config(app, log_level="warning", lifespan="on", timeout_graceful_shutdown=1)
    serving = uvicorn.Server(config)
    with _listening(host, port) as listener:
        task = asyncio.ensure_future(serving.serve(sockets=[listener]))
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            serving.should_exit = True  # it closes what it has opened before it ends
            await task
            raise


def _listening(host: str, port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise ToolError(f"{host}:{port} cannot be served: {error}; use another port") from error
    return listener


def _described(tool: Tool[..., Any]) -> types.Tool:
    return types.Tool(
        name=tool.name,
        description=tool.description,
        input_schema=dict(tool.parameters),
        output_schema=_output_schema(tool.returns),
        annotations=types.ToolAnnotations(
            read_only_hint=tool.effect == "none",
            idempotent_hint=tool.effect == "idempotent",
            open_world_hint=tool.sends,
        ),
    )


def _is_object(schema: Schema) -> bool:
    return schema.get("type") == "object"


def _output_schema(returns: Schema | None) -> dict[str, Any] | None:
    """The schema of structured content, which is an object: anything else becomes its `result`."""
    if returns is None or returns.get("type") == "null":
        return None
    if _is_object(returns):
        return dict(returns)
    inner = {key: value for key, value in returns.items() if key != "$defs"}
    schema = {"type": "object", "properties": {"result": inner}, "required": ["result"]}
    return schema | ({"$defs": returns["$defs"]} if "$defs" in returns else {})


async def _called(tools: ToolSet, name: str, arguments: Mapping[str, Any]) -> types.CallToolResult:
    try:
        tool = tools.named(name)
        value = await tool.encoded(arguments)
    except (ToolError, GraphError, ValidationError, TimeoutError) as error:
        return _failed(str(error))
    except Exception as error:  # the tool's own: the model is told, and the log has all of it
        logger.exception("tool %s failed", name)
        return _failed(f"{type(error).__name__}: {error}")
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    content: list[types.ContentBlock] = [types.TextContent(type="text", text=text)]
    returns = tool.returns
    if returns is None:
        return types.CallToolResult(content=content, structured_content=as_object(value))
    if _output_schema(returns) is None:
        return types.CallToolResult(content=content)
    structured = value if _is_object(returns) else {"result": value}
    return types.CallToolResult(content=content, structured_content=structured)


def _failed(reason: str) -> types.CallToolResult:
    text = types.TextContent(type="text", text=cut(reason, _ERROR_LENGTH))
    return types.CallToolResult(content=[text], is_error=True)
