"""A user's training pairs: JSONL lines with messages, tools or a schema, and the right answer.

Every line is checked before anything trains: what the constraint of a call would refuse cannot be
taught. An answer is spelled as the model writes it: compact JSON, keys in the schema's order.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import jsonschema
from pydantic import BaseModel, BeforeValidator, Field, TypeAdapter, ValidationError
from tokenizers import Tokenizer

from agentloop.errors import AgentLoopError, ModelError
from agentloop.model.constraint import JsonSchema, ToolCalls
from agentloop.model.prompts import Message, ToolSpec, chat_pieces, tool_answer, tool_messages
from agentloop.model.training_data import CANVAS_LENGTHS, Row, structure_of

SHOWN_PROBLEMS = 8


@dataclass(frozen=True)
class Pair:
    """What a model is asked, and what it should answer.

    Attributes:
        messages: The prompt as the model reads it, tools included.
        answer: The answer's text.
        constraint: What an answer is decoded under; None for free text.
    """

    messages: tuple[Message, ...]
    answer: str
    constraint: ToolCalls | JsonSchema | None


def read_pairs(path: Path) -> list[Pair]:
    """The pairs of a JSONL file.

    Raises:
        ModelError: The file cannot be read, holds no pair, or a line is wrong; the first wrong
            lines are listed with what was expected.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError(f"{path} cannot be read as UTF-8 text: {error}") from None
    pairs: list[Pair] = []
    problems: list[str] = []
    known: dict[str, ToolCalls] = {}  # examples mostly share their tools
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            pairs.append(_pair(line, known))
        except ValidationError as error:
            problems.append(f"line {number}: {_told(error)}")
        except AgentLoopError as error:
            problems.append(f"line {number}: {error}")
    if problems:
        more = len(problems) - SHOWN_PROBLEMS
        tail = f"\n  and {more} more" if more > 0 else ""
        shown = "\n  ".join(problems[:SHOWN_PROBLEMS])
        count = "a wrong line" if len(problems) == 1 else f"{len(problems)} wrong lines"
        raise ModelError(f"{path} has {count}:\n  {shown}{tail}")
    if not pairs:
        raise ModelError(f'{path} holds no pairs; expected lines {{"messages": …, "answer": …}}')
    return pairs


class _Turn(BaseModel, extra="forbid"):
    role: Literal["system", "user", "assistant", "tool"]
    content: str


class _Tool(BaseModel):
    name: str
    description: str = ""
    parameters: dict[str, Any]


class _Call(BaseModel, extra="forbid"):
    name: str
    arguments: dict[str, Any]


def _as_turns(value: object) -> object:
    """A bare text is one turn of the user."""
    return [{"role": "user", "content": value}] if isinstance(value, str) else value


def _unwrapped(value: Any) -> Any:
    """A tool as it is, out of the wrapping of the OpenAI API."""
    match value:
        case {"type": "function", "function": inner}:
            return inner
        case _:
            return value


class _Line(BaseModel, extra="forbid"):
    messages: Annotated[list[_Turn], BeforeValidator(_as_turns), Field(min_length=1)]
    tools: list[Annotated[_Tool, BeforeValidator(_unwrapped)]] | None = None
    rules: dict[str, Any] | bool | None = Field(None, alias="schema")
    answer: Any


_CALLS: TypeAdapter[list[_Call]] = TypeAdapter(list[_Call])


def _pair(line: str, known: dict[str, ToolCalls]) -> Pair:
    item = _Line.model_validate_json(line)
    messages: list[Message] = [{"role": t.role, "content": t.content} for t in item.messages]
    if item.tools is not None and item.rules is not None:
        raise ModelError("it has both tools and a schema; give one of them")
    if item.tools is not None:
        return _call_pair(messages, item.tools, item.answer, known)
    if item.rules is not None:
        value = _checked(item.answer, item.rules)
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        return Pair(tuple(messages), text, JsonSchema(item.rules))
    if not isinstance(item.answer, str):
        raise ModelError("without tools or a schema the answer must be a string")
    return Pair(tuple(messages), item.answer, None)


def _told(error: ValidationError) -> str:
    """The first thing that pydantic found, in a line."""
    first = error.errors(include_url=False)[0]
    where = ".".join(map(str, first["loc"])) or "the line"
    got = json.dumps(first["input"], ensure_ascii=False, default=str)[:80]
    return f"{where}: {first['msg']}, got {got}"


