"""Our tools, graphs and indices served to the official SDK's client, over pipes and HTTP."""

from __future__ import annotations

import asyncio
import socket
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp import Client, StdioServerParameters
from mcp_types import CallToolResult, TextContent

from agentloop import Graph
from agentloop.__main__ import main
from agentloop.errors import GraphBuildError, ToolError
from agentloop.graph_tools import graph_tool, index_tool, resume_tool
from agentloop.mcp_server import mcp_server, serve_http
from agentloop.retrieval.index import Index
from agentloop.stores import MemoryStore
from agentloop.tools import Tool
from tests.agentloop import served

HERE = Path(__file__).resolve().parent.parent.parent


def text(result: CallToolResult) -> str:
    return "\n".join(block.text for block in result.content if isinstance(block, TextContent))


def with_client(tools: list[Tool[..., Any]], use: Any) -> None:
    """Serve tools in this process to the SDK's client."""

    async def main() -> None:
        async with Client(mcp_server(tools)) as client:
            await use(client)

    asyncio.run(main())


def test_tools_are_served_with_their_schemas_and_checks() -> None:
    """Arguments are checked before, results after; failures are told, and say where."""

    async def use(client: Client) -> None:
        offered = {one.name: one for one in (await client.list_tools()).tools}
        greet, triple = offered["greet"], offered["triple"]
        assert greet.input_schema == served.greet.parameters
        assert greet.annotations is not None
        assert (greet.annotations.read_only_hint, greet.annotations.open_world_hint) == (
            False,
            True,
        )
        assert triple.annotations is not None
        assert triple.annotations.read_only_hint
        assert triple.output_schema == {
            "type": "object",
            "properties": {"result": {"type": "integer"}},
            "required": ["result"],
        }
        found = await client.call_tool("triple", {"number": 4})
        assert (found.structured_content, text(found), found.is_error) == (
            {"result": 12},
            "12",
            False,
        )
        assert text(await client.call_tool("greet", {"name": "Ann"})) == "Hello Ann"
        refused = await client.call_tool("greet", {"name": "A" * 21})
        assert refused.is_error
        assert text(refused).startswith(
            "tool 'greet' was not called: its arguments at /name do not"
        )
        broken = await client.call_tool("wrong", {})
        assert (broken.is_error, "does not fit its return annotation" in text(broken)) == (
            True,
            True,
        )
        unknown = await client.call_tool("nothing", {})
        assert (unknown.is_error, "there are greet, triple, wrong" in text(unknown)) == (True, True)

    with_client([served.greet, served.triple, served.wrong], use)


def test_a_graph_is_served_and_may_ask() -> None:
    """A run that waits gives its questions; a second tool takes the answers."""
    store = MemoryStore()
    tools = [
        graph_tool(served.order, "Order.", takes=["what"], store=store),
        resume_tool(served.order, store=store),
    ]

    async def use(client: Client) -> None:
        waiting = (await client.call_tool("order", {"what": "tea"})).structured_content
        assert waiting["waiting"] == {"agree:0": "Order tea?"}
        answer = {"run": waiting["run"], "answers": {"agree:0": True}}
        done = await client.call_tool("order_answer", answer)
        assert done.structured_content == {"what": "tea", "is_agreed": True}
        lost = await client.call_tool("order_answer", {**answer, "run": "x"})
        assert (lost.is_error, "there is no run 'x' of order" in text(lost)) == (True, True)

    with_client(tools, use)

    async def without_store(client: Client) -> None:
        refused = await client.call_tool("order", {"what": "tea"})
        assert (refused.is_error, "needs a store to wait in" in text(refused)) == (True, True)

    with_client([graph_tool(served.order, "Order.", gives="is_agreed")], without_store)


def test_a_graph_as_a_tool_names_fields_that_are_not_there() -> None:
    """The error lists what the state has."""
    graph: Graph[Any] = served.order
    cases: list[tuple[dict[str, Any], str]] = [
        ({"takes": []}, "needs 'what' as well; it has what, is_agreed"),
        ({"takes": ["what", "when"]}, "has no field 'when'"),
        ({"gives": "price"}, "has no field 'price'"),
    ]
    for options, message in cases:
        with pytest.raises(GraphBuildError, match=message):
            graph_tool(graph, "", **options)
    with pytest.raises(ToolError, match="'f' has no function to run, so it cannot be served"):
        mcp_server([Tool("f", "", {"type": "object"})])


