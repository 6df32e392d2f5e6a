"""What every constraint can do: give its automaton, judge a text, parse it, name its content.

A constraint is either a text (`Choice`, `Regex`, `Quote`, `Text`) or a JSON value (`JsonSchema`,
`ToolCalls`, `Object`, `List`, ...). A text that is put inside a JSON value becomes a JSON string.
Nothing here knows tokens or models.
"""

from __future__ import annotations

import hashlib
import json
import threading
from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, lru_cache
from typing import Any

from agentloop.errors import CompileLimitError, ConstraintError, UnsupportedSchemaError
from agentloop.model.constraint.characters import StateBudgetError
from agentloop.model.constraint.dfa import Dfa
from agentloop.model.constraint.emission import Emitter
from agentloop.model.constraint.explanation import explain_json
from agentloop.model.constraint.expression import Expr, KindIs, conjunction
from agentloop.model.constraint.fragment import Fragment
from agentloop.model.constraint.jsontext import JsonTextError, parse_json, to_python
from agentloop.model.constraint.machine import Asked, Machine
from agentloop.model.constraint.options import DEFAULT_OPTIONS, CompileOptions
from agentloop.model.constraint.pieces import Piece
from agentloop.model.constraint.rejection import Rejection, explain_text
from agentloop.model.constraint.scalars import text_fragment
from agentloop.model.constraint.wording import phrase
from agentloop.model.constraint.work import check_work

FORMAT_VERSION = 1
"""Part of every key; raised when the same constraint starts to mean another automaton."""

STRING = KindIs(frozenset({"string"}))


class EmptyConstraintError(ConstraintError):
    """No text at all satisfies a constraint."""


class Constraint(ABC):
    """A set of texts that a canvas may hold."""

    @abstractmethod
    def automaton(self, options: CompileOptions = DEFAULT_OPTIONS) -> Dfa:
        """The byte automaton of the texts to generate from; all of them are valid.

        Raises:
            UnsupportedSchemaError: The automaton would be larger than the options allow.
            EmptyConstraintError: No text satisfies the constraint.
        """

    @abstractmethod
    def accepts(self, text: str) -> bool:
        """Whether a text is valid, however its JSON is spelt."""

    @abstractmethod
    def explain(self, text: str) -> Rejection | None:
        """Where and why a text is not valid, and what could have stood there; None if it is.

        Example:
            >>> from agentloop.model.constraint import Choice
            >>> rejection = Choice(["red", "blue"]).explain("blac")
            >>> rejection.offset, rejection.found, rejection.allowed
            (2, '"a"', ('"blue"',))
        """

    @abstractmethod
    def from_value(self, value: Any) -> Any:
        """The Python value of a JSON value that is valid, as `parse` gives it."""

    @abstractmethod
    def value_expression(self) -> Expr:
        """The constraint as an expression about a JSON value."""

    @abstractmethod
    def description(self) -> list[Any]:
        """What the constraint is, as JSON; equal descriptions mean equal constraints."""

    @abstractmethod
    def parse(self, text: str) -> Any:
        """The Python value of a valid text.

        Raises:
            ConstraintError: The text is not valid.
        """

    @cached_property
    def _content(self) -> str:
        return json.dumps([FORMAT_VERSION, self.description()], ensure_ascii=True)

    @cached_property
    def _key(self) -> str:
        return hashlib.sha256(self._content.encode()).hexdigest()

    @property
    def key(self) -> str:
        """A digest of the constraint's content, the same in every process."""
        return self._key

    @cached_property
    def has_length_bounds(self) -> bool:
        """Whether it may bound the length of strings, so that `max_text_length` matters to it."""
        return any(word in self._content for word in ("maxLength", "minLength", '"Text"'))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Constraint) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        name, *fields = self.description()
        shown = json.dumps(fields, ensure_ascii=False)
        return f"{name}({shown if len(shown) < 80 else shown[:77] + '...'})"


class TextConstraint(Constraint):
    """A constraint on a plain text; inside a JSON value it is a string."""

    @abstractmethod
    def text_expression(self) -> Expr:
        """The constraint as an expression about a string."""

    def value_expression(self) -> Expr:
        """The constraint as an expression about a JSON value: the string that is the text."""
        return conjunction(STRING, self.text_expression())

    def automaton(self, options: CompileOptions = DEFAULT_OPTIONS) -> Dfa:
        """The byte automaton of the plain text."""
        return finished(text_fragment(self.text_expression(), options), self, options)

    def accepts(self, text: str) -> bool:
        """Whether a plain text is valid."""
        return Machine().run(Asked(self.value_expression()), text) is not None

    def explain(self, text: str) -> Rejection | None:
        """Where and why a text is not valid, and what could have stood there; None if it is."""
        if self.accepts(text):
            return None
        expr = Machine().at_kind(self.value_expression(), "string")
        return explain_text(expr, text, phrase("a text", expr))

    def from_value(self, value: Any) -> str:
        """The text itself."""
        return str(value)

    def parse(self, text: str) -> str:
        """The text itself, once it is seen to be valid."""
        rejection = self.explain(text)
        if rejection is not None:
            raise ConstraintError(_message(text, self, rejection))
        return text


