"""The commands `mcp tools`, `mcp call` and `mcp serve`: what they do."""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import sys
from collections.abc import Generator, Iterable, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from rich.text import Text

from agentloop.errors import GraphBuildError, ToolError
from agentloop.graph import Graph
from agentloop.graph_tools import graph_tool, index_tool, resume_tool
from agentloop.json_data import as_object
from agentloop.sqlite_store import sqlite_store
from agentloop.terminal import load_model, out, print_json, printable
from agentloop.tools import Tool

if TYPE_CHECKING:
    from agentloop.mcp_tools import McpTools
    from agentloop.model_calls import Model


def run_tools(server: str, reads: Sequence[str], timeout_s: float, *, as_json: bool) -> None:
    """`agentloop mcp tools`."""
    connect = _sdk_module("agentloop.mcp_client").connect

    async def main() -> None:
        async with connect(server, reads=reads, timeout_s=timeout_s) as tools:
            if as_json:
                print_json(_as_json(tools))
            else:
                _print(tools)

    asyncio.run(main())


def run_call(server: str, tool: str, arguments: str, timeout_s: float, *, as_json: bool) -> None:
    """`agentloop mcp call`."""
    connect = _sdk_module("agentloop.mcp_client").connect
    try:
        request = as_object(json.loads(arguments))
    except json.JSONDecodeError as error:
        raise ToolError(f"{arguments!r} is not JSON: {error}") from error
    if request is None:
        raise ToolError(f"{arguments!r} is not a JSON object of arguments")

    async def main() -> object:
        async with connect(server, timeout_s=timeout_s) as tools:
            return await tools.named(tool).call(request)

    try:
        value = asyncio.run(main())
    except TimeoutError as error:
        raise ToolError(str(error)) from error
    if as_json:
        print_json({"result": value})
    else:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        out.print(Text(printable(text)))


def run_serve(
    served: Sequence[str], name: str, port: int | None, store: Path | None, model: str | None
) -> None:
    """`agentloop mcp serve`."""
    sdk = _sdk_module("agentloop.mcp_server")
    with ExitStack() as stack:
        lm: Model | None = stack.enter_context(load_model(model)) if model is not None else None
        tools = [tool for what in served for tool in stack.enter_context(_opened(what, store, lm))]
        server = sdk.mcp_server(tools, name=name)
        if port is None:
            asyncio.run(sdk.serve_stdio(server))
            return
        names = ", ".join(tool.name for tool in tools)
        out.print(f"serving {names} at http://127.0.0.1:{port}/mcp; stop with Ctrl-C")
        asyncio.run(sdk.serve_http(server, port=port))


def _sdk_module(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name not in ("mcp", "mcp_types"):
            raise
        raise ToolError(
            "the Model Context Protocol needs its SDK: pip install 'agentloop[mcp]'"
        ) from error


@contextmanager
def _opened(what: str, store: Path | None, model: Model | None) -> Generator[list[Tool[..., Any]]]:
    """The tools that an index or a name in a module stands for, while they may be used."""
    from agentloop.retrieval.index import Index  # brings the store, so only when needed

    if Index.exists(what):
        with Index.open(what, create=False) as index:
            documents = f"{index.stats().num_documents:,} documents of {Path(what).name}"
            yield [index_tool(index, f"Find passages in {documents}.")]
        return
    module, colon, name = what.partition(":")
    if not colon:
        raise ToolError(
            f"{what} is neither an index nor MODULE:NAME; make an index with `agentloop index`, or "
            "name a tool, a list of tools or a graph of a module"
        )
    yield list(_tools_of(_named(module, name), what, store, model))


def _named(module: str, name: str) -> object:
    """The object of a module in the current folder or of an installed one."""
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ToolError(f"{module}:{name} cannot be loaded: {error}") from error


def _tools_of(
    found: object, what: str, store: Path | None, model: Model | None
) -> Iterable[Tool[..., Any]]:
    if isinstance(found, Tool):
        return [cast(Tool[..., Any], found)]
    if isinstance(found, Graph):
        graph: Graph[Any] = cast(Any, found)
        about = " ".join((graph.state.__doc__ or graph.name).split())
        if store is None:
            return [graph_tool(graph, about, model=model)]
        runs = sqlite_store(store)
        return [
            graph_tool(graph, about, model=model, store=runs),
            resume_tool(graph, store=runs, model=model),
        ]
    is_list = isinstance(found, Iterable)
    tools = list(cast(Iterable[object], found)) if is_list else []
    if not tools or not all(isinstance(one, Tool) for one in tools):
        raise GraphBuildError(
            f"{what} is a {type(found).__name__}; give a tool, a list of tools or a graph"
        )
    return cast(list[Tool[..., Any]], tools)


def _as_json(tools: McpTools) -> dict[str, Any]:
    return {
        "server": tools.server,
        "tools": [
            {**tool.spec, "effect": tool.effect, "left_out": list(_left_out(tool))}
            for tool in tools
        ],
        "refused": tools.refused,
    }


def _left_out(tool: Tool[..., Any]) -> tuple[str, ...]:
    from agentloop.loosening import loosened

    return loosened(tool.spec).left_out


def _print(tools: McpTools) -> None:
    from agentloop.model.prompts import tool_signature

    out.print(Text(f"{printable(tools.server)}: {len(tools)} tools", style="bold"))
    for tool in tools:
        acts = "reads" if tool.effect == "none" else "acts"
        out.print(Text(f"  {acts}  {printable(tool_signature(tool.spec))}"))
        for reason in _left_out(tool):
            out.print(Text(f"         checked, not constrained: {printable(reason)}", style="dim"))
    for name, reason in tools.refused.items():
        out.print(Text(f"  refused  {printable(name)}: {printable(reason)}", style="yellow"))
