"""Exact constraints on a canvas: automata, their lift to tokens, inference on them."""

from agentloop.model.constraint.composition import List, Nullable, Object, OneOf
from agentloop.model.constraint.constraint import Constraint, EmptyConstraintError
from agentloop.model.constraint.dfa import Dfa
from agentloop.model.constraint.json_schema import JsonSchema
from agentloop.model.constraint.options import CompileOptions
from agentloop.model.constraint.quote import Quote
from agentloop.model.constraint.texts import Choice, Regex, Text
from agentloop.model.constraint.tool_calls import ToolCall, ToolCalls

__all__ = [
    "Choice",
    "CompileOptions",
    "Constraint",
    "Dfa",
    "EmptyConstraintError",
    "JsonSchema",
    "List",
    "Nullable",
    "Object",
    "OneOf",
    "Quote",
    "Regex",
    "Text",
    "ToolCall",
    "ToolCalls",
]
