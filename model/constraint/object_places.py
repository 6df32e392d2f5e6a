"""Where a half-read object stands, and the ways on from there."""

from __future__ import annotations

from dataclasses import dataclass

from agentloop.model.constraint.fragment import Fragment
from agentloop.model.constraint.machine import Asked
from agentloop.model.constraint.pieces import Edge


@dataclass(frozen=True)
class Place:
    """Where an object stands: known keys passed, what is left to assert, no more keys at all."""

    num_passed: int
    asked: Asked
    is_closed: bool = False


@dataclass(frozen=True, eq=False)
class Moves:
    """The ways on from a place.

    Attributes:
        named: By the index of a known key, the edge of its value.
        keys: The other keys that may come next, by the conditions they meet; None for none.
        unnamed: For each exit of `keys`, the edge of the value, None where there is none.
    """

    named: dict[int, Edge[Place]]
    keys: Fragment | None
    unnamed: tuple[Edge[Place] | None, ...]

    def targets(self) -> list[Place]:
        """The places one move away."""
        edges = [*self.named.values(), *(edge for edge in self.unnamed if edge is not None)]
        return [place for edge in edges for place in edge.targets if place is not None]
