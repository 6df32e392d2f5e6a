"""Tools of other programs, by the Model Context Protocol: `async with connect(...) as tools:`.

They are tools like any other: their arguments are checked here against the server's schema before
anything is sent, calls are recorded in the run, and effects run at most once. A server is not
trusted: what it says of its tools and what they give back is bounded, checked, and never more than
text for a model; whether its tools act is for the caller to say.

Needs the extra `mcp`: pip install 'agentloop[mcp]'.
"""

from __future__ import annotations

import asyncio
import logging
import shlex
import sys
from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import mcp_types as types
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.server import Server

from agentloop.errors import ToolError
from agentloop.mcp_tools import FAILURES, MAX_TOOLS, McpTools, Terms, offered_tools, reason_of

logger = logging.getLogger("agentloop")

Address: TypeAlias = str | Sequence[str] | StdioServerParameters | Server[Any]
"""An address (`http://...`), a command, or a server in this process."""


@asynccontextmanager
async def connect(
    server: Address,
    *,
    reads: Collection[str] = (),
    trust_hints: bool = False,
    prefix: str = "",
    timeout_s: float | None = 60.0,
    max_result: int = 20_000,
) -> AsyncGenerator[McpTools]:
    """Connect to a server of the Model Context Protocol and give its tools.

    Args:
        server: Its address (`"http://127.0.0.1:8000/mcp"`), or the command that starts it, as a
            list or as one text.
        reads: Names of tools that only read and tell nobody: they may run again and need no
            approval. All others count as acting: at most once for one call.
        trust_hints: Whether to believe what the server says of that itself (its tools'
            annotations). Only for servers that you would run as your own code.
        prefix: Put in front of every name, to tell servers apart.
        timeout_s: Seconds that connecting, and each call, may take.
        max_result: Characters of a result that are taken; a longer one is cut and says so.

    Yields:
        The tools, for as long as the connection is open. The server is stopped at the end.

    Raises:
        ToolError: The server cannot be started or reached, or does not speak the protocol.
    """
    terms = Terms(reads, trust_hints, prefix, timeout_s, max_result)
    transport, label = _transport(server)
    client = Client(transport, client_info=types.Implementation(name="agentloop", version=""))
    is_open: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    is_over = asyncio.Event()
    host = asyncio.create_task(_keep_open(client, label, is_open, is_over))
    try:
        try:
            async with asyncio.timeout(timeout_s):
                await is_open
        except TimeoutError as error:
            host.cancel()
            raise ToolError(f"the MCP server {label} did not answer in {timeout_s} s") from error
        except (*FAILURES, ExceptionGroup) as error:
            raise ToolError(f"the MCP server {label} cannot be used: {reason_of(error)}") from error
        offered = await _listed(client, label, timeout_s)
        info = client.server_info
        yield offered_tools(client, offered, info.name if info else label, terms)
    finally:
        is_over.set()
        await asyncio.wait({host})


async def _keep_open(
    client: Client, label: str, is_open: asyncio.Future[None], is_over: asyncio.Event
) -> None:
    """Hold a connection in a task of its own: when it breaks, its users are not cancelled."""
    try:
        async with client:
            if not is_open.done():
                is_open.set_result(None)
            await is_over.wait()
    except Exception as error:
        if not is_open.done():
            is_open.set_exception(error)
        elif not is_over.is_set():
            logger.warning("MCP server %s: the connection is lost: %s", label, reason_of(error))


def _transport(server: Address) -> tuple[Any, str]:
    """What the SDK takes, and how errors call it."""
    if isinstance(server, Server):
        return server, repr(server.name)
    if isinstance(server, str) and "://" in server:
        return server, server
    if not isinstance(server, StdioServerParameters):
        words = shlex.split(server) if isinstance(server, str) else list(server)
        if not words:
            raise ToolError("connect() needs an address or a command, got an empty one")
        server = StdioServerParameters(command=words[0], args=words[1:])
    errors = sys.__stderr__ or sys.stderr  # a file of its own, also where sys.stderr is captured
    return stdio_client(server, errlog=errors), repr(shlex.join([server.command, *server.args]))


async def _listed(client: Client, label: str, timeout_s: float | None) -> list[types.Tool]:
    tools: list[types.Tool] = []
    cursor: str | None = None
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                page = await client.list_tools(cursor=cursor)
                tools += page.tools
                cursor = page.next_cursor
                if cursor is None or not page.tools or len(tools) > MAX_TOOLS:
                    return tools
    except TimeoutError as error:
        raise ToolError(
            f"the MCP server {label} did not list its tools within {timeout_s} s"
        ) from error
    except FAILURES as error:
        raise ToolError(
            f"the MCP server {label} cannot list its tools: {reason_of(error)}"
        ) from error
