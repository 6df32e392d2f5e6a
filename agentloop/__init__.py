"""agentloop: agents and retrieval on an in-process diffusion language model."""

from importlib.util import find_spec
from typing import TYPE_CHECKING

from agentloop.errors import AgentLoopError, GraphError, ModelError, RetrievalError

if find_spec("agentloop.model") is None:  # a bare checkout: the folders are mapped at install time
    raise ImportError(
        "agentloop was imported from a source checkout that is not installed. "
        "model/ and retrieval/ become agentloop.model and agentloop.retrieval on install: "
        "run `pip install -e .` first."
    )

if TYPE_CHECKING:
    from agentloop.agents import agent
    from agentloop.asking import ask, step
    from agentloop.context import RETRY, emit
    from agentloop.graph import Graph
    from agentloop.model.lm import DiffusionLM
    from agentloop.model_calls import llm, use_model
    from agentloop.reducers import Log, Max, Merge, Sum
    from agentloop.retrieval.index import Index
    from agentloop.steps import END, START, both, each, node
    from agentloop.tool_calls import call_tools
    from agentloop.tools import tool
    from agentloop.toolset import ToolSet

_LAZY: dict[str, str] = {  # name -> module; keeps `import agentloop` free of torch
    "DiffusionLM": "agentloop.model.lm",
    "END": "agentloop.steps",
    "Graph": "agentloop.graph",
    "Index": "agentloop.retrieval.index",
    "Log": "agentloop.reducers",
    "Max": "agentloop.reducers",
    "Merge": "agentloop.reducers",
    "RETRY": "agentloop.context",
    "START": "agentloop.steps",
    "Sum": "agentloop.reducers",
    "ToolSet": "agentloop.toolset",
    "agent": "agentloop.agents",
    "ask": "agentloop.asking",
    "both": "agentloop.steps",
    "call_tools": "agentloop.tool_calls",
    "each": "agentloop.steps",
    "emit": "agentloop.context",
    "llm": "agentloop.model_calls",
    "node": "agentloop.steps",
    "step": "agentloop.asking",
    "tool": "agentloop.tools",
    "use_model": "agentloop.model_calls",
}

__all__ = [
    "END",
    "RETRY",
    "START",
    "AgentLoopError",
    "DiffusionLM",
    "Graph",
    "GraphError",
    "Index",
    "Log",
    "Max",
    "Merge",
    "ModelError",
    "RetrievalError",
    "Sum",
    "ToolSet",
    "agent",
    "ask",
    "both",
    "call_tools",
    "each",
    "emit",
    "llm",
    "node",
    "step",
    "tool",
    "use_model",
]


def __getattr__(name: str) -> object:
    if name in _LAZY:
        from importlib import import_module

        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
