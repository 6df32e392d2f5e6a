"""Keywords of our own: strings from texts that are given beside the schema, and whole constraints.

Like JSON Schema's keywords they assert nothing about values of another type.
"""

from __future__ import annotations

from typing import Any

from agentloop.errors import ConstraintError
from agentloop.model.constraint.constraint import TextConstraint
from agentloop.model.constraint.expression import Expr
from agentloop.model.constraint.given import EMBEDDED
from agentloop.model.constraint.json_types import is_object
from agentloop.model.constraint.quote import Quote
from agentloop.model.constraint.rule import Rule
from agentloop.model.constraint.scope import Scope
from agentloop.model.constraint.texts import Choice, Regex

QUOTE_OPTIONS = ("texts", "unit", "min_length", "max_length", "max_units")


def given_constraint(scope: Scope) -> Expr:
    """`x-constraint`: the value satisfies a constraint that is given by name."""
    name = _name(scope, EMBEDDED, scope.schema[EMBEDDED])
    found = scope.document.given.constraint(name)
    if found is None:
        raise scope.here.refusal(EMBEDDED, _missing(scope, name, "constraint"))
    return found.value_expression()


def given_quote(scope: Scope) -> Expr:
    """`x-quote`: a string is a quote from texts that are given by name."""
    value = scope.schema["x-quote"]
    options: dict[str, Any] = dict(value) if is_object(value) else {"texts": value}
    unknown = next((name for name in options if name not in QUOTE_OPTIONS), None)
    if unknown is not None:
        raise scope.here.refusal(
            "x-quote", f"{unknown!r} is not one of its options {', '.join(QUOTE_OPTIONS)}"
        )
    texts = _texts(scope, "x-quote", options.pop("texts", None))
    return _built(scope, "x-quote", lambda: Quote(texts, **options))


def given_choice(scope: Scope) -> Expr:
    """`x-choice`: a string is one of the texts that are given by name."""
    texts = _texts(scope, "x-choice", scope.schema["x-choice"])
    return _built(scope, "x-choice", lambda: Choice(texts))


def full_match(scope: Scope) -> Expr:
    """`x-regex`: a string matches a pattern from its first character to its last."""
    pattern = _name(scope, "x-regex", scope.schema["x-regex"])
    return _built(scope, "x-regex", lambda: Regex(pattern))


def _name(scope: Scope, keyword: str, value: object) -> str:
    if not isinstance(value, str):
        raise scope.here.refusal(keyword, f"must be a string, got {value!r}")
    return value


def _texts(scope: Scope, keyword: str, value: object) -> tuple[str, ...]:
    name = _name(scope, keyword, value)
    found = scope.document.given.text(name)
    if found is None:
        raise scope.here.refusal(keyword, _missing(scope, name, "texts"))
    return found


def _missing(scope: Scope, name: str, what: str) -> str:
    return (
        f"no {what} given under {name!r}, only {scope.document.given.names}; pass"
        f" given={{{name!r}: ...}} beside the schema"
    )


def _built(scope: Scope, keyword: str, build: Any) -> Expr:
    try:
        made: TextConstraint = build()
    except (ConstraintError, TypeError) as error:
        raise scope.here.refusal(keyword, str(error)) from None
    return made.text_expression()


GIVEN_RULES: tuple[Rule, ...] = (
    Rule(
        ("x-quote",),
        given_quote,
        note="a quote from texts given by name; refused beside other assertions than lengths",
    ),
    Rule(("x-choice",), given_choice, note="one of the texts given by name"),
    Rule(("x-regex",), full_match, note="the whole string matches"),
    Rule((EMBEDDED,), given_constraint, note="a constraint given by name, or put in as an object"),
)
