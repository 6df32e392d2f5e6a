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
    pass

_LAZY: dict[str, str] = {}  # name -> module; keeps `import agentloop` free of torch

__all__ = ["AgentLoopError", "GraphError", "ModelError", "RetrievalError"]


def __getattr__(name: str) -> object:
    if name in _LAZY:
        from importlib import import_module

        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
