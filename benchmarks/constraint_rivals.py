"""The constraint engine beside others on the same real schemas, same machine, same script.

    make compare-constraints MASKBENCH=data/maskbench_dev.jsonl.gz
    .venv-compare/bin/python -m benchmarks.constraint_rivals --data data/maskbench_dev.jsonl.gz

Each engine runs in a process of its own on one thread, within 10 CPU seconds a schema and 6 GB. An
instance is read if the engine takes it, token by token, with its keys in the order of the file or
of the schema, in one line with a space after commas and colons. Times are CPU seconds of
the calling thread, which does all the work.

Their masks say which next token may follow a text so far; ours is a step of inference over a whole
canvas of 64 masked positions. A mask is one token's share of a call, a step is all tokens' share of
one of a handful of passes, so the two columns are not to be compared one to one.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from tokenizers import Tokenizer

from agentloop.errors import ConstraintError
from agentloop.model.constraint import JsonSchema
from benchmarks.maskbench import read_entries
from benchmarks.rival_engines import ENGINES, Engine, OurReader, Ours, Reader, tokenizer_file
from benchmarks.spellings import STYLES, respaced

CONSOLE = Console()
LIMIT_S = 10
LIMIT_BYTES = 6 << 30


@dataclass
class Scores:
    """What one engine made of the schemas.

    Attributes:
        compiled: Schemas that were compiled.
        clean: Compiled schemas whose instances were all judged right.
        valid: Valid instances in all, and those read, of compiled schemas.
        invalid: Invalid instances in all, and those read, of compiled schemas.
        compile_s: CPU seconds of each compilation that succeeded.
        mask_s: CPU seconds of each mask, or step.
        over: Schemas given up for time, memory or a crash.
    """

    compiled: int = 0
    clean: int = 0
    valid: list[int] = field(default_factory=lambda: [0, 0])
    invalid: list[int] = field(default_factory=lambda: [0, 0])
    compile_s: list[float] = field(default_factory=list[float])
    mask_s: list[float] = field(default_factory=list[float])
    over: list[str] = field(default_factory=list[str])


def is_read(make: Callable[[], Reader], tokens: list[int], mask_s: list[float] | None) -> bool:
    """Whether an engine reads a text; the time of each mask is noted."""
    reader = make()
    for token in tokens:
        if mask_s is not None:
            begun = time.thread_time()
            reader.mask()
            mask_s.append(time.thread_time() - begun)
        if not reader.take(token):
            return False
    return reader.may_end()


def spellings(schema: dict[str, Any], data: Any) -> list[str]:
    """An instance with its keys in the order of the file, and of the schema."""
    text = json.dumps(data, ensure_ascii=False)
    try:
        canonical = JsonSchema(schema).canonical(text)
    except ConstraintError:
        return [text]
    return list(dict.fromkeys([text, respaced(canonical, STYLES["spaced"])]))


def judge(engine: Engine, tokenizer: Tokenizer, entry: dict[str, Any]) -> dict[str, Any]:
    """One schema: compile it, read its instances."""
    begun = time.thread_time()
    try:
        make = engine.compile(entry["schema"])
    except Exception as error:  # every engine has classes of its own
        return {"refused": str(error)[:200]}
    found: dict[str, Any] = {"compile_s": time.thread_time() - begun, "verdicts": [], "mask_s": []}
    if isinstance(engine, Ours):
        reader = make()
        assert isinstance(reader, OurReader)
        reader.step()  # what is worked out once per automaton
        begun = time.thread_time()
        reader.step()
        found["mask_s"].append(time.thread_time() - begun)
    for test in entry["tests"]:
        texts = spellings(entry["schema"], test["data"])
        ids: list[list[int]] = [tokenizer.encode(t, add_special_tokens=False).ids for t in texts]
        noted = found["mask_s"] if not isinstance(engine, Ours) else None
        read = any([is_read(make, tokens, noted) for tokens in ids])
        found["verdicts"].append([test["valid"], read])
    return found


def work(name: str, pipe: Connection) -> None:
    """A process that judges what it is sent."""
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT_BYTES, LIMIT_BYTES))
    engine = ENGINES[name]()
    tokenizer = Tokenizer.from_file(tokenizer_file())
    pipe.send("ready")
    while True:
        try:
            entry = pipe.recv()
        except EOFError:
            return
        used = int(time.process_time()) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (used + LIMIT_S, resource.RLIM_INFINITY))
        pipe.send(judge(engine, tokenizer, entry))


class Worker:
    """A process of one engine, started afresh when a schema is too much for it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.start()

    def start(self) -> None:
        """Start the process and wait until its vocabulary is read."""
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=work, args=(self.name, theirs), daemon=True)
        self.process.start()
        theirs.close()
        self.pipe.recv()

    def judge(self, entry: dict[str, Any]) -> dict[str, Any]:
        """What the engine makes of one schema."""
        try:
            self.pipe.send(entry)
            found: dict[str, Any] = self.pipe.recv()
            return found
        except (EOFError, OSError):
            self.process.join()
        code = self.process.exitcode or 0
        is_late = code == -signal.SIGXCPU
        self.start()
        return {"over": f"more than {LIMIT_S} s" if is_late else f"exit code {code}"}


