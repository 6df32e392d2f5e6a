"""Writes public evaluation sets as rows that `evaluate` scores: one JSONL file a set.

    python -m recipes.default_model.evaluation_sets --data ARCHIVES --bfcl BFCL.whl

| set | rows | what is right |
|---|---|---|
| snips | validation, 700 | one call of seven tools, slots verbatim |
| clinc | test with out-of-scope, 5,500 | one of 150 intents, or none |
| banking | test, 3,080 | one of 77 intents |
| clapnq | dev, 600 | null where the passage does not hold the answer |
| bfcl_* | six categories of BFCL v4 | a call that equals a listed one, or none |

Nothing here is trained on. The order of rows is shuffled once, with a seed, so that the first N of
a set are a sample of it.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from agentloop.model.prompts import (
    Message,
    ToolSpec,
    reading_answer,
    reading_messages,
    tool_answer,
    tool_messages,
)
from recipes.default_model.prepare import unpack

Row = dict[str, Any]
BFCL = (
    "simple_python",
    "multiple",
    "irrelevance",
    "live_simple",
    "live_multiple",
    "live_irrelevance",
)
NONE = "none_of_these"
CHOICE_INSTRUCTION = "Answer with the one that fits the request best."
SEED = 7
_KEPT = ("required", "enum", "description", "default")
_TYPES: dict[str, str | None] = {"dict": "object", "float": "number", "tuple": "array", "any": None}


def choice_row(number: int, text: str, labels: list[str], answer: str) -> Row:
    """A request and the labels it may have; the prompt lists them in a line each."""
    system = "Choices:\n" + "\n".join(labels) + f"\n{CHOICE_INSTRUCTION}"
    messages: list[Message] = [
        {"role": "system", "content": system},
        {"role": "user", "content": text},
    ]
    return {
        "id": number,
        "task": "choice",
        "messages": messages,
        "choices": labels,
        "answer": answer,
    }


def clinc(folder: Path) -> Iterator[Row]:
    """CLINC150's test set, out-of-scope requests among them."""
    data = json.loads((folder / "data" / "data_full.json").read_text(encoding="utf-8"))
    labels = sorted({label for _, label in data["train"]})
    items = [*data["test"], *((text, NONE) for text, _ in data["oos_test"])]
    for number, (text, label) in enumerate(items):
        yield choice_row(number, text, [*labels, NONE], label)


def banking(folder: Path) -> Iterator[Row]:
    """BANKING77's test set."""
    labels = json.loads((folder / "banking_data" / "categories.json").read_text(encoding="utf-8"))
    with (folder / "banking_data" / "test.csv").open(encoding="utf-8", newline="") as lines:
        for number, item in enumerate(csv.DictReader(lines)):
            yield choice_row(number, item["text"], sorted(labels), item["category"])


def snips(folder: Path) -> Iterator[Row]:
    """The validation set of SNIPS; each intent is a tool with its slots as optional strings."""
    root = folder / "2017-06-custom-intent-engines"
    intents = sorted(path.name for path in root.iterdir() if path.is_dir())
    found: list[tuple[str, str, dict[str, str]]] = []
    slots: dict[str, set[str]] = {intent: set() for intent in intents}
    for intent in intents:
        for split in ("train", "validate"):
            path = root / intent / f"{split}_{intent}.json"
            for item in json.loads(path.read_text(encoding="utf-8", errors="replace"))[intent]:
                given = {p["entity"]: p["text"].strip() for p in item["data"] if "entity" in p}
                slots[intent] |= set(given)
                if split == "validate":
                    text = "".join(p["text"] for p in item["data"]).strip()
                    found.append((text, intent, given))
    tools = [_snips_tool(intent, sorted(slots[intent])) for intent in intents]
    for number, (text, intent, given) in enumerate(found):
        arguments = {name: given[name] for name in sorted(given)}
        messages = tool_messages(tools, [{"role": "user", "content": text}])
        answer = tool_answer([(intent, arguments)])
        yield {
            "id": number,
            "task": "call",
            "messages": messages,
            "tools": tools,
            "answer": answer,
        }


