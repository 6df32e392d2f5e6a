"""What a run has spent on calls, and the limits on it.

Limits are checked before each call: one that has begun is finished, and counted when it is over.
A resumed run goes on counting from what is recorded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from agentloop.context import Call
from agentloop.errors import GraphError, LimitError, ToolError


class Spent(NamedTuple):
    """What one call took.

    Attributes:
        kind: `llm`, `tool`, `step`, ...
        name: What was called.
        num_tokens: Tokens of the answer, and of the prompt where the model tells.
        cost: In whatever unit models and tools use.
    """

    kind: str
    name: str
    num_tokens: int = 0
    cost: float = 0.0


def spent_on(call: Call[Any], result: object) -> Spent:
    """What a call took, by what it gave."""
    if call.kind != "llm":
        return Spent(call.kind, call.name, 0, call.cost)
    num_tokens = getattr(result, "num_tokens", 0) + (getattr(result, "num_prompt_tokens", 0) or 0)
    return Spent(call.kind, call.name, num_tokens, getattr(result, "cost", 0.0) or 0.0)


@dataclass(frozen=True, slots=True)
class Limits:
    """What the calls of one run may take in all, `None` for no limit.

    Attributes:
        max_calls: Calls (`llm`, tools, steps).
        max_tokens: Tokens of model calls.
        max_cost: Cost of model calls and tools, in the unit that they use.

    Raises:
        GraphError: A limit is not positive.
    """

    max_calls: int | None = None
    max_tokens: int | None = None
    max_cost: float | None = None

    def __post_init__(self) -> None:
        for name, least in (("max_calls", "1 or more"), ("max_tokens", "1 or more")):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise GraphError(f"{name} is {value}; use {least}, or None for no limit")
        if self.max_cost is not None and not self.max_cost > 0:
            raise GraphError(f"max_cost is {self.max_cost}; use more than 0, or None for no limit")


_WORDS = {"num_calls": "calls", "num_tokens": "tokens", "cost": "cost"}


class Spending:
    """What a run has spent so far.

    Attributes:
        num_calls: Calls begun.
        num_tokens: Tokens of the model calls that are over.
        cost: Of the calls that are over.
    """

    __slots__ = ("_by_tool", "_limits", "cost", "num_calls", "num_tokens")

    def __init__(self, limits: Limits, recorded: Iterable[Spent] = ()) -> None:
        self.num_calls = 0
        self.num_tokens = 0
        self.cost = 0.0
        of = {"max_calls": "num_calls", "max_tokens": "num_tokens", "max_cost": "cost"}
        limited = ((name, of[name], getattr(limits, name)) for name in of)
        self._limits = [each for each in limited if each[2] is not None]
        self._by_tool: Counter[str] = Counter()
        for spent in recorded:
            self._count(spent.kind, spent.name)
            self.add(spent)

    def admit(self, run: str, path: str, call: Call[Any]) -> None:
        """Check that a call may begin.

        Raises:
            LimitError: The run has spent what it may.
            ToolError: The run has called this tool as often as it may.
        """
        for name, of, limit in self._limits:
            if getattr(self, of) >= limit:
                raise LimitError(
                    f"run {run!r} reached its limit of {limit} {_WORDS[of]} before {path} "
                    f"({call.kind} {call.name}); raise {name}, or bound what asks so often"
                )
        if call.limit is not None and self._by_tool[call.name] >= call.limit:
            raise ToolError(
                f"tool {call.name!r} was not called: this run has made the {call.limit} calls "
                "of it that it may; go on without it, or raise its max_calls",
                tool=call.name,
            )

    def lift(self) -> None:
        """Limit nothing any more: a run that reached a limit is on its way out."""
        self._limits = []

    def begin(self, call: Call[Any]) -> None:
        """Count a call that begins."""
        self._count(call.kind, call.name)

    def add(self, spent: Spent) -> None:
        """Count what a call took."""
        self.num_tokens += spent.num_tokens
        self.cost += spent.cost

    def _count(self, kind: str, name: str) -> None:
        self.num_calls += 1
        if kind == "tool":
            self._by_tool[name] += 1
