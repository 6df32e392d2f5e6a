"""How long constraints of unusual size take to compile, from Python object to token automaton.

    python -m benchmarks.large_constraints

128 tools, then 128 of which one is new; choices of 10,000; quotes from 100,000 and 300,000
characters; the way a call compiles them, with the default model's 49,152 tokens and an empty cache.
Times are seconds of this thread's processor time and of the clock. One row is one process, so that
nothing is shared between rows but what the row says.
"""

from __future__ import annotations

import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from agentloop.model.base_weights import base_folder
from agentloop.model.checkpoint import load_tokenizer
from agentloop.model.constraint import Choice, Constraint, JsonSchema, Quote, ToolCalls
from agentloop.model.constraint.compiled import ConstraintCache
from agentloop.model.constraint.options import DEFAULT_OPTIONS
from agentloop.model.constraint.store import ConstraintStore
from agentloop.model.constraint.vocabulary import Vocabulary
from benchmarks.tool_schemas import make_tools

WORDS = (  # noqa: SIM905 - a word list is read more easily as text
    "river stone lantern quiet north harbour seven glass winter under paper signal green"
).split()
COLUMNS = "constraint|cold, s of processor|cold, s|again, ms|from disk, ms|states|MB|peak GB"


def prose(length: int) -> str:
    """Text of made-up sentences with as many different words as a book of that length has."""
    rng = random.Random(1)
    endings = ["", "s", "ed", *"abcdefgh"]
    words = [rng.choice(WORDS) + rng.choice(endings) * (i % 7) for i in range(9000)]
    parts: list[str] = []
    size = 0
    while size < length:
        sentence = " ".join(rng.choice(words) for _ in range(rng.randint(5, 20))).capitalize()
        parts.append(f"{sentence}.")
        size += len(parts[-1]) + 1
    return " ".join(parts)[:length]


def enumeration() -> Constraint:
    """An object with an enum of 10,000 product numbers."""
    numbers = [f"SKU-{i * 7919 % 1_000_003:07}" for i in range(10_000)]
    return JsonSchema({"type": "object", "properties": {"sku": {"enum": numbers}},
                       "required": ["sku"], "additionalProperties": False})  # fmt: skip


def choices() -> Constraint:
    """10,000 different texts."""
    return Choice(f"{WORDS[i % 13]} {i * 7919 % 1_000_003}" for i in range(10_000))


ROWS: dict[str, Callable[[], Constraint]] = {
    "128 tools": lambda: ToolCalls(make_tools(128)),
    "128 tools, one of them new": lambda: ToolCalls([*make_tools(127), *make_tools(1, seed=9)]),
    "128 tools, up to 4 calls": lambda: ToolCalls(make_tools(128), max=4),
    "10,000 choices": choices,
    "10,000 values of an enum": enumeration,
    "words of 100,000 characters": lambda: Quote([prose(100_000)]),
    "sentences of 100,000 characters": lambda: Quote([prose(100_000)], "sentences"),
    "words of 300,000 characters": lambda: Quote([prose(300_000)]),
}
AFTER = {"128 tools, one of them new": "128 tools"}
"""Rows measured with another one compiled before."""


def measured(name: str) -> dict[str, float]:
    """Compile one row in this process."""
    tokenizer = load_tokenizer(base_folder())
    vocabulary = Vocabulary.from_tokenizer(tokenizer, [2])
    assert vocabulary.trie.num_nodes
    with tempfile.TemporaryDirectory() as folder:
        cache = ConstraintCache(store=ConstraintStore(Path(folder)))
        if name in AFTER:
            cache.get_or_compile(ROWS[AFTER[name]](), vocabulary, DEFAULT_OPTIONS)
        cpu, clock = time.thread_time(), time.perf_counter()
        compiled = cache.get_or_compile(ROWS[name](), vocabulary, DEFAULT_OPTIONS)
        cold_cpu, cold = time.thread_time() - cpu, time.perf_counter() - clock
        again = time.perf_counter()
        constraint = ROWS[name]()
        made = time.perf_counter()
        cache.get_or_compile(constraint, vocabulary, DEFAULT_OPTIONS)
        cached = time.perf_counter() - made
        other = ConstraintCache(store=cache.store)
        stored = time.perf_counter()
        other.get_or_compile(constraint, vocabulary, DEFAULT_OPTIONS)
        stored = time.perf_counter() - stored
    return {
        "cpu_s": cold_cpu,
        "clock_s": cold,
        "make_ms": 1000 * (made - again),
        "memory_ms": 1000 * cached,
        "disk_ms": 1000 * stored,
        "states": compiled.num_states,
        "megabytes": compiled.automaton.num_bytes / 1e6,
        "peak_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
    }


def main() -> None:
    """Measure every row in a process of its own and print a table."""
    if len(sys.argv) > 1:
        print(json.dumps(measured(sys.argv[1])))
        return
    print(f"| {' | '.join(COLUMNS.split('|'))} |\n{'|---' * 8}|")
    for name in ROWS:
        runs = [
            json.loads(
                subprocess.run(
                    [sys.executable, "-m", "benchmarks.large_constraints", name],
                    capture_output=True, text=True, check=True,
                ).stdout
            )
            for _ in range(3)
        ]  # fmt: skip
        best = {key: min(run[key] for run in runs) for key in runs[0]}
        print(
            f"| {name} | {best['cpu_s']:.2f} | {best['clock_s']:.2f} | {best['memory_ms']:.2f}"
            f" | {best['disk_ms']:.1f} | {best['states']:,} | {best['megabytes']:.1f}"
            f" | {best['peak_gb']:.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
