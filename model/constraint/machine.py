"""The machine that reads one JSON value under several expressions at once.

What is asked of a value is an expression that must hold (`must`) and others whose truth is to be
found out (`goals`). Reading a container asks the same of its parts, so the machine is a
deterministic automaton with a stack: `Machine.run` drives it over a parsed value of any depth, and
`emission` unrolls it to a byte automaton. Both take every step from here, so they agree.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial

from agentloop.errors import UnsupportedSchemaError
from agentloop.model.constraint.array_assertions import AllDifferent, ArrayAtom
from agentloop.model.constraint.expression import (
    FALSE,
    TRUE,
    Atom,
    Constant,
    Expr,
    Kind,
    KindIs,
    Reference,
    Truth,
    conjunction,
    conjuncts,
    disjunction,
    holds,
    leaves,
    rewritten,
)
from agentloop.model.constraint.numerals import spell
from agentloop.model.constraint.object_assertions import KeyFact, ObjectAtom, Shape
from agentloop.model.constraint.scalar_assertions import ScalarAtom

JsonValue = None | bool | Decimal | str | list["JsonValue"] | dict[str, "JsonValue"]
Outcome = tuple[bool, ...]
"""The truth of each goal."""


@dataclass(frozen=True)
class Asked:
    """What is asked of a value: `must` has to hold, the truth of `goals` is to be found out."""

    must: Expr
    goals: tuple[Expr, ...] = ()


@dataclass(frozen=True)
class NamedKey:
    """A key that is known by its name."""

    name: str | None
    machine: Machine

    def meets(self, condition: Expr) -> bool:
        """Whether the key as a string satisfies an expression."""
        assert self.name is not None
        return self.machine.run(Asked(condition), self.name) is not None


@dataclass(frozen=True)
class UnnamedKey:
    """A key of which only the conditions it meets are known."""

    met: frozenset[Expr]
    name: str | None = None

    def meets(self, condition: Expr) -> bool:
        """Whether the key as a string satisfies an expression."""
        return condition == TRUE or condition in self.met


@dataclass(frozen=True)
class Step:
    """What is asked of the next part, and how the rest depends on the outcome."""

    asked: Asked
    finish: Callable[[Outcome], Asked]


def kind_of(value: JsonValue) -> Kind:
    """The kind of a parsed value."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case Decimal():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


