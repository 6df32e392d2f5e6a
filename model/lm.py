"""The model as its users see it: load, generate, watch drafts.

```python
lm = DiffusionLM.load("default")
answer = await lm.generate("Is water wet?", constraint=Choice(["yes", "no"]))
answer.value, answer.num_steps, answer.p_valid
```
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import torch
from tokenizers import Tokenizer

from agentloop.errors import CheckpointError, ContextLengthError, ModelError
from agentloop.model.checkpoint import load_network, load_tokenizer
from agentloop.model.constraint import Regex
from agentloop.model.constraint.compiled import (
    CompiledConstraint,
    compile_constraint,
    shared_cache,
)
from agentloop.model.constraint.options import DEFAULT_OPTIONS
from agentloop.model.constraint.vocabulary import Vocabulary
from agentloop.model.engine import Engine, Job
from agentloop.model.generation import Draft, Generation, pieces_of
from agentloop.model.network import Transformer
from agentloop.model.prompts import Message, chat_pieces
from agentloop.model.quiet import QuietLoop
from agentloop.model.sampler import CanvasRow, Effort, Mark, SamplerOptions, options_for

CANVAS_LENGTHS = (16, 32, 48, 64, 96, 128)
DEFAULT_MAX_TOKENS = 64


class ParsedConstraint(Protocol):
    """A constraint that also turns its text into a value."""

    @property
    def key(self) -> str:
        """Identifies the language among all constraints."""
        ...

    def automaton(self, options: Any) -> Any:
        """The byte automaton of the language."""
        ...

    def parse(self, text: str) -> Any:
        """The value of an accepted text."""
        ...


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
        self._plain = Tokenizer.from_str(tokenizer.to_str())
        self._plain.encode_special_tokens = True  # content never spells a control token
        self.vocabulary = Vocabulary.from_tokenizer(
            tokenizer, config.eos_ids, size=config.vocab_size, exclude=[config.mask_id]
        )
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
            name_or_folder: `"default"`, or a folder with config.json, *.safetensors and
                tokenizer.json.
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
        network = load_network(folder, chosen)
        return cls(network, network, load_tokenizer(folder), name=str(folder))

    async def generate(
        self,
        messages: str | Sequence[Message],
        *,
        constraint: ParsedConstraint | None = None,
        effort: Effort = "medium",
        max_tokens: int | None = None,
        temperature: float = 0.0,
        seed: int | None = None,
    ) -> Generation:
        """Answer a prompt; calls awaited at the same time share the network's passes.

        Args:
            messages: The conversation, or one user message.
            constraint: What the answer's text must satisfy; it always does.
            effort: Budget of passes: instant, low, medium or high.
            max_tokens: Tokens of the answer at most; by default as many as the constraint needs,
                and at least 64.
            temperature: 0 is deterministic without a seed.
            seed: Source of every draw; drawn, and told in the answer, if None.

        Raises:
            CanvasTooSmallError: The constraint's shortest text is longer than `max_tokens`.
            ContextLengthError: Prompt and answer are longer than the model's context.
            ModelError: An argument is out of its range, or the model is closed.
        """
        await self._compile_aside(constraint)
        request = self._request(messages, constraint, effort, max_tokens, temperature, seed)
        self._quiet.add(request.job)
        return self._generation(await _finished(request.job), request)

    def generate_sync(
        self,
        messages: str | Sequence[Message],
        *,
        constraint: ParsedConstraint | None = None,
        effort: Effort = "medium",
        max_tokens: int | None = None,
        temperature: float = 0.0,
        seed: int | None = None,
    ) -> Generation:
        """As `generate`, from code without an event loop; blocks until the answer is there."""
        request = self._request(messages, constraint, effort, max_tokens, temperature, seed)
        self.engine.submit([request.job])
        return self._generation(request.job.future.result(), request)

    async def draft_stream(
        self,
        messages: str | Sequence[Message],
        *,
        constraint: ParsedConstraint | None = None,
        effort: Effort = "medium",
        max_tokens: int | None = None,
        temperature: float = 0.0,
        seed: int | None = None,
    ) -> AsyncIterator[Draft]:
        """The whole answer after every step; each draft replaces the one before.

        Arguments and errors are those of `generate`. Leaving the loop cancels the call.
        """
        await self._compile_aside(constraint)
        request = self._request(messages, constraint, effort, max_tokens, temperature, seed)
        loop = asyncio.get_running_loop()
        drafts: asyncio.Queue[Draft | None] = asyncio.Queue()
        job = request.job

        def pass_on(job: Job) -> None:
            loop.call_soon_threadsafe(drafts.put_nowait, self._draft(job))

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
        wanted = constraint or _ANY_TEXT
        if shared_cache().find(wanted, self.vocabulary, DEFAULT_OPTIONS) is None:
            await asyncio.to_thread(self.compile, constraint)

    def compile(self, constraint: ParsedConstraint | None) -> CompiledConstraint:
        """A constraint made ready for this model's tokens, from the cache if it was before."""
        return compile_constraint(constraint or _ANY_TEXT, self.vocabulary)

    def prompt_ids(self, messages: str | Sequence[Message]) -> list[int]:
        """Token ids of a conversation, open for the answer."""
        turns: Sequence[Message] = (
            [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
        )
        if not turns:
            raise ModelError("messages is empty, expected at least one message")
        ids: list[int] = []
        for is_control, text in chat_pieces(turns):
            tokenizer = self.tokenizer if is_control else self._plain
            ids += tokenizer.encode(text, add_special_tokens=False).ids
        return ids

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

    def _request(
        self,
        messages: str | Sequence[Message],
        constraint: ParsedConstraint | None,
        effort: Effort,
        max_tokens: int | None,
        temperature: float,
        seed: int | None,
    ) -> _Request:
        options = options_for(effort, temperature)
        prompt = self.prompt_ids(messages)
        compiled = self.compile(constraint)
        budget = self._budget(compiled, max_tokens, len(prompt))
        chosen = secrets.randbits(32) if seed is None else seed
        plan = _Plan(compiled, options, budget, chosen, must_end=constraint is not None)
        first = plan.next_row([], 0)
        assert first is not None
        job = Job(prompt, plan.following, first, Future())
        return _Request(job, constraint, chosen)

    def _budget(self, compiled: CompiledConstraint, max_tokens: int | None, prompt: int) -> int:
        """Tokens of the answer, its end of text included."""
        if max_tokens is None:
            budget = max(DEFAULT_MAX_TOKENS, compiled.min_tokens + compiled.min_tokens // 2)
        elif max_tokens < 1:
            raise ModelError(f"max_tokens is {max_tokens}, expected at least 1")
        else:
            budget = max_tokens
        compiled.check_fits(budget)
        limit = self.config.max_position_embeddings
        if prompt + budget > limit:
            raise ContextLengthError(
                f"the prompt has {prompt:,} tokens and the answer up to {budget:,}, but the "
                f"model's context is {limit:,}; shorten the prompt or lower max_tokens"
            )
        return budget

    def _generation(self, job: Job, request: _Request) -> Generation:
        text = self.vocabulary.text(job.written)
        decoded = text.decode("utf-8", errors="strict" if request.constraint else "replace")
        ended = job.rows[-1].ended or request.constraint is not None
        return Generation(
            text=decoded,
            value=request.constraint.parse(decoded) if request.constraint else decoded,
            token_ids=tuple(job.written),
            num_steps=job.num_steps,
            num_prompt_tokens=len(job.prompt),
            num_cached_tokens=job.cached_tokens,
            p_valid=tuple(step.p_valid for row in job.rows for step in row.trace),
            finish_reason="stop" if ended else "length",
            seed=request.seed,
            timings=job.timings,
        )

    def _draft(self, job: Job) -> Draft:
        row = job.row
        length = len(row.text_tokens)
        marks: list[Mark] = ["committed"] * len(job.written)
        tokens = [*job.written, *map(int, row.tokens[:length])]
        return Draft(
            step=job.num_steps,
            pieces=pieces_of(self.vocabulary, tokens),
            marks=(*marks, *row.marks()[:length]),
            p_valid=row.trace[-1].p_valid,
            final=row.done and row.ended,
        )


_ANY_TEXT = Regex(r"[\s\S]*")


@dataclass(frozen=True)
class _Request:
    job: Job
    constraint: ParsedConstraint | None
    seed: int


@dataclass(frozen=True)
class _Plan:
    """Cuts an answer's budget into canvases that follow each other."""

    compiled: CompiledConstraint
    options: SamplerOptions
    budget: int
    seed: int
    must_end: bool

    def following(self, job: Job) -> CanvasRow | None:
        """The canvas after the job's current one."""
        return self.next_row(job.written, job.row.end_state)

    def next_row(self, written: list[int], state: int) -> CanvasRow | None:
        """A canvas for what is left of the budget; None when nothing is."""
        left = self.budget - len(written)
        if left <= 0:
            return None
        length = min(left, CANVAS_LENGTHS[-1])
        if left <= CANVAS_LENGTHS[-1]:
            fits = next(size for size in CANVAS_LENGTHS if size >= left)
            length = fits if not self.must_end and fits <= left else left
        after = left - length if self.must_end else self.budget
        return CanvasRow(
            self.compiled,
            self.options,
            length,
            seed=self.seed + len(written),
            start_state=state,
            room_after=after,
        )


async def _finished(job: Job) -> Job:
    """Await a job; cancelling the wait drops the job."""
    return await asyncio.wrap_future(job.future)
