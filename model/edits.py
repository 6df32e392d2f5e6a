"""Changes to a canvas that somebody makes while it is refined.

An edit fixes text, moves what stands behind it, and keeps as much of what the model has committed
as an accepted text can hold beside it. One that contradicts the constraint is refused before
anything changes. Nothing here knows threads, drafts or strings.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agentloop.errors import ModelError
from agentloop.model.constraint.allowed import contradiction, end_states, open_sets
from agentloop.model.constraint.class_weights import committed_classes
from agentloop.model.constraint.compiled import CompiledConstraint
from agentloop.model.sampler import MASKED, CanvasRow

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class CanvasText:
    """A canvas as it stands.

    Attributes:
        tokens: (L,) ids, -1 where masked.
        fixed: (L,) ids that may not change, -1 elsewhere.
    """

    tokens: Ints
    fixed: Ints

    @classmethod
    def of(cls, row: CanvasRow) -> CanvasText:
        """A copy of what a row holds."""
        assert row.fixed is not None
        return cls(row.tokens.copy(), row.fixed.copy())


Change = Callable[[CanvasText], CanvasText]


def replaced(start: int, stop: int, ids: Sequence[int]) -> Change:
    """Fix other tokens in place of slots start to stop - 1; what follows moves along."""

    def change(text: CanvasText) -> CanvasText:
        new = np.array(ids, np.int64)
        fixed = _spliced(text.fixed, start, stop, new)
        lost = text.fixed[stop:][max(0, len(text.fixed) - start - len(new)) :]
        if start + len(new) > len(text.fixed) or (lost != MASKED).any():
            raise ModelError(
                f"the edit has {len(new)} tokens in place of {stop - start} and pushes fixed text "
                f"off the canvas of {len(text.fixed)} slots; shorten it or raise max_tokens"
            )
        return CanvasText(_spliced(text.tokens, start, stop, new), fixed)

    return change


def pinned(start: int, ids: Sequence[int]) -> Change:
    """Fix tokens where they stand."""

    def change(text: CanvasText) -> CanvasText:
        tokens, fixed = text.tokens.copy(), text.fixed.copy()
        tokens[start : start + len(ids)] = fixed[start : start + len(ids)] = ids
        return CanvasText(tokens, fixed)

    return change


def unpinned(start: int, stop: int) -> Change:
    """Let tokens change again; they stand until the model doubts them."""

    def change(text: CanvasText) -> CanvasText:
        fixed = text.fixed.copy()
        fixed[start:stop] = MASKED
        return CanvasText(text.tokens, fixed)

    return change


def reconciled(
    compiled: CompiledConstraint, text: CanvasText, start_state: int, room_after: int
) -> CanvasText:
    """The same canvas without the committed tokens that stand in the way of what is fixed.

    As few as possible are masked: the best path counts those it keeps.

    Raises:
        ContradictionError: What is fixed lies on no accepted text.
    """
    automaton = compiled.automaton
    eos = np.isin(text.tokens, compiled.vocabulary.eos_ids)
    tokens = text.tokens.copy()
    end = int(eos.argmax()) if eos.any() else len(tokens)
    tokens[end + 1 :] = text.fixed[end + 1 :]  # what follows the end says nothing by itself
    gains = automaton.max_sets(committed_classes(automaton, tokens))
    passable = open_sets(automaton, text.fixed)
    scores = np.where(passable, gains, -np.inf)
    best = np.where(end_states(automaton, room_after), 0.0, -np.inf)
    rows = np.empty((len(tokens), automaton.num_pairs))
    for i in range(len(tokens) - 1, -1, -1):
        row = scores[i].take(automaton.pair_set, out=rows[i], mode="clip")
        row += best.take(automaton.pair_target)
        best = np.maximum.reduceat(row, automaton.pair_offsets[:-1])
    if best[start_state] == -np.inf:
        raise contradiction(compiled, text.fixed, start=start_state, room_after=room_after)
    state = start_state
    for i, row in enumerate(rows):
        first = int(automaton.pair_offsets[state])
        pair = first + int(row[first : automaton.pair_offsets[state + 1]].argmax())
        if gains[i, automaton.pair_set[pair]] == 0.0:
            tokens[i] = text.fixed[i]
        state = int(automaton.pair_target[pair])
    kept_end = np.flatnonzero(np.isin(tokens, compiled.vocabulary.eos_ids))
    if len(kept_end):
        tail = tokens[kept_end[0] :]
        tail[tail == MASKED] = tokens[kept_end[0]]
    return CanvasText(tokens, text.fixed)


def _spliced(values: Ints, start: int, stop: int, new: Ints) -> Ints:
    """Values with others in place of some, cut or masked at the end to the same length."""
    whole = np.concatenate([values[:start], new, values[stop:]])[: len(values)]
    return np.pad(whole, (0, len(values) - len(whole)), constant_values=MASKED)
