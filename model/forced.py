"""Text that a constraint leaves no choice about, and the tokens that spell it.

Between two places where a model decides there is often only one way on: `","arguments":{"` after
the name of a tool. Such a stretch costs no pass of the network. It is found byte by byte, since the
same bytes have many spellings in tokens, and spelt as the tokenizer spells it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agentloop.model.constraint.compiled import CompiledConstraint

Ints = NDArray[np.int64]
_END = 256  # stands for the end of text among first bytes
_MAX_BYTES = 1024


@dataclass(frozen=True)
class Stretch:
    """Tokens that must follow.

    Attributes:
        tokens: Their ids; the last may be an end of text.
        states: The constraint's state after each.
    """

    tokens: tuple[int, ...]
    states: tuple[int, ...]


class ForcedText:
    """The forced stretches of a compiled constraint, found when first asked for.

    Args:
        compiled: The constraint.
        encode: The ids that a tokenizer spells a text with.
    """

    def __init__(self, compiled: CompiledConstraint, encode: Callable[[str], list[int]]) -> None:
        self.compiled = compiled
        self._encode = encode
        self._next_byte = _sole_next_bytes(compiled)
        strings = compiled.vocabulary.token_bytes
        self._byte_token = {text[0]: i for i, text in enumerate(strings) if len(text) == 1}
        self._known: dict[int, Stretch] = {}

    def after(self, state: int) -> Stretch:
        """What must follow from a state; empty where there is a choice."""
        found = self._known.get(state)
        if found is None:
            found = self._known[state] = self._stretch(state)
        return found

    def _stretch(self, state: int) -> Stretch:
        automaton = self.compiled.automaton
        tokens: list[int] = []
        states: list[int] = []
        for token in self._encode(self._forced_text(state)):
            state = automaton.follow(state, int(automaton.token_class[token]))
            if state < 0:  # the constraint wants another spelling
                return Stretch(tuple(tokens), tuple(states))
            tokens.append(token)
            states.append(state)
        if self._next_byte[state] == _END:
            tokens.append(self.compiled.vocabulary.eos_ids[0])
            states.append(automaton.done)
        return Stretch(tuple(tokens), tuple(states))

    def _forced_text(self, state: int) -> str:
        """The whole characters that must follow."""
        automaton = self.compiled.automaton
        forced = bytearray()
        while len(forced) < _MAX_BYTES:
            byte = int(self._next_byte[state])
            token = self._byte_token.get(byte)
            if token is None:
                break
            state = automaton.follow(state, int(automaton.token_class[token]))
            if state < 0:
                break
            forced.append(byte)
        return forced.decode(errors="ignore")  # ignores a character that is cut at the end


def _sole_next_bytes(compiled: CompiledConstraint) -> Ints:
    """The byte (S,) that every text goes on with from a state; _END if it ends, -1 if open."""
    automaton = compiled.automaton
    strings = compiled.vocabulary.token_bytes
    first = np.array([text[0] if text else _END for text in strings], np.int64)
    of_tokens = first[automaton.class_tokens]
    starts = automaton.class_offsets[:-1]
    sets, pairs = automaton.set_offsets[:-1], automaton.pair_offsets[:-1]
    bounds: list[Ints] = []
    for bound in (np.minimum, np.maximum):
        of_classes = np.append(bound.reduceat(of_tokens, starts), _END)  # the tail comes last
        of_sets = bound.reduceat(of_classes[automaton.set_classes], sets)
        bounds.append(bound.reduceat(of_sets[automaton.pair_set], pairs))
    return np.where(bounds[0] == bounds[1], bounds[0], -1)
