"""The model as its users see it: load, generate, watch drafts.

```python
lm = DiffusionLM.load("default")
answer = await lm.generate("Is water wet?", constraint=Choice(["yes", "no"]))
answer.value, answer.num_steps, answer.p_valid
```
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

import torch
from tokenizers import Tokenizer
from typing_extensions import Unpack

from agentloop.errors import CheckpointError
from agentloop.model.call_options import CallOptions, ParsedConstraint, one_sample
from agentloop.model.constraint import FieldPosterior, JsonConstraint
from agentloop.model.constraint.compiled import CompiledConstraint
from agentloop.model.constraint.options import DEFAULT_OPTIONS, CompileOptions
from agentloop.model.constraint.vocabulary import Vocabulary
from agentloop.model.decision import Decider, Decision, Question, decided, field_told
from agentloop.model.dialogue import Compress
from agentloop.model.engine import Engine
from agentloop.model.generation import Draft, Generation
from agentloop.model.handle import Handle
from agentloop.model.infilling import COMPLETE, open_gap, rewriting
from agentloop.model.loading import load_networks, native_dtype
from agentloop.model.network import Transformer
from agentloop.model.packed import ORDINARY_TEXT
from agentloop.model.products import Precision, precision_of
from agentloop.model.prompts import Message
from agentloop.model.request import Request
from agentloop.model.request_builder import DEFAULT_MAX_TOKENS, RequestBuilder
from agentloop.model.totals import Totals
from agentloop.model.waiting import Waiting


class DiffusionLM:
    """A diffusion language model with its engine; safe to call from any thread or event loop."""

    def __init__(
        self,
        reader: Transformer,
        writer: Transformer,
        tokenizer: Tokenizer,
        name: str = "",
        profile: CompileOptions = DEFAULT_OPTIONS,
        compress: Compress | None = None,
        precision: Precision | None = None,
    ) -> None:
        config = writer.config
        if config.mask_id is None:
            raise CheckpointError(
                f"{name or 'this checkpoint'} has no mask_token_id: it is autoregressive and was "
                "never adapted to diffusion"
            )
        self.name = name
        self.config = config
        self.tokenizer = tokenizer
        self.vocabulary = Vocabulary.from_tokenizer(
            tokenizer, config.eos_ids, size=config.vocab_size, exclude=[config.mask_id]
        )
        self._builder = RequestBuilder(config, tokenizer, self.vocabulary, profile, compress)
        self._decider = Decider(self._builder)
        self.totals = Totals()
        sample = [*self._builder.text_ids(ORDINARY_TEXT)[:40], *[config.mask_id] * 16]
        self.engine = Engine(reader, writer, precision=precision, sample=sample)
        self._waiting = Waiting(self.engine)

    @classmethod
    def load(
        cls,
        name_or_folder: str | Path = "default",
        *,
        dtype: torch.dtype | None = None,
        num_threads: int | None = None,
        profile: CompileOptions = DEFAULT_OPTIONS,
        context: int | None = None,
        compress: Compress | None = None,
        report: Callable[[str], None] = lambda _: None,
    ) -> Self:
        """Load a model.

        Args:
            name_or_folder: `"default"`, a folder with config.json, *.safetensors and
                tokenizer.json, or a folder that fine-tuning wrote.
            dtype: float32, bfloat16, or int8, in which canvases are refined by 8-bit products and
                prompts are read in bfloat16; by default the fastest that the processor has
                instructions for.
            num_threads: Threads of torch in this process; None leaves them as they are.
            profile: How answers under a constraint are spelt (whitespace, extra keys) and how far
                constraints are unrolled; what suits the data the model was trained on.
            context: Tokens of prompt and answer together at most; by default what the model was
                trained on. Beyond it, rotary frequencies are stretched.
            compress: Makes a conversation that is too long for the context fit so many tokens;
                without it such a call is refused. `dialogue.cut_turns` is one way.
            report: Receives a line before each step that takes seconds.

        Raises:
            CheckpointError: There is no such model, or it is damaged or was never adapted.
        """
        if num_threads is not None:
            torch.set_num_threads(num_threads)
        weights = native_dtype() if dtype is None else dtype
        precision = None if dtype is None else precision_of(dtype)
        loaded = load_networks(
            name_or_folder,
            dtype=torch.bfloat16 if weights == torch.int8 else weights,
            context=context,
            report=report,
        )
        parts = (loaded.reader, loaded.writer, loaded.tokenizer, loaded.name)
        return cls(*parts, profile, compress, precision)

    async def generate(
        self, messages: str | Sequence[Message], **options: Unpack[CallOptions]
    ) -> Generation:
        """Answer a prompt; calls awaited at the same time share the network's passes.

        Args:
            messages: The conversation, or one user message.
            **options: See `agentloop.model.call_options.CallOptions`.

        Raises:
            CanvasTooSmallError: The constraint's shortest text is longer than `max_tokens`.
            ContextLengthError: Prompt and answer are longer than the model's context.
            ModelError: An option is unknown or out of its range, or the model is closed.
        """
        request = await self._request(messages, options)
        await self._waiting.run(request.open_jobs)
        if request.settings.verify:
            await asyncio.to_thread(request.verify, self.engine.writer)
        return self.totals.added(request.generation())

    def generate_sync(
        self, messages: str | Sequence[Message], **options: Unpack[CallOptions]
    ) -> Generation:
        """As `generate`, from code without an event loop; blocks until the answer is there."""
        request = self._builder.request(messages, options)
        self._waiting.run_sync(request.open_jobs)
        request.verify(self.engine.writer)
        return self.totals.added(request.generation())

    def start(self, messages: str | Sequence[Message], **options: Unpack[CallOptions]) -> Handle:
        """Begin an answer that can be watched, edited, pinned and cancelled while it is made.

        Arguments and errors are those of `generate`; one answer is made, so `samples` is 1.
        """
        handle = self._handle(self._builder.request(messages, one_sample(options)))
        self.engine.submit(handle.open_jobs)
        return handle

    async def draft_stream(
        self, messages: str | Sequence[Message], **options: Unpack[CallOptions]
    ) -> AsyncGenerator[Draft, None]:
        """The whole answer after every step; each draft replaces the one before.

        Arguments and errors are those of `generate`; one answer is made, so `samples` is 1.
        Leaving the loop cancels the call. A reader that is far behind misses drafts, not the last.
        """
        async with self._watched(messages, options) as handle:
            async for draft in handle.drafts():
                yield draft

    async def text_stream(
        self, messages: str | Sequence[Message], **options: Unpack[CallOptions]
    ) -> AsyncGenerator[str, None]:
        """The answer piece by piece; what was given is never taken back.

        Arguments and errors are those of `generate`; one answer is made, so `samples` is 1.
        Leaving the loop cancels the call. Pieces that are not read yet are joined.
        """
        async with self._watched(messages, options) as handle:
            async for text in handle.texts():
                yield text

    async def decide(
        self,
        question: str,
        options: Sequence[str],
        *,
        state: Sequence[Message] = (),
        calibration: float = 1.0,
    ) -> Decision:
        """Decide between some texts, with the probability of each, in one pass.

        Args:
            question: What is asked.
            options: The answers to choose from.
            state: The conversation that the question is about.
            calibration: Temperature of the probabilities; see `calibration.fit_temperature`.

        Raises:
            ModelError: The options are not distinct texts, or the model is closed.
            ContextLengthError: The prompt is longer than the model's context.
        """
        asked = [Question(question, options)]
        return (await self.decide_all(asked, state=state, calibration=calibration))[0]

    async def decide_all(
        self,
        questions: Sequence[Question],
        *,
        state: Sequence[Message] = (),
        calibration: float = 1.0,
    ) -> list[Decision]:
        """Make many decisions about one state, all in one pass; arguments as in `decide`."""
        jobs = [self._decider.job(state, question) for question in questions]
        await self._waiting.run(jobs)
        return [decided(job, calibration) for job in jobs]

    def decide_sync(
        self,
        question: str,
        options: Sequence[str],
        *,
        state: Sequence[Message] = (),
        calibration: float = 1.0,
    ) -> Decision:
        """As `decide`, from code without an event loop."""
        job = self._decider.job(state, Question(question, options))
        self._waiting.run_sync([job])
        return decided(job, calibration)

    async def field_posterior(
        self,
        messages: str | Sequence[Message],
        constraint: JsonConstraint,
        pointer: str,
        *,
        max_tokens: int = DEFAULT_MAX_TOKENS,
    ) -> FieldPosterior:
        """What the model believes about one field of an answer, in one pass, before it is written.

        Args:
            messages: The conversation, or one user message.
            constraint: What the whole answer must satisfy.
            pointer: JSON pointer of an enum, boolean, choice or tool name in it: `"/0/name"`.
            max_tokens: Tokens of the whole answer at most.

        Raises:
            ConstraintError: The constraint has no such field, or its values are free or too many.
            CanvasTooSmallError: The constraint's shortest text is longer than `max_tokens`.
            ContextLengthError: Prompt and answer are longer than the model's context.
        """
        field, job = await asyncio.to_thread(
            self._decider.field_job, messages, constraint, pointer, max_tokens
        )
        await self._waiting.run([job])
        return field_told(field, job)

    async def infill(
        self,
        before: str,
        after: str,
        *,
        messages: Sequence[Message] = COMPLETE,
        whole: ParsedConstraint | None = None,
        **options: Unpack[CallOptions],
    ) -> Generation:
        """Fill in the text between a beginning and an end.

        Args:
            before: What stands ahead of the gap.
            after: What follows it.
            messages: What is asked; the text is the answer to it.
            whole: What beginning, gap and end together must satisfy.
            **options: As in `generate`; a `constraint` is about the gap's text alone.

        Raises:
            ContradictionError: No text in the gap makes the whole acceptable.
            CanvasTooSmallError: The constraint's shortest text is longer than `max_tokens`.
            ModelError: An option is unknown or out of its range, or the model is closed.
        """
        await self._builder.compile_aside(whole or options.get("constraint"))
        gap = open_gap(self._builder, messages, before, after, options, whole)
        await self._waiting.run(gap.open_jobs)
        made = await asyncio.to_thread(gap.generation, self._builder, self.engine.writer)
        return self.totals.added(made)

    async def rewrite(
        self,
        text: str,
        region: tuple[int, int],
        instruction: str,
        **options: Unpack[CallOptions],
    ) -> Generation:
        """Write a region of a text anew, so that it follows an instruction and fits around it.

        Args:
            text: The whole text.
            region: The characters to replace, from the first up to but not with the last.
            instruction: What is to change.
            **options: As in `infill`.

        Raises:
            ModelError: The region does not lie in the text; or as in `infill`.
        """
        before, after, messages = rewriting(text, region, instruction)
        return await self.infill(before, after, messages=messages, **options)

    async def _request(self, messages: str | Sequence[Message], options: CallOptions) -> Request:
        room = self._builder.room(options.get("max_tokens"))
        await self._builder.compile_aside(self._builder.wanted(options), room)
        return self._builder.request(messages, options)

    @asynccontextmanager
    async def _watched(
        self, messages: str | Sequence[Message], options: CallOptions
    ) -> AsyncGenerator[Handle, None]:
        """A call that is cancelled when it is not watched any more."""
        handle = self._handle(await self._request(messages, one_sample(options)))
        self._waiting.add(handle.open_jobs)
        try:
            yield handle
        finally:
            handle.cancel()

    def _handle(self, request: Request) -> Handle:
        return Handle(request, self._builder.text_ids, self.totals.added)

    def compile(
        self, constraint: ParsedConstraint | None, *, max_tokens: int | None = None
    ) -> CompiledConstraint:
        """A constraint made ready for this model's tokens, from the cache if it was before.

        `generate` does this itself; doing it ahead saves the first call the time.

        Args:
            constraint: None for any text.
            max_tokens: As the calls will have it: bounds on lengths that no text of so many tokens
                can break are dropped.

        Raises:
            CompileLimitError: It takes too many states, steps or seconds to compile.
            ConstraintError: It cannot be compiled.
        """
        return self._builder.compile(constraint, self._builder.room(max_tokens))

    async def compile_aside(
        self, constraint: ParsedConstraint | None, *, max_tokens: int | None = None
    ) -> CompiledConstraint:
        """As `compile`, off the event loop; cancelling ends it if no other call waits for it."""
        return await self._builder.compile_aside(constraint, self._builder.room(max_tokens))

    async def warm(self, beginnings: Sequence[str | Sequence[Message]]) -> int:
        """Read beginnings of conversations into the prompt cache while there is nothing to answer.

        Args:
            beginnings: What later calls will begin with: a system prompt, tools, passages.

        Returns:
            How many tokens were not in the cache yet.

        Raises:
            ModelError: The model is closed.
        """
        read = self.engine.warm([self._builder.beginning_ids(each) for each in beginnings])
        return sum([await asyncio.wrap_future(each) for each in read])

    def prompt_ids(self, messages: str | Sequence[Message]) -> list[int]:
        """Token ids of a conversation, open for the answer."""
        return self._builder.prompt_ids(messages)

    def count_tokens(self, messages: str | Sequence[Message]) -> int:
        """Tokens of a conversation's prompt."""
        return len(self.prompt_ids(messages))

    def close(self) -> None:
        """Stop the engine; calls that are not answered fail."""
        self.engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
