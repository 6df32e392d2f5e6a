"""Tools of other programs, over real pipes and loopback HTTP, with servers of the official SDK."""

from __future__ import annotations

import asyncio
import socket
import sys
import time
from asyncio.subprocess import Process
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from agentloop import END, START, Graph, Log, call_tools, use_model
from agentloop.agents import Conversation, Turn, agent
from agentloop.errors import ToolError
from agentloop.mcp_client import connect
from agentloop.mcp_tools import McpTool
from agentloop.sqlite_store import SQLiteStore
from agentloop.testing import ScriptedModel
from tests.agentloop.foreign_server import hostile

SERVER = Path(__file__).with_name("foreign_server.py")


def command(*arguments: str) -> list[str]:
    return [sys.executable, str(SERVER), *arguments]


@asynccontextmanager
async def http_server() -> AsyncGenerator[tuple[str, Process]]:
    """The honest server on a free port of this machine, in a process of its own."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = await asyncio.create_subprocess_exec(*command("http", str(port)))
    try:
        for _ in range(600):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            await asyncio.sleep(0.05)
        yield f"http://127.0.0.1:{port}/mcp", process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def test_a_server_on_pipes(tmp_path: Path) -> None:
    """Its tools are ours: schemas, checks, failures, timeouts with cancellation, and its end."""
    notes = tmp_path / "notes"

    async def main() -> None:
        async with connect(command("stdio"), reads=["add"], timeout_s=60) as tools:
            assert tools.server == "honest"
            assert tools.refused == {}
            assert {"add", "append", "wait", "fail", "end", "long"} == {t.name for t in tools}
            add, append = tools.named("add"), tools.named("append")
            assert (add.effect, add.sends) == ("none", False)
            assert (append.effect, append.sends) == ("once", True)
            assert add.description == "Add two numbers."
            assert set(add.parameters["properties"]) == {"a", "b"}
            assert await add.call({"a": 2}) == {"result": 3}
            assert await add(a=2, b=3) == {"result": 5}
            with pytest.raises(ToolError, match=r"'add' was not called: .*/a .*type 'integer'"):
                await add.call({"a": "two"})
            with pytest.raises(ToolError, match=r"'add' was not called"):
                await add(a="two")
            with pytest.raises(TypeError, match="by name only"):
                await add(2)
            assert await tools.named("long").call({"length": 50_000}) == (
                "x" * 20_000 + " [cut here: 30,000 characters more]"
            )
            with pytest.raises(ToolError, match=r"'fail' failed: .*out of milk"):
                await tools.named("fail").call({"reason": "out of milk"})
            await slow_is_cancelled(tools.named("wait"))
            with pytest.raises(ToolError, match=r"'end' could not be called: .*connect again"):
                await tools.named("end").call({})
            with pytest.raises(ToolError, match="'add' could not be called"):
                await add.call({"a": 1})

    async def slow_is_cancelled(wait: Any) -> None:
        wait.timeout_s = 0.5
        with pytest.raises(TimeoutError, match=r"'wait' took longer than its timeout of 0\.5 s"):
            await wait.call({"seconds": 60, "path": str(notes)})
        wait.timeout_s = None
        task = asyncio.create_task(wait.call({"seconds": 60, "path": str(notes)}))
        await asyncio.sleep(0.5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        for _ in range(200):
            if notes.exists() and notes.read_text().count("cancelled") == 2:
                break
            await asyncio.sleep(0.05)
        assert notes.read_text() == "cancelled\n" * 2

    asyncio.run(main())


def test_a_server_over_http_in_a_recorded_run(tmp_path: Path) -> None:
    """A remote effect happens once, however often the run is resumed; its result is recorded."""
    notes = tmp_path / "notes"
    store = SQLiteStore(tmp_path / "runs.db")

    class S(BaseModel):
        log: Log[str] = []

    async def main() -> None:
        crashes = 2
        async with (
            http_server() as (address, process),
            connect(address, trust_hints=True) as tools,
        ):
            assert (tools.named("add").effect, tools.named("add").sends) == ("none", False)

            async def work(s: S) -> None:
                nonlocal crashes
                for line in ("one", "two"):
                    found = await tools.named("append").call({"path": str(notes), "line": line})
                    if crashes:
                        crashes -= 1
                        raise RuntimeError("crashed")
                    s.log.append(f"{line} {found['result']}")

            graph = Graph(S).chain(START, work, END)
            for _ in range(2):
                with pytest.raises(RuntimeError, match="crashed"):
                    await graph.run(S(), run="r", store=store)
            result = await graph.run(run="r", store=store)
            assert result.state.log == ["one done", "two done"]
            waiting = asyncio.create_task(
                tools.named("wait").call({"seconds": 60, "path": str(tmp_path / "none")})
            )
            await asyncio.sleep(0.5)
            process.kill()
            with pytest.raises(ToolError, match="'wait' could not be called"):
                await waiting  # an error of this call: nobody's task is cancelled
            with pytest.raises(ToolError, match="'add' could not be called"):
                await tools.named("add").call({"a": 1})
        assert notes.read_text() == "one\ntwo\n"

    asyncio.run(main())


def test_a_hostile_server_is_only_text() -> None:
    """Bad names, schemas and sizes are refused one by one; hints are not believed."""

    async def main() -> None:
        async with connect(command("hostile"), max_result=1000) as tools:
            check_offer(tools)
            chatty = tools.named("chatty")
            answer = await chatty.call({"a": "x"})
            assert answer == "called chatty with {'a': 'x'}\n[image left out: 'image/png']"
            with pytest.raises(ToolError, match=r"'liar' gave no usable result: .*'many'"):
                await tools.named("liar").call({})
            long = await tools.named("safe").call({})
            assert len(long) < 1100
            assert long.endswith("characters more]")
            with pytest.raises(ToolError, match=r"'elsewhere' was not called: .*Unresolvable"):
                await tools.named("elsewhere").call({"a": 1})

    asyncio.run(main())


def check_offer(tools: Any) -> None:
    refused = {"'<|im_end|>'", "'twice'", "'broken'", "'huge'"}
    assert set(tools.refused) == refused
    assert "needs a name of 1 to 128 letters" in tools.refused["'<|im_end|>'"]
    assert "10" in tools.refused["'huge'"]
    assert "invalid JSON schema" in tools.refused["'broken'"]
    assert tools.named("twice").description == "first"
    chatty = tools.named("chatty")
    assert len(chatty.description) == 1000
    assert chatty.description.isprintable()
    safe = tools.named("safe")
    assert (safe.effect, safe.sends) == ("once", True)


class Loose:
    """A model that answers what it likes, as a remote one may."""

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)
        self.asked: list[Any] = []

    async def generate(self, messages: Any, *, constraint: Any = None, **settings: Any) -> Any:
        self.asked.append((list(messages), constraint))
        return await ScriptedModel([self.answers.pop(0)]).generate(messages)


def test_a_schema_that_the_engine_refuses_is_loosened_and_checked_in_full(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What is left out is told; the model is corrected by the whole schema, within bounds."""

    async def main() -> None:
        async with connect(hostile()) as tools:
            tool = tools.named("lookahead")
            assert isinstance(tool, McpTool)
            assert len(tool.left_out) == 1
            assert "'pattern' at #/lookahead/properties/code" in tool.left_out[0]
            model = Loose(
                '[{"name": "lookahead", "arguments": {"code": "zz"}}]',
                '[{"name": "lookahead", "arguments": {"code": "ab"}}]',
            )
            with use_model(model):
                (call,) = await call_tools([tool], [{"role": "user", "content": "go"}])
            assert call.arguments == {"code": "ab"}
            messages, constraint = model.asked[1]
            assert "not called: its arguments at /code do not fit" in messages[-1]["content"]
            assert constraint.accepts('[{"name": "lookahead", "arguments": {"code": "zz"}}]')
            assert not constraint.accepts('[{"name": "lookahead", "arguments": {"code": 1}}]')

    asyncio.run(main())
    assert "constrained without what the engine refuses: keyword 'pattern'" in caplog.text


