"""Tool calls as a constraint: a JSON list of calls with arguments their tools' schemas accept."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from agentloop.errors import ConstraintError, UnsupportedSchemaError
from agentloop.model.constraint.array_assertions import Elements, num_items
from agentloop.model.constraint.constraint import STRING, JsonConstraint
from agentloop.model.constraint.expression import (
    FALSE,
    Expr,
    KindIs,
    conjunction,
    disjunction,
)
from agentloop.model.constraint.given import NOTHING_GIVEN, Given, schema_text
from agentloop.model.constraint.json_schema import document_of
from agentloop.model.constraint.object_assertions import Shape, required
from agentloop.model.constraint.scalar_assertions import Words
from agentloop.model.prompts import ToolSpec

MAX_PARALLEL = 8
"""Most calls in one answer where several are allowed and no number is given."""


class ToolCall(NamedTuple):
    """One call: the tool's name and its arguments."""

    name: str
    arguments: dict[str, Any]


class ToolCalls(JsonConstraint):
    """A list of min to max calls, as `agentloop.model.prompts.tool_answer` writes it.

    Args:
        tools: The tools that may be called.
        min: Fewest calls; 0 permits `[]`, which says that no tool fits.
        max: Most calls; None is 1, or MAX_PARALLEL with `parallel`.
        parallel: Whether one answer may hold several calls.

    Raises:
        UnsupportedSchemaError: A tool's schema is malformed or cannot be represented; the pointer
            begins with the tool's name.
        ConstraintError: There is no tool, two share a name, or the numbers make no sense.
    """

    def __init__(
        self,
        tools: Iterable[ToolSpec],
        min: int = 1,
        max: int | None = None,
        *,
        parallel: bool = False,
    ) -> None:
        self.tools = tuple(tools)
        self.min = min
        self.max = max if max is not None else MAX_PARALLEL if parallel else 1
        names = [tool["name"] for tool in self.tools]
        twice = next((name for name in names if names.count(name) > 1), None)
        if not self.tools or twice is not None:
            raise ConstraintError(
                "ToolCalls needs tools with names of their own, got "
                + (f"{twice!r} twice" if twice is not None else "no tool")
            )
        if not 0 <= self.min <= self.max:
            raise ConstraintError(f"ToolCalls needs 0 <= min <= max, got {min} and {self.max}")
        self._schemas = [schema_text(tool["parameters"], {}) for tool in self.tools]
        calls = disjunction(*map(_call, names, self._schemas))
        self._expression = conjunction(
            KindIs(frozenset({"array"})), num_items(self.min, self.max), Elements((), calls)
        )

    def value_expression(self) -> Expr:
        """The constraint as an expression about a JSON value."""
        return self._expression

    def from_value(self, value: Any) -> list[ToolCall]:
        """The calls."""
        return [ToolCall(call["name"], call["arguments"]) for call in value]

    def description(self) -> list[Any]:
        """What the constraint is, as JSON."""
        tools = [
            [tool["name"], text, *([] if given is NOTHING_GIVEN else [given.description()])]
            for tool, (text, given) in zip(self.tools, self._schemas, strict=True)
        ]
        return ["ToolCalls", tools, self.min, self.max]


def _call(name: str, schema: tuple[str, Given]) -> Expr:
    """The expression of one call of one tool."""
    try:
        arguments = document_of(*schema).root
    except UnsupportedSchemaError as error:
        raise UnsupportedSchemaError(
            f"/{name}{error.pointer}", error.keyword, error.reason
        ) from None
    fields = (
        ("name", conjunction(STRING, Words(frozenset({name})))),
        ("arguments", conjunction(KindIs(frozenset({"object"})), arguments)),
    )
    return conjunction(
        KindIs(frozenset({"object"})),
        Shape(fields, (), FALSE, is_open=False),
        required(("name", "arguments")),
    )
