"""The diffusion language model: network, constraints, sampler, engine, training.

Importing this loads no torch: a name is imported when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agentloop.model.decision import Decision, Question
    from agentloop.model.dialogue import Dialogue
    from agentloop.model.generation import Draft, Generation
    from agentloop.model.handle import Handle
    from agentloop.model.lm import DiffusionLM

_MODULES = {
    "Decision": "agentloop.model.decision",
    "Dialogue": "agentloop.model.dialogue",
    "DiffusionLM": "agentloop.model.lm",
    "Draft": "agentloop.model.generation",
    "Generation": "agentloop.model.generation",
    "Handle": "agentloop.model.handle",
    "Question": "agentloop.model.decision",
}

__all__ = [
    "Decision",
    "Dialogue",
    "DiffusionLM",
    "Draft",
    "Generation",
    "Handle",
    "Question",
]


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
