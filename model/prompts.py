"""The prompt formats the default model is trained on, in one place for training and inference.

A prompt is a list of messages rendered as ChatML. Two of the tasks have a format of their own:
tool calls show every tool as a one-line signature (a third of the tokens of its JSON schema), and
reading shows numbered passages. This file knows nothing of tokens, models or constraints.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypedDict

Schema = Mapping[str, Any]

TURN_START = "<|im_start|>"
TURN_END = "<|im_end|>"
TOOL_INSTRUCTION = "Answer with a JSON list of calls, or [] if no tool fits."
READING_INSTRUCTION = (
    "Answer from the passages and quote the words that show it. "
    "If they do not hold the answer, it is null."
)


class Message(TypedDict):
    """One turn of a conversation."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str


class ToolSpec(TypedDict):
    """A tool as a model sees it: a name, a sentence and a JSON Schema of an object."""

    name: str
    description: str
    parameters: Schema


def render_chat(messages: Iterable[Message]) -> str:
    r"""ChatML text of a conversation, open for the assistant's answer.

    Example:
        >>> render_chat([{"role": "user", "content": "Hi"}])
        '<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n'
    """
    return "".join(text for _, text in chat_pieces(messages))


def chat_pieces(messages: Iterable[Message]) -> list[tuple[bool, str]]:
    """The same text in pieces, each with whether it is a control token.

    Only these are: what a message's content spells is never one, whatever it looks like.
    """
    pieces: list[tuple[bool, str]] = []
    for message in messages:
        pieces.append((True, TURN_START))
        pieces.append((False, f"{message['role']}\n{message['content']}"))
        pieces += [(True, TURN_END), (False, "\n")]
    return [*pieces, (True, TURN_START), (False, "assistant\n")]


def type_of(schema: Schema) -> str:
    """A short type expression for a schema, as a programmer would write it.

    Example:
        >>> type_of({"type": "array", "items": {"type": "integer"}})
        'integer[]'
    """
    if "const" in schema:
        return json.dumps(schema["const"], ensure_ascii=False)
    if "enum" in schema:
        return "|".join(json.dumps(v, ensure_ascii=False) for v in schema["enum"])
    if "anyOf" in schema:
        return "|".join(type_of(s) for s in schema["anyOf"])
    kind: str | list[str] = schema.get("type", "any")
    if isinstance(kind, list):
        return "|".join(kind)
    if kind == "array":
        inner = type_of(schema.get("items", {}))
        return f"({inner})[]" if "|" in inner else f"{inner}[]"
    if kind == "object" and "properties" in schema:
        return "{" + ", ".join(_parameters(schema)) + "}"
    if kind == "string" and "format" in schema:
        return str(schema["format"])
    return str(kind)


def _parameters(schema: Schema) -> list[str]:
    required = set(schema.get("required", ()))
    parts: list[str] = []
    for name, sub in schema.get("properties", {}).items():
        text = f"{name}{'' if name in required else '?'}: {type_of(sub)}"
        if "default" in sub:
            text += f" = {json.dumps(sub['default'], ensure_ascii=False)}"
        parts.append(text)
    return parts


def tool_signature(tool: ToolSpec) -> str:
    """One line that shows a tool: `name(a: string, b?: integer = 1)  # what it does`.

    Example:
        >>> tool_signature({"name": "add", "description": "Add.", "parameters": {"type": "object",
        ...     "properties": {"a": {"type": "integer"}}, "required": ["a"]}})
        'add(a: integer)  # Add.'
    """
    line = f"{tool['name']}({', '.join(_parameters(tool['parameters']))})"
    summary = " ".join(tool["description"].split())
    return f"{line}  # {summary}" if summary else line


def tool_messages(tools: Sequence[ToolSpec], messages: Sequence[Message]) -> list[Message]:
    """The conversation with a system message in front that shows the tools.

    A system message already there is kept, after the tools.
    """
    lines = "\n".join(tool_signature(tool) for tool in tools)
    system = f"Tools:\n{lines}\n{TOOL_INSTRUCTION}"
    rest = list(messages)
    if rest and rest[0]["role"] == "system":
        system = f"{system}\n{rest[0]['content']}"
        rest = rest[1:]
    return [{"role": "system", "content": system}, *rest]


def tool_answer(calls: Iterable[tuple[str, Mapping[str, Any]]]) -> str:
    """The canonical answer text of some calls: compact JSON, arguments in the schema's order."""
    value = [{"name": name, "arguments": dict(arguments)} for name, arguments in calls]
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def reading_messages(passages: Sequence[str], question: str) -> list[Message]:
    """Numbered passages and a question, as the reading task shows them."""
    numbered = "\n".join(f"[{i}] {text}" for i, text in enumerate(passages, start=1))
    return [
        {"role": "system", "content": READING_INSTRUCTION},
        {"role": "user", "content": f"{numbered}\n\nQuestion: {question}"},
    ]


def reading_answer(answer: str | None, quotes: Sequence[str]) -> str:
    """The canonical answer text of the reading task: the answer, then sentences that show it.

    The answer comes first: it then starts at a fixed slot, whatever the quote's length.
    """
    value = {"answer": answer, "quotes": list(quotes)}
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
