"""Exact constraints on a canvas: automata, their lift to tokens, inference on them."""

from agentloop.model.constraint.composition import List, Nullable, Object, OneOf
from agentloop.model.constraint.constraint import Constraint, EmptyConstraintError, JsonConstraint
from agentloop.model.constraint.dfa import Dfa
from agentloop.model.constraint.drawing import draw
from agentloop.model.constraint.fields import CompiledField, FieldPosterior, compile_field
from agentloop.model.constraint.json_schema import JsonSchema
from agentloop.model.constraint.options import CompileOptions
from agentloop.model.constraint.quote import Quote
from agentloop.model.constraint.rejection import Rejection
from agentloop.model.constraint.template import Template
from agentloop.model.constraint.texts import Choice, Regex, Text
from agentloop.model.constraint.tool_calls import ToolCall, ToolCalls

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
