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


class ClassWeights:
    """Class sums of one canvas, and its tokens within a class.

    Attributes:
        sums: (L, C + 2) float64. Masked rows: probability of each class, 1 for the tail. Committed
            rows: 1 for the class of their token (and the tail, if it ends the text), else 0.
        tokens: (L,) int64, the canvas, -1 where masked.
        masked: (L,) bool.
    """

    def __init__(
        self,
        automaton: TokenAutomaton,
        logits: torch.Tensor | NDArray[Any],
        tokens: Ints,
        temperature: float = 1.0,
    ) -> None:
        """Sum the classes of all masked rows of softmax(logits / temperature).

        Raises:
            DecodingError: A row of logits has no finite normalizer (NaN, or nothing but -inf).
        """
        self._automaton = automaton
        self._source = logit_source(logits)
        self._scale = 1.0 / temperature
        self.tokens = tokens
        self.masked = tokens == MASKED
        self._rows = np.flatnonzero(self.masked)
        layout = GatherLayout.of(automaton)
        rows = self._source.sum_rows(self._rows, layout, self._scale)
        broken = self._rows[~np.isfinite(rows.log_norms)]
        if len(broken):
            raise DecodingError(
                f"the logits of canvas position {broken[0]} have no finite sum (NaN, +inf, or all "
                f"-inf); {len(broken)} position(s) are affected; check the model's output"
            )
        self._log_norms = np.zeros(len(tokens))
        self._log_norms[self._rows] = rows.log_norms
        self._best = np.zeros(len(tokens), np.int64)
        self._best[self._rows] = rows.best
        summed = np.ones((len(self._rows), automaton.num_classes + 1))
        summed[:, layout.classes] = rows.groups
        if layout.remainder >= 0:
            summed[:, layout.remainder] = rows.remainders
        self.sums = committed_classes(automaton, tokens)
        self.sums[self._rows] = np.maximum(summed, SMALLEST)

    def log_p(self, position: int, tokens: NDArray[np.integer[Any]]) -> Floats:
        """Log-probabilities of some tokens at a masked position."""
        scores: Floats = self._source.gather(position, tokens) * self._scale
        return scores - float(self._log_norms[position])

    @cached_property
    def log_maxima(self) -> Floats:
        """(L, C + 2) log of the most probable token of each class; committed rows: 0 or -inf."""
        automaton = self._automaton
        with np.errstate(divide="ignore"):
            maxima = np.log(self.sums)
        for row in self._rows.tolist():
            log_p = self.log_p(row, automaton.class_tokens)
            best = np.maximum.reduceat(log_p, automaton.class_offsets[:-1])
            maxima[row, : automaton.tail_class] = np.maximum(best, np.log(SMALLEST))
        return maxima

    @cached_property
    def moments(self) -> Floats:
        """(L, C + 2) sum of p log p over the tokens of each class; 0 in committed rows."""
        automaton = self._automaton
        out = np.zeros_like(self.sums)
        for row in self._rows.tolist():
            log_p = np.maximum(self.log_p(row, automaton.class_tokens), -1e4)
            terms = np.exp(log_p) * log_p
            out[row, : automaton.tail_class] = np.add.reduceat(terms, automaton.class_offsets[:-1])
        return out

    def best_tokens(self, positions: Ints, sets: NDArray[np.int32]) -> Ints:
        """The most probable token of one class set at each of some masked positions."""
        automaton = self._automaton
        best = self._best[positions]
        hits = automaton.has_class(sets, automaton.token_class[best])
        for n in np.flatnonzero(~hits).tolist():
            tokens = automaton.tokens_of_set(int(sets[n]))
            best[n] = tokens[np.argmax(self._source.gather(int(positions[n]), tokens))]
        return best

    def draw_token(self, position: int, token_class: int, uniform: float) -> int:
        """A token of a class, drawn at a masked position by one uniform number in [0, 1)."""
        tokens = self._automaton.tokens_of(token_class)
        if len(tokens) == 1:
            return int(tokens[0])
        scores = self._source.gather(position, tokens) * self._scale
        highest = scores.max()
        if not np.isfinite(highest):
            return int(tokens[int(uniform * len(tokens))])
        return int(tokens[draw(np.exp(scores - highest), uniform)])

    def shares(self, positions: Ints, tokens: Ints) -> Floats:
        """Probability of each token within its class, at masked positions."""
        classes = self._automaton.token_class[tokens]
        log_p = self._source.at(positions, tokens) * self._scale - self._log_norms[positions]
        sums = self.sums[positions, classes]
        even = 1.0 / self._automaton.class_sizes[classes]  # where the whole class underflows
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
