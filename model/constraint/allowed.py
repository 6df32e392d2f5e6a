"""What a constraint permits on a canvas, whatever the model believes.

Exact: a token is allowed at a position if some accepted text holds it there together with every
committed token. Also explains why committed tokens lie on no accepted text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from agentloop.errors import ContradictionError
from agentloop.model.constraint.class_weights import MASKED, committed_classes
from agentloop.model.constraint.lattice import reached_states
from agentloop.model.constraint.liveness import Liveness
from agentloop.model.constraint.token_automaton import TokenAutomaton

if TYPE_CHECKING:
    from agentloop.model.constraint.compiled import CompiledConstraint

Bools = NDArray[np.bool_]
_SHOWN = 5  # examples of allowed tokens in a message


def end_states(automaton: TokenAutomaton, room_after: int) -> Bools:
    """The states (S,) allowed at a canvas's right edge, with room for more tokens after it."""
    return automaton.distance <= room_after


def open_sets(automaton: TokenAutomaton, tokens: NDArray[np.int64]) -> Bools:
    """Whether each class set (L, U) can be crossed at each position of a canvas, -1 if masked."""
    open_classes = committed_classes(automaton, tokens)
    open_classes[tokens == MASKED] = 1.0
    return automaton.sum_sets(open_classes) > 0


def allowed_tokens(
    compiled: CompiledConstraint,
    tokens: NDArray[np.integer[Any]] | list[int],
    position: int,
    *,
    start: int = 0,
    room_after: int = 0,
) -> NDArray[np.int64]:
    """Ids of every token that some accepted text holds at `position`, ascending.

    Args:
        compiled: The constraint.
        tokens: (L,) token ids of the canvas, -1 where masked.
        position: A position of the canvas; what it holds now is ignored.
        start: State at the canvas's left edge.
        room_after: Tokens that may follow this canvas.

    Raises:
        ContradictionError: The other committed tokens lie on no accepted text.
    """
    automaton = compiled.automaton
    canvas = np.array(tokens, np.int64)
    canvas[position] = MASKED
    live = Liveness(automaton, canvas, room_after)
    if not live.at(0)[start]:
        raise contradiction(compiled, canvas, start=start, room_after=room_after)
    reached, _ = reached_states(automaton, open_sets(automaton, canvas), None, start)
    return tokens_between(automaton, reached[position], live.at(position + 1))


def tokens_between(automaton: TokenAutomaton, sources: Bools, targets: Bools) -> NDArray[np.int64]:
    """Ids of the tokens, ascending, that lead from one of the sources to one of the targets."""
    crossed = sources[automaton.pair_source] & targets[automaton.pair_target]
    sets = np.unique(automaton.pair_set[crossed])
    classes = [automaton.set_classes[slice(*automaton.set_offsets[u : u + 2])] for u in sets]
    distinct = {min(int(c), automaton.eos_class) for part in classes for c in part}
    parts = [automaton.tokens_of(c) for c in distinct]
    return np.sort(np.concatenate([np.empty(0, np.int32), *parts])).astype(np.int64)


def contradiction(
    compiled: CompiledConstraint, tokens: NDArray[np.int64], *, start: int, room_after: int
) -> ContradictionError:
    """The error for committed tokens that no accepted text holds: where they fail, and why."""
    automaton = compiled.automaton
    reached, _ = reached_states(automaton, open_sets(automaton, tokens), None, start)
    room = len(tokens) + room_after - np.arange(len(tokens) + 1)
    extendable = reached & (automaton.distance <= room[:, None])
    extendable[-1] &= end_states(automaton, room_after)
    position = int(np.flatnonzero(~extendable.any(axis=1))[0]) - 1
    fits = automaton.distance <= room[position + 1]
    options = tokens_between(automaton, extendable[position], fits)
    shown = tuple(_name(compiled, int(i)) for i in options[:_SHOWN])
    token = int(tokens[position])
    got = "a mask with too few positions after it" if token == MASKED else _name(compiled, token)
    return ContradictionError(position, got, shown, len(options))


def _name(compiled: CompiledConstraint, token: int) -> str:
    vocabulary = compiled.vocabulary
    if token in vocabulary.eos_ids:
        return "end of text"
    text = vocabulary.token_bytes[token]
    return repr(text.decode(errors="backslashreplace")) if text else f"special token {token}"
