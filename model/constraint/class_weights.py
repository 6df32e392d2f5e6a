"""Probabilities of token classes at every position of a canvas, out of the model's logits.

The logits (L, V) are read where they lie: each masked row once for its normalizer, and only the
columns of the smaller classes a second time. The class that holds most of the vocabulary (plain
string text) is what remains of the total. It knows nothing of states.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray

from agentloop.errors import DecodingError
from agentloop.model.constraint.segments import draw, ragged

if TYPE_CHECKING:
    from agentloop.model.constraint.token_automaton import TokenAutomaton

Floats = NDArray[np.float64]
Value = Callable[[NDArray[Any]], NDArray[Any]]
MASKED = -1
SMALLEST = 1e-300  # what a probability that underflows counts as: improbable, never impossible
_CHUNK = 1 << 16  # elements gathered at a time, to stay in cache
_CANCELLED = 1e-2  # below this a remainder has lost too many digits and is summed directly


class ClassWeights:
    """The model's side of one step: class sums, and tokens within a class.

    Attributes:
        sums: (L, C + 2) float64. Masked rows: probability of each class, 1 for the tail. Committed
            rows: 1 for the class of their token (and the tail, if it ends the text), else 0.
        masked: (L,) bool.
    """

    def __init__(
        self,
        automaton: TokenAutomaton,
        logits: torch.Tensor | NDArray[Any],
        tokens: NDArray[np.int64],
        *,
        temperature: float = 1.0,
        normalised: bool = False,
    ) -> None:
        """Sum the classes of all masked rows.

        Args:
            automaton: Names the classes.
            logits: (L, V) logits, or log-probabilities if `normalised`.
            tokens: (L,) token ids, -1 where masked.
            temperature: Divides the logits; positive.
            normalised: Rows already sum to one, so their normalizers need not be computed.

        Raises:
            DecodingError: A row of logits has no finite normalizer (NaN, or nothing but -inf).
        """
        self._automaton = automaton
        self._scores = _scores(logits)
        self._scale = 1.0 / temperature
        self.tokens = tokens
        self.masked = tokens == MASKED
        self._rows = np.flatnonzero(self.masked)
        self._log_norms = np.zeros(len(tokens))
        if not (normalised and temperature == 1.0):
            self._log_norms[self._rows] = self._scores.log_norms(self._rows, self._scale)
        broken = self._rows[~np.isfinite(self._log_norms[self._rows])]
        if len(broken):
            raise DecodingError(
                f"the logits of canvas position {broken[0]} have no finite sum (NaN, +inf, or all "
                f"-inf); {len(broken)} position(s) are affected; check the model's output"
            )
        self.sums = committed_classes(automaton, tokens)
        if len(self._rows):
            self._fill(self.sums, np.exp, np.ones(len(self._rows)))
            text = self.sums[self._rows, : automaton.tail_class]
            self.sums[self._rows, : automaton.tail_class] = np.maximum(text, SMALLEST)
            self.sums[self._rows, automaton.tail_class] = 1.0

    def _fill(self, out: Floats, value: Value, totals: Floats) -> None:
        """Sum `value` of the log-probabilities of each class into the masked rows of `out`.

        The remainder is what is missing from `totals`, one a masked row, while that is exact.
        """
        layout = GatherLayout.of(self._automaton)
        height = max(1, _CHUNK // max(1, len(layout.columns)))
        for first in range(0, len(self._rows), height):
            rows = self._rows[first : first + height]
            remainders = totals[first : first + height]
            if len(layout.columns):
                parts = value(self._log_p(self._scores.gather(rows, layout.columns), rows))
                groups = np.add.reduceat(parts, layout.starts, axis=1, dtype=np.float64)
                out[rows[:, None], layout.classes] = groups[:, : len(layout.classes)]
                remainders = remainders - groups.sum(axis=1)
            if layout.remainder >= 0:
                out[rows, layout.remainder] = remainders
        if layout.remainder >= 0:
            tokens = self._automaton.tokens_of(layout.remainder)
            small = np.abs(out[self._rows, layout.remainder]) < _CANCELLED
            for row in self._rows[small]:
                only = np.array([row])
                parts = value(self._log_p(self._scores.gather(only, tokens), only))
                out[row, layout.remainder] = parts.sum(dtype=np.float64)

    @cached_property
    def log_moments(self) -> Floats:
        """(L, C + 2) sum of p log p over the tokens of each class; 0 in committed rows."""
        moments = np.zeros_like(self.sums)
        everything = np.arange(len(self._automaton.token_class))
        totals = np.empty(len(self._rows))
        for n, row in enumerate(self._rows):
            only = np.array([row])
            log_p = self._log_p(self._scores.gather(only, everything), only)
            totals[n] = _p_log_p(log_p).sum(dtype=np.float64)
        if len(self._rows):
            self._fill(moments, _p_log_p, totals)
        return moments

    def _log_p(self, scores: NDArray[Any], rows: NDArray[np.int64]) -> NDArray[Any]:
        norms = self._log_norms[rows].astype(scores.dtype)
        return scores * scores.dtype.type(self._scale) - norms[:, None]

    @cached_property
    def log_maxima(self) -> Floats:
        """(L, C + 2) log of the most probable token of each class; committed rows: 0 or -inf."""
        layout = GatherLayout.of(self._automaton)
        with np.errstate(divide="ignore"):
            maxima = np.log(self.sums)
        height = max(1, _CHUNK // max(1, len(layout.columns)))
        for first in range(0, len(self._rows), height):
            rows = self._rows[first : first + height]
            if len(layout.classes):
                values = self._log_p(self._scores.gather(rows, layout.columns), rows)
                best = np.maximum.reduceat(values, layout.starts, axis=1)
                maxima[rows[:, None], layout.classes] = best[:, : len(layout.classes)]
        if layout.remainder >= 0:
            for row in self._rows:
                token = self.best_token(int(row), [layout.remainder])
                maxima[row, layout.remainder] = self.log_p(int(row), token)
        floor = np.log(SMALLEST)
        maxima[self._rows] = np.maximum(maxima[self._rows], floor)
        return maxima

    @cached_property
    def _best(self) -> NDArray[np.int64]:
        return self._scores.argmax(self._rows)

    def best_token(self, position: int, classes: Sequence[int]) -> int:
        """The most probable token of some classes at a masked position."""
        best = int(self._best[np.searchsorted(self._rows, position)])
        if int(self._automaton.token_class[best]) in classes:
            return best
        tokens = self._tokens_of(classes)
        scores = self._scores.gather(np.array([position]), tokens)[0]
        return int(tokens[np.argmax(scores)])

    def draw_token(self, position: int, token_class: int, uniform: float) -> int:
        """A token of a class, drawn at a masked position by one uniform number in [0, 1)."""
        tokens = self._automaton.tokens_of(token_class)
        if len(tokens) == 1:
            return int(tokens[0])
        scores = self._scores.gather(np.array([position]), tokens)[0].astype(np.float64)
        highest = scores.max()
        if not np.isfinite(highest):
            return int(tokens[int(uniform * len(tokens))])
        return int(tokens[draw(np.exp((scores - highest) * self._scale), uniform)])

    def log_p(self, position: int, token: int) -> float:
        """Log-probability of a token at a masked position."""
        return self._scores.at(position, token) * self._scale - float(self._log_norms[position])

    def shares(self, positions: NDArray[np.int64], tokens: NDArray[np.int64]) -> Floats:
        """Probability of each token within its class, at masked positions."""
        classes = self._automaton.token_class[tokens]
        log_p = [self.log_p(int(i), int(t)) for i, t in zip(positions, tokens, strict=True)]
        sums = self.sums[positions, classes]
        even = 1.0 / self._automaton.class_sizes[classes]  # where the whole class underflows
        return np.where(sums > SMALLEST, np.exp(np.array(log_p) - np.log(sums)), even)

    def _tokens_of(self, classes: Sequence[int]) -> NDArray[np.int32]:
        if len(classes) == 1:
            return self._automaton.tokens_of(classes[0])
        offsets = self._automaton.class_offsets
        chosen = np.array([c for c in classes if c != self._automaton.tail_class])
        at, _ = ragged(offsets[chosen], offsets[chosen + 1] - offsets[chosen])
        return self._automaton.class_tokens[at]


def committed_classes(automaton: TokenAutomaton, tokens: NDArray[np.int64]) -> Floats:
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


def _p_log_p(log_p: NDArray[Any]) -> NDArray[Any]:
    finite = np.maximum(log_p, log_p.dtype.type(np.finfo(log_p.dtype).min / 2))
    return np.exp(finite) * finite


class GatherLayout:
    """Which columns of the logits are read, and which class is the remainder.

    Attributes:
        columns: Token ids, grouped by class; tokens allowed nowhere last, if there is a remainder.
        classes: The class of each group.
        starts: Where each group begins in `columns`.
        remainder: The class that is one minus the rest; -1 if none is large enough.
    """

    def __init__(self, automaton: TokenAutomaton) -> None:
        sizes = np.diff(automaton.class_offsets)
        largest = int(np.argmax(sizes))
        self.remainder = largest if 2 * sizes[largest] > len(automaton.token_class) else -1
        self.classes = np.flatnonzero(np.arange(len(sizes)) != self.remainder)
        at, owners = ragged(automaton.class_offsets[self.classes], sizes[self.classes])
        columns = automaton.class_tokens[at]
        self.starts = np.flatnonzero(np.diff(owners, prepend=-1))
        if self.remainder >= 0:
            dead = np.flatnonzero(automaton.token_class < 0)
            if len(dead):
                self.starts = np.append(self.starts, len(columns))
            columns = np.concatenate([columns, dead])
        self.columns = columns.astype(np.int64)

    @classmethod
    def of(cls, automaton: TokenAutomaton) -> GatherLayout:
        """The layout of an automaton, worked out once."""
        known = _layouts.get(automaton)
        if known is None:
            known = _layouts[automaton] = cls(automaton)
        return known


_layouts: WeakKeyDictionary[TokenAutomaton, GatherLayout] = WeakKeyDictionary()


class _Scores(Protocol):
    """Logits (L, V) wherever they lie; rows are canvas positions."""

    def log_norms(self, rows: NDArray[np.int64], scale: float) -> Floats: ...
    def gather(self, rows: NDArray[np.int64], columns: NDArray[np.integer[Any]]) -> Any: ...
    def argmax(self, rows: NDArray[np.int64]) -> NDArray[np.int64]: ...
    def at(self, row: int, column: int) -> float: ...


class _HostScores:
    """In host memory: row by row, so that a row stays in cache; no thread hand-over."""

    def __init__(self, values: NDArray[Any]) -> None:
        self._values = values

    def log_norms(self, rows: NDArray[np.int64], scale: float) -> Floats:
        norms = np.empty(len(rows))
        scratch = np.empty(self._values.shape[1], self._values.dtype)
        for n, row in enumerate(rows):
            values = self._values[row]
            highest = values.max()
            with np.errstate(invalid="ignore"):
                np.subtract(values, highest, out=scratch)
            if scale != 1.0:
                np.multiply(scratch, scratch.dtype.type(scale), out=scratch)
            np.exp(scratch, out=scratch)
            norms[n] = float(highest) * scale + np.log(float(scratch.sum()))
        return norms

    def gather(
        self, rows: NDArray[np.int64], columns: NDArray[np.integer[Any]]
    ) -> NDArray[np.floating[Any]]:
        if len(rows) == 1:
            return self._values[rows[0]].take(columns)[None]
        return np.stack([self._values[row].take(columns) for row in rows])

    def argmax(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.array([self._values[row].argmax() for row in rows], np.int64)

    def at(self, row: int, column: int) -> float:
        return float(self._values[row, column])


class _DeviceScores:
    """On an accelerator: only results and gathered columns are copied to the host."""

    def __init__(self, values: torch.Tensor) -> None:
        self._values = values

    def _select(self, rows: NDArray[np.int64]) -> torch.Tensor:
        if len(rows) == len(self._values):
            return self._values
        return self._values[torch.from_numpy(rows).to(self._values.device)]

    def log_norms(self, rows: NDArray[np.int64], scale: float) -> Floats:
        norms = torch.logsumexp(self._select(rows).float() * scale, dim=1)
        return norms.double().cpu().numpy()

    def gather(
        self, rows: NDArray[np.int64], columns: NDArray[np.integer[Any]]
    ) -> NDArray[np.floating[Any]]:
        at = torch.from_numpy(columns.astype(np.int64)).to(self._values.device)
        picked = self._select(rows).index_select(1, at)
        return picked.float().cpu().numpy()

    def argmax(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        return self._select(rows).argmax(dim=1).cpu().numpy()

    def at(self, row: int, column: int) -> float:
        return float(self._values[row, column])


def _scores(logits: torch.Tensor | NDArray[Any]) -> _Scores:
    if isinstance(logits, np.ndarray):
        return _HostScores(logits)
    logits = logits.detach()
    if logits.device.type != "cpu":
        return _DeviceScores(logits)
    if logits.dtype not in (torch.float32, torch.float64):
        logits = logits.float()
    return _HostScores(logits.numpy())
