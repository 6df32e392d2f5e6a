"""Strings and numbers under several expressions at once, as byte fragments.

The exits of a fragment are the distinct outcomes: which of the goals hold for the text read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache, partial

import numpy as np
from typing_extensions import override

from agentloop.errors import ConstraintError
from agentloop.model.constraint.characters import (
    CharDfa,
    everything,
    nothing,
    product,
)
from agentloop.model.constraint.expression import (
    FALSE,
    TRUE,
    And,
    Constant,
    ExactlyOne,
    Expr,
    Kind,
    Not,
    Or,
    conjunction,
    conjuncts,
    holds,
    leaves,
    rewritten,
)
from agentloop.model.constraint.fragment import Fragment, of_words
from agentloop.model.constraint.machine import Asked, Outcome
from agentloop.model.constraint.numerals import any_number
from agentloop.model.constraint.options import CompileOptions
from agentloop.model.constraint.pieces import Piece
from agentloop.model.constraint.scalar_assertions import (
    Length,
    Matches,
    MultipleOf,
    Numbers,
    ReadExactly,
    ScalarAtom,
    Within,
    Words,
)
from agentloop.model.constraint.spelling import escape, spell_out

MAX_WORDS_STATES = 1_000_000
QUOTE = b'"'


ALONE = (
    "a Quote stands alone for its value: it cannot be told apart from other options for the same"
    " string, nor be one of several objects that differ only inside it; use one Quote over all"
    " texts, Nullable(Quote(...)), or give the options a first field that differs"
)


class OpaqueTextError(ConstraintError):
    """A text without an algebra was combined with other assertions."""


@dataclass(frozen=True, eq=False)
class OpaqueText(ScalarAtom):
    """An assertion about strings that comes with its own bytes and has no algebra."""

    def spelt(self, *, in_json: bool) -> Fragment:
        """The bytes of the text, or of a JSON string's content and closing quote; one exit."""
        raise NotImplementedError

    def with_length(self, length: Length) -> OpaqueText:
        """The same texts within bounds on their length, where it can be said by itself."""
        raise OpaqueTextError(ALONE)

    @property
    def wording(self) -> str:
        """What it says of a string, in words that fit after "a string"."""
        raise NotImplementedError

    def continuation(self, text: str) -> tuple[int, tuple[str, ...]]:
        """How many characters of a text some accepted text begins with, and what may follow."""
        raise NotImplementedError

    @override
    def automaton(self) -> CharDfa:
        """Refused: what a Quote holds is too large to be combined character by character.

        Raises:
            OpaqueTextError: Always.
        """
        raise OpaqueTextError(ALONE)


def bounded(asked: Asked, options: CompileOptions) -> Asked:
    """What is asked of a string or number, narrowed to what is worth generating.

    A bound that no text of `max_text_length` characters can break is dropped, which changes nothing
    for such texts. Of what must hold, upper bounds above `max_counted_length` are lowered to it,
    and numbers that are compared keep to as many digits as a validator's floats can tell apart;
    patterns keep to what every engine of regular expressions takes them to mean. Where a bound
    above `max_counted_length` tells alternatives apart, all strings are kept below it instead.
    """
    cap = options.max_text_length
    must = _without_vacuous(asked.must, cap)
    goals = tuple(_without_vacuous(goal, cap) for goal in asked.goals)
    parts: list[Expr] = []
    for part in conjuncts(must):
        if isinstance(part, Length) and part.hi is not None:
            part = Length(part.lo, max(part.lo, min(part.hi, options.max_counted_length)))
        elif isinstance(part, Matches) and options.portable_patterns and not part.is_full_match:
            part = Matches(part.pattern, is_narrow=True)
        parts.append(part)
    if any(isinstance(leaf, Within | MultipleOf) for e in (must, *goals) for leaf in leaves(e)):
        parts.append(ReadExactly())
    loose = (*goals, *(part for part in parts if not isinstance(part, Length)))
    if any(_counts_beyond(options.max_counted_length, expr) for expr in loose):
        lows = [part.lo for part in parts if isinstance(part, Length)]
        longest = max(options.max_counted_length, *lows, 0)
        parts = [Length(0, longest), *(_without_vacuous(part, longest) for part in parts)]
        goals = tuple(_without_vacuous(goal, longest) for goal in goals)
    return Asked(conjunction(*parts), goals)


def _counts_beyond(most: int, expr: Expr) -> bool:
    """Whether an expression holds a bound on length above `most`."""
    return any(
        isinstance(leaf, Length) and max(leaf.lo, leaf.hi or 0) > most for leaf in leaves(expr)
    )


def _without_vacuous(expr: Expr, max_text_length: int | None) -> Expr:
    if max_text_length is None:
        return expr

    def leaf(atom: Expr) -> Expr:
        if not isinstance(atom, Length):
            return atom
        if atom.lo > max_text_length:
            return FALSE
        if atom.hi is None or atom.hi < max_text_length:
            return atom
        return Length(atom.lo, None) if atom.lo else TRUE

    return rewritten(expr, leaf)


