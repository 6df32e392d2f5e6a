"""What a call gives: the finished answer, and drafts of it on the way."""

from __future__ import annotations

from codecs import getincrementaldecoder
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from agentloop.model.constraint.vocabulary import Vocabulary
from agentloop.model.engine import Timings
from agentloop.model.sampler import MASKED, Mark


@dataclass(frozen=True)
class Generation:
    """An answer.

    Attributes:
        text: The decoded text; always in the constraint's language.
        value: The text parsed by the constraint; the text itself without one.
        token_ids: Ids of the text, without its end.
        num_steps: Passes of the network; 0 where the constraint left no choice.
        num_prompt_tokens: Tokens of the prompt.
        num_cached_tokens: Prompt tokens whose keys were in the cache.
        p_valid: Per step, the probability that text drawn position by position, as far as the step
            looked, could have been completed to an accepted one: how much the constraint had to do.
        finish_reason: `"stop"`, or `"length"` where an unconstrained text filled `max_tokens`.
        seed: The seed used; the same seed gives the same answer.
        timings: Where the time went.
        num_computed: Positions the network worked on, over all passes.
        thinking: What the model wrote to itself first.
        log_p: (n,) log-probability of each token when it was committed, given the constraint; 0
            for tokens that had no alternative.
        log_p_verified: (n,) log-probability of each token, read left to right, the end of text
            included; None where the answer was not verified.
        num_samples: Answers made side by side.
        num_agreeing: How many of them have this one's value, itself included.
    """

    text: str
    value: Any
    token_ids: tuple[int, ...]
    num_steps: int
    num_prompt_tokens: int
    num_cached_tokens: int
    p_valid: tuple[float, ...]
    finish_reason: Literal["stop", "length"]
    seed: int
    timings: Timings
    num_computed: int = 0
    thinking: str = ""
    log_p: tuple[float, ...] = field(default=(), repr=False)
    log_p_verified: tuple[float, ...] | None = field(default=None, repr=False)
    num_samples: int = 1
    num_agreeing: int = 1

    @property
    def num_tokens(self) -> int:
        """Tokens of the text."""
        return len(self.token_ids)

    @property
    def utilisation(self) -> float:
        """Tokens of the text for each position the network worked on; 0 where it did no work."""
        return self.num_tokens / self.num_computed if self.num_computed else 0.0

    @property
    def p_verified(self) -> float | None:
        """Geometric mean probability of a token, read left to right; None if not verified."""
        if self.log_p_verified is None:
            return None
        return mean_probability(self.log_p_verified)


@dataclass(frozen=True)
class Draft:
    """The whole answer as it stands after a step.

    Attributes:
        step: Passes of the network so far.
        pieces: The text of every slot up to the end of text, `""` where masked.
        marks: What each slot is.
        p_valid: As in `Generation`, of this step.
        final: Whether this is the finished answer.
    """

    step: int
    pieces: tuple[str, ...]
    marks: tuple[Mark, ...]
    p_valid: float
    final: bool

    def text(self, mask: str = "░") -> str:
        """The draft as one string, with `mask` at masked slots."""
        return "".join(
            mask if mark == "masked" else piece
            for piece, mark in zip(self.pieces, self.marks, strict=True)
        )

    def span_of(self, text: str) -> tuple[int, int]:
        """The slots that hold the first occurrence of a text, for `Handle.edit` and `pin`.

        Raises:
            ValueError: The draft does not hold the text.
        """
        shown = self.text()
        start = shown.index(text)
        stop, at, slots = start + len(text), 0, list[int]()
        for slot, (piece, mark) in enumerate(zip(self.pieces, self.marks, strict=True)):
            width = 1 if mark == "masked" else len(piece)
            if at < stop and at + width > start:
                slots.append(slot)
            at += width
        return (slots[0], slots[-1] + 1) if slots else (0, 0)


def mean_probability(log_p: Sequence[float]) -> float:
    """Geometric mean of probabilities given by their logs; 1 for none."""
    from math import exp

    return exp(sum(log_p) / len(log_p)) if log_p else 1.0


def pieces_of(vocabulary: Vocabulary, tokens: Sequence[int]) -> tuple[str, ...]:
    """The text of every token, "" where masked; a split character is the last of its tokens'."""
    pieces: list[str] = []
    decoder = getincrementaldecoder("utf-8")("replace")
    for token in tokens:
        if token == MASKED:
            if pieces:
                pieces[-1] += decoder.decode(b"", final=True)
            decoder.reset()
        pieces.append("" if token == MASKED else decoder.decode(vocabulary.token_bytes[token]))
    if pieces:
        pieces[-1] += decoder.decode(b"", final=True)
    return tuple(pieces)
