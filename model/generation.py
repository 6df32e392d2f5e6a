"""What a call gives: the finished answer, and drafts of it on the way."""

from __future__ import annotations

from codecs import getincrementaldecoder
from collections.abc import Sequence
from dataclasses import dataclass
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
        num_steps: Passes of the network.
        num_prompt_tokens: Tokens of the prompt.
        num_cached_tokens: Prompt tokens whose keys were in the cache.
        p_valid: Per step, the probability that text drawn position by position would have been
            accepted: how much the constraint had to do.
        finish_reason: `"stop"`, or `"length"` where an unconstrained text filled `max_tokens`.
        seed: The seed used; the same seed gives the same answer.
        timings: Where the time went.
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

    @property
    def num_tokens(self) -> int:
        """Tokens of the text."""
        return len(self.token_ids)


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
