"""`llm`: ask the current model from inside a node, and get a value of the type you name.

The model is whatever was set with `use_model` in the node, or given to the run
(`g.run(..., model=lm)`), or set with `use_model` around it: the innermost. This file knows the one
method a model must have, not what a model is.
"""

from __future__ import annotations

from collections.abc import Awaitable, Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from types import UnionType
from typing import Any, Protocol, TypeVar, cast, overload

from pydantic import BaseModel, TypeAdapter, ValidationError
from typing_extensions import Unpack

from agentloop.context import Call, CallKeeper, Here, here, make_call
from agentloop.drafts import shorten
from agentloop.errors import GraphError
from agentloop.json_data import inlined
from agentloop.model.call_options import AnswerOptions
from agentloop.model.prompts import Message, type_of
from agentloop.prompt_parts import Part, prompt

T = TypeVar("T")


class Generation(Protocol):
    """What a model gives back."""

    @property
    def text(self) -> str:
        """The text, without special tokens."""
        ...

    @property
    def value(self) -> Any:
        """The text as the constraint reads it (parsed JSON, a choice); the text without one."""
        ...

    @property
    def num_tokens(self) -> int:
        """Tokens of the answer."""
        ...

    @property
    def num_steps(self) -> int:
        """Passes of the network."""
        ...


class Model(Protocol):
    """Anything that answers a conversation under a constraint."""

    async def generate(
        self,
        messages: Sequence[Message],
        *,
        constraint: Any = None,
        effort: Any = "medium",  # each model has its own names
        max_tokens: int | None = None,
        temperature: float = 0.0,
        seed: int | None = None,
    ) -> Generation:
        """Answer the conversation; the answer is one that the constraint accepts."""
        ...


@dataclass(frozen=True, slots=True)
class _Setting:
    """A model that a block of code uses, and the run that the code is part of."""

    model: Model
    run: CallKeeper | None


_setting: ContextVar[_Setting | None] = ContextVar("agentloop.model", default=None)


@contextmanager
def use_model(model: Model) -> Generator[Model]:
    """Make a model the current one for `llm` calls in this block.

    Inside a node it goes before the run's model; around a run it serves runs that name none.
    """
    place = here.get()
    token = _setting.set(_Setting(model, place.run if place is not None else None))
    try:
        yield model
    finally:
        _setting.reset(token)


def current_model() -> Model:
    """The model that `llm` goes to here.

    Raises:
        GraphError: There is none.
    """
    place, setting = here.get(), _setting.get()
    run = place.run if place is not None else None
    model: Model | None = setting.model if setting is not None else None
    if run is not None and run.model is not None and (setting is None or setting.run is not run):
        model = run.model  # given to a run that began inside the block
    if model is None:
        raise GraphError(
            "llm() has no model to go to; run with g.run(..., model=lm), or call it inside "
            "`with agentloop.use_model(lm):`"
        )
    return model


async def generate(
    messages: Sequence[Message],
    constraint: object,
    *,
    name: str,
    model: Model | None = None,
    **options: Unpack[AnswerOptions],
) -> Generation:
    """Ask the current model, as a call of the node that runs here.

    Args:
        messages: The conversation.
        constraint: What the answer must satisfy, `None` for free text.
        name: What the call is for, in events.
        model: Another model than the current one.
        **options: How it is answered; see `agentloop.model.call_options.AnswerOptions`. A model
            refuses by name what it does not know.
    """
    settings: dict[str, Any] = {**_DEFAULTS, **options}
    if "sampler" in settings:
        settings["sampler"] = repr(settings["sampler"])
    request = {"messages": messages, "constraint": _description(constraint), **settings}

    def make() -> Awaitable[Generation]:
        asked: Any = model or current_model()  # which options it knows is its own affair
        place = here.get()
        if place is not None and place.run.wants_drafts and hasattr(asked, "start"):
            return _drafted(asked.start(messages, constraint=constraint, **options), place)
        return cast(
            "Awaitable[Generation]", asked.generate(messages, constraint=constraint, **options)
        )

    call: Call[Generation] = Call(
        "llm",
        name,
        request,
        make,
        encode=_encode,
        decode=lambda data: _decode(data, constraint),
    )
    return await make_call(call)


