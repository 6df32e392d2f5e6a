"""Long conversations at a bounded cost: a window that is cut at turns, and what was cut summed up.

A window that slides by every turn changes the prompt's beginning each time, so nothing of it would
be found in the cache. This one is cut rarely and deeply: when it is full, down to a share of itself
at the beginning of a turn. Between two cuts every prompt begins with the one before.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from typing_extensions import Unpack

from agentloop.errors import ContextLengthError, ModelError
from agentloop.model.call_options import CallOptions
from agentloop.model.prompts import Message

if TYPE_CHECKING:
    from agentloop.model.generation import Generation
    from agentloop.model.lm import DiffusionLM

Count = Callable[[Sequence[Message]], int]
Summarise = Callable[[str, Sequence[Message]], str | Awaitable[str]]
"""Makes a summary of the last summary ("" if there is none) and the turns that are cut."""
Compress = Callable[[Sequence[Message], int], Sequence[Message]]
"""Makes a conversation that has at most so many tokens of one that has more."""

SUMMARY = "Earlier in this conversation: "


def cut_turns(messages: Sequence[Message], max_tokens: int, count: Count) -> list[Message]:
    """A conversation without its oldest turns: the system's messages, then from some user's turn.

    Args:
        messages: The conversation.
        max_tokens: Tokens of its prompt at most.
        count: Tokens of a conversation's prompt.

    Raises:
        ContextLengthError: The last turn alone is too long.

    Example:
        >>> turns = [{"role": "user", "content": word} for word in ("one", "two", "three")]
        >>> [m["content"] for m in cut_turns(turns, 2, len)]
        ['two', 'three']
    """
    num_system = _num_system(messages)
    system, turns = list(messages[:num_system]), messages[num_system:]
    starts = [i for i, turn in enumerate(turns) if turn["role"] == "user"] or [0]
    for start in starts:
        kept = [*system, *turns[start:]]
        if count(kept) <= max_tokens:
            return kept
    shortest = count([*system, *turns[starts[-1] :]])
    raise ContextLengthError(
        f"the last turn and the system's messages have {shortest:,} tokens, but {max_tokens:,} are "
        "allowed; shorten them or allow more"
    )


def _num_system(messages: Sequence[Message]) -> int:
    """System messages at the beginning."""
    others = (i for i, message in enumerate(messages) if message["role"] != "system")
    return next(others, len(messages))


@dataclass
class Dialogue:
    """A conversation with a model, of which each call sees a window.

    Attributes:
        lm: The model.
        max_tokens: Tokens of a call's prompt at most.
        keep: Share of `max_tokens` that a cut leaves at most.
        summarise: Sums up what is cut; the summary stays at the window's beginning. None forgets.
        system: The system's messages, in every window.
        turns: Everything said since the last cut.
        summary: What was said before, "" if nothing was cut.
        num_cut: Turns that were cut so far.
    """

    lm: DiffusionLM
    max_tokens: int = 1024
    keep: float = 0.5
    summarise: Summarise | None = None
    system: list[Message] = field(default_factory=list[Message])
    turns: list[Message] = field(default_factory=list[Message])
    summary: str = field(default="", init=False)
    num_cut: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        if not 0.0 < self.keep <= 1.0:
            raise ModelError(f"keep is {self.keep!r}, expected a share above 0 and at most 1")

    @property
    def window(self) -> list[Message]:
        """What the next call sees, as things stand."""
        summed: list[Message] = []
        if self.summary:
            summed = [{"role": "system", "content": SUMMARY + self.summary}]
        return [*self.system, *summed, *self.turns]

    async def ask(self, content: str, **options: Unpack[CallOptions]) -> Generation:
        """Say something and have it answered; both become turns.

        Args:
            content: What the user says.
            **options: As in `DiffusionLM.generate`.

        Raises:
            ContextLengthError: This turn alone is longer than the window; nothing was added.
        """
        self.turns.append({"role": "user", "content": content})
        try:
            await self._fit()
            answer = await self.lm.generate(self.window, **options)
        except BaseException:
            self.turns.pop()
            raise
        self.turns.append({"role": "assistant", "content": answer.text})
        return answer

    async def _fit(self) -> None:
        """Cut the window if it is full."""
        count = self.lm.count_tokens
        if count(self.window) <= self.max_tokens:
            return
        before = self.window
        try:
            kept = cut_turns(before, int(self.keep * self.max_tokens), count)
        except ContextLengthError:  # the last turn is longer than the share: as much as there is
            kept = cut_turns(before, self.max_tokens, count)
        turns = kept[_num_system(kept) :]
        dropped = self.turns[: len(self.turns) - len(turns)]
        if self.summarise is not None and dropped:
            summary = self.summarise(self.summary, dropped)
            self.summary = await summary if inspect.isawaitable(summary) else str(summary)
        self.turns = turns
        self.num_cut += len(dropped)
        if count(self.window) > self.max_tokens:
            raise ContextLengthError(
                f"the summary makes the window {count(self.window):,} tokens long, but "
                f"{self.max_tokens:,} are allowed; have summarise write less"
            )
