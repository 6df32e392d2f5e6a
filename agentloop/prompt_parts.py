"""The prompt that the parts of a call make: texts, passages, data and messages."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias, cast

from pydantic import BaseModel

from agentloop.model.prompts import Message

Part: TypeAlias = str | BaseModel | Message | Sequence[Any] | Mapping[str, Any]


def prompt(parts: Sequence[Part], system: str) -> Iterator[Message]:
    """The messages that a call's parts make."""
    if system:
        yield {"role": "system", "content": system}
    texts: list[str] = []
    for part in parts:
        found = list(_messages(part))
        if found:
            if texts:
                yield {"role": "user", "content": "\n\n".join(texts)}
                texts = []
            yield from found
        else:
            texts.append(_text(part))
    if texts:
        yield {"role": "user", "content": "\n\n".join(texts)}


def _messages(part: object) -> Iterator[Message]:
    """The messages a part is, if it is one or a list of them."""
    parts = cast(Sequence[object], part) if isinstance(part, list | tuple) else (part,)
    if all(isinstance(one, Mapping) and {"role", "content"} <= set(one) for one in parts):  # pyright: ignore[reportUnknownArgumentType] - any mapping
        yield from cast(Sequence[Message], parts)


def _text(part: object) -> str:
    """A part as prompt text."""
    if isinstance(part, str):
        return part
    if isinstance(part, BaseModel):
        return part.model_dump_json()
    if isinstance(part, list | tuple):
        items = cast(Sequence[object], part)
        return "\n".join(f"[{i}] {_text(item)}" for i, item in enumerate(items, start=1))
    return json.dumps(part, ensure_ascii=False, default=str)