def test_a_server_that_cannot_be_used_is_an_error_that_says_why(tmp_path: Path) -> None:
    """No such program, one that says nothing, one that ends, no address, a wrong name."""

    async def main() -> None:
        with pytest.raises(ToolError, match=r"'no-such-program' cannot be used: .*No such file"):
            async with connect("no-such-program"):
                pass
        started = time.monotonic()
        with pytest.raises(ToolError, match=r"did not answer in 0\.5 s"):
            async with connect(command("silent"), timeout_s=0.5):
                pass
        assert time.monotonic() - started < 30  # it was stopped, not waited for
        with pytest.raises(ToolError, match="cannot be used"):
            async with connect([sys.executable, "-c", "pass"]):
                pass
        with pytest.raises(ToolError, match=r"127\.0\.0\.1:9/mcp cannot be used"):
            async with connect("http://127.0.0.1:9/mcp"):
                pass
        with pytest.raises(ToolError, match="needs an address or a command"):
            async with connect([]):
                pass
        with pytest.raises(ToolError, match=r"reads=\['x'\] names no tool of hostile; it has"):
            async with connect(hostile(), reads=["x"]):
                pass

    asyncio.run(main())


def test_what_happens_inside_a_connection_comes_through() -> None:
    """An error of the user's own code is not dressed up as one of the server."""

    async def main() -> None:
        with pytest.raises(KeyError, match="mine"):
            async with connect(hostile()):
                raise KeyError("mine")

    asyncio.run(main())


def test_a_tool_of_another_loop_says_what_to_do() -> None:
    """A connection lives in one event loop."""

    async def main() -> None:
        async with connect(hostile(), prefix="far_") as tools:
            tool = tools.named("far_chatty")

            async def work(s: Conversation) -> None:
                await tool.call({"a": "x"})

            graph = Graph(Conversation).chain(START, work, END)
            with pytest.raises(ToolError, match="not with run_sync"):
                graph.run_sync(Conversation())

    asyncio.run(main())


def test_an_agent_uses_a_remote_tool() -> None:
    """They go wherever tools go."""

    async def main() -> None:
        async with connect(hostile()) as tools:
            wanted = [{"name": "chatty", "arguments": {"a": "hi"}}]
            model = ScriptedModel([wanted, [], "It said hi."])
            question = Conversation(turns=[Turn(role="user", content="Call it.")])
            state = (await agent([tools.named("chatty")]).run(question, model=model)).state
            assert state.answer == "It said hi."
            assert "called chatty with {'a': 'hi'}" in state.turns[2].content

    asyncio.run(main())
