"""Runs as OpenTelemetry traces, and as lines of a log."""

import asyncio
import logging
from typing import Any

import pytest
from pydantic import BaseModel

from agentloop import END, START, Graph, Log, ask, each, emit, llm, node, tool
from agentloop.errors import GraphError
from agentloop.events import Event
from agentloop.log_lines import LogLines, line_of
from agentloop.stores import MemoryStore
from agentloop.testing import EventLog, ScriptedModel
from agentloop.tracing import Tracing

sdk = pytest.importorskip("opentelemetry.sdk.trace", reason="needs the extra `tracing`")
exporting = pytest.importorskip("opentelemetry.sdk.trace.export")
memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")


class S(BaseModel):
    items: tuple[int, ...] = (1, 2)
    log: Log[str] = []


@tool
async def look(item: int) -> str:
    return f"secret {item}"


async def plan(s: S) -> None:
    s.log += [await llm(str, "secret question", max_tokens=7)]
    emit("note", "secret")


async def work(s: S, item: int) -> None:
    s.log += [await look(item)]


async def approve(s: S) -> None:
    s.log += [await ask("fine?", str)]


async def fails(s: S) -> None:
    raise ValueError("broken")


def graph() -> Graph[S]:
    return Graph(S, name="g").chain(START, plan, each(work, over="items"), approve, END)


class Traces:
    """A provider whose spans are kept."""

    def __init__(self) -> None:
        self.exporter: Any = memory.InMemorySpanExporter()
        self.provider: Any = sdk.TracerProvider()
        self.provider.add_span_processor(exporting.SimpleSpanProcessor(self.exporter))

    @property
    def spans(self) -> list[Any]:
        return list(self.exporter.get_finished_spans())

    def named(self, name: str) -> Any:
        (found,) = [span for span in self.spans if span.name == name]
        return found


def test_a_run_is_one_trace_of_nodes_and_calls() -> None:
    """Spans nest as the run does, and are named and described by the conventions."""
    traces, store = Traces(), MemoryStore()
    model = ScriptedModel(["an answer"])
    graph().run_sync(S(), run="r", store=store, model=model, on_event=Tracing(traces.provider))
    assert len({span.context.trace_id for span in traces.spans}) == 1
    root = traces.named("invoke_agent g")
    assert root.parent is None
    assert root.attributes["gen_ai.operation.name"] == "invoke_agent"
    assert root.attributes["gen_ai.agent.name"] == "g"
    assert root.attributes["agentloop.status"] == "waiting"
    plan_span, chat = traces.named("plan"), traces.named("chat str")
    assert plan_span.parent.span_id == root.context.span_id
    assert chat.parent.span_id == plan_span.context.span_id
    assert chat.attributes["gen_ai.operation.name"] == "chat"
    assert chat.attributes["gen_ai.request.max_tokens"] == 7
    assert chat.attributes["gen_ai.usage.output_tokens"] == 0
    assert chat.kind.name == "CLIENT"
    tools = [span for span in traces.spans if span.name == "execute_tool look"]
    assert [span.attributes["gen_ai.tool.name"] for span in tools] == ["look", "look"]
    assert {span.attributes["agentloop.path"] for span in tools} == {"work[0]:0", "work[1]:0"}
    assert [event.name for event in plan_span.events] == ["note"]


def test_a_resumed_run_goes_on_in_its_trace() -> None:
    """Also in another process, from what the store holds: below the first session, linked to it."""
    first, second, store = Traces(), Traces(), MemoryStore()
    model = ScriptedModel(["an answer"])
    graph().run_sync(S(), run="r", store=store, model=model, on_event=Tracing(first.provider))
    answers = {"approve:0": "yes"}
    for _ in range(2):
        listener = Tracing(second.provider)
        graph().run_sync(run="r", store=store, answers=answers, on_event=listener)
        answers = {}
    root = first.named("invoke_agent g")
    again = [span for span in second.spans if span.name == "invoke_agent g"]
    assert len(again) == 2
    for span in again:
        assert span.context.trace_id == root.context.trace_id
        assert span.parent.span_id == root.context.span_id
        assert [link.context.span_id for link in span.links] == [root.context.span_id]
        assert span.attributes["agentloop.resumed"] is True
    assert [row.kind for row in store.rows("r")].count("trace") == 1


