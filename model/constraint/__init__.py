"""Exact constraints on a canvas: automata, their lift to tokens, inference on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentloop.model.constraint.composition import List, Nullable, Object, OneOf
from agentloop.model.constraint.constraint import Constraint, EmptyConstraintError, JsonConstraint
from agentloop.model.constraint.dfa import Dfa
from agentloop.model.constraint.drawing import draw
from agentloop.model.constraint.json_schema import JsonSchema
from agentloop.model.constraint.options import CompileOptions
from agentloop.model.constraint.quote import Quote
from agentloop.model.constraint.rejection import Rejection
from agentloop.model.constraint.template import Template
from agentloop.model.constraint.texts import Choice, Regex, Text
from agentloop.model.constraint.tool_calls import ToolCall, ToolCalls

if TYPE_CHECKING:
    from agentloop.model.constraint.fields import CompiledField, FieldPosterior, compile_field

__all__ = [
    "Choice",
    "CompileOptions",
    "CompiledField",
    "Constraint",
    "Dfa",
    "EmptyConstraintError",
    "FieldPosterior",
    "JsonConstraint",
    "JsonSchema",
    "List",
    "Nullable",
    "Object",
    "OneOf",
    "Quote",
    "Regex",
    "Rejection",
    "Template",
    "Text",
    "ToolCall",
    "ToolCalls",
    "compile_field",
    "draw",
]

_WITH_TORCH = ("CompiledField", "FieldPosterior", "compile_field")


def __getattr__(name: str) -> object:
    """Load what reads logits, and torch with it, when it is first asked for."""
    if name in _WITH_TORCH:
        from agentloop.model.constraint import fields

        return getattr(fields, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
