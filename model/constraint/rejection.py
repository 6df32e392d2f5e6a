"""Why a text is rejected: where it goes wrong, what stands there and what could have."""

from __future__ import annotations

from dataclasses import dataclass, replace

from agentloop.errors import ConstraintError
from agentloop.model.constraint.character_wording import (
    listed,
    live_prefix,
    next_characters,
    quoted,
)
from agentloop.model.constraint.expression import Expr
from agentloop.model.constraint.scalars import automaton_of, finite_words, opaque_text
from agentloop.model.constraint.wording import fitting

END_OF_TEXT = "the end of the text"
PROPERTY = "the property "


@dataclass(frozen=True)
class Rejection:
    """The place from which a text cannot be made valid, and what could have stood there.

    Attributes:
        offset: Of the character, from 0; the text's length where something is missing at its end.
        pointer: JSON pointer of the value in the text, `""` for the whole of it.
        found: What stands there, shortened.
        allowed: What could stand there, a phrase for each alternative.
        rule: What the value there has to be, `""` where `allowed` says it all.
        schema_pointer: JSON pointer of the subschema that is not satisfied; None if there is none.
        line: Line of the character, from 1.
        column: Column of the character, from 1.
    """

    offset: int
    pointer: str
    found: str
    allowed: tuple[str, ...]
    rule: str = ""
    schema_pointer: str | None = None
    line: int = 1
    column: int = 1

    def __str__(self) -> str:
        """One sentence: place, what was found, what was allowed."""
        where = f"line {self.line}, column {self.column} (character {self.offset})"
        if self.pointer:
            where += f", at {self.pointer}"
        expected = _joined(self.allowed) or "nothing"
        said = f"{where}: found {self.found}, allowed there: {expected}"
        if self.rule and self.rule != expected:
            said += f"; needed: {self.rule}"
        return said if not self.schema_pointer else f"{said} (schema at #{self.schema_pointer})"

    def located_in(self, text: str) -> Rejection:
        """The same with line and column worked out."""
        before = text[: self.offset]
        return replace(self, line=before.count("\n") + 1, column=self.offset - before.rfind("\n"))


def _joined(phrases: tuple[str, ...]) -> str:
    """Alternatives in one phrase; what consecutive ones begin with is said once.

    Example:
        >>> _joined(('the property "a"', 'the property "b"', "a digit"))
        'the property "a", "b" or a digit'
    """
    said: list[str] = []
    for phrase, before in zip(phrases, ("", *phrases), strict=False):
        repeats = phrase.startswith(PROPERTY) and before.startswith(PROPERTY)
        said.append(phrase.removeprefix(PROPERTY) if repeats else phrase)
    return " or ".join([", ".join(said[:-1]), said[-1]] if len(said) > 1 else said)


def continuation(expr: Expr, text: str) -> tuple[int, tuple[str, ...]]:
    """How far a text agrees with an expression about strings, and what could follow there.

    Args:
        expr: About a string, for which it can hold.
        text: A text for which it does not hold.

    Returns:
        The number of characters some accepted text begins with, and phrases.
    """
    words = finite_words(expr)
    if words is not None:
        return _among_words(fitting(expr, words), text)
    try:
        opaque = opaque_text(expr)
        if opaque is not None:
            return opaque.continuation(text)
        dfa = automaton_of(expr)
    except ConstraintError:  # too large to be put together for the sake of a message
        return 0, ()
    length, state = live_prefix(dfa, text)
    return length, next_characters(dfa, state)


def _among_words(words: list[str], text: str) -> tuple[int, tuple[str, ...]]:
    shared = max((num_shared(word, text) for word in words), default=0)
    begun = text[:shared]
    ends = (END_OF_TEXT,) if begun in words else ()
    return shared, (*listed(w for w in words if w.startswith(begun) and w != begun), *ends)


def num_shared(one: str, other: str) -> int:
    """How many characters two texts begin with alike."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(one), len(other)))


def explain_text(expr: Expr, text: str, rule: str) -> Rejection:
    """Why a plain text does not satisfy an expression about strings."""
    offset, allowed = continuation(expr, text)
    found = quoted(text[offset]) if offset < len(text) else END_OF_TEXT
    return Rejection(offset, "", found, allowed or (rule,), rule).located_in(text)