def _call_pair(
    messages: Sequence[Message], tools: Sequence[_Tool], answer: Any, known: dict[str, ToolCalls]
) -> Pair:
    specs: list[ToolSpec] = [
        {"name": t.name, "description": t.description, "parameters": t.parameters} for t in tools
    ]
    schemas = {spec["name"]: spec["parameters"] for spec in specs}
    given = _CALLS.validate_python(answer if isinstance(answer, list) else [answer])
    calls: list[tuple[str, Mapping[str, Any]]] = []
    for call in given:
        if call.name not in schemas:
            raise ModelError(f"the answer calls {call.name!r}; expected {', '.join(schemas)}")
        calls.append((call.name, _checked(call.arguments, schemas[call.name])))
    key = json.dumps([specs, max(1, len(calls))])
    if key not in known:
        known[key] = ToolCalls(specs, min=0, max=max(1, len(calls)))
    return Pair(tuple(tool_messages(specs, messages)), tool_answer(calls), known[key])


def _checked(value: Any, schema: Mapping[str, Any] | bool) -> Any:
    """A value that its schema accepts, with its keys in the schema's order."""
    try:
        jsonschema.validate(value, schema)
    except jsonschema.ValidationError as error:
        where = error.json_path
        raise ModelError(
            f"the answer does not fit its schema at {where}: {error.message}"
        ) from None
    except jsonschema.SchemaError as error:
        raise ModelError(f"the schema is not valid: {error.message}") from None
    return _ordered(value, schema)


def _ordered(value: Any, schema: Any) -> Any:
    rules = cast(dict[str, Any], schema) if isinstance(schema, Mapping) else {}
    if isinstance(value, dict):
        items = cast(dict[str, Any], value)
        properties = cast(dict[str, Any], rules.get("properties", {}))
        first = [name for name in properties if name in items]
        names = first + [name for name in items if name not in properties]
        return {name: _ordered(items[name], properties.get(name)) for name in names}
    if isinstance(value, list):
        elements = cast(list[Any], cast(object, value))
        return [_ordered(item, rules.get("items")) for item in elements]
    return value


def split_pairs(pairs: Sequence[Pair], share: float, seed: int) -> tuple[list[Pair], list[Pair]]:
    """Training and held-out pairs; equal prompts stay on one side, so that none leaks.

    Raises:
        ModelError: One side would be empty.
    """
    groups: dict[str, list[Pair]] = {}
    for pair in pairs:
        groups.setdefault(json.dumps(pair.messages), []).append(pair)
    keys = sorted(groups)
    random.Random(seed).shuffle(keys)
    count = max(1, round(share * len(keys)))
    if count >= len(keys):
        raise ModelError(
            f"{len(keys)} different prompts cannot be split into training and {share:.0%} "
            "held out; give more pairs or a file of held-out pairs"
        )
    held_out = [pair for key in keys[:count] for pair in groups[key]]
    return [pair for key in keys[count:] for pair in groups[key]], held_out


def rows_of(
    pairs: Sequence[Pair], tokenizer: Tokenizer, max_prompt: int
) -> tuple[list[Row], list[int]]:
    """Token rows of the pairs that fit, and the numbers (from 0) of those too long."""
    plain = Tokenizer.from_str(tokenizer.to_str())
    plain.encode_special_tokens = True  # content never spells a control token
    rows: list[Row] = []
    too_long: list[int] = []
    for number, pair in enumerate(pairs):
        prompt: list[int] = []
        for is_control, text in chat_pieces(pair.messages):
            encoder = tokenizer if is_control else plain
            prompt += encoder.encode(text, add_special_tokens=False).ids
        encoded = plain.encode(pair.answer, add_special_tokens=False)
        if len(prompt) > max_prompt or len(encoded.ids) >= CANVAS_LENGTHS[-1]:
            too_long.append(number)
            continue
        structure = [False] * len(encoded.ids)
        if pair.constraint is not None:
            marks = structure_of(pair.answer)
            structure = [bool(marks[a:b].all()) for a, b in encoded.offsets]
        rows.append(Row(prompt, encoded.ids, structure, "pair"))
    return rows, too_long
