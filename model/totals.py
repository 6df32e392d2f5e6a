"""What a model has done since it was loaded, summed over its calls."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agentloop.model.generation import Generation


@dataclass
class Totals:
    """Sums over the calls answered so far; safe to add to from any thread.

    Attributes:
        num_calls: Calls answered.
        num_steps: Passes of the network, each call's counted whole.
        num_tokens: Tokens of the answers.
        num_prompt_tokens: Tokens of the prompts.
        num_cached_tokens: Prompt tokens whose keys were in the cache.
        num_computed: Positions that the network worked on.
        queue_s: Seconds from calls to their first step.
        prompt_s: Seconds of reading prompts.
        network_s: Seconds of passes, shared ones counted for every call that shares them.
        constraint_s: Seconds of constrained inference.
        total_s: Seconds from calls to answers.
    """

    num_calls: int = 0
    num_steps: int = 0
    num_tokens: int = 0
    num_prompt_tokens: int = 0
    num_cached_tokens: int = 0
    num_computed: int = 0
    queue_s: float = 0.0
    prompt_s: float = 0.0
    network_s: float = 0.0
    constraint_s: float = 0.0
    total_s: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    @property
    def hit_rate(self) -> float:
        """Share of prompt tokens that came from the cache; 0 before the first call."""
        return self.num_cached_tokens / self.num_prompt_tokens if self.num_prompt_tokens else 0.0

    @property
    def utilisation(self) -> float:
        """Tokens of answers for each position the network worked on; 0 before the first pass."""
        return self.num_tokens / self.num_computed if self.num_computed else 0.0

    def added(self, generation: Generation) -> Generation:
        """Add an answer's numbers; gives the answer."""
        timings = generation.timings
        with self._lock:
            self.num_calls += 1
            for name in ("num_steps", "num_tokens", "num_prompt_tokens", "num_cached_tokens"):
                setattr(self, name, getattr(self, name) + getattr(generation, name))
            self.num_computed += generation.num_computed
            for name in ("queue_s", "prompt_s", "network_s", "constraint_s", "total_s"):
                setattr(self, name, getattr(self, name) + getattr(timings, name))
        return generation

    def metrics(self) -> dict[str, float]:
        """All sums and both shares, by name."""
        with self._lock:
            sums = {f.name: float(getattr(self, f.name)) for f in fields(self) if f.repr}
        return {**sums, "hit_rate": self.hit_rate, "utilisation": self.utilisation}
