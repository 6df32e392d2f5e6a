"""Turns messages and options into a request: tokens, compiled constraint, budget, canvases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from tokenizers import Tokenizer

from agentloop.errors import ContextLengthError, ModelError
from agentloop.model.call_options import CallOptions, ParsedConstraint, Settings, settings_of
from agentloop.model.config import ModelConfig
from agentloop.model.constraint.compiled import (
    CompiledConstraint,
    compile_constraint,
    shared_cache,
)
from agentloop.model.constraint.options import DEFAULT_OPTIONS, CompileOptions
from agentloop.model.constraint.vocabulary import Vocabulary
from agentloop.model.forced import ForcedText
from agentloop.model.plan import Plan, Thinking
from agentloop.model.prompts import Message, chat_pieces
from agentloop.model.request import SAMPLE_TEMPERATURE, Candidate, Request
from agentloop.model.stop_texts import ANY_TEXT, StopText

if TYPE_CHECKING:
    from agentloop.model.dialogue import Compress

DEFAULT_MAX_TOKENS = 64
MAX_COMPILE_S = 30.0
"""Processor time that the compilation of a constraint may take."""
_CLOSING = "\n"
"""What parts thoughts from the answer."""
_NEXT_SAMPLE = 1_000_003
"""How far the seeds of two samples are apart."""


class RequestBuilder:
    """Knows a model's tokens and context; safe to use from any thread."""

    def __init__(
        self,
        config: ModelConfig,
        tokenizer: Tokenizer,
        vocabulary: Vocabulary,
        profile: CompileOptions = DEFAULT_OPTIONS,
        compress: Compress | None = None,
    ) -> None:
        self.config = config
        self._compress = compress
        self.profile = profile
        self.tokenizer = tokenizer
        self.vocabulary = vocabulary
        self._plain = Tokenizer.from_str(tokenizer.to_str())
        self._plain.encode_special_tokens = True  # content never spells a control token
        self._forced_text = lru_cache(maxsize=64)(self._find_forced_text)

    def text_ids(self, text: str) -> list[int]:
        """Token ids of plain text, in which no control token is ever spelt."""
        ids: list[int] = self._plain.encode(text, add_special_tokens=False).ids
        return ids

    def prompt_ids(self, messages: str | Sequence[Message]) -> list[int]:
        """Token ids of a conversation, open for the answer.

        Raises:
            ModelError: There is no message.
        """
        turns = as_messages(messages)
        ids: list[int] = []
        for is_control, text in chat_pieces(turns):
            if is_control:
                ids += self.tokenizer.encode(text, add_special_tokens=False).ids
            else:
                ids += self.text_ids(text)
        return ids

    def beginning_ids(self, messages: str | Sequence[Message]) -> list[int]:
        """Token ids that a conversation and every longer one that begins with it have in common.

        Raises:
            ModelError: There is no message.
        """
        turns = as_messages(messages)
        further: Message = {"role": "user", "content": "."}
        closed, going_on = self.prompt_ids(turns), self.prompt_ids([*turns, further])
        pairs = zip(closed, going_on, strict=False)
        shared = next((i for i, (one, other) in enumerate(pairs) if one != other), len(closed))
        return closed[:shared]

    def compile(
        self, constraint: ParsedConstraint | None, num_tokens: int | None = None
    ) -> CompiledConstraint:
        """A constraint made ready for the vocabulary, from the cache if it was before.

        Args:
            constraint: None for any text.
            num_tokens: Tokens the text has at most, None if unknown.

        Raises:
            CompileLimitError: It takes too many states, steps or seconds to compile.
            ConstraintError: It cannot be compiled.
        """
        wanted = constraint or ANY_TEXT
        options = self.compile_options(wanted, num_tokens)
        return compile_constraint(wanted, self.vocabulary, options, max_seconds=MAX_COMPILE_S)

    async def compile_aside(
        self, constraint: ParsedConstraint | None, num_tokens: int | None = None
    ) -> CompiledConstraint:
        """As `compile`, off the event loop; cancelling ends it."""
        wanted = constraint or ANY_TEXT
        options = self.compile_options(wanted, num_tokens)
        return await shared_cache().compile_aside(
            wanted, self.vocabulary, options, max_seconds=MAX_COMPILE_S
        )

    def compile_options(
        self, constraint: ParsedConstraint, num_tokens: int | None
    ) -> CompileOptions:
        """The model's profile for texts of so many tokens at most, None if unknown.

        Bounds that no such text can break are dropped. The length in characters is rounded up to a
        power of two, so that calls of similar lengths share one automaton.
        """
        if num_tokens is None or not getattr(constraint, "has_length_bounds", False):
            return self.profile
        length = 1 << (num_tokens * self.vocabulary.longest - 1).bit_length()
        given = self.profile.max_text_length
        return replace(
            self.profile, max_text_length=length if given is None else min(length, given)
        )

    def room(self, max_tokens: int | None) -> int:
        """Tokens an answer has at most, by what the call says or by the model's context."""
        limit = self.config.max_position_embeddings
        return limit if max_tokens is None else max(1, min(max_tokens, limit))

    def forced_text(self, compiled: CompiledConstraint) -> ForcedText:
        """What a constraint leaves no choice about, from memory if it was asked for lately."""
        return self._forced_text(compiled)

    def _find_forced_text(self, compiled: CompiledConstraint) -> ForcedText:
        return ForcedText(compiled, self.text_ids)

    def wanted(self, options: CallOptions) -> ParsedConstraint | None:
        """The constraint that a call's text satisfies; None for any text."""
        stop = options.get("stop")
        if options.get("constraint") is None and stop:
            return StopText((stop,) if isinstance(stop, str) else tuple(stop))
        return options.get("constraint")

    def request(self, messages: str | Sequence[Message], options: CallOptions) -> Request:
        """A request with its jobs.

        Raises:
            CanvasTooSmallError: The constraint's shortest text is longer than `max_tokens`.
            ContextLengthError: Prompt and answer are longer than the model's context.
            ModelError: An option is unknown or out of its range.
        """
        settings = settings_of(options)
        constraint = self.wanted(options)
        compiled = self.compile(constraint, self.room(settings.max_tokens))
        budget = self.budget(compiled, settings)
        prompt = self._fitting_prompt(messages, budget + settings.thinking_tokens)
        candidates: list[Candidate] = []
        for number in range(settings.samples):
            sampler = settings.sampler
            if number and sampler.temperature == 0:
                sampler = replace(sampler, temperature=SAMPLE_TEMPERATURE)
            plan = Plan(
                self.forced_text(compiled),
                sampler,
                budget,
                settings.seed + number * _NEXT_SAMPLE,
                must_end=settings.constraint is not None,
                thinking=self._thinking(settings),
            )
            job = plan.start(prompt)
            job.priority, job.deadline_s = settings.priority, settings.deadline_s
            candidates.append(Candidate(job, plan))
        return Request(settings, constraint, candidates, self.vocabulary)

    def _thinking(self, settings: Settings) -> Thinking | None:
        if not settings.thinking_tokens:
            return None
        closing = tuple(self.text_ids(_CLOSING))
        return Thinking(self.compile(None), settings.thinking_tokens, closing)

    def budget(self, compiled: CompiledConstraint, settings: Settings) -> int:
        """Tokens of the answer, its end of text included."""
        budget = settings.max_tokens
        if budget is None:
            budget = max(DEFAULT_MAX_TOKENS, compiled.min_tokens + compiled.min_tokens // 2)
        compiled.check_fits(budget)
        return budget

    def _fitting_prompt(self, messages: str | Sequence[Message], num_after: int) -> list[int]:
        """Ids of a conversation that leaves room for what follows, compressed if it must be."""
        prompt = self.prompt_ids(messages)
        room = self.config.max_position_embeddings - num_after
        if len(prompt) > room and self._compress is not None:
            prompt = self.prompt_ids(self._compress(as_messages(messages), max(0, room)))
        self.check_context(len(prompt), num_after)
        return prompt

    def check_context(self, prompt_length: int, num_after: int) -> None:
        """Refuse what is longer than the model's context.

        Raises:
            ContextLengthError: Prompt and answer together are too long.
        """
        limit = self.config.max_position_embeddings
        if prompt_length + num_after > limit:
            raise ContextLengthError(
                f"the prompt has {prompt_length:,} tokens and the answer up to {num_after:,}, but "
                f"the model's context is {limit:,}; shorten the prompt, lower max_tokens, or load "
                "the model with compress or a longer context"
            )


def as_messages(messages: str | Sequence[Message]) -> Sequence[Message]:
    """A conversation; a text alone is what the user says.

    Raises:
        ModelError: There is no message.
    """
    turns: Sequence[Message] = (
        [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
    )
    if not turns:
        raise ModelError("messages is empty, expected at least one message")
    return turns
