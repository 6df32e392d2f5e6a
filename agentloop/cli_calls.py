"""The command `call`: a request becomes tool calls that their schemas accept."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.text import Text

from agentloop.errors import ToolError
from agentloop.model.call_options import AnswerOptions
from agentloop.model.prompts import Message, tool_messages
from agentloop.terminal import counted, load_model, milliseconds, out, print_json, printable
from agentloop.toolset import ToolSet

if TYPE_CHECKING:
    from agentloop.model.constraint import ToolCall
    from agentloop.model.generation import Generation
    from agentloop.model.lm import DiffusionLM


@dataclass(frozen=True, slots=True)
class Requested:
    """A request with how it is to be answered.

    Attributes:
        request: What the user wants.
        system: Told to the model first.
        min_calls: Fewest calls; 0 lets it say that no tool fits.
        max_calls: Most calls.
        options: How the model answers.
    """

    request: str
    system: str | None = None
    min_calls: int = 0
    max_calls: int = 1
    options: AnswerOptions = field(default_factory=AnswerOptions)


@dataclass(frozen=True, slots=True)
class Called:
    """The checked calls, and what they cost."""

    calls: tuple[ToolCall, ...]
    generation: Generation
    total_s: float

    def to_json(self) -> dict[str, Any]:
        """A form that `json.dumps` takes."""
        return {
            "calls": [{"name": c.name, "arguments": c.arguments} for c in self.calls],
            "tokens": self.generation.num_tokens,
            "steps": self.generation.num_steps,
            "milliseconds": round(1000 * self.total_s, 1),
        }


def load_tools(path: Path) -> ToolSet:
    """The tools of a file.

    Raises:
        ToolError: The file cannot be read, is not JSON, or holds no tools.
        GraphBuildError: Two tools share a name, or a schema is not valid.
    """
    tools = ToolSet.load(path)
    if not len(tools):
        raise ToolError(f"{path} holds an empty list, expected at least one tool")
    return tools


def choose_calls(lm: DiffusionLM, tools: ToolSet, asked: Requested) -> Called:
    """Let a model choose calls, and check them against the schemas once more.

    Raises:
        UnsupportedSchemaError: A tool's schema cannot be represented exactly.
        ToolError: A call does not fit its schema (which the constraint rules out).
        ModelError: The model refuses the request.
    """
    from agentloop.model.constraint import ToolCalls  # brings numpy, so only when needed

    began = time.perf_counter()
    messages: list[Message] = [{"role": "user", "content": asked.request}]
    if asked.system:
        messages.insert(0, {"role": "system", "content": asked.system})
    generation = lm.generate_sync(
        tool_messages(tools.specs, messages),
        constraint=ToolCalls(tools.specs, min=asked.min_calls, max=asked.max_calls),
        **asked.options,
    )
    calls: Sequence[ToolCall] = generation.value
    for call in calls:
        tools.named(call.name).check(call.arguments)
    return Called(tuple(calls), generation, time.perf_counter() - began)


def run_call(path: Path, asked: Requested, model: str, *, as_json: bool) -> None:
    """`agentloop call`."""
    tools = load_tools(path)
    with load_model(model) as lm:
        called = choose_calls(lm, tools, asked)
    if as_json:
        print_json(called.to_json())
        return
    for call in called.calls:
        out.print(shown_call(call))
    if not called.calls:
        out.print("no tool fits", style="bold yellow")
    out.print(cost(called), style="dim")


def shown_call(call: ToolCall) -> Text:
    """A call on one line: its name, and its arguments as JSON."""
    arguments = json.dumps(call.arguments, ensure_ascii=False)
    return Text.assemble((call.name, "bold green"), " ", printable(arguments))


def cost(called: Called) -> str:
    """Passes and time of some calls."""
    generation = called.generation
    tokens = counted(generation.num_tokens, "token")
    steps = counted(generation.num_steps, "step")
    return f"{tokens}, {steps}, {milliseconds(called.total_s)}"
