"""Logits (L, V) where they lie, in host memory or on an accelerator, summed by groups of columns.

Each row is read once; on an accelerator only sums and the gathered columns are copied to the host.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray

from agentloop.model.constraint.segments import ragged
from agentloop.model.constraint.token_automaton import TokenAutomaton

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
_CANCELLED = 1e-2  # below this a remainder has lost too many digits and is summed directly
_UNDERFLOW = 1e-30  # below this a float32 sum has lost terms and is done again in float64
_SAFE_NATS = 70.0  # exp of logits up to here, summed over any vocabulary, fits float32


class GatherLayout:
    """Which columns of the logits are gathered, and which class is the remainder of the total.

    Attributes:
        columns: Token ids, grouped by class; tokens allowed nowhere last, if there is a remainder.
        classes: The class of each group.
        starts: Where each group begins in `columns`.
        remainder: The class that holds most of the vocabulary; -1 if none does.
        remainder_tokens: Its token ids.
    """

    def __init__(self, automaton: TokenAutomaton) -> None:
        sizes = np.diff(automaton.class_offsets)
        largest = int(np.argmax(sizes))
        self.remainder = largest if 2 * sizes[largest] > len(automaton.token_class) else -1
        self.remainder_tokens = np.empty(0, np.int64)
        self.classes = np.flatnonzero(np.arange(len(sizes)) != self.remainder)
        at, owners = ragged(automaton.class_offsets[self.classes], sizes[self.classes])
        columns = automaton.class_tokens[at]
        self.starts = np.flatnonzero(np.diff(owners, prepend=-1))
        if self.remainder >= 0:
            self.remainder_tokens = automaton.tokens_of(largest).astype(np.int64)
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


@dataclass(frozen=True, eq=False)
class RowSums:
    """What one reading of n rows gives.

    Attributes:
        groups: (n, G) float64, probability of each group of the layout.
        remainders: (n,) float64, probability of the remainder; of no meaning without one.
        log_norms: (n,) float64, log of the sum of the exponentials of a row.
    """

    groups: Floats
    remainders: Floats
    log_norms: Floats


class LogitSource(Protocol):
    """Logits of a canvas."""

    def sum_rows(self, rows: Ints, layout: GatherLayout, scale: float, highest: Floats) -> RowSums:
        """Softmax of scaled logits, summed by group.

        Args:
            rows: (n,) positions.
            layout: The groups.
            scale: What the logits are multiplied by.
            highest: (n,) the largest logit of each row.
        """
        ...

    def best(self, rows: Ints) -> tuple[Ints, Floats]:
        """The token with the highest logit of each of some rows, and that logit."""
        ...

    def row(self, row: int) -> NDArray[Any]:
        """All logits of one row in host memory, not to be written to."""
        ...

    def gather(self, row: int, columns: NDArray[np.integer[Any]]) -> Floats:
        """Some logits of one row."""
        ...

    def mass(
        self, row: int, columns: NDArray[np.integer[Any]], scale: float
    ) -> NDArray[np.floating[Any]] | None:
        """Exponentials of some scaled logits of a row, the largest 1; None if all are -inf."""
        ...

    def at(self, rows: Ints, columns: Ints) -> Floats:
        """One logit of each of some rows."""
        ...


def logit_source(logits: torch.Tensor | NDArray[Any]) -> LogitSource:
    """The logits as they are; half precision in host memory is widened once."""
    if isinstance(logits, np.ndarray):
        return HostLogits(logits)
    logits = logits.detach()
    if logits.device.type != "cpu":
        return DeviceLogits(logits)
    if logits.dtype not in (torch.float32, torch.float64):
        logits = logits.float()
    return HostLogits(logits.numpy())


class HostLogits:
    """In host memory: row by row, so that a row stays in cache, and without worker threads."""

    def __init__(self, values: NDArray[Any]) -> None:
        self._values = values

    def sum_rows(self, rows: Ints, layout: GatherLayout, scale: float, highest: Floats) -> RowSums:
        """Softmax of scaled logits, summed by group."""
        num_rows, size = len(rows), self._values.shape[1]
        sums = RowSums(
            np.empty((num_rows, len(layout.classes))),
            np.empty(num_rows),
            np.empty(num_rows),
        )
        scratch = np.empty(size, self._values.dtype)
        with np.errstate(invalid="ignore", over="ignore"):
            for n, (row, top) in enumerate(zip(rows.tolist(), highest.tolist(), strict=True)):
                self._sum_row(n, self._values[row], layout, scale, top * scale, scratch, sums)
        return sums

    @staticmethod
    def _sum_row(
        n: int,
        logits: NDArray[Any],
        layout: GatherLayout,
        scale: float,
        highest: float,
        scratch: NDArray[Any],
        sums: RowSums,
    ) -> None:
        values = logits
        if scale != 1.0:
            values = np.multiply(values, values.dtype.type(scale), out=scratch)
        shift = 0.0 if 0.0 <= highest < _SAFE_NATS else highest
        if shift:
            values = np.subtract(values, values.dtype.type(shift), out=scratch)
        mass = np.exp(values, out=scratch)
        total = float(np.einsum("i->", mass))  # twice as fast as sum, as exact on vectors this long
        log_norm = float(np.log(total)) + shift

        def exact(columns: Ints) -> Floats:
            return np.exp(logits.take(columns).astype(np.float64) * scale - log_norm)

        sums.log_norms[n] = log_norm
        remainder = total
        if len(layout.columns):
            groups = np.add.reduceat(mass.take(layout.columns), layout.starts, dtype=np.float64)
            remainder = total - float(groups.sum())
            if groups.min() < _UNDERFLOW and _has_underflow(logits, layout, groups):
                groups = np.add.reduceat(exact(layout.columns), layout.starts) * total
            sums.groups[n] = groups[: len(layout.classes)] / total
        if layout.remainder >= 0 and remainder < _CANCELLED * total:
            remainder = float(mass.take(layout.remainder_tokens).sum(dtype=np.float64))
            if remainder < _UNDERFLOW:
                remainder = float(exact(layout.remainder_tokens).sum()) * total
        sums.remainders[n] = remainder / total

    def best(self, rows: Ints) -> tuple[Ints, Floats]:
        """The token with the highest logit of each of some rows, and that logit."""
        tokens = np.array([self._values[row].argmax() for row in rows.tolist()], np.int64)
        return tokens, self.at(rows, tokens)

    def row(self, row: int) -> NDArray[Any]:
        """All logits of one row in host memory, not to be written to."""
        values: NDArray[Any] = self._values[row]
        return values

    def gather(self, row: int, columns: NDArray[np.integer[Any]]) -> Floats:
        """Some logits of one row."""
        picked: Floats = self._values[row].take(columns).astype(np.float64)
        return picked

    def mass(
        self, row: int, columns: NDArray[np.integer[Any]], scale: float
    ) -> NDArray[np.floating[Any]] | None:
        """Exponentials of some scaled logits of a row, the largest 1; None if all are -inf."""
        return _mass(self._values[row].take(columns), scale)

    def at(self, rows: Ints, columns: Ints) -> Floats:
        """One logit of each of some rows."""
        picked: Floats = self._values[rows, columns].astype(np.float64)
        return picked


class DeviceLogits:
    """On an accelerator: rows are summed there."""

    def __init__(self, values: torch.Tensor) -> None:
        self._values = values

    def sum_rows(self, rows: Ints, layout: GatherLayout, scale: float, highest: Floats) -> RowSums:
        """Softmax of scaled logits, summed by group."""
        device = self._values.device
        values = self._values
        if len(rows) < len(values):
            values = values[torch.as_tensor(rows, device=device)]
        values = values.float() * scale
        log_norms = torch.logsumexp(values, dim=1)
        log_p = values - log_norms[:, None]
        groups, remainders = np.empty((len(rows), 0)), np.zeros(len(rows))
        if len(layout.columns):
            at = torch.as_tensor(layout.columns, device=device)
            # exponentials on the host: the accelerator may lack float64, and float32 underflows
            picked = np.exp(log_p.index_select(1, at).cpu().double().numpy())
            groups = np.add.reduceat(picked, layout.starts, axis=1)
        if layout.remainder >= 0:
            tokens = torch.as_tensor(layout.remainder_tokens, device=device)
            direct = torch.logsumexp(log_p.index_select(1, tokens), dim=1)
            remainders = np.exp(direct.cpu().double().numpy())
        return RowSums(
            groups[:, : len(layout.classes)],
            remainders,
            log_norms.cpu().double().numpy(),
        )

    def best(self, rows: Ints) -> tuple[Ints, Floats]:
        """The token with the highest logit of each of some rows, and that logit."""
        highest, tokens = self._values[torch.as_tensor(rows, device=self._values.device)].max(dim=1)
        return tokens.cpu().numpy(), highest.cpu().double().numpy()

    def row(self, row: int) -> NDArray[Any]:
        """All logits of one row in host memory, not to be written to."""
        values: NDArray[Any] = self._values[row].float().cpu().numpy()
        return values

    def gather(self, row: int, columns: NDArray[np.integer[Any]]) -> Floats:
        """Some logits of one row."""
        at = torch.as_tensor(columns.astype(np.int64), device=self._values.device)
        picked: Floats = self._values[row].index_select(0, at).cpu().double().numpy()
        return picked

    def mass(
        self, row: int, columns: NDArray[np.integer[Any]], scale: float
    ) -> NDArray[np.floating[Any]] | None:
        """Exponentials of some scaled logits of a row, the largest 1; None if all are -inf."""
        return _mass(self.gather(row, columns), scale)

    def at(self, rows: Ints, columns: Ints) -> Floats:
        """One logit of each of some rows."""
        device = self._values.device
        where = torch.as_tensor(rows, device=device), torch.as_tensor(columns, device=device)
        picked: Floats = self._values[where].cpu().double().numpy()
        return picked


def _has_underflow(logits: NDArray[Any], layout: GatherLayout, groups: Floats) -> bool:
    """Whether a sum is small although a logit in it is above -inf."""
    highest = np.maximum.reduceat(logits.take(layout.columns), layout.starts)
    return bool((highest[groups < _UNDERFLOW] > -np.inf).any())


def _mass(values: NDArray[Any], scale: float) -> NDArray[np.floating[Any]] | None:
    highest = values.max()
    if not np.isfinite(highest):
        return None
    values -= highest
    values *= values.dtype.type(scale)
    mass: NDArray[np.floating[Any]] = np.exp(values, out=values)
    return mass
