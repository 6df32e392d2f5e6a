"""How a canvas is refined, and what the effort levels stand for. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from agentloop.model.policies import Policy, Threshold

if TYPE_CHECKING:
    from agentloop.model.constraint.inference import Weighting
    from agentloop.model.constraint.proposal import PathScore

Effort = Literal["instant", "low", "medium", "high"]


@dataclass(frozen=True)
class SamplerOptions:
    """How a canvas is refined.

    Attributes:
        canvas_length: Slots of a canvas at most; a longer answer goes on in the next one.
        max_steps: Passes of the network at most, per canvas, revisions not counted.
        policy: Which positions of a proposal are sure enough.
        early_gap: Commit the whole proposal once every position leads its rivals by this much; 1
            and more never does. Source: Li et al. 2025 (Prophet), with its smallest gap.
        window: Commit only within this many positions of the first masked one; None is everywhere.
        left_first: Commit without gaps, up to the first position that is not sure: a gap's length
            is a guess, and what fills it later has to fit.
        temperature: 0 follows the best joint path; above 0 each step draws a joint text.
        final_temperature: Where the temperature goes as the canvas fills, in equal parts; None
            keeps it.
        top_p: Draws come from the likeliest tokens of each position that hold this probability.
        edit_threshold: Take a committed token back when the model's own probability for it falls
            below this; 0 never does.
        max_revisions: Positions taken back at most, per canvas.
        review_rounds: Passes over a canvas that is complete, to find what to take back.
        weighting: Weights of the constraint's inference.
        path: Which joint path temperature 0 follows.
    """

    canvas_length: int = 128
    max_steps: int = 32
    policy: Policy = field(default_factory=lambda: Threshold(0.9))
    early_gap: float = 1.0
    window: int | None = 8
    left_first: bool = True
    temperature: float = 0.0
    final_temperature: float | None = None
    top_p: float = 1.0
    edit_threshold: float = 0.0
    max_revisions: int = 0
    review_rounds: int = 0
    weighting: Weighting = "local"
    path: PathScore = "greedy"

    @property
    def is_random(self) -> bool:
        """Whether anything is drawn."""
        return self.temperature > 0 or (self.final_temperature or 0.0) > 0


@dataclass(frozen=True)
class EffortLevel:
    """What a level of effort stands for.

    Attributes:
        sampler: How each canvas is refined.
        samples: Answers that are made side by side; one of them is given.
        thinking_tokens: Length of the stretch of thinking, where the caller allows one.
        verify: Whether the answer is read left to right by the base network and scored.
    """

    sampler: SamplerOptions
    samples: int = 1
    thinking_tokens: int = 0
    verify: bool = False


LEVELS: dict[Effort, EffortLevel] = {
    "instant": EffortLevel(SamplerOptions(max_steps=4, policy=Threshold(0.5), window=None)),
    "low": EffortLevel(SamplerOptions(max_steps=12, policy=Threshold(0.5), window=16)),
    "medium": EffortLevel(
        SamplerOptions(max_steps=32, policy=Threshold(0.7), window=16), thinking_tokens=32
    ),
    "high": EffortLevel(
        SamplerOptions(max_steps=64, policy=Threshold(0.95), edit_threshold=0.02, max_revisions=8),
        samples=3,
        thinking_tokens=64,
        verify=True,
    ),
}
EFFORTS: dict[Effort, SamplerOptions] = {name: level.sampler for name, level in LEVELS.items()}