def test_an_index_is_served_over_pipes(tmp_path: Path) -> None:
    """`agentloop mcp serve INDEX` speaks the protocol on standard output and nothing else."""
    documents = tmp_path / "documents"
    documents.mkdir()
    (documents / "tea.txt").write_text("Green tea is steamed.")
    with Index.open(tmp_path / "index", None) as index:
        index.sync(documents)
        assert index_tool(index, "About tea.").spec["description"] == "About tea."
    arguments = ["-m", "agentloop", "mcp", "serve", str(tmp_path / "index")]
    arguments += ["tests.agentloop.served:several", "tests.agentloop.served:order"]
    arguments += ["--store", str(tmp_path / "runs.db")]
    command = StdioServerParameters(command=sys.executable, args=arguments, cwd=HERE)

    async def main() -> None:
        async with Client(command) as client:
            names = [one.name for one in (await client.list_tools()).tools]
            assert names == ["search", "greet", "triple", "order", "order_answer"]
            found = await client.call_tool("search", {"query": "steamed tea"})
            (hit,) = found.structured_content["result"]
            assert (hit["path"], hit["text"]) == ("tea.txt", "Green tea is steamed.")
            waiting = (await client.call_tool("order", {"what": "tea"})).structured_content
            assert list(waiting["waiting"].values()) == ["Order tea?"]

    asyncio.run(main())


def test_http_serves_this_machine_alone() -> None:
    """A client of this machine is served; other hosts and pages from elsewhere are refused."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    address = f"http://127.0.0.1:{port}/mcp"
    server = mcp_server([served.triple])

    async def main() -> None:
        serving = asyncio.create_task(serve_http(server, port=port))
        for _ in range(400):
            await asyncio.sleep(0.02)
            with socket.socket() as reached:
                if reached.connect_ex(("127.0.0.1", port)) == 0:
                    break
        async with Client(address) as client:
            found = await client.call_tool("triple", {"number": 4})
            assert found.structured_content == {"result": 12}
        async with httpx.AsyncClient() as web:
            for headers in ({"host": "evil.example"}, {"origin": "http://evil.example"}):
                answer = await web.post(address, headers=headers, json={})
                assert answer.status_code in (403, 421)
        with pytest.raises(ToolError, match="use another port"):
            await serve_http(server, port=port)
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        with pytest.raises(ToolError, match=r"'0\.0\.0\.0' is not this machine alone"):
            await serve_http(server, host="0.0.0.0")

    asyncio.run(main())


def test_the_commands_list_and_call(capsys: pytest.CaptureFixture[str]) -> None:
    """A server's tools are listed with what was refused; a call prints its result."""
    server = f"{sys.executable} {Path(__file__).with_name('foreign_server.py')} hostile"
    assert main(["mcp", "tools", server, "--reads", "safe"]) == 0
    listed = capsys.readouterr().out
    assert "hostile: 6 tools" in listed
    assert "reads  safe(a?: string)" in listed
    assert "checked, not constrained: keyword 'pattern'" in listed
    assert "refused  'huge': has schemas of" in listed
    assert main(["mcp", "call", server, "chatty", '{"a": "x"}', "--json"]) == 0
    assert "called chatty with {'a': 'x'}" in capsys.readouterr().out
    for wrong, message in (
        (["call", server, "chatty", "{"], "is not JSON"),
        (["call", server, "chatty", "[]"], "is not a JSON object"),
        (["serve", "nowhere"], "is neither an index nor MODULE:NAME"),
        (["serve", "tests.agentloop.served:nothing"], "is a int; give a tool"),
        (["serve", "tests.agentloop.served:absent"], "cannot be loaded"),
    ):
        assert main(["mcp", *wrong]) == 1
        assert message in " ".join(capsys.readouterr().err.split())
