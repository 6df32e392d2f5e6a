"""Teaches the model a new set of tools from 300 pairs, and scores it before and after.

Run it with `python examples/05_teach_tools.py FOLDER [MINUTES]`; ten minutes on a CPU are enough.

The held-out requests are worded in ways, and name rooms and songs, that no training pair has.
"""

import json
import random
import sys
from pathlib import Path
from typing import Any

from agentloop.cli_train import Lesson, run_train
from agentloop.model.finetune import FinetuneOptions

TOOLS = [
    {
        "name": "set_light",
        "description": "Change a lamp",
        "parameters": {
            "type": "object",
            "properties": {
                "room": {"type": "string"},
                "percent": {"type": "integer", "minimum": 0, "maximum": 100},
            },
            "required": ["room", "percent"],
            "additionalProperties": False,
        },
    },
    {
        "name": "set_heating",
        "description": "Change the temperature of a room",
        "parameters": {
            "type": "object",
            "properties": {"room": {"type": "string"}, "celsius": {"type": "integer"}},
            "required": ["room", "celsius"],
            "additionalProperties": False,
        },
    },
    {
        "name": "play",
        "description": "Play music",
        "parameters": {
            "type": "object",
            "properties": {"title": {"type": "string"}, "room": {"type": "string"}},
            "required": ["title", "room"],
            "additionalProperties": False,
        },
    },
]
TRAIN: dict[str, Any] = {
    "rooms": ["kitchen", "bedroom", "hall", "office", "bathroom", "garage", "dining room"],
    "titles": [
        "Yesterday",
        "Blue Moon",
        "Hey Jude",
        "Summertime",
        "La Mer",
        "Roxanne",
        "Hallelujah",
    ],
    "set_light": ["Dim the lamp in the {room} to {n} percent", "{room} light at {n}%, please"],
    "set_heating": ["Heat the {room} to {n} degrees", "I want {n} degrees in the {room}"],
    "play": ["Play {title} in the {room}", "Put on {title}, {room} speaker"],
    "none": ["What a day it was", "Tell me about {title}", "Who built the {room}?"],
}
HELD_OUT: dict[str, Any] = {
    "rooms": ["attic", "cellar", "nursery", "living room", "library"],
    "titles": ["Imagine", "Smooth Operator", "Moon River", "Africa", "Take Five"],
    "set_light": ["Could you set the {room} lights to {n} percent?"],
    "set_heating": ["The {room} should be {n} degrees warm"],
    "play": ["In the {room}, start {title}"],
    "none": ["Is {title} a good song?"],
}


def make_pairs(words: dict[str, Any], count: int, seed: int) -> list[dict[str, Any]]:
    """Requests with the right calls; about every eighth asks for nothing that a tool does."""
    rng = random.Random(seed)
    pairs: list[dict[str, Any]] = []
    for _ in range(count):
        room, title = rng.choice(words["rooms"]), rng.choice(words["titles"])
        name = rng.choice(["set_light"] * 3 + ["set_heating"] * 2 + ["play"] * 2 + ["none"])
        number = rng.randrange(5, 100, 5) if name == "set_light" else rng.randrange(15, 26)
        request = rng.choice(words[name]).format(room=room, title=title, n=number)
        arguments: dict[str, Any] = {
            "set_light": {"room": room, "percent": number},
            "set_heating": {"room": room, "celsius": number},
            "play": {"title": title, "room": room},
        }.get(name, {})
        answer = [] if name == "none" else [{"name": name, "arguments": arguments}]
        pairs.append({"messages": request, "tools": TOOLS, "answer": answer})
    return pairs


def write_pairs(folder: Path) -> tuple[Path, Path]:
    """Both files, one pair a line."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = folder / "pairs.jsonl", folder / "held_out.jsonl"
    for path, words, count in zip(paths, (TRAIN, HELD_OUT), (300, 40), strict=True):
        lines = (json.dumps(pair) for pair in make_pairs(words, count, seed=count))
        path.write_text("\n".join(lines), encoding="utf-8")
    return paths


def main(folder: Path, minutes: float = 10.0) -> None:
    """Write the pairs, fine-tune, and print both scores."""
    pairs, held_out = write_pairs(folder)
    lesson = Lesson(pairs, folder / "model", validation=held_out)
    run_train(lesson, FinetuneOptions(max_seconds=60 * minutes), as_json=False)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(float, sys.argv[2:3]))