class Machine:
    """Reads values; remembers how expressions look for each kind of value."""

    def __init__(self) -> None:
        self._at_kind: dict[tuple[Expr, Kind], Expr] = {}
        self._open: set[tuple[Reference, Kind]] = set()

    def at_kind(self, expr: Expr, kind: Kind) -> Expr:
        """The expression with all that is settled by the kind of the value worked in.

        Raises:
            UnsupportedSchemaError: A reference leads back to itself without a step into the value.
        """
        key = (expr, kind)
        found = self._at_kind.get(key)
        if found is None:
            if isinstance(expr, Reference):
                found = self._expanded_at_kind(expr, kind)
            else:
                found = rewritten(expr, partial(self._leaf_at_kind, kind))
            self._at_kind[key] = found
        return found

    def _leaf_at_kind(self, kind: Kind, leaf: Expr) -> Expr:
        if isinstance(leaf, Reference):
            return self.at_kind(leaf, kind)
        if isinstance(leaf, KindIs):
            return Constant(kind in leaf.kinds)
        assert isinstance(leaf, Atom)
        return leaf if leaf.kind == kind else TRUE

    def _expanded_at_kind(self, reference: Reference, kind: Kind) -> Expr:
        key = (reference, kind)
        if key in self._open:
            raise UnsupportedSchemaError(
                getattr(reference, "pointer", ""),
                "$ref",
                "the reference leads back to itself without a step into the value",
            )
        self._open.add(key)
        try:
            return self.at_kind(reference.expand(), kind)
        finally:
            self._open.discard(key)

    def asked_at(self, asked: Asked, kind: Kind) -> Asked | None:
        """What is asked of a value of a kind; None if no such value will do."""
        must = self.at_kind(asked.must, kind)
        if must == FALSE:
            return None
        return Asked(must, tuple(self.at_kind(goal, kind) for goal in asked.goals))

    def next_item(self, state: Asked) -> Step:
        """The step over the next item of an array."""

        def asks(leaf: Expr) -> tuple[Expr, ...]:
            assert isinstance(leaf, ArrayAtom)
            return leaf.asks()

        def after(truth: Truth, leaf: Expr) -> Expr:
            assert isinstance(leaf, ArrayAtom)
            return leaf.after(truth)

        return _step(state, asks, after)

    def next_property(self, state: Asked, key: KeyFact) -> Step:
        """The step over the next property of an object."""

        def asks(leaf: Expr) -> tuple[Expr, ...]:
            assert isinstance(leaf, ObjectAtom)
            return leaf.asks(key)

        def after(truth: Truth, leaf: Expr) -> Expr:
            assert isinstance(leaf, ObjectAtom)
            return leaf.after(key, truth)

        return _step(state, asks, after)

    def run(self, asked: Asked, value: JsonValue) -> Outcome | None:
        """Read a value: the truth of the goals, or None if what must hold does not."""
        state = self.asked_at(asked, kind_of(value))
        if state is None:
            return None
        match value:
            case str() | Decimal():
                return _outcome(state, partial(_scalar_holds, value))
            case list():
                return self._run_items(state, value)
            case dict():
                return self._run_properties(state, value)
            case _:
                return _outcome(state, _constant_only)

    def _run_items(self, state: Asked, values: Sequence[JsonValue]) -> Outcome | None:
        state = settled(state, values)
        for value in values:
            step = self.next_item(state)
            outcome = self.run(step.asked, value)
            if outcome is None:
                return None
            state = step.finish(outcome)
            if state.must == FALSE:
                return None
        return _outcome(state, holds_at_end)

    def _run_properties(self, state: Asked, values: dict[str, JsonValue]) -> Outcome | None:
        keys = known_keys(state)
        for name in keys:
            if name in values:
                continue
            state = without(state, name)
        for name in [*(k for k in keys if k in values), *(k for k in values if k not in keys)]:
            step = self.next_property(state, NamedKey(name, self))
            outcome = self.run(step.asked, values[name])
            if outcome is None:
                return None
            state = step.finish(outcome)
            if state.must == FALSE:
                return None
        return _outcome(state, holds_at_end)

    def spell(self, asked: Asked, value: JsonValue) -> str:
        """The canonical compact text of a value: known keys first, in their order."""
        state = self.asked_at(asked, kind_of(value)) or Asked(TRUE)
        match value:
            case list():
                state = settled(state, value)
                texts: list[str] = []
                for item in value:
                    step = self.next_item(state)
                    texts.append(self.spell(step.asked, item))
                    state = self._after(step, item)
                return f"[{','.join(texts)}]"
            case dict():
                return self._spell_object(state, value)
            case Decimal():
                return spell(value)
            case _:
                return json.dumps(value, ensure_ascii=False)

    def _spell_object(self, state: Asked, value: dict[str, JsonValue]) -> str:
        keys = known_keys(state)
        texts: list[str] = []
        for name in [*(k for k in keys if k in value), *(k for k in value if k not in keys)]:
            step = self.next_property(state, NamedKey(name, self))
            text = self.spell(step.asked, value[name])
            texts.append(f"{json.dumps(name, ensure_ascii=False)}:{text}")
            state = self._after(step, value[name])
        return f"{{{','.join(texts)}}}"

    def _after(self, step: Step, value: JsonValue) -> Asked:
        outcome = self.run(step.asked, value)
        state = Asked(TRUE) if outcome is None else step.finish(outcome)
        return Asked(TRUE) if state.must == FALSE else state


def settled(state: Asked, values: Sequence[JsonValue]) -> Asked:
    """An array's state with what only the whole array can tell worked in."""

    def leaf(atom: Expr) -> Expr:
        if not isinstance(atom, AllDifferent):
            return atom
        keys = [_identity(value) for value in values]
        return Constant(len(set(keys)) == len(keys))

    return Asked(rewritten(state.must, leaf), tuple(rewritten(g, leaf) for g in state.goals))


