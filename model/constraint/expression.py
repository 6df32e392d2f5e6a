"""Boolean expressions over assertions about one JSON value.

An assertion (`Atom`) speaks about one kind of value and holds for all others, as JSON Schema's
keywords do. Expressions are immutable, compared by content and simplified as they are built; that
is what keeps the states of a half-read object or array few and equal ones shared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from operator import is_
from typing import ClassVar, Literal

Kind = Literal["null", "true", "false", "number", "string", "array", "object"]
KINDS: tuple[Kind, ...] = ("null", "true", "false", "number", "string", "array", "object")


@dataclass(frozen=True, eq=False)
class Expr:
    """An expression; equal content is equal, and the hash is computed once."""

    _names: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        """Note the fields that the content is made of, which the decorator has not seen yet."""
        annotated = [n for n, kind in cls.__annotations__.items() if "ClassVar" not in str(kind)]
        cls._names = (*cls._names, *annotated)

    @cached_property
    def content(self) -> tuple[object, ...]:
        """What the expression is compared by."""
        return (type(self), *(getattr(self, name) for name in self._names))

    @cached_property
    def _hash(self) -> int:
        return hash(self.content)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return (
            isinstance(other, Expr) and self._hash == other._hash and self.content == other.content
        )


@dataclass(frozen=True, eq=False)
class Constant(Expr):
    """Holds for every value, or for none."""

    value: bool


TRUE = Constant(True)
FALSE = Constant(False)


@dataclass(frozen=True, eq=False)
class Not(Expr):
    """Holds where the argument does not."""

    arg: Expr


@dataclass(frozen=True, eq=False)
class And(Expr):
    """Holds where all arguments do."""

    args: tuple[Expr, ...]


@dataclass(frozen=True, eq=False)
class Or(Expr):
    """Holds where some argument does."""

    args: tuple[Expr, ...]


@dataclass(frozen=True, eq=False)
class ExactlyOne(Expr):
    """Holds where one argument does and no other."""

    args: tuple[Expr, ...]


@dataclass(frozen=True, eq=False)
class Atom(Expr):
    """An assertion about values of one kind."""

    kind: ClassVar[Kind]


@dataclass(frozen=True, eq=False)
class KindIs(Expr):
    """Holds for the values of some kinds."""

    kinds: frozenset[Kind]


class Reference(Expr):
    """Stands for an expression that is worked out when it is first needed, so cycles are finite."""

    @property
    def is_cyclic(self) -> bool:
        """Whether the expression may speak about values nested in it by way of itself."""
        raise NotImplementedError

    def expand(self) -> Expr:
        """The expression that this stands for."""
        raise NotImplementedError


Truth = Callable[[Expr], bool]
"""Whether an expression that was asked about holds for what has just been read."""


def negation(arg: Expr) -> Expr:
    """The expression that holds where `arg` does not."""
    if isinstance(arg, Constant):
        return FALSE if arg.value else TRUE
    return arg.arg if isinstance(arg, Not) else Not(arg)


def conjunction(*args: Expr) -> Expr:
    """The expression that holds where all of `args` do."""
    return _joined(args, And, TRUE, FALSE)


def disjunction(*args: Expr) -> Expr:
    """The expression that holds where some of `args` does."""
    return _joined(args, Or, FALSE, TRUE)


def _joined(
    args: tuple[Expr, ...], node: type[And] | type[Or], neutral: Expr, absorbing: Expr
) -> Expr:
    found: dict[Expr, None] = {}
    negated: set[Expr] = set()
    for arg in args:
        for part in arg.args if isinstance(arg, node) else (arg,):
            if part is neutral or part == neutral:
                continue
            if part == absorbing or part in negated:
                return absorbing
            if isinstance(part, Not):
                if part.arg in found:
                    return absorbing
                negated.add(part.arg)
            found[part] = None
    if not found:
        return neutral
    return next(iter(found)) if len(found) == 1 else node(tuple(found))


def exactly_one(*args: Expr) -> Expr:
    """The expression that holds where one of `args` does and no other."""
    open_args = [arg for arg in args if arg != FALSE]
    num_true = sum(arg == TRUE for arg in open_args)
    rest = [arg for arg in open_args if arg != TRUE]
    if num_true > 1:
        return FALSE
    if num_true == 1:
        return conjunction(*map(negation, rest))
    if len(rest) < 2:
        return rest[0] if rest else FALSE
    return ExactlyOne(tuple(rest))


def rewritten(expr: Expr, leaf: Callable[[Expr], Expr]) -> Expr:
    """The expression with every atom, kind test and reference replaced."""
    match expr:
        case Constant():
            return expr
        case Not(arg):
            inner = rewritten(arg, leaf)
            return expr if inner is arg else negation(inner)
        case And(args):
            found: list[Expr] = []
            for arg in args:
                part = rewritten(arg, leaf)
                if part == FALSE:
                    return FALSE
                found.append(part)
            return expr if _are_same(found, args) else conjunction(*found)
        case Or(args):
            found = [rewritten(arg, leaf) for arg in args]
            return expr if _are_same(found, args) else disjunction(*found)
        case ExactlyOne(args):
            found = [rewritten(arg, leaf) for arg in args]
            return expr if _are_same(found, args) else exactly_one(*found)
        case _:
            return leaf(expr)


def _are_same(found: list[Expr], args: tuple[Expr, ...]) -> bool:
    return all(map(is_, found, args))


def leaves(expr: Expr) -> Iterator[Expr]:
    """The atoms, kind tests and references of an expression, from left to right."""
    match expr:
        case Constant():
            return
        case Not(arg):
            yield from leaves(arg)
        case And(args) | Or(args) | ExactlyOne(args):
            for arg in args:
                yield from leaves(arg)
        case _:
            yield expr


def conjuncts(expr: Expr) -> tuple[Expr, ...]:
    """The parts that must all hold."""
    return expr.args if isinstance(expr, And) else (expr,)


def holds(expr: Expr, leaf: Callable[[Expr], bool]) -> bool:
    """The truth of an expression whose leaves have a known truth."""
    match expr:
        case Constant(value):
            return value
        case Not(arg):
            return not holds(arg, leaf)
        case And(args):
            return all(holds(arg, leaf) for arg in args)
        case Or(args):
            return any(holds(arg, leaf) for arg in args)
        case ExactlyOne(args):
            return sum(holds(arg, leaf) for arg in args) == 1
        case _:
            return leaf(expr)