def _snips_tool(intent: str, slots: list[str]) -> ToolSpec:
    properties = {slot: {"type": "string"} for slot in slots}
    schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return {"name": intent, "description": "", "parameters": schema}


def clapnq(folder: Path) -> Iterator[Row]:
    """CLAPnq's questions with their passage; long answers are not compared, only null."""
    number = 0
    for kind in ("answerable", "unanswerable"):
        path = folder / "annotated_data" / "dev" / f"clapnq_dev_{kind}.jsonl"
        for line in path.read_text(encoding="utf-8").splitlines():
            item = json.loads(line)
            passages = [passage["text"].strip() for passage in item["passages"]]
            golds = [item["output"][0]["answer"]] if kind == "answerable" else []
            yield {
                "id": number,
                "task": "reading",
                "messages": reading_messages(passages, item["input"]),
                "passages": passages,
                "answers": golds,
                "answer": reading_answer(golds[0] if golds else None, []),
            }
            number += 1


def json_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A parameter schema of BFCL as JSON Schema: its Python names of types are replaced."""
    fixed: dict[str, Any] = {k: schema[k] for k in _KEPT if k in schema}
    kind = _TYPES.get(schema["type"], schema["type"])
    if kind is not None:
        fixed["type"] = kind
    if "properties" in schema:
        inner: dict[str, dict[str, Any]] = schema["properties"]
        fixed["properties"] = {name: json_schema(each) for name, each in inner.items()}
    if "items" in schema:
        fixed["items"] = json_schema(schema["items"])
    return fixed


def bfcl(wheel: Path, category: str) -> Iterator[Row]:
    """One category of the Berkeley Function Calling Leaderboard, from its package.

    `possible` lists calls as {name: {parameter: [acceptable values]}}, "" for one left out.
    """
    with zipfile.ZipFile(wheel) as archive:
        name = f"BFCL_v4_{category}.json"
        lines = archive.read(f"bfcl_eval/data/{name}").decode().splitlines()
        golds: dict[str, Any] = {}
        if "irrelevance" not in category:
            answers = archive.read(f"bfcl_eval/data/possible_answer/{name}").decode()
            parsed = [json.loads(line) for line in answers.splitlines()]
            golds = {item["id"]: item["ground_truth"] for item in parsed}
    for line in lines:
        item = json.loads(line)
        tools: list[ToolSpec] = [
            {
                "name": tool["name"],
                "description": tool["description"].split(". ")[0],
                "parameters": {**json_schema(tool["parameters"]), "additionalProperties": False},
            }
            for tool in item["function"]
        ]
        yield {
            "id": item["id"],
            "task": "bfcl",
            "messages": tool_messages(tools, item["question"][0]),
            "tools": tools,
            "possible": golds.get(item["id"], []),
        }


def write(path: Path, rows: Iterable[Row]) -> int:
    """Write rows in a shuffled order that is always the same; returns how many."""
    listed = list(rows)
    random.Random(SEED).shuffle(listed)
    with path.open("w", encoding="utf-8") as out:
        for row in listed:
            out.write(json.dumps(row, ensure_ascii=False) + "\n")
    return len(listed)


def main() -> None:
    """Write every set."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder of the archives")
    parser.add_argument("--bfcl", type=Path, help="the wheel bfcl_eval-*.whl (pip download)")
    parser.add_argument("--unpack", type=Path, default=Path("training/unpacked"))
    parser.add_argument("--out", type=Path, default=Path("training/eval"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    options.unpack.mkdir(parents=True, exist_ok=True)
    sources: dict[str, tuple[str, Callable[[Path], Iterator[Row]]]] = {
        "snips": ("snips", snips),
        "clinc": ("clinc150", clinc),
        "banking": ("polyai", banking),
        "clapnq": ("clapnq", clapnq),
    }
    for name, (archive, rows) in sources.items():
        folder = unpack(options.data / f"{archive}.tar.xz", options.unpack)
        print(f"{name}: {write(options.out / f'{name}.jsonl', rows(folder)):,} rows")
    for category in BFCL if options.bfcl else ():
        count = write(options.out / f"bfcl_{category}.jsonl", bfcl(options.bfcl, category))
        print(f"bfcl_{category}: {count:,} rows")


if __name__ == "__main__":
    main()
