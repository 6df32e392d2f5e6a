"""The model as its users see it: load, generate, watch drafts.

```python
lm = DiffusionLM.load("default")
answer = await lm.generate("Is water wet?", constraint=Choice(["yes", "no"]))
answer.value, answer.num_steps, answer.p_valid
```
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import torch
from tokenizers import Tokenizer
from typing_extensions import Unpack

from agentloop.errors import CheckpointError
from agentloop.model.call_options import CallOptions, ParsedConstraint
from agentloop.model.checkpoint import load_network, load_tokenizer
from agentloop.model.constraint.compiled import CompiledConstraint, shared_cache
from agentloop.model.constraint.options import DEFAULT_OPTIONS
from agentloop.model.constraint.vocabulary import Vocabulary
from agentloop.model.engine import Engine, Job
from agentloop.model.generation import Draft, Generation
from agentloop.model.network import Transformer
from agentloop.model.prompts import Message
from agentloop.model.quiet import QuietLoop
from agentloop.model.request_builder import RequestBuilder
from agentloop.model.stop_texts import ANY_TEXT


def native_dtype() -> torch.dtype:
    """bfloat16 where this processor has instructions for its products, float32 elsewhere."""
    checks = ("_is_avx512_bf16_supported", "_is_amx_tile_supported", "_is_arm_bf16_supported")
    known = [getattr(torch.cpu, name, None) for name in checks]
    return (
        torch.bfloat16 if any(check is not None and check() for check in known) else torch.float32
    )


class DiffusionLM:
    """A diffusion language model with its engine; safe to call from any thread or event loop."""

    def __init__(
        self, reader: Transformer, writer: Transformer, tokenizer: Tokenizer, name: str = ""
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
        self._builder = RequestBuilder(config, tokenizer, self.vocabulary)
        self.engine = Engine(reader, writer)
        self._quiet = QuietLoop[Job](self.engine.submit)

    @classmethod
    def load(
        cls,
        name_or_folder: str | Path = "default",
        *,
        dtype: torch.dtype | None = None,
        num_threads: int | None = None,
        report: Callable[[str], None] = lambda _: None,
    ) -> Self:
        """Load a model.

        Args:
            name_or_folder: `"default"`, a folder with config.json, *.safetensors and
                tokenizer.json, or a folder that fine-tuning wrote.
            dtype: Of weights and activations; by default bfloat16 where the processor multiplies
                it natively, float32 elsewhere.
            num_threads: Threads of torch in this process; None leaves them as they are.
            report: Receives a line before each step that takes seconds.

        Raises:
            CheckpointError: There is no such model, or it is damaged or was never adapted.
        """
        if num_threads is not None:
            torch.set_num_threads(num_threads)
        chosen = dtype or native_dtype()
        if name_or_folder == "default":
            from agentloop.model.default_weights import load_default

            return cls(*load_default(report, dtype=chosen), name="default")
        folder = Path(name_or_folder)
        if not folder.is_dir():
            raise CheckpointError(
                f"{str(name_or_folder)!r} is neither 'default' nor a folder with config.json, "
                "*.safetensors and tokenizer.json"
            )
        from agentloop.model.default_weights import holds_delta, load_default

        if holds_delta(folder):
            return cls(*load_default(report, folder=folder, dtype=chosen), name=str(folder))
        network = load_network(folder, chosen)
        return cls(network, network, load_tokenizer(folder), name=str(folder))

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
        await self._compile_aside(self._builder.wanted(options))
        request = self._builder.request(messages, options)
        jobs = request.open_jobs
        for job in jobs:
            self._quiet.add(job)
        await _finished(jobs)
        if request.settings.verify and jobs:
            await asyncio.to_thread(request.verify, self.engine.writer)
        return request.generation()

    def generate_sync(
        self, messages: str | Sequence[Message], **options: Unpack[CallOptions]
    ) -> Generation:
        """As `generate`, from code without an event loop; blocks until the answer is there."""
        request = self._builder.request(messages, options)
        self.engine.submit(request.open_jobs)
        for candidate in request.candidates:
            candidate.job.future.result()
        request.verify(self.engine.writer)
        return request.generation()

    async def draft_stream(
        self, messages: str | Sequence[Message], **options: Unpack[CallOptions]
    ) -> AsyncIterator[Draft]:
        """The whole answer after every step; each draft replaces the one before.

        Arguments and errors are those of `generate`. Leaving the loop cancels the call.
        """
        await self._compile_aside(self._builder.wanted(options))
        request = self._builder.request(messages, options)
        candidate = request.candidates[0]
        job = candidate.job
        if job.future.done():
            yield request.draft(candidate)
            return
        loop = asyncio.get_running_loop()
        drafts: asyncio.Queue[Draft | None] = asyncio.Queue()

        def pass_on(job: Job) -> None:
            loop.call_soon_threadsafe(drafts.put_nowait, request.draft(candidate))

        job.on_step = pass_on
        job.future.add_done_callback(lambda _: loop.call_soon_threadsafe(drafts.put_nowait, None))
        self._quiet.add(job)
        try:
            while (draft := await drafts.get()) is not None:
                yield draft
            job.future.result()
        finally:
            job.future.cancel()

    async def _compile_aside(self, constraint: ParsedConstraint | None) -> None:
        """Compile in a thread what is not in memory; what is costs no tick of the event loop."""
        wanted = constraint or ANY_TEXT
        if shared_cache().find(wanted, self.vocabulary, DEFAULT_OPTIONS) is None:
            await asyncio.to_thread(self.compile, constraint)

    def compile(self, constraint: ParsedConstraint | None) -> CompiledConstraint:
        """A constraint made ready for this model's tokens, from the cache if it was before."""
        return self._builder.compile(constraint)

    def prompt_ids(self, messages: str | Sequence[Message]) -> list[int]:
        """Token ids of a conversation, open for the answer."""
        return self._builder.prompt_ids(messages)

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


async def _finished(jobs: Sequence[Job]) -> None:
    """Await some jobs; one that fails, or cancelling the wait, drops the others."""
    try:
        for job in jobs:
            await asyncio.wrap_future(job.future)
    finally:
        for job in jobs:
            job.future.cancel()
