"""The exact posterior of one field of a JSON value: an enum, a boolean, a choice, a tool's name.

The machine that unrolls a constraint is asked on the way which value the field has, so the
automaton ends in a state of its own for each value. One look at the model's logits then gives the
probability of every value over all texts of the constraint, whatever stands in the other fields.

It tells fields with a finite set of scalars; a field of free text has no such list.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from agentloop.errors import ConstraintError
from agentloop.model.constraint.array_assertions import Elements, num_items
from agentloop.model.constraint.compiled import compile_constraint
from agentloop.model.constraint.constraint import JsonConstraint, emitted_piece
from agentloop.model.constraint.decisions import CompiledDecision
from agentloop.model.constraint.dfa import Dfa
from agentloop.model.constraint.expression import FALSE, KINDS, TRUE, Expr, conjunction, disjunction
from agentloop.model.constraint.finite import MAX_VALUES, finite_values
from agentloop.model.constraint.fragment import Fragment
from agentloop.model.constraint.inference import Weighting
from agentloop.model.constraint.jsontext import to_python
from agentloop.model.constraint.literals import TYPES, equal_to
from agentloop.model.constraint.machine import Asked, Machine, NamedKey
from agentloop.model.constraint.numerals import spell
from agentloop.model.constraint.object_assertions import Shape, required
from agentloop.model.constraint.options import DEFAULT_OPTIONS, CompileOptions
from agentloop.model.constraint.vocabulary import Vocabulary

if TYPE_CHECKING:
    import torch

Scalar = bool | int | float | str | None


@dataclass(frozen=True)
class FieldPosterior:
    """What is believed about a field.

    Attributes:
        values: Probability of each value the field may have, given that it is there; they sum to 1
            unless the field cannot be there.
        p_present: Probability that it is there.
    """

    values: Mapping[Scalar, float]
    p_present: float

    @property
    def best(self) -> Scalar:
        """The likeliest value; the first of those that are equally likely."""
        return max(self.values, key=lambda value: self.values[value])


@dataclass(frozen=True, eq=False)
class CompiledField:
    """A field of a constraint, ready for a vocabulary.

    Attributes:
        pointer: JSON pointer of the field in the value.
        values: The values it may have.
        decision: Tells by which value, or by none, a text is of.
    """

    pointer: str
    values: tuple[Scalar, ...]
    decision: CompiledDecision

    def posterior(
        self,
        logits: torch.Tensor | NDArray[Any],
        tokens: Sequence[int] | NDArray[np.integer[Any]] | None = None,
        *,
        weighting: Weighting = "local",
        temperature: float = 1.0,
    ) -> FieldPosterior:
        """The posterior of the field; arguments as in `CompiledDecision`.

        Raises:
            CanvasTooSmallError: No text of the constraint fits the canvas.
            ContradictionError: The committed tokens lie on no text of the constraint.
        """
        found = self.decision.posterior(
            logits, tokens, weighting=weighting, temperature=temperature
        )
        return self.told_by(found)

    def told_by(self, found: Mapping[str, float]) -> FieldPosterior:
        """What the posterior of `decision` says about the field."""
        *shares, _ = found.values()
        p_present = sum(shares)
        scale = 1.0 / p_present if p_present > 0 else 0.0
        given = {v: p * scale for v, p in zip(self.values, shares, strict=True)}
        return FieldPosterior(given, min(p_present, 1.0))


@lru_cache(maxsize=64)
def compile_field(
    constraint: JsonConstraint,
    pointer: str,
    vocabulary: Vocabulary,
    options: CompileOptions = DEFAULT_OPTIONS,
) -> CompiledField:
    """Compile a constraint so that it tells the value of one field.

    Args:
        constraint: A constraint on a JSON value.
        pointer: JSON pointer of the field, such as `/address/country` or `/0/name`.
        vocabulary: The tokens of the model.
        options: As the constraint is compiled with.

    Raises:
        ConstraintError: There is no such field, or its values are free or too many.

    Example:
        >>> from agentloop.model.constraint.json_schema import JsonSchema
        >>> flags = JsonSchema({"properties": {"wet": {"type": "boolean"}}, "required": ["wet"]})
        >>> words = Vocabulary([b'{"wet":', b"true", b"false", b"}", b""], [4])
        >>> logits = np.log([[0.6, 0.1, 0.1, 0.1, 0.1], [0.1, 0.6, 0.2, 0.05, 0.05],
        ...                  [0.1, 0.1, 0.1, 0.6, 0.1], [0.1, 0.1, 0.1, 0.1, 0.6]])
        >>> belief = compile_field(flags, "/wet", words).posterior(logits)
        >>> {value: round(p, 3) for value, p in belief.values.items()}
        {True: 0.75, False: 0.25}
    """
    root = constraint.value_expression()
    path = _path(pointer)
    values = _values(root, path, pointer)
    goals = (_at(path, TRUE), *_bits(path, values))
    piece = emitted_piece(Asked(root, goals), options)
    if piece is None:
        raise ConstraintError(f"no text satisfies {constraint!r}")
    dfa, labels = _labelled(piece.fragment)
    member_of = [_member(outcome, len(values)) for outcome in piece.outcomes]
    compiled = compile_constraint(dfa, vocabulary)
    members = np.zeros((compiled.num_states, len(values) + 1), np.bool_)
    for state, byte_state in enumerate(compiled.automaton.byte_state.tolist()):
        if byte_state >= 0 and labels[byte_state] >= 0:
            members[state, member_of[labels[byte_state]]] = True
    names = tuple(map(str, range(len(values) + 1)))
    shown = tuple(to_python(value) for value in values)
    return CompiledField(pointer, shown, CompiledDecision(names, compiled, members))


def _path(pointer: str) -> list[str]:
    if pointer and not pointer.startswith("/"):
        raise ConstraintError(
            f"{pointer!r} is no JSON pointer: it must be empty or begin with '/', as in '/name'"
        )
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]


def _at(path: Sequence[str], expr: Expr) -> Expr:
    """The expression that holds where a field is there and satisfies one."""
    for name in reversed(path):
        shape = Shape(((name, expr),), (), TRUE, is_open=False)
        options = [conjunction(TYPES["object"], shape, required((name,)))]
        if name.isdecimal():
            index = int(name)
            items = Elements((*(TRUE,) * index, expr), TRUE)
            options.append(conjunction(TYPES["array"], num_items(index + 1, None), items))
        expr = disjunction(*options)
    return expr


def _bits(path: Sequence[str], values: Sequence[Scalar | Decimal]) -> list[Expr]:
    """Goals that together number the value: one for each binary digit of its place in the list."""
    found: list[Expr] = []
    for bit in range((len(values) - 1).bit_length()):
        some = [equal_to(value) for i, value in enumerate(values) if i >> bit & 1]
        found.append(_at(path, disjunction(*some)))
    return found


def _member(outcome: Sequence[bool], num_values: int) -> int:
    """The place of the value that an outcome tells; after all values where the field is absent."""
    is_present, *bits = outcome
    return sum(is_set << i for i, is_set in enumerate(bits)) if is_present else num_values


def _values(root: Expr, path: Sequence[str], pointer: str) -> list[bool | Decimal | str | None]:
    """The values that a field may have."""
    machine = Machine()
    expr = root
    for depth, name in enumerate(path):
        below = [_item(machine, expr, name), _property(machine, expr, name)]
        expr = disjunction(*(part for part in below if part is not None))
        if all(machine.at_kind(expr, kind) == FALSE for kind in KINDS):
            missing = "/" + "/".join(path[: depth + 1])
            raise ConstraintError(
                f"{pointer!r} is no field of the constraint: nothing at {missing}"
            )
    values = finite_values(expr)
    if not values:
        raise ConstraintError(
            f"the field {pointer!r} has no list of values: only an enum, a boolean, a const, a"
            f" choice or an integer in narrow bounds has one, of at most {MAX_VALUES} scalars"
        )
    shown = [(value if not isinstance(value, Decimal) else spell(value)) for value in values]
    if len(set(map(to_python, values))) < len(values):
        raise ConstraintError(
            f"the values {shown} of the field {pointer!r} are not all different in Python, where"
            " True == 1 and False == 0"
        )
    return values


def _property(machine: Machine, expr: Expr, name: str) -> Expr | None:
    state = machine.asked_at(Asked(expr), "object")
    if state is None:
        return None
    return machine.next_property(state, NamedKey(name, machine)).asked.must


def _item(machine: Machine, expr: Expr, name: str) -> Expr | None:
    state = machine.asked_at(Asked(expr), "array") if name.isdecimal() else None
    for _ in range(int(name) if state else 0):
        assert state is not None
        step = machine.next_item(state)
        state = step.finish((True,) * len(step.asked.goals))
        if state.must == FALSE:
            return FALSE
    return None if state is None else machine.next_item(state).asked.must


def _labelled(fragment: Fragment) -> tuple[Dfa, NDArray[np.int32]]:
    """The automaton of a fragment with a last state for each exit, and the exit of each state."""
    num_labels = max(fragment.labels, default=-1) + 1
    num_states = fragment.num_states + num_labels
    labels = np.full(num_states, -1, np.int32)
    labels[fragment.num_states :] = np.arange(num_labels)
    labels[fragment.ends[:, 0]] = -1 - fragment.ends[:, 1]
    exits = fragment.num_states - 1 - fragment.targets
    targets = np.where(fragment.targets < 0, exits, fragment.targets)
    return Dfa.from_arcs(fragment.sources, fragment.arc_bytes, targets, labels >= 0), labels
