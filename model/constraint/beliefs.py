"""What a step may ask of the lattice under a canvas, each part worked out when first asked for."""

from __future__ import annotations

from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from agentloop.model.constraint.class_weights import ClassWeights
from agentloop.model.constraint.forward import Forward
from agentloop.model.constraint.lattice import TRUSTED_NATS, Lattice, log_plain_total
from agentloop.model.constraint.liveness import Liveness

Floats = NDArray[np.float64]


class Chain(Protocol):
    """The posterior over accepted texts as a Markov chain over states."""

    def p_states(self, boundary: int) -> Floats:
        """Probability (S,) of every state at a boundary."""
        ...

    def p_sets(self, position: int) -> Floats:
        """Probability (U,) that each class set crosses a position."""
        ...

    def per_weight(self, position: int, pairs: NDArray[np.int32]) -> Floats:
        """Probability (n,) that each of some pairs crosses a position, over its positive weight."""
        ...

    def p_exit(self, position: int) -> Floats:
        """Probability (S,) that the text ends at a position, from each state."""
        ...

    def leaving(self, position: int, state: int) -> Floats:
        """Weights, up to a factor, of the pairs that leave a state."""
        ...


class Beliefs:
    """The model's beliefs about the open part of a canvas, joined with the constraint.

    Attributes:
        weights: Weights of classes and tokens.
        liveness: The states that can still reach an end.
        start: State at the left edge.
    """

    def __init__(
        self, weights: ClassWeights, liveness: Liveness, start: int, exponents: Floats
    ) -> None:
        """Work nothing out yet; `exponents` (L,) as `locality` of `Lattice.build`."""
        self.weights = weights
        self.liveness = liveness
        self.start = start
        self._exponents = exponents

    @cached_property
    def lattice(self) -> Lattice:
        """All paths, weighted; every row of logits is read for it."""
        weights = self.weights
        length = len(weights.tokens)
        return Lattice.build(
            weights.automaton,
            weights.set_sums_until(length),
            self.liveness.at(length),
            self.start,
            self._exponents,
        )

    @cached_property
    def forward(self) -> Forward:
        """The posterior under state-local weights, and how often plain draws can be completed."""
        return Forward(self.weights, self.liveness, self.start)

    @cached_property
    def chain(self) -> Chain:
        """The posterior; state-local weights need nothing from the right of what is asked."""
        return self.forward if (self._exponents == 1.0).all() else self.lattice

    @cached_property
    def log_plain_total(self) -> float:
        """Log of the summed probability of all accepted texts under the plain product."""
        length = len(self.weights.tokens)
        set_sums = self.weights.set_sums_until(length)
        total = self.forward.log_p_valid(length)
        if total >= -TRUSTED_NATS:
            return total
        return log_plain_total(self.weights.automaton, set_sums, self.liveness, self.start)