def finite_words(expr: Expr) -> frozenset[str] | None:
    """Texts outside of which an expression never holds, where there are finitely many."""
    match expr:
        case Words(words):
            return words
        case And(args):
            found = [some for arg in args if (some := finite_words(arg)) is not None]
            return min(found, key=len) if found else None
        case Or(args):
            parts = [finite_words(arg) for arg in args]
            known = [some for some in parts if some is not None]
            whole: frozenset[str] = frozenset()
            return whole.union(*known) if len(known) == len(parts) else None
        case _:
            return _finite_numbers(expr)


def _finite_numbers(expr: Expr) -> frozenset[str] | None:
    return expr.words if isinstance(expr, Numbers) else None


@lru_cache(maxsize=512)
def scalar_piece(asked: Asked, kind: Kind) -> Piece | None:
    """The fragment of a string's content with its closing quote, or of a number.

    Raises:
        StateBudgetError: The expressions together need too many states.
        ConstraintError: An opaque text is combined with other assertions.
    """
    opaque = opaque_text(asked.must) if not asked.goals else None
    if opaque is not None:
        return Piece(opaque.spelt(in_json=True), ((),))
    words = finite_words(asked.must)
    if words is not None:
        return _word_piece(asked, kind, words)
    return _automaton_piece(asked, kind)


def opaque_text(expr: Expr) -> OpaqueText | None:
    """The one opaque text that an expression is, with bounds on its length worked in."""
    first, *others = sorted(conjuncts(expr), key=lambda part: not isinstance(part, OpaqueText))
    if not isinstance(first, OpaqueText):
        return None
    for part in others:
        if not isinstance(part, Length):
            return None
        first = first.with_length(part)
    return first


def _holds_for(text: str, leaf: Expr) -> bool:
    assert isinstance(leaf, ScalarAtom)
    return leaf.accepts(text)


def _word_piece(asked: Asked, kind: Kind, words: Iterable[str]) -> Piece | None:
    outcomes: dict[Outcome, int] = {}
    spelt: list[tuple[bytes, int]] = []
    for word in words:
        leaf = partial(_holds_for, word)
        if not holds(asked.must, leaf) or not _is_encodable(word):
            continue
        outcome = tuple(holds(goal, leaf) for goal in asked.goals)
        label = outcomes.setdefault(outcome, len(outcomes))
        spelt.append((escape(word) + QUOTE if kind == "string" else word.encode(), label))
    if not spelt:
        return None
    fragment = of_words(spelt, MAX_WORDS_STATES)
    return Piece(fragment if kind == "number" else closed(fragment), tuple(outcomes))


def _is_encodable(word: str) -> bool:
    return not any("\ud800" <= char <= "\udfff" for char in word)


def closed(fragment: Fragment) -> Fragment:
    """The fragment with its ending states, from which nothing leads on, turned into exits."""
    renamed = np.arange(fragment.num_states, dtype=np.int32)
    renamed[fragment.ends[:, 0]] = fragment.ends[:, 1]
    targets = renamed[fragment.targets]
    trimmed = replace(fragment, targets=targets, ends=fragment.ends[:0]).without(set())
    assert trimmed is not None
    return trimmed


def _automaton_piece(asked: Asked, kind: Kind) -> Piece | None:
    universe = any_number() if kind == "number" else everything()
    must = automaton_of(asked.must)
    if kind == "number":
        must = must & universe
    outcomes: dict[Outcome, int] = {}

    def label(flags: Iterable[bool]) -> int:
        first, *rest = flags
        return outcomes.setdefault(tuple(rest), len(outcomes)) if first else -1

    if asked.goals:
        must = product([must, *map(automaton_of, asked.goals)], label)
    else:
        outcomes[()] = 0
    fragment = spell_out(must, in_json=kind == "string")
    return None if fragment is None else Piece(fragment, tuple(outcomes))


@lru_cache(maxsize=512)
def automaton_of(expr: Expr) -> CharDfa:
    """The texts for which an expression about strings, or numbers, holds."""
    match expr:
        case Constant(value):
            return everything() if value else nothing()
        case Not(arg):
            return automaton_of(arg).complement()
        case And(args):
            return product([automaton_of(arg) for arg in args], _label_if(all))
        case Or(args):
            return product([automaton_of(arg) for arg in args], _label_if(any))
        case ScalarAtom():
            return expr.automaton()
        case ExactlyOne(args):
            return product([automaton_of(arg) for arg in args], _label_if(_is_one))
        case _:
            raise AssertionError(f"{expr} is no expression about a text")


def _is_one(flags: Iterable[bool]) -> bool:
    return sum(flags) == 1


def _label_if(test: Callable[[Iterable[bool]], bool]) -> Callable[[Iterable[bool]], int]:
    return lambda flags: 0 if test(flags) else -1


def text_fragment(expr: Expr, options: CompileOptions) -> Fragment | None:
    """The plain bytes of the texts for which an expression about strings holds."""
    expr = bounded(Asked(expr), options).must
    opaque = opaque_text(expr)
    if opaque is not None:
        return opaque.spelt(in_json=False)
    words = finite_words(expr)
    if words is not None:
        kept = [w for w in words if _is_encodable(w) and holds(expr, partial(_holds_for, w))]
        return of_words([(w.encode(), 0) for w in kept], MAX_WORDS_STATES) if kept else None
    return spell_out(automaton_of(expr), in_json=False)
