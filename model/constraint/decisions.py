"""Typed decisions: the exact posterior of which of some languages the text belongs to.

The members of a decision (texts, or whole constraints, such as a schema with an enum narrowed to
one value) are read side by side by one automaton that ends in a state of its own for every set of
members a text belongs to. One look at the model's logits then gives every member's probability,
under the weighting that generation uses and without generating anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from agentloop.errors import ConstraintError
from agentloop.model.constraint.class_weights import MASKED
from agentloop.model.constraint.compiled import (
    CompilableConstraint,
    CompiledConstraint,
    compile_constraint,
)
from agentloop.model.constraint.dfa import DEAD, Dfa
from agentloop.model.constraint.inference import Weighting, infer
from agentloop.model.constraint.options import DEFAULT_OPTIONS, CompileOptions
from agentloop.model.constraint.segments import ragged
from agentloop.model.constraint.vocabulary import Vocabulary

if TYPE_CHECKING:
    import torch

_MAX_STATES = 250_000


@dataclass(frozen=True, eq=False)
class CompiledDecision:
    """A decision between members, compiled for a vocabulary.

    Attributes:
        names: K names of the members.
        compiled: The union of the members, as a constraint.
        members: (S, K) bool, the members that a text which ends in each state belongs to.
    """

    names: tuple[str, ...]
    compiled: CompiledConstraint
    members: NDArray[np.bool_]

    def posterior(
        self,
        logits: torch.Tensor | NDArray[Any],
        tokens: Sequence[int] | NDArray[np.integer[Any]] | None = None,
        *,
        weighting: Weighting = "local",
        temperature: float = 1.0,
    ) -> dict[str, float]:
        """Probability that the text belongs to each member, given that it belongs to one.

        The numbers sum to 1 where no text belongs to two members.

        Args:
            logits: (L, V) logits of a canvas.
            tokens: (L,) token ids of the canvas, -1 where masked; all masked by default.
            weighting: As in `infer`. `"local"` decides where the members part and not by length.
            temperature: Divides the logits; positive.

        Raises:
            CanvasTooSmallError: No member fits the canvas.
            ContradictionError: The committed tokens belong to no member.
        """
        canvas = np.full(len(logits), MASKED) if tokens is None else np.asarray(tokens)
        scaled = logits if temperature == 1.0 else logits / temperature
        exits = infer(self.compiled, scaled, canvas, weighting=weighting, path="greedy").p_exit
        p_members = exits @ self.members
        return dict(zip(self.names, p_members.tolist(), strict=True))


def compile_decision(
    members: Iterable[str] | Mapping[str, CompilableConstraint | Dfa],
    vocabulary: Vocabulary,
    options: CompileOptions = DEFAULT_OPTIONS,
) -> CompiledDecision:
    """Compile a decision between texts, or between named constraints.

    Raises:
        ConstraintError: There is no member, or no sequence of tokens spells any.

    Example:
        >>> words = Vocabulary([b"yes", b"no", b"y", b""], [3])
        >>> decision = compile_decision(["yes", "no"], words)
        >>> belief = decision.posterior(np.log([[0.3, 0.1, 0.2, 0.4], [0.1, 0.1, 0.1, 0.7]]))
        >>> {name: round(p, 3) for name, p in belief.items()}
        {'yes': 0.75, 'no': 0.25}
    """
    if isinstance(members, Mapping):
        named = cast("Mapping[str, CompilableConstraint | Dfa]", members)
        automata = {
            name: member if isinstance(member, Dfa) else member.automaton(options)
            for name, member in named.items()
        }
    else:
        automata = {text: literal(text.encode()) for text in members}
    if not automata:
        raise ConstraintError("a decision needs at least one member; got none")
    union, labels = labelled_union(list(automata.values()))
    compiled = compile_constraint(union, vocabulary)
    byte_state = compiled.automaton.byte_state
    reached = np.where((byte_state >= 0)[:, None], labels[byte_state], False)
    return CompiledDecision(tuple(automata), compiled, reached)


def literal(text: bytes) -> Dfa:
    """The automaton of one text."""
    places = np.arange(len(text))
    accepting = np.arange(len(text) + 1) == len(text)
    return Dfa.from_arcs(places, np.frombuffer(text, np.uint8), places + 1, accepting)


def labelled_union(automata: Sequence[Dfa]) -> tuple[Dfa, NDArray[np.bool_]]:
    """One automaton that reads all of some automata side by side.

    Returns:
        The union, and (S, K) bool: the automata that accept a text which leads to each state.

    Raises:
        ConstraintError: The union has too many states.
    """
    known = {np.zeros(len(automata), np.int32).tobytes(): 0}
    frontier = np.zeros((1, len(automata)), np.int32)
    tuples, arcs, first = [frontier], list[NDArray[np.int64]](), 0
    while len(frontier):
        owners, arc_bytes, targets = _joint_arcs(automata, frontier)
        numbers, new = _number(targets, known)
        arcs.append(np.stack([owners + first, arc_bytes, numbers], axis=1))
        first += len(frontier)
        frontier = targets[new]
        tuples.append(frontier)
        if len(known) > _MAX_STATES:
            raise ConstraintError(
                f"the members of a decision read side by side need more than {_MAX_STATES} states; "
                f"give fewer members or narrower ones"
            )
    states, table = np.concatenate(tuples), np.concatenate(arcs)
    labels = np.zeros(states.shape, np.bool_)
    for k, dfa in enumerate(automata):
        alive = states[:, k] != DEAD
        labels[alive, k] = dfa.accepting[states[alive, k]]
    accepting = np.asarray(labels.any(axis=1), np.bool_)
    return Dfa.from_arcs(table[:, 0], table[:, 1], table[:, 2], accepting), labels


def _joint_arcs(
    automata: Sequence[Dfa], states: NDArray[np.int32]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int32]]:
    """Every (state tuple, byte) that some component reads, and the tuple (n, K) it leads to."""
    keys: list[NDArray[np.int64]] = []
    reached: list[NDArray[np.int32]] = []
    for k, dfa in enumerate(automata):
        rows = np.flatnonzero(states[:, k] != DEAD)
        starts = dfa.offsets[states[rows, k]]
        at, owners = ragged(starts, dfa.offsets[states[rows, k] + 1] - starts)
        keys.append(rows[owners] * 256 + dfa.arc_bytes[at])
        reached.append(dfa.arc_targets[at])
    distinct = np.unique(np.concatenate(keys))
    targets = np.full((len(distinct), len(automata)), DEAD, np.int32)
    for k in range(len(automata)):
        targets[np.searchsorted(distinct, keys[k]), k] = reached[k]
    return distinct >> 8, distinct & 255, targets


def _number(
    tuples: NDArray[np.int32], known: dict[bytes, int]
) -> tuple[NDArray[np.int64], list[int]]:
    """Number of each tuple, and the rows of those that were not known."""
    numbers = np.empty(len(tuples), np.int64)
    new: list[int] = []
    for row, content in enumerate(tuples):
        key = content.tobytes()
        if key not in known:
            known[key] = len(known)
            new.append(row)
        numbers[row] = known[key]
    return numbers, new
