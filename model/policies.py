"""Which positions of a proposal are sure enough to be committed together.

A policy looks at positions in an order that the sampler chose (from the left, or the surest first)
and says how many of the first ones may go. All work on constrained probabilities, so what they
count as sure is sure under the constraint. Nothing here knows canvases or tokens.

Letters: n positions, in the sampler's order.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from agentloop.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Beliefs:
    """What is known about n positions, in the order in which they may be committed.

    Attributes:
        confidence: (n,) probability of each proposed token.
        num_stable: (n,) passes in a row, up to the last, that proposed this token here.
        shift: (n,) how far the last pass moved the belief in it, in nats.
    """

    confidence: Floats
    num_stable: Ints
    shift: Floats
    measure_entropy: Callable[[], Floats]

    @cached_property
    def entropy(self) -> Floats:
        """(n,) entropy of each position's token, in nats; worked out when first asked for."""
        return self.measure_entropy()


class Policy(Protocol):
    """Says how many of the first positions are sure; 0 is allowed, the sampler commits one.

    What stands behind the first position that is not sure must make no difference: from the left
    the sampler may ask about a part, and about more only if all of that is sure.
    """

    def count(self, beliefs: Beliefs) -> int:
        """How many of the first positions may be committed."""
        ...


@dataclass(frozen=True)
class Threshold:
    """Positions whose probability is at least `tau`. Source: Wu et al. 2025 (Fast-dLLM), 3.3."""

    tau: float = 0.9

    def __post_init__(self) -> None:
        _check(0.0 <= self.tau <= 1.0, "Threshold.tau", self.tau, "between 0 and 1")

    def count(self, beliefs: Beliefs) -> int:
        """Positions ahead of the first one that is below `tau`."""
        return _leading(beliefs.confidence >= self.tau)


@dataclass(frozen=True)
class Factor:
    """The most n positions for which (n + 1)(1 - c) < `factor`, c their lowest probability.

    The fewer go together, the less sure each has to be. Source: Wu et al. 2025 (Fast-dLLM), 3.3.
    """

    factor: float = 1.0

    def __post_init__(self) -> None:
        _check(self.factor > 0.0, "Factor.factor", self.factor, "above 0")

    def count(self, beliefs: Beliefs) -> int:
        """The left side grows with n, so the first n that fails is the end."""
        import numpy as np  # not at the top: options are named where no array is

        lowest = np.minimum.accumulate(beliefs.confidence)
        sizes = np.arange(2, len(lowest) + 2)
        return _leading(sizes * (1.0 - lowest) < self.factor)


@dataclass(frozen=True)
class EntropyBound:
    """The most positions whose entropies sum to at most `gamma` beside the largest, in nats.

    The sum bounds how far a joint draw is from drawing each position alone, so this is the rule
    that fits temperatures above 0. Source: Ben-Hamu et al. 2025 (EB-Sampler), eq. 9.
    """

    gamma: float = 0.5

    def __post_init__(self) -> None:
        _check(self.gamma >= 0.0, "EntropyBound.gamma", self.gamma, "at least 0")

    def count(self, beliefs: Beliefs) -> int:
        """The bound grows with n, so the first n that fails is the end."""
        import numpy as np  # as above

        entropy = beliefs.entropy
        bound = np.cumsum(entropy) - np.maximum.accumulate(entropy)
        return _leading(bound <= self.gamma)


@dataclass(frozen=True)
class Stability:
    """Positions whose token stayed the same and whose belief stopped moving.

    Attributes:
        floor: Lowest probability.
        passes: Passes in a row that must have proposed the token.
        max_shift: Most nats that the last pass may have moved the belief: the divergence between
            "this token or another" before and after, which bounds that of whole distributions
            from below.

    Source: Kim et al. 2025 (KLASS), algorithm 1.
    """

    floor: float = 0.6
    passes: int = 2
    max_shift: float = 0.01

    def __post_init__(self) -> None:
        _check(0.0 <= self.floor <= 1.0, "Stability.floor", self.floor, "between 0 and 1")
        _check(self.passes >= 1, "Stability.passes", self.passes, "at least 1")
        _check(self.max_shift >= 0.0, "Stability.max_shift", self.max_shift, "at least 0")

    def count(self, beliefs: Beliefs) -> int:
        """Positions ahead of the first one that still moves."""
        sure = beliefs.confidence >= self.floor
        sure &= beliefs.num_stable >= self.passes
        sure &= beliefs.shift <= self.max_shift
        return _leading(sure)


def divergence(before: Floats, after: Floats) -> Floats:
    """Nats (n,) of KL(after || before) between the events "this token" and "another one"."""
    import numpy as np  # as above

    tiny = 1e-12
    p, q = np.clip(after, tiny, 1 - tiny), np.clip(before, tiny, 1 - tiny)
    nats: Floats = p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q))
    return nats


def has_gap(confidence: Floats, gap: float) -> bool:
    """Whether every position leads its rivals by `gap`, even if all the rest is one rival's.

    A token of probability c leads by at least c - (1 - c).
    """
    return bool((2.0 * confidence - 1.0 >= gap).all())


def _leading(sure: NDArray[np.bool_]) -> int:
    """How many are true ahead of the first that is not."""
    return len(sure) if sure.all() else int(sure.argmin())


def _check(is_legal: bool, name: str, value: object, expected: str) -> None:
    if not is_legal:
        raise ModelError(f"{name} is {value!r}, expected {expected}")