def add(scores: Scores, entry: dict[str, Any], found: dict[str, Any]) -> None:
    """Count one schema."""
    if "over" in found:
        scores.over.append(f"{entry['id']} ({found['over']})")
    if "verdicts" not in found:
        return
    scores.compiled += 1
    scores.compile_s.append(found["compile_s"])
    scores.mask_s += found["mask_s"]
    for is_valid, read in found["verdicts"]:
        counts = scores.valid if is_valid else scores.invalid
        counts[0] += 1
        counts[1] += read
    scores.clean += all(is_valid == read for is_valid, read in found["verdicts"])


def milliseconds(values: list[float], quantile: float) -> str:
    """A quantile of some seconds in milliseconds."""
    return f"{np.quantile(values, quantile) * 1e3:,.2f}" if values else "-"


def table(scores: dict[str, Scores], num_schemas: int) -> list[str]:
    """The results as a Markdown table."""
    lines = [
        "| engine | compiled | clean | valid read | invalid read | given up "
        "| compile p50 / p99 / max, ms | mask or step p50 / p99, ms |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, found in scores.items():
        times = " / ".join(milliseconds(found.compile_s, q) for q in (0.5, 0.99, 1.0))
        masks = " / ".join(milliseconds(found.mask_s, q) for q in (0.5, 0.99))
        lines.append(
            f"| {name} | {found.compiled} of {num_schemas} | {found.clean} "
            f"| {found.valid[1]} of {found.valid[0]} | {found.invalid[1]} of {found.invalid[0]} "
            f"| {len(found.over)} | {times} | {masks} |"
        )
    return lines


def main() -> None:
    """Compare and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="the file of schemas, gzipped")
    parser.add_argument("--every", type=int, default=12, help="judge every n-th schema only")
    parser.add_argument("--engines", nargs="*", default=list(ENGINES), choices=list(ENGINES))
    options = parser.parse_args()
    entries = read_entries(options.data, options.every)
    workers = {name: Worker(name) for name in options.engines}
    scores = {name: Scores() for name in workers}
    for number, entry in enumerate(entries, 1):
        for name, worker in workers.items():
            add(scores[name], entry, worker.judge(entry))
        if number % 10 == 0 or number == len(entries):
            CONSOLE.print(f"{number} of {len(entries)}", highlight=False)
    for line in table(scores, len(entries)):
        CONSOLE.print(line, markup=False, highlight=False, soft_wrap=True)
    for name, found in scores.items():
        for reason in found.over:
            CONSOLE.print(f"{name} gave up on {reason}", markup=False, highlight=False)


if __name__ == "__main__":
    main()
