"""The diffusion language model: network, constraints, sampler, engine, training.

Importing this loads no torch: a name is imported when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agentloop.model.generation import Draft, Generation
    from agentloop.model.lm import DiffusionLM

_MODULES = {
    "DiffusionLM": "agentloop.model.lm",
    "Draft": "agentloop.model.generation",
    "Generation": "agentloop.model.generation",
}

__all__ = ["DiffusionLM", "Draft", "Generation"]


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