async def _drafted(handle: Any, place: Here) -> Generation:
    """Wait for an answer, and tell the run of every draft of it."""
    try:
        async for draft in handle.drafts():
            told = {"step": draft.step, "text": draft.text(), "p_valid": draft.p_valid}
            place.run.emit(place.path, "draft", told)
        return cast(Generation, await handle)
    finally:
        handle.cancel()


_DEFAULTS: dict[str, Any] = {
    "effort": "medium",
    "max_tokens": None,
    "temperature": 0.0,
    "seed": None,
}
"""What a recorded request holds where nothing else was asked for."""


@dataclass(frozen=True, slots=True)
class RecordedGeneration:
    """What a model gave back when the run was recorded."""

    text: str
    value: Any
    num_tokens: int
    num_steps: int


def _encode(generation: Generation) -> dict[str, Any]:
    return {name: getattr(generation, name) for name in ("text", "num_tokens", "num_steps")}


def _decode(data: Any, constraint: Any) -> RecordedGeneration:
    value = data["text"] if constraint is None else constraint.parse(data["text"])
    return RecordedGeneration(data["text"], value, data["num_tokens"], data["num_steps"])


def _description(constraint: Any) -> object:
    """A constraint as data, to tell whether a call is the recorded one."""
    return getattr(constraint, "key", constraint)


@overload
async def llm(
    schema: type[T],
    *parts: Part,
    system: str | None = None,
    **options: Unpack[AnswerOptions],
) -> T: ...


@overload
async def llm(
    schema: object,
    *parts: Part,
    system: str | None = None,
    **options: Unpack[AnswerOptions],
) -> Any: ...


async def llm(
    schema: object,
    *parts: Part,
    system: str | None = None,
    **options: Unpack[AnswerOptions],
) -> Any:
    """Ask the current model for a value.

    Args:
        schema: What to answer with: a pydantic class or any type pydantic knows (`bool`,
            `Literal[...]`, `tuple[str, ...]`) gives an instance of it; `str` gives free text; a
            JSON schema or a constraint of `agentloop.model.constraint` gives what it reads.
        *parts: The prompt. Texts become one user message, a paragraph each; a list of texts becomes
            numbered passages; a model or other data its JSON; messages (`{"role": ...}`) stay.
        system: Instructions, ahead of the description of the answer's type.
        **options: How it is answered; see `agentloop.model.call_options.AnswerOptions`.

    Raises:
        GraphError: There is no model, or a validator of the class refuses what its schema allows.
        ModelError: The model refuses the request.
    """
    adapter = _adapter(schema)
    hint = _type_hint(schema, adapter)
    messages = list(prompt(parts, "\n".join(text for text in (system, hint) if text)))
    generation = await generate(
        messages,
        _constraint(schema),
        name=getattr(schema, "__name__", type(schema).__name__),
        **options,
    )
    if adapter is None:
        return generation.text if schema is str or schema is None else generation.value
    try:
        return adapter.validate_json(generation.text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise GraphError(
            f"the model's answer {shorten(generation.text)} matches the JSON schema of {schema} "
            f"but its validator refuses it: {first['msg']}; say the rule in the schema instead "
            "(Literal, Field bounds or pattern), so that it holds by construction"
        ) from error


def _adapter(schema: object) -> TypeAdapter[Any] | None:
    """The adapter of a type; `None` for free text and constraints."""
    return TypeAdapter(cast(Any, schema)) if _is_type(schema) and schema is not str else None


def _constraint(schema: object) -> object:
    """The constraint that `llm`'s first argument stands for; `None` for free text."""
    if schema is str or schema is None:
        return None
    if not _is_type(schema) and not isinstance(schema, Mapping):
        return schema
    from agentloop.model.constraint import JsonSchema  # brings numpy, so only when needed

    return JsonSchema(schema)


def _is_type(schema: object) -> bool:
    return (
        isinstance(schema, type) or hasattr(schema, "__origin__") or isinstance(schema, UnionType)
    )


def _type_hint(schema: object, adapter: TypeAdapter[Any] | None) -> str:
    """One line that tells the model what to answer with."""
    if adapter is None:
        return ""
    described = adapter.json_schema()
    is_model = isinstance(schema, type) and issubclass(schema, BaseModel)
    purpose = " ".join((described.get("description") or "").split()) if is_model else ""
    return f"{purpose}\nAnswer as JSON: {type_of(inlined(described))}".strip()
