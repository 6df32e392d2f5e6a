"""From expressions to bytes: unrolls the machine into one fragment per value, to a bounded depth.

A fragment is built once for each thing asked of a value and copied wherever a value of that sort
stands, so the time goes with the size of the result and never with the number of ways to read it.
"""

from __future__ import annotations

from collections import Counter

from agentloop.errors import UnsupportedSchemaError
from agentloop.model.constraint.array_emission import ArrayEmission
from agentloop.model.constraint.characters import StateBudgetError
from agentloop.model.constraint.dfa import Dfa
from agentloop.model.constraint.expression import (
    KINDS,
    TRUE,
    Expr,
    Kind,
    Reference,
    conjunction,
    conjuncts,
    leaves,
)
from agentloop.model.constraint.fragment import Builder, exit_of
from agentloop.model.constraint.machine import Asked, Machine, Outcome
from agentloop.model.constraint.object_emission import ObjectEmission
from agentloop.model.constraint.options import CompileOptions
from agentloop.model.constraint.pieces import Piece
from agentloop.model.constraint.scalar_assertions import Length
from agentloop.model.constraint.scalars import OpaqueTextError, bounded, scalar_piece
from agentloop.model.constraint.spelling import QUOTE
from agentloop.model.constraint.work import Work, current_work

SCALAR_KINDS: tuple[Kind, ...] = ("null", "true", "false", "number", "string")


MAX_KEPT_ARCS = 4_000_000
"""Arcs of pieces that an emitter keeps for later compilations before it starts afresh."""


MAX_STEPS = 4_000
"""Steps over items and properties that one compilation may take."""
_LARGE_PART = 0.5
"""Share of a value's states from which one part of it is to blame for its size."""


class Emitter:
    """Builds pieces for one machine under one set of options, each once."""

    def __init__(self, machine: Machine, options: CompileOptions) -> None:
        self.machine = machine
        self.options = options
        self._pieces: dict[tuple[Asked, int], Piece | None] = {}
        self._num_steps = 0
        self._work = Work()
        self._open: list[Asked] = []
        self._parts: dict[Asked, Counter[Asked]] = {}

    def root_piece(self, asked: Asked) -> Piece | None:
        """The piece of a whole text, None if there is none.

        Raises:
            StateBudgetError: It needs more states than the options allow.
        """
        if sum(len(p.fragment.sources) for p in self._pieces.values() if p) > MAX_KEPT_ARCS:
            self._pieces.clear()
            self._parts.clear()
            self.machine = Machine()
        self._num_steps = 0
        self._work = current_work() or Work()
        return self.piece(asked, self.options.max_depth)

    def dfa(self, asked: Asked) -> Dfa | None:
        """The automaton of the values for which what is asked holds; None if there is none."""
        piece = self.root_piece(asked)
        return None if piece is None else piece.fragment.to_dfa()

    def count_step(self, state: Asked, num_outcomes: int) -> None:
        """Count one step of exploring a container, by how much there is to work out.

        Raises:
            StateBudgetError: There have been too many since the compilation began.
        """
        self._work.check()
        size = len(conjuncts(state.must)) + len(state.goals)
        num_steps = 1 + num_outcomes * size // 16
        self._num_steps += num_steps
        self._work.cost_of(None).steps += num_steps
        if self._num_steps > MAX_STEPS:
            error = StateBudgetError(
                f"the schema takes more than {MAX_STEPS:,} steps to explore; it has too many"
                " alternatives that overlap"
            )
            error.is_about_steps = True
            raise error

    def nested(self, asked: Asked, depth: int) -> Piece | None:
        """The piece of a value inside a container, None if there is none."""
        if _is_recursive(asked):
            depth -= 1
        piece = self.piece(asked, max(depth, -1))
        if piece is not None and self._open:
            self._parts.setdefault(self._open[-1], Counter())[asked] += piece.fragment.num_states
        return piece

    def piece(self, asked: Asked, depth: int) -> Piece | None:
        """The piece of a value, None if there is none."""
        key = (asked, depth)
        if key not in self._pieces:
            self._work.check()
            self._open.append(asked)
            try:
                with self._work.at(_pointer_of(asked)):
                    self._pieces[key] = self._build(asked, depth)
            except OpaqueTextError as error:
                pointer = next(filter(None, map(_pointer_of, reversed(self._open))), "")
                raise UnsupportedSchemaError(pointer, "", str(error)) from None
            except StateBudgetError as error:
                error.locate(self._blamed(error, asked))
                raise
            finally:
                self._open.pop()
        return self._pieces[key]

    def _blamed(self, error: StateBudgetError, asked: Asked) -> str | None:
        """The subschema that a refusal names."""
        if error.is_about_steps:
            return self._work.costliest("steps")
        return self._largest_part(asked) if error.is_about_size else _pointer_of(asked)

    def _largest_part(self, asked: Asked) -> str | None:
        """The subschema that most of a value's states are of, as far down as that can be said."""
        found = _pointer_of(asked)
        seen = {asked}
        while parts := self._parts.get(asked):
            asked, num_states = parts.most_common(1)[0]
            if asked in seen or num_states < parts.total() * _LARGE_PART:
                break
            seen.add(asked)
            found = _pointer_of(asked) or found
        return found

    def _build(self, asked: Asked, depth: int) -> Piece | None:
        builder = Builder(self.options.max_states)
        outcomes: dict[Outcome, int] = {}
        for kind in KINDS if depth >= 0 else SCALAR_KINDS:
            state = self.machine.asked_at(asked, kind)
            found = None if state is None else self._of_kind(state, kind, depth)
            if found is None:
                continue
            exits = [
                exit_of(outcomes.setdefault(outcome, len(outcomes))) for outcome in found.outcomes
            ]
            start = 0
            if kind == "string":
                start = builder.state()
                builder.arc(0, QUOTE, start)
            builder.place(found.fragment, start, exits)
        return Piece(builder.finish(), tuple(outcomes)) if outcomes else None

    def _of_kind(self, state: Asked, kind: Kind, depth: int) -> Piece | None:
        if kind == "array":
            return ArrayEmission(self, state, depth).piece()
        if kind == "object":
            return ObjectEmission(self, state, depth).piece()
        if kind in ("string", "number"):
            return self._scalar(bounded(state, self.options), kind)
        outcome = tuple(goal == TRUE for goal in state.goals)
        builder = Builder(self.options.max_states)
        builder.word(0, kind.encode(), exit_of(0))
        return Piece(builder.finish(), (outcome,))

    def _scalar(self, asked: Asked, kind: Kind) -> Piece | None:
        least = self.options.min_string_length
        if kind == "string" and least:
            long = Asked(conjunction(asked.must, Length(least, None)), asked.goals)
            piece = scalar_piece(long, kind)
            if piece is not None:
                return piece
        return scalar_piece(asked, kind)


def _pointer_of(asked: Asked) -> str | None:
    """The JSON pointer of the subschema that is asked of a value, None if there is none."""
    pointers = (getattr(part, "pointer", None) for part in conjuncts(asked.must))
    return next((pointer for pointer in pointers if pointer is not None), None)


def _is_recursive(asked: Asked) -> bool:
    """Whether a value like this may hold another like it, without bound."""
    if asked.must == TRUE and not asked.goals:
        return True
    return any(map(_is_cyclic, (asked.must, *asked.goals)))


def _is_cyclic(expr: Expr) -> bool:
    return any(isinstance(leaf, Reference) and leaf.is_cyclic for leaf in leaves(expr))
