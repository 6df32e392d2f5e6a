"""Aids for testing graphs: a scripted model, replays, crashes, other schedules, and events.

`ScriptedModel` answers in place of a language model. `crash_at` and `killed_after` end a recorded
run early, `Replay` runs it again from what it recorded, and `assert_deterministic` does all of this
from everywhere. `EventLog(...)` as `on_event` keeps what happened.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

from pydantic import BaseModel

from agentloop.errors import ModelError
from agentloop.events import Event
from agentloop.model.prompts import Message
from agentloop.rehearsals import (
    Crashed,
    Replay,
    ShuffledLoop,
    assert_deterministic,
    crash_at,
    killed_after,
)

__all__ = [
    "Crashed",
    "EventLog",
    "ModelCall",
    "Replay",
    "ScriptedGeneration",
    "ScriptedModel",
    "ShuffledLoop",
    "assert_deterministic",
    "crash_at",
    "killed_after",
]

Answer: TypeAlias = str | BaseModel | Exception | dict[str, Any] | list[Any] | int | float | None
"""What a scripted model answers: a text as it is, data as its JSON, an exception raised."""


class EventLog(list[Event]):
    """A listener that keeps the events it is called with: `g.run(..., on_event=EventLog())`.

    Example:
        >>> from agentloop.events import Event
        >>> log = EventLog()
        >>> log(Event("r", "plan", "node.end", {"n": 1}, 0.5))
        >>> log.paths("node.end"), log.of("node.end")[0].data
        (['plan'], {'n': 1})
    """

    def __call__(self, event: Event) -> None:
        """Keep an event."""
        self.append(event)

    def of(self, kind: str, path: str | None = None) -> list[Event]:
        """The events of a kind, at a path or anywhere."""
        return [e for e in self if e.kind == kind and path in (None, e.path)]

    def paths(self, kind: str) -> list[str]:
        """Where events of a kind happened, in order."""
        return [event.path for event in self.of(kind)]


@dataclass(frozen=True, slots=True)
class ScriptedGeneration:
    """An answer from the script."""

    text: str
    value: Any
    num_tokens: int = 0
    num_steps: int = 0


@dataclass(frozen=True, slots=True)
class ModelCall:
    """What a scripted model was asked."""

    messages: list[Message]
    constraint: Any
    settings: dict[str, Any]

    @property
    def prompt(self) -> str:
        """The content of the last message."""
        return self.messages[-1]["content"] if self.messages else ""


@dataclass
class ScriptedModel:
    """A model that answers from a script and remembers what it was asked.

    It can only answer what a real model could: an answer its constraint refuses is an error.

    Example:
        >>> model = ScriptedModel(["Paris", {"ok": True}])
        >>> import asyncio
        >>> asyncio.run(model.generate([{"role": "user", "content": "Capital?"}])).text
        'Paris'

    Args:
        script: The answers in the order of the calls, or a function from a call to its answer.
    """

    script: Iterable[Answer] | Callable[[ModelCall], Answer]
    calls: list[ModelCall] = field(default_factory=lambda: [])

    def __post_init__(self) -> None:
        self._answers = None if callable(self.script) else iter(self.script)

    async def generate(
        self,
        messages: Sequence[Message],
        *,
        constraint: Any = None,
        effort: str = "medium",
        max_tokens: int | None = None,
        temperature: float = 0.0,
        seed: int | None = None,
    ) -> ScriptedGeneration:
        """The next answer of the script.

        Raises:
            ModelError: The script is over, or its answer is not one the constraint accepts.
            Exception: What the script holds as the answer.
        """
        settings: dict[str, Any] = {"effort": effort, "max_tokens": max_tokens}
        settings |= {"temperature": temperature, "seed": seed}
        call = ModelCall(list(messages), constraint, settings)
        self.calls.append(call)
        if self._answers is None:
            answer = cast(Callable[[ModelCall], Answer], self.script)(call)
        else:
            answer = next(self._answers, _OVER)
        if answer is _OVER:
            raise ModelError(
                f"the script has {len(self.calls) - 1} answers, but call {len(self.calls)} came: "
                f"{call.prompt!r}; add an answer, or script a function of the call"
            )
        if isinstance(answer, Exception):
            raise answer
        return _generation(answer, constraint)


_OVER: Any = object()


def _generation(answer: Answer, constraint: Any) -> ScriptedGeneration:
    if isinstance(answer, BaseModel):
        text = answer.model_dump_json()
    else:
        text = answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)
    if constraint is None:
        return ScriptedGeneration(text, text)
    if not constraint.accepts(text):
        raise ModelError(
            f"the script answers {text!r}, which {type(constraint).__name__} does not accept, so "
            "no model could answer it; correct the script"
        )
    return ScriptedGeneration(text, constraint.parse(text))