def _identity(value: JsonValue) -> object:
    """What two JSON values share exactly when they are equal."""
    match value:
        case Decimal():
            return spell(value)
        case list():
            return ("array", *map(_identity, value))
        case dict():
            return frozenset((key, _identity(inner)) for key, inner in value.items())
        case str():
            return ("string", value)
        case _:
            return value


def _step(
    state: Asked,
    asks: Callable[[Expr], tuple[Expr, ...]],
    after: Callable[[Truth, Expr], Expr],
) -> Step:
    """Split what is asked of a part into what must hold and what is only to be found out."""
    musts: dict[Expr, None] = {}
    loose: list[Expr] = []
    for part in conjuncts(state.must):
        if isinstance(part, ArrayAtom | ObjectAtom) and part.is_strict:
            musts.update(dict.fromkeys(asks(part)))
        else:
            loose.append(part)
    wanted: dict[Expr, None] = {}
    for part in loose:
        found = [ask for leaf in leaves(part) for ask in asks(leaf) if _is_open(ask, musts)]
        if found and rewritten(part, partial(after, partial(_is_true, musts, {}))) == FALSE:
            musts[disjunction(*found)] = None  # only none of them at all would fail for certain
        wanted.update(dict.fromkeys(found))
    for goal in state.goals:
        wanted.update(dict.fromkeys(a for leaf in leaves(goal) for a in asks(leaf)))
    goals = tuple(ask for ask in wanted if _is_open(ask, musts))

    def finish(outcome: Outcome) -> Asked:
        truth = partial(_is_true, musts, dict(zip(goals, outcome, strict=True)))
        rewrite = partial(after, truth)
        must = rewritten(state.must, rewrite)
        return Asked(must, tuple(rewritten(goal, rewrite) for goal in state.goals))

    return Step(Asked(conjunction(*musts), goals), finish)


def _is_open(ask: Expr, musts: dict[Expr, None]) -> bool:
    return not isinstance(ask, Constant) and ask not in musts


def _is_true(musts: dict[Expr, None], known: dict[Expr, bool], ask: Expr) -> bool:
    if isinstance(ask, Constant):
        return ask.value
    return ask in musts or known.get(ask, False)


def _outcome(state: Asked, leaf: Callable[[Expr], bool]) -> Outcome | None:
    if not holds(state.must, leaf):
        return None
    return tuple(holds(goal, leaf) for goal in state.goals)


def _scalar_holds(value: str | Decimal, leaf: Expr) -> bool:
    assert isinstance(leaf, ScalarAtom)
    return leaf.accepts(value) if isinstance(value, str) else leaf.accepts_number(value)


def _constant_only(leaf: Expr) -> bool:
    raise AssertionError(f"{leaf} should be settled by the kind of the value")


def holds_at_end(leaf: Expr) -> bool:
    """Whether an assertion about a container holds if nothing follows."""
    assert isinstance(leaf, ArrayAtom | ObjectAtom)
    return leaf.holds_at_end()


def final_outcome(state: Asked) -> Outcome | None:
    """The outcome if the container ends in a state; None if it may not."""
    return _outcome(state, holds_at_end)


def object_atoms(state: Asked) -> list[ObjectAtom]:
    """The assertions of an object's state, each once, from left to right."""
    found: dict[ObjectAtom, None] = {}
    for expr in (state.must, *state.goals):
        for leaf in leaves(expr):
            assert isinstance(leaf, ObjectAtom)
            found[leaf] = None
    return list(found)


def known_keys(state: Asked) -> tuple[str, ...]:
    """The keys an object's assertions name, in the order they are written."""
    atoms = object_atoms(state)
    shapes = [atom for atom in atoms if isinstance(atom, Shape)]
    return tuple(dict.fromkeys(k for atom in [*shapes, *atoms] for k in atom.known_keys()))


def without(state: Asked, key: str) -> Asked:
    """An object's state once it is known that a key is absent."""

    def leaf(atom: Expr) -> Expr:
        assert isinstance(atom, ObjectAtom)
        return atom.without(key)

    return Asked(rewritten(state.must, leaf), tuple(rewritten(g, leaf) for g in state.goals))
