"""Typed decisions: one of some options, with exact probabilities, in one pass over the prompt.

Nothing is generated. A canvas just long enough for the longest option is looked at once, all slots
masked, and the posterior over the options is read off its logits. Decisions that are asked at once
share the pass, and the prompt they have in common is read once.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import lru_cache

from torch import Tensor

from agentloop.errors import ModelError
from agentloop.model.calibration import tempered
from agentloop.model.constraint import CompiledField, FieldPosterior, JsonConstraint, compile_field
from agentloop.model.constraint.decisions import CompiledDecision, compile_decision
from agentloop.model.effort import SamplerOptions
from agentloop.model.engine import Job, Timings
from agentloop.model.prompts import Message
from agentloop.model.request_builder import RequestBuilder
from agentloop.model.sampler import CanvasRow, StepTrace


@dataclass(frozen=True)
class Decision:
    """What was decided.

    Attributes:
        choice: The likeliest option; the first of those that are equally likely.
        probabilities: Of every option, in the order given; they sum to 1.
        timings: Where the time went.
    """

    choice: str
    probabilities: dict[str, float]
    timings: Timings = field(repr=False)

    @property
    def confidence(self) -> float:
        """Probability of the choice."""
        return self.probabilities[self.choice]


class DecisionRow(CanvasRow):
    """A canvas that is looked at once and never filled in.

    Attributes:
        decision: The options, compiled.
        probabilities: Of every option, once it was looked at.
    """

    decision: CompiledDecision
    probabilities: dict[str, float] | None = None

    @property
    def done(self) -> bool:
        """Whether it was looked at."""
        return self.probabilities is not None

    @property
    def ended(self) -> bool:
        """Always: no canvas follows."""
        return True

    @property
    def text_tokens(self) -> list[int]:
        """Nothing is written."""
        return []

    def advance(self, logits: Tensor) -> None:
        """Read the options' probabilities off the logits (L, V)."""
        self.probabilities = self.decision.posterior(logits)
        self.trace.append(StepTrace(1.0, 0, 0, len(logits)))


class Decider:
    """Makes decisions of questions; knows a model's tokens but not its engine."""

    def __init__(self, builder: RequestBuilder) -> None:
        self._builder = builder
        self._compiled = lru_cache(maxsize=256)(self._compile)

    def job(self, state: Sequence[Message], question: Question) -> Job:
        """A job that looks at one question once.

        Args:
            state: The conversation that the question is about.
            question: What is asked, and its options.

        Raises:
            ModelError: The options are not distinct texts.
            ContextLengthError: The prompt is longer than the model's context.
        """
        check_options(question.options)
        decision, length = self._compiled(tuple(question.options))
        hint = f"Answer with one of: {', '.join(question.options)}."
        asked: Message = {"role": "user", "content": f"{question.text}\n{hint}".strip()}
        prompt = self._builder.prompt_ids([*state, asked])
        self._builder.check_context(len(prompt), length)
        row = DecisionRow(decision.compiled, SamplerOptions(), length, seed=0)
        row.decision = decision
        return Job(prompt, lambda _: None, row, Future())

    def field_job(
        self,
        messages: str | Sequence[Message],
        constraint: JsonConstraint,
        pointer: str,
        max_tokens: int,
    ) -> tuple[CompiledField, Job]:
        """A job that looks once at a whole answer, of which one field is asked for.

        Raises:
            CanvasTooSmallError: The constraint's shortest text is longer than `max_tokens`.
            ConstraintError: The constraint has no such field, or its values are free or too many.
            ContextLengthError: Prompt and answer are longer than the model's context.
        """
        builder = self._builder
        options = builder.compile_options(constraint, builder.room(max_tokens))
        field = compile_field(constraint, pointer, builder.vocabulary, options)
        field.decision.compiled.check_fits(max_tokens)
        prompt = builder.prompt_ids(messages)
        builder.check_context(len(prompt), max_tokens)
        row = DecisionRow(field.decision.compiled, SamplerOptions(), max_tokens, seed=0)
        row.decision = field.decision
        return field, Job(prompt, lambda _: None, row, Future())

    def _compile(self, options: tuple[str, ...]) -> tuple[CompiledDecision, int]:
        """The options compiled, and slots for the longest of them with its end of text."""
        decision = compile_decision(options, self._builder.vocabulary)
        return decision, 1 + max(len(self._builder.text_ids(option)) for option in options)


@dataclass(frozen=True)
class Question:
    """One decision to make.

    Attributes:
        text: What is asked.
        options: The answers to choose from.
    """

    text: str
    options: Sequence[str]


def field_told(field: CompiledField, job: Job) -> FieldPosterior:
    """What a finished job says about a field."""
    assert isinstance(job.row, DecisionRow)
    assert job.row.probabilities is not None
    return field.told_by(job.row.probabilities)


def decided(job: Job, calibration: float) -> Decision:
    """The decision of a finished job, at a calibration temperature."""
    assert isinstance(job.row, DecisionRow)
    assert job.row.probabilities is not None
    p = tempered(job.row.probabilities, calibration)
    return Decision(max(p, key=lambda name: p[name]), p, job.timings)


def check_options(options: Sequence[str]) -> None:
    """Refuse options that are not distinct texts.

    Raises:
        ModelError: There is none, one is empty, or two are the same.
    """
    if not options:
        raise ModelError("a decision has no options, expected at least one")
    if any(not option for option in options):
        raise ModelError(f"the options of a decision are {list(options)!r}, expected no empty text")
    repeated = sorted({option for option in options if options.count(option) > 1})
    if repeated:
        raise ModelError(f"the options of a decision hold {repeated} more than once, expected once")
