"""A run as an OpenTelemetry trace: `g.run(..., on_event=Tracing())`. Needs the extra `tracing`.

One trace per run: a span for the run, under it one per node, under these one per call, named and
described by the semantic conventions for generative AI. A recorded run that is resumed goes on in
the same trace: each session has a span that hangs below the first one's and links to it.

Prompts and answers are not part of a trace unless that is asked for.

Source: https://opentelemetry.io/docs/specs/semconv/gen-ai/
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from pydantic_core import to_json

from agentloop.errors import GraphError
from agentloop.events import Event
from agentloop.json_data import as_object

if TYPE_CHECKING:
    from opentelemetry.trace import Span, SpanContext, TracerProvider

_FORM = re.compile(r"([0-9a-f]{32})-([0-9a-f]{16})")
_SETTINGS = {"max_tokens": "max_tokens", "temperature": "temperature", "seed": "seed"}


class Tracing:
    """A listener that makes spans. One may serve any number of runs, also at the same time.

    Args:
        provider: Whose spans they are; by default the global one of OpenTelemetry.
        content: Whether spans hold what models and tools were asked and gave.

    Raises:
        GraphError: OpenTelemetry is not installed.
    """

    def __init__(self, provider: TracerProvider | None = None, *, content: bool = False) -> None:
        try:
            from opentelemetry import trace
        except ImportError as error:
            raise GraphError(
                "tracing needs OpenTelemetry: pip install 'agentloop[tracing]'"
            ) from error
        self._api = trace
        self._tracer = trace.get_tracer("agentloop", tracer_provider=provider)
        self._content = content
        self._spans: dict[tuple[str, str], Span] = {}  # by run and path; "" is the run itself

    def begin(self, run: str, earlier: str | None) -> str:
        """Begin a session of a recorded run, in the trace of its first one if there was one."""
        first = self._context_of(earlier)
        span = self._begin_run(run, first)
        context = span.get_span_context() if first is None else first
        return f"{context.trace_id:032x}-{context.span_id:016x}"

    def __call__(self, event: Event) -> None:
        """Make, end or extend a span."""
        kind, _, rest = event.kind.partition(".")
        if kind == "run":
            self._run_event(event, rest)
        elif kind == "node" and rest in ("start", "end", "error", "replay"):
            self._node_event(event, rest)
        elif kind == "call":
            self._call_event(event, rest)
        elif event.kind != "draft":
            span = self._spans.get((event.run, _node_of(event.path))) or self._root(event)
            span.add_event(event.kind, self._attributes(event))

    # ---------------------------------------------------------------- runs

    def _begin_run(self, run: str, first: SpanContext | None) -> Span:
        links = [self._api.Link(first)] if first is not None else []
        parent = self._api.NonRecordingSpan(first) if first is not None else None
        context = self._api.set_span_in_context(parent) if parent is not None else None
        span = self._tracer.start_span(
            "invoke_agent",
            context,
            links=links,
            attributes={
                "gen_ai.operation.name": "invoke_agent",
                "gen_ai.provider.name": "agentloop",
                "gen_ai.conversation.id": run,
                "agentloop.resumed": first is not None,
            },
        )
        self._spans[run, ""] = span
        return span

    def _run_event(self, event: Event, what: str) -> None:
        if what == "start":
            span = self._spans.get((event.run, "")) or self._begin_run(event.run, None)
            span.update_name(f"invoke_agent {event.data}")
            span.set_attribute("gen_ai.agent.name", str(event.data))
            return
        for key in [k for k in self._spans if k[0] == event.run and k[1]]:
            self._spans.pop(key).end()  # nodes that wait or were cut off
        root = self._spans.pop((event.run, ""), None)
        if root is None:
            return
        root.set_attribute("agentloop.status", {"end": "done", "error": "failed"}.get(what, what))
        if what == "error":
            self._fail(root, event.data)
        root.end()

    def _root(self, event: Event) -> Span:
        return self._spans.get((event.run, "")) or self._begin_run(event.run, None)

    # ---------------------------------------------------------------- nodes and calls

    def _node_event(self, event: Event, what: str) -> None:
        key = event.run, event.path
        if what == "replay":
            self._root(event).add_event("node.replay", {"agentloop.path": event.path})
            return
        if what == "start":
            context = self._api.set_span_in_context(self._root(event))
            name = re.sub(r"#\d+|\[\d+\]", "", event.path)
            span = self._tracer.start_span(name, context)
            span.set_attribute("agentloop.path", event.path)
            self._spans[key] = span
        elif key in self._spans:
            span = self._spans.pop(key)
            if what == "error":
                self._fail(span, event.data)
            else:
                span.set_attribute("agentloop.wrote", sorted(as_object(event.data) or ()))
            span.end()

    def _call_event(self, event: Event, what: str) -> None:
        key = event.run, event.path
        owner = self._spans.get((event.run, _node_of(event.path))) or self._root(event)
        if what == "start":
            context = self._api.set_span_in_context(owner)
            name, attributes = _describe(event.data, event.path)
            span = self._tracer.start_span(
                name, context, kind=self._kind(event.data), attributes=attributes
            )
            if self._content:
                span.set_attribute("agentloop.request", _text(event.data["request"]))
            self._spans[key] = span
        elif what == "replay":
            owner.add_event("call.replay", {"agentloop.path": event.path})
        elif key in self._spans:
            span = self._spans.pop(key)
            if what == "error":
                self._fail(span, event.data)
            else:
                self._describe_result(span, event.data)
            span.end()

    def _describe_result(self, span: Span, result: Any) -> None:
        for name, attribute in (
            ("num_tokens", "gen_ai.usage.output_tokens"),
            ("num_prompt_tokens", "gen_ai.usage.input_tokens"),
            ("num_steps", "agentloop.num_steps"),
        ):
            value = getattr(result, name, None)
            if isinstance(value, int):
                span.set_attribute(attribute, value)
        reason = getattr(result, "finish_reason", None)
        if isinstance(reason, str):
            span.set_attribute("gen_ai.response.finish_reasons", [reason])
        if self._content:
            span.set_attribute("agentloop.result", _text(getattr(result, "text", result)))

    def _kind(self, call: Mapping[str, Any]) -> Any:
        kinds = self._api.SpanKind
        return kinds.CLIENT if call["kind"] == "llm" else kinds.INTERNAL

    def _fail(self, span: Span, error: object) -> None:
        span.set_attribute("error.type", type(error).__name__)
        span.set_status(self._api.StatusCode.ERROR, str(error))
        if isinstance(error, Exception):
            span.record_exception(error, timestamp=time.time_ns())

    def _attributes(self, event: Event) -> dict[str, str]:
        found = {"agentloop.path": event.path}
        if event.kind in ("route", "skip", "limit"):
            data = event.data["then"] if event.kind == "limit" else event.data
            found["agentloop.data"] = str(data)
        elif self._content:
            found["agentloop.data"] = _text(event.data)
        return found

    def _context_of(self, earlier: str | None) -> SpanContext | None:
        """The first session's span, as it was recorded; what is not one counts as none."""
        found = _FORM.fullmatch(earlier or "")
        if found is None:
            return None
        context = self._api.SpanContext(
            int(found[1], 16),
            int(found[2], 16),
            is_remote=True,
            trace_flags=self._api.TraceFlags(self._api.TraceFlags.SAMPLED),
        )
        return context if context.is_valid else None


def _node_of(path: str) -> str:
    return path.partition(":")[0].partition("~")[0]


def _describe(call: Mapping[str, Any], path: str) -> tuple[str, dict[str, Any]]:
    """A call's span by the conventions: its name, and what it is."""
    kind, name = str(call["kind"]), str(call["name"])
    found: dict[str, Any] = {"agentloop.path": path}
    if kind == "tool":
        found |= {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name}
        return f"execute_tool {name}", {**found, "gen_ai.tool.call.id": path}
    if kind != "llm":
        return kind if kind == name else f"{kind} {name}", found
    found |= {"gen_ai.operation.name": "chat", "gen_ai.provider.name": "agentloop"}
    request = call["request"]
    if isinstance(request, Mapping):
        known = cast(Mapping[str, Any], request)
        for setting, attribute in _SETTINGS.items():
            if isinstance(known.get(setting), int | float):
                found[f"gen_ai.request.{attribute}"] = known[setting]
    return f"chat {name}", {**found, "gen_ai.output.type": "text" if name == "str" else "json"}


def _text(value: object) -> str:
    return to_json(value, fallback=repr, inf_nan_mode="strings").decode(errors="replace")
