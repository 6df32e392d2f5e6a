"""Slow, independent references for inference on a canvas: every text is enumerated."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from agentloop.model.constraint.dfa import Dfa
from agentloop.model.constraint.vocabulary import Vocabulary

MASK = -1
State = int
Path = tuple[tuple[int, ...], tuple[State, ...]]  # tokens up to the end of text, states passed


def automaton(arcs: Sequence[tuple[int, int | str, int]], accepting: Sequence[bool]) -> Dfa:
    """The automaton with some (source, byte or character, target) arcs."""
    rows = [(s, ord(b) if isinstance(b, str) else b, t) for s, b, t in arcs]
    table = np.array(rows, np.int64).reshape(-1, 3)
    return Dfa.from_arcs(table[:, 0], table[:, 1], table[:, 2], np.array(accepting, np.bool_))


@st.composite
def dfas(draw: st.DrawFn, max_states: int = 4, alphabet: bytes = b"ab") -> Dfa:
    """Random automata, empty languages and unreachable states included."""
    num_states = draw(st.integers(1, max_states))
    target = st.integers(-1, num_states - 1)
    arcs = [(s, b, draw(target)) for s in range(num_states) for b in alphabet]
    accepting = draw(st.lists(st.booleans(), min_size=num_states, max_size=num_states))
    return automaton([arc for arc in arcs if arc[2] >= 0], accepting)


VOCABULARY = Vocabulary([b"a", b"b", b"ab", b"ba", b"", b"aab", b"b", b""], [7])
WIDE_VOCABULARY = Vocabulary([b"ab", b"", b"b", b"a", b"", b"bb"], [4, 1])


@dataclass(frozen=True)
class Enumeration:
    """All texts of a language on a canvas, with their weights.

    Attributes:
        dfa: The language.
        vocabulary: The tokens.
        log_p: (L, V) log-probabilities.
        tokens: The canvas.
        locality: Exponent of the local normalizer, one or one a position.
    """

    dfa: Dfa
    vocabulary: Vocabulary
    log_p: NDArray[np.float64]
    tokens: list[int]
    locality: float | list[float] = 0.0

    @property
    def length(self) -> int:
        return len(self.tokens)

    def move(self, state: State, token: int) -> State:
        """State after a text token; -1 if dead or not text."""
        text = self.vocabulary.token_bytes[token]
        if not text:
            return -1
        for byte in text:
            state = int(self.dfa.step(np.array([state], np.int32), byte)[0])
        return state

    def candidates(self, position: int) -> list[int]:
        """Token ids that the canvas leaves open at a position."""
        fixed = self.tokens[position]
        return list(range(self.vocabulary.size)) if fixed == MASK else [fixed]

    def paths(self, position: int = 0, state: State = 0) -> Iterator[Path]:
        """Every accepted text that fits, from a state at a position on."""
        if position == self.length:
            return
        for token in self.candidates(position):
            if token in self.vocabulary.eos_ids:
                if self.dfa.accepting[state] and self.tail_is_free(position + 1):
                    yield (token,), (state,)
                continue
            after = self.move(state, token)
            if after >= 0:
                for tokens, states in self.paths(position + 1, after):
                    yield (token, *tokens), (state, *states)

    def tail_is_free(self, position: int) -> bool:
        """Whether every position from here on is masked or an end of text."""
        return all(t == MASK or t in self.vocabulary.eos_ids for t in self.tokens[position:])

    def p(self, position: int, token: int) -> float:
        """Probability of a token at a position; 1 if committed."""
        if self.tokens[position] != MASK:
            return 1.0
        return math.exp(float(self.log_p[position, token]))

    @cached_property
    def leaving(self) -> dict[tuple[int, State], float]:
        """Summed probability of the tokens that can leave each (position, state)."""
        followers: dict[tuple[int, State], set[int]] = defaultdict(set)
        for tokens, states in self.paths():
            for i, (token, state) in enumerate(zip(tokens, states, strict=True)):
                followers[i, state].add(token)
        return {key: sum(self.p(key[0], t) for t in ts) for key, ts in followers.items()}

    @cached_property
    def weights(self) -> dict[Path, float]:
        """Weight of every accepted text."""
        out: dict[Path, float] = {}
        exponents = np.broadcast_to(np.array(self.locality), self.length)
        for tokens, states in self.paths():
            weight = 1.0
            for i, (token, state) in enumerate(zip(tokens, states, strict=True)):
                weight *= self.p(i, token) / self.leaving[i, state] ** float(exponents[i])
            out[tokens, states] = weight
        return out

    @property
    def total(self) -> float:
        """Summed weight of all texts."""
        return sum(self.weights.values())

    def marginals(self) -> NDArray[np.float64]:
        """(L, V) posterior of each token; everything from the end on counts as the first one."""
        out = np.zeros((self.length, self.vocabulary.size))
        for (tokens, _), weight in self.weights.items():
            for i in range(self.length):
                ended = i >= len(tokens) - 1
                out[i, self.vocabulary.eos_ids[0] if ended else tokens[i]] += weight
        return out / self.total

    def state_path_weights(self) -> dict[tuple[State, ...], float]:
        """Summed weight of the texts that pass through the same states."""
        out: dict[tuple[State, ...], float] = defaultdict(float)
        for (_, states), weight in self.weights.items():
            out[states] += weight
        return out
