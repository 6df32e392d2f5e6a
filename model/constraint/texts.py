"""Constraints on plain texts: one of some choices, a pattern, a length."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from agentloop.errors import ConstraintError
from agentloop.model.constraint.constraint import TextConstraint
from agentloop.model.constraint.expression import TRUE, Expr
from agentloop.model.constraint.pattern import compile_pattern
from agentloop.model.constraint.scalar_assertions import Length, Matches, Words


class Choice(TextConstraint):
    """One of a finite set of texts.

    Raises:
        ConstraintError: There is no choice, or one is not a string.

    Example:
        >>> Choice(["red", "blue"]).accepts("red")
        True
    """

    def __init__(self, choices: Iterable[str]) -> None:
        self.choices = tuple(dict.fromkeys(choices))
        if not self.choices:
            raise ConstraintError("Choice needs at least one text, got none")
        if set(map(type, self.choices)) != {str}:
            raise ConstraintError(f"Choice takes strings, got {self.choices[:9]!r}")
        self._expression = Words(frozenset(self.choices))

    def text_expression(self) -> Expr:
        """The constraint as an expression about a string."""
        return self._expression

    def description(self) -> list[Any]:
        """What the constraint is, as JSON."""
        return ["Choice", sorted(self.choices)]


class Regex(TextConstraint):
    """A text that matches a regular expression from its first character to its last.

    Raises:
        PatternError: The pattern is malformed or uses what has no exact automaton.

    Example:
        >>> Regex("[0-9]{4}-[0-9]{2}").accepts("2026-11")
        True
    """

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        compile_pattern(pattern, is_full_match=True)

    def text_expression(self) -> Expr:
        """The constraint as an expression about a string."""
        return Matches(self.pattern, is_full_match=True)

    def description(self) -> list[Any]:
        """What the constraint is, as JSON."""
        return ["Regex", self.pattern]


class Text(TextConstraint):
    """Any text of some length in code points."""

    def __init__(self, max_length: int | None = None, min_length: int = 0) -> None:
        if min_length < 0 or (max_length is not None and max_length < min_length):
            raise ConstraintError(
                f"Text needs 0 <= min_length <= max_length, got {min_length} and {max_length}"
            )
        self.min_length = min_length
        self.max_length = max_length

    def text_expression(self) -> Expr:
        """The constraint as an expression about a string."""
        if self.min_length == 0 and self.max_length is None:
            return TRUE
        return Length(self.min_length, self.max_length)

    def description(self) -> list[Any]:
        """What the constraint is, as JSON."""
        return ["Text", self.min_length, self.max_length]
