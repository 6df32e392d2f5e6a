"""Tool-like JSON Schemas made from a seed, for suites that need many different ones."""

from __future__ import annotations

import random
from typing import Any

from agentloop.model.prompts import ToolSpec

Schema = dict[str, Any]

WORDS = (  # noqa: SIM905 - a word list is read more easily as text
    "origin destination date time city name title amount currency priority category email phone "
    "note status limit page language format owner color size quantity unit address country code "
    "start end duration rating genre artist album room guests price brand model year subject body"
).split()
VERBS = [
    "find",
    "book",
    "cancel",
    "list",
    "create",
    "update",
    "send",
    "check",
    "play",
    "reserve",
    "transfer",
    "schedule",
]
PATTERNS = (
    r"^[A-Z]{2,3}-[0-9]{3}$",
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$",
    r"^(?:[01][0-9]|2[0-3]):[0-5][0-9]$",
    r"^[a-z][a-z0-9_]{1,10}$",
)


def scalar(rng: random.Random) -> Schema:
    """A string, number, boolean or enum."""
    low = rng.randint(-20, 40)
    choices: list[Schema] = [
        {"type": "string", "maxLength": rng.randint(3, 24)},
        {"type": "string", "minLength": 1, "maxLength": rng.randint(4, 16)},
        {"type": "string", "pattern": rng.choice(PATTERNS)},
        {"enum": rng.sample(WORDS, rng.randint(2, 6))},
        {"type": "integer", "minimum": low, "maximum": low + rng.randint(1, 2000)},
        {"type": "number", "minimum": 0, "maximum": rng.randint(1, 500)},
        {"type": "boolean"},
        {"const": rng.choice([1, "fixed", True, None])},
        {"anyOf": [{"type": "null"}, {"type": "integer", "minimum": 0, "maximum": 99}]},
    ]
    return rng.choice(choices)


def value(rng: random.Random, depth: int) -> Schema:
    """A scalar, or a list or object of such."""
    kind = rng.random()
    if depth > 0 and kind < 0.15:
        low = rng.randint(0, 1)
        return {
            "type": "array",
            "items": scalar(rng),
            "minItems": low,
            "maxItems": low + rng.randint(1, 3),
        }
    if depth > 0 and kind < 0.3:
        return arguments(rng, rng.randint(1, 3), depth - 1)
    return scalar(rng)


def arguments(rng: random.Random, count: int, depth: int = 1) -> Schema:
    """An object with `count` properties, about half of them required."""
    names = rng.sample(WORDS, count)
    return {
        "type": "object",
        "properties": {name: value(rng, depth) for name in names},
        "required": [name for name in names if rng.random() < 0.5],
        "additionalProperties": False,
    }


def make_tools(count: int, seed: int = 0) -> list[ToolSpec]:
    """`count` tools with one to six arguments; the same for the same seed."""
    rng = random.Random(seed)
    tools: list[ToolSpec] = []
    for i in range(count):
        name = f"{rng.choice(VERBS)}_{rng.choice(WORDS)}_{i}"
        schema = arguments(rng, rng.randint(1, 6))
        tools.append({"name": name, "description": "", "parameters": schema})
    return tools
