"""The part of a canvas that is still open: between its committed prefix and its committed end."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agentloop.model.constraint.class_weights import MASKED
from agentloop.model.constraint.token_automaton import TokenAutomaton


@dataclass(frozen=True, eq=False)
class Window:
    """Positions `first` to `last` - 1 are open; all before and after are settled.

    Attributes:
        first: First position that is masked, or past the end if there is none.
        last: One past the first committed end of text; L if none is committed.
        states: (first + 1,) the state at each boundary up to the window; -1 after a token that
            is not allowed.
        room: Tokens that may follow boundary `last`.
    """

    first: int
    last: int
    states: NDArray[np.int64]
    room: int

    @property
    def start(self) -> int:
        """State at the window's left edge."""
        return int(self.states[-1])

    @property
    def length(self) -> int:
        """Number of open positions."""
        return self.last - self.first


def open_window(
    automaton: TokenAutomaton, tokens: NDArray[np.int64], start: int, room_after: int
) -> Window | None:
    """The open part of a canvas; None if what is settled lies on no accepted text."""
    length = len(tokens)
    classes = np.where(tokens == MASKED, -1, automaton.token_class[tokens])
    masked = np.flatnonzero(tokens == MASKED)
    first = int(masked[0]) if len(masked) else length
    states = [start]
    for token_class in classes[:first].tolist():
        states.append(automaton.follow(states[-1], token_class))
        if states[-1] < 0:
            return None
        if states[-1] == automaton.done:
            break
    first = len(states) - 1
    ends = np.flatnonzero(classes == automaton.eos_class)
    last = int(ends[0]) + 1 if len(ends) else length
    settled = tokens[last:]
    if ((settled != MASKED) & (classes[last:] != automaton.eos_class)).any():
        return None
    return Window(first, last, np.array(states), room_after if last == length else 0)