class JsonConstraint(Constraint):
    """A constraint on a JSON value."""

    def automaton(self, options: CompileOptions = DEFAULT_OPTIONS) -> Dfa:
        """The byte automaton of the canonical JSON texts."""
        return finished(emitted(self.value_expression(), options), self, options)

    def accepts(self, text: str) -> bool:
        """Whether a JSON text is valid, whatever its whitespace, key order and number spelling."""
        try:
            value = parse_json(text)
        except JsonTextError:
            return False
        return Machine().run(Asked(self.value_expression()), value) is not None

    def explain(self, text: str) -> Rejection | None:
        """Where and why a text is not valid, and what could have stood there; None if it is."""
        return None if self.accepts(text) else explain_json(self.value_expression(), text)

    def canonical(self, text: str) -> str:
        """A JSON text in the compact spelling that the automaton reads.

        Raises:
            JsonTextError: The text is not JSON.
        """
        return Machine().spell(Asked(self.value_expression()), parse_json(text))

    def parse(self, text: str) -> Any:
        """The Python value of a valid JSON text.

        A key that no schema names may have been written twice (decision 0002): as for any reader of
        JSON its last value counts, if the object is valid with that.
        """
        rejection = self.explain(text)
        if rejection is None:
            return self.from_value(to_python(parse_json(text)))
        try:
            value = parse_json(text, may_repeat=True)
        except JsonTextError:
            value = None
            is_valid = False
        else:
            is_valid = Machine().run(Asked(self.value_expression()), value) is not None
        if not is_valid:
            raise ConstraintError(_message(text, self, rejection))
        return self.from_value(to_python(value))

    def from_value(self, value: Any) -> Any:
        """The value itself."""
        return value


def _message(text: str, constraint: Constraint, rejection: Rejection) -> str:
    return f"{text[:200]!r} does not satisfy {constraint!r}: {rejection}"


_emission = threading.RLock()
"""Emitters share their pieces between constraints, so one thread at a time may add to them."""
_TURN_S = 0.05


@lru_cache(maxsize=8)
def emitter_of(options: CompileOptions) -> Emitter:
    """The process's emitter for some options; it keeps the pieces it has built."""
    return Emitter(Machine(), options)


@contextmanager
def _turn() -> Generator[None]:
    """Wait for the emitters; who is given up meanwhile stops waiting."""
    while not _emission.acquire(timeout=_TURN_S):
        check_work()
    try:
        yield
    finally:
        _emission.release()


def emitted(expr: Expr, options: CompileOptions) -> Fragment | None:
    """The fragment of a JSON value, None if there is none; see `emitted_piece`."""
    piece = emitted_piece(Asked(expr), options)
    return None if piece is None else piece.fragment


def emitted_piece(asked: Asked, options: CompileOptions) -> Piece | None:
    """The piece of a JSON value, under tighter options where it would be over the budget.

    Raises:
        CompileLimitError: It would be over the budget under the tightest options.
    """
    while True:
        try:
            with _turn():
                piece = emitter_of(options).root_piece(asked)
        except RecursionError:
            raise UnsupportedSchemaError("", "", "its references nest too deeply") from None
        except StateBudgetError as error:
            tighter = options.tighter(much=error.is_about_steps)
            if tighter is None:
                limit = "steps" if error.is_about_steps else "states"
                raise CompileLimitError(error.pointer, str(error), limit=limit) from None
            options = tighter
        else:
            break
    if piece is None and options.min_string_length:
        return emitted_piece(asked, replace(options, min_string_length=0))
    return piece


def finished(fragment: Fragment | None, constraint: Constraint, options: CompileOptions) -> Dfa:
    """The automaton of a fragment.

    Raises:
        EmptyConstraintError: There is none.
    """
    if fragment is None:
        raise EmptyConstraintError(
            f"no text satisfies {constraint!r} with max_depth = {options.max_depth}"
        )
    return fragment.to_dfa()


def field_values(fields: Mapping[str, Constraint], value: Mapping[str, Any]) -> dict[str, Any]:
    """The Python values of an object's fields."""
    return {name: fields[name].from_value(inner) for name, inner in value.items()}
