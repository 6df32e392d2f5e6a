"""Probabilities of token classes at every position of a canvas, and of tokens within a class.

The model's side of one step. It knows nothing of states.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from agentloop.errors import DecodingError
from agentloop.model.constraint.logit_source import GatherLayout, logit_source
from agentloop.model.constraint.segments import draw

if TYPE_CHECKING:
    import torch

    from agentloop.model.constraint.token_automaton import TokenAutomaton

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
MASKED = -1
SMALLEST = 1e-300  # what a probability that underflows counts as: improbable, never impossible
_TRIES = 6
_AHEAD = 16  # positions whose best tokens are looked for together


class ClassWeights:
    """Class sums of one canvas, and its tokens within a class; rows are read when first needed.

    Attributes:
        automaton: The automaton whose classes are summed.
        tokens: (L,) int64, the canvas, -1 where masked.
        masked: (L,) bool.
    """

    def __init__(
        self,
        automaton: TokenAutomaton,
        logits: torch.Tensor | NDArray[Any],
        tokens: Ints,
        temperature: float = 1.0,
        first: int = 0,
    ) -> None:
        """Read nothing yet; the probabilities will be softmax(logits / temperature).

        Args:
            automaton: The automaton whose classes are summed.
            logits: (L, V) logits of the positions.
            tokens: (L,) token ids, -1 where masked.
            temperature: Positive.
            first: Place of the first position on the whole canvas, for messages.
        """
        length = len(tokens)
        self.automaton = automaton
        self.tokens = tokens
        self.masked = tokens == MASKED
        self._first = first
        self._source = logit_source(logits)
        self._scale = 1.0 / temperature
        self._log_norms = np.zeros(length)
        self._sums = np.empty((length, automaton.num_classes + 1))
        self._set_sums = np.empty((length, automaton.num_sets))
        self._best = np.zeros(length, np.int64)
        self._highest = np.zeros(length)
        self._num_summed = self._num_ranked = 0

    def sums_until(self, stop: int) -> Floats:
        """Class sums of the positions before `stop`.

        Returns:
            (stop, C + 2) float64. Masked rows: probability of each class, 1 for the tail. Committed
            rows: 1 for the class of their token (and the tail, if it ends the text), else 0.

        Raises:
            DecodingError: A row of logits has no finite normalizer (NaN, or nothing but -inf).
        """
        if stop > self._num_summed:
            self._sum(self._num_summed, stop)
            self._num_summed = stop
        return self._sums[:stop]

    @property
    def sums(self) -> Floats:
        """(L, C + 2) class sums of all positions."""
        return self.sums_until(len(self.tokens))

    def set_sums_until(self, stop: int) -> Floats:
        """(stop, U) weight of every class set at the positions before `stop`."""
        self.sums_until(stop)
        return self._set_sums[:stop]

    def _sum(self, start: int, stop: int) -> None:
        automaton, layout = self.automaton, GatherLayout.of(self.automaton)
        rows = start + np.flatnonzero(self.masked[start:stop])
        self._rank(stop)
        read = self._source.sum_rows(rows, layout, self._scale, self._highest[rows])
        self._log_norms[rows] = read.log_norms
        summed = np.ones((len(rows), automaton.num_classes + 1))
        summed[:, layout.classes] = read.groups
        if layout.remainder >= 0:
            summed[:, layout.remainder] = read.remainders
        self._sums[start:stop] = committed_classes(automaton, self.tokens[start:stop])
        self._sums[rows] = np.maximum(summed, SMALLEST)
        self._set_sums[start:stop] = automaton.sum_sets(self._sums[start:stop])

    def _rank(self, stop: int) -> None:
        start = self._num_ranked
        if stop <= start:
            return
        rows = start + np.flatnonzero(self.masked[start:stop])
        self._best[rows], self._highest[rows] = self._source.best(rows)
        self._num_ranked = stop
        broken = rows[~np.isfinite(self._highest[rows])]
        if len(broken):
            raise DecodingError(
                f"the logits of canvas position {self._first + broken[0]} have no finite sum "
                f"(NaN, +inf, or all -inf); {len(broken)} position(s) are affected; check the "
                f"model's output"
            )

    def best_token(self, position: int) -> int:
        """The most probable token at a masked position, whatever its class.

        Raises:
            DecodingError: As in `sums_until`.
        """
        if position >= self._num_ranked:
            self._rank(min(position + _AHEAD, len(self.tokens)))
        return int(self._best[position])

    def gathered(self, position: int, tokens: NDArray[np.integer[Any]]) -> NDArray[Any]:
        """The logits of some tokens at a masked position."""
        return self._source.gather(position, tokens)

    def best_in(self, position: int, classes: NDArray[np.bool_]) -> int:
        """The most probable token of some classes, (C + 2,) bool, at a masked position.

        Meant for classes that hold most tokens: those of the best tokens overall that belong to
        none of them are struck out one by one before all are.
        """
        token_class = self.automaton.token_class
        scores = self._source.row(position).copy()
        token = self.best_token(position)
        for _ in range(_TRIES):
            if token_class[token] >= 0 and classes[token_class[token]]:
                return token
            scores[token] = -np.inf
            token = int(scores.argmax())
        allowed = classes.take(token_class, mode="clip") & (token_class >= 0)
        scores[~allowed] = -np.inf
        token = int(scores.argmax())
        return token if allowed[token] else int(allowed.argmax())

    def log_p(self, position: int, tokens: NDArray[np.integer[Any]]) -> Floats:
        """Log-probabilities of some tokens at a masked position."""
        self.sums_until(position + 1)
        scores: Floats = self._source.gather(position, tokens) * self._scale
        return scores - float(self._log_norms[position])

    @cached_property
    def log_maxima(self) -> Floats:
        """(L, C + 2) log of the most probable token of each class; committed rows: 0 or -inf."""
        automaton = self.automaton
        with np.errstate(divide="ignore"):
            maxima = np.log(self.sums)
        for row in np.flatnonzero(self.masked).tolist():
            log_p = self.log_p(row, automaton.class_tokens)
            best = np.maximum.reduceat(log_p, automaton.class_offsets[:-1])
            maxima[row, : automaton.tail_class] = np.maximum(best, np.log(SMALLEST))
        return maxima

    def moments(self, position: int) -> Floats:
        """(C + 2,) sum of p log p over the tokens of each class; 0 where committed."""
        automaton = self.automaton
        out = np.zeros(automaton.num_classes + 1)
        if self.masked[position]:
            log_p = np.maximum(self.log_p(position, automaton.class_tokens), -1e4)
            terms = np.exp(log_p) * log_p
            out[: automaton.tail_class] = np.add.reduceat(terms, automaton.class_offsets[:-1])
        return out

    def draw_token(self, position: int, token_class: int, uniform: float) -> int:
        """A token of a class, drawn at a masked position by one uniform number in [0, 1)."""
        tokens = self.automaton.tokens_of(token_class)
        if len(tokens) == 1:
            return int(tokens[0])
        mass = self._source.mass(position, tokens, self._scale)
        if mass is None:
            return int(tokens[int(uniform * len(tokens))])
        return int(tokens[draw(mass, uniform)])

    def shares(self, positions: Ints, tokens: Ints) -> Floats:
        """Probability of each token within its class, at masked positions."""
        classes = self.automaton.token_class[tokens]
        sums = self.sums_until(int(positions.max(initial=-1)) + 1)[positions, classes]
        log_p = self._source.at(positions, tokens) * self._scale - self._log_norms[positions]
        even = 1.0 / self.automaton.class_sizes[classes]  # where the whole class underflows
        return np.where(sums > SMALLEST, np.exp(log_p - np.log(sums)), even)


def committed_classes(automaton: TokenAutomaton, tokens: Ints) -> Floats:
    """(L, C + 2) float64: 1 for the class of each committed token, and 0 elsewhere.

    A committed end of text also has the tail's class; other tokens never stand in the tail.
    """
    out = np.zeros((len(tokens), automaton.num_classes + 1))
    fixed = np.flatnonzero(tokens != MASKED)
    classes = automaton.token_class[tokens[fixed]]
    known = classes >= 0
    out[fixed[known], classes[known]] = 1.0
    out[fixed[classes == automaton.eos_class], automaton.tail_class] = 1.0
    return out