def test_what_was_said_is_not_traced_unless_asked_for() -> None:
    """Prompts, answers and the data of own events stay out by default."""
    for content in (False, True):
        traces = Traces()
        tracing = Tracing(traces.provider, content=content)
        model = ScriptedModel(["secret answer"])
        graph().run_sync(S(), run="r", store=MemoryStore(), model=model, on_event=tracing)
        assert ("secret" in "".join(span.to_json() for span in traces.spans)) is content


def test_failures_end_their_spans_with_their_error() -> None:
    """The node's, its run's; a node that is tried again has a span for each try."""
    traces = Traces()
    g = Graph(S, name="g").chain(START, node(fails, retries=1), END)
    g.run_sync(S(), check=False, on_event=Tracing(traces.provider))
    tries = [span for span in traces.spans if span.name == "fails"]
    assert len(tries) == 2
    for span in [*tries, traces.named("invoke_agent g")]:
        assert span.status.status_code.name == "ERROR"
        assert span.attributes["error.type"] == "ValueError"
    assert traces.named("invoke_agent g").attributes["agentloop.status"] == "failed"


def test_a_recorded_trace_that_is_none_is_left_aside() -> None:
    """A hostile row makes a new trace, nothing else."""
    for earlier in (None, "", "x", "0" * 32 + "-" + "0" * 16, "../../etc"):
        tracing = Tracing(Traces().provider)
        assert tracing.begin("r", earlier).count("-") == 1


def test_one_listener_serves_many_runs_at_once() -> None:
    """Each run has a trace of its own, and no span stays open."""
    traces = Traces()
    tracing = Tracing(traces.provider)

    async def main() -> None:
        model = ScriptedModel(lambda call: "x")
        g = Graph(S, name="g").chain(START, plan, each(work, over="items"), END)
        await g.map([S() for _ in range(5)], model=model, on_event=tracing)

    asyncio.run(main())
    assert len({span.context.trace_id for span in traces.spans}) == 5
    assert len(traces.spans) == 5 * (1 + 1 + 1 + 2 + 2)


def test_without_the_extra_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing else of the package needs it."""
    monkeypatch.setitem(__import__("sys").modules, "opentelemetry", None)
    with pytest.raises(GraphError, match=r"pip install 'agentloop\[tracing\]'"):
        Tracing()


def test_log_lines_name_what_happened_and_hold_no_content(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Runs at INFO, failures above, the rest at DEBUG; several listeners may share a run."""
    kept = EventLog()
    model = ScriptedModel(["secret answer"])
    with caplog.at_level(logging.DEBUG, "agentloop.run"):
        graph().run_sync(
            S(), run="r", store=MemoryStore(), model=model, on_event=[LogLines(), kept]
        )
    assert len(caplog.messages) == len(kept)
    assert "secret" not in caplog.text
    assert "node.end plan wrote log" in caplog.text
    assert "call.start work[0]:0 tool look" in caplog.text
    assert "run.waiting for approve:0" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.INFO, "agentloop.run"):
        Graph(S).chain(START, fails, END).run_sync(S(), check=False, on_event=LogLines())
    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING", "ERROR"]


def test_a_log_line_is_one_line() -> None:
    """Neither a run's name nor an error can forge another line."""
    event = Event("r\nfake", "", "run.error", ValueError("a\nb\x1b[2J"), 0.5)
    assert line_of(event) == "r\\nfake 0.500 run.error ValueError: a\\nb\\x1b[2J"
