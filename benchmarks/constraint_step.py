"""What a constraint costs: compiling it, and one refinement step under it.

    python -m benchmarks.constraint_step                       # schema kinds at L = 64, V = 49,152
    python -m benchmarks.constraint_step --lengths 16,32,64 --rows 1,8,32 --size 151936
    python -m benchmarks.constraint_step --served              # shares of real steps, default model

Without a tokenizer file the vocabulary is synthetic: byte strings with the lengths and the sharing
of prefixes of a byte-level tokenizer. Logits are those of an unsure model: noise, with an accepted
text favoured. Times are milliseconds of this thread's processor time, so that other work on the
machine counts little. A step is what the sampler asks for: a joint proposal for the whole canvas,
the confidence of what may be committed, and P(valid) as far as that reaches.

Canvases: `first`, all masked, eight positions looked at, as most steps do; `half`, the same with
half of the text committed; `all`, all masked and every position looked at, as the last step of a
budget does; `drawn`, like `first` at temperature 1. Each time is the least of three, so that what
the machine does beside counts little; columns are medians, and `p95/mean` is over first steps with
different logits.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from tokenizers import Tokenizer

from agentloop.model.constraint import (
    Choice,
    CompileOptions,
    Constraint,
    JsonSchema,
    List,
    Object,
    Quote,
    Text,
    ToolCalls,
)
from agentloop.model.constraint.compiled import CompiledConstraint
from agentloop.model.constraint.inference import infer
from agentloop.model.constraint.lift import lift
from agentloop.model.constraint.vocabulary import Vocabulary
from agentloop.model.prompts import ToolSpec

Logits = NDArray[np.float32]
CONSOLE = Console(width=110)
WINDOW = 8
NUM_STEPS = 40
POOL_BYTES = 400 << 20
TEXT = (
    "the of and to in is was for on that with as by at from it an be are this which or had not but "
    "his her they were also has have its one been their first who two new other time after when up "
    "more out into year only about some city over then name date value true false null object list"
)
WORDS = TEXT.split()


def synthetic_vocabulary(size: int = 49_152) -> Vocabulary:
    """All bytes, words with and without a space before them, and pairs of their pieces."""
    generator = np.random.default_rng(0)
    strings = {bytes([b]): None for b in range(256)}
    marks = ['{"', '":', '":"', '","', '"}', "}]", "[{", '":{"', "},", "\n\n", "  ", ". ", ", "]
    strings.update(dict.fromkeys(mark.encode() for mark in marks))
    while len(strings) < size - 1:
        left, right = WORDS[generator.integers(len(WORDS))], WORDS[generator.integers(len(WORDS))]
        cut = int(generator.integers(1, len(left) + 1))
        word = left[:cut] + right[: int(generator.integers(0, len(right) + 1))]
        word = word.title() if generator.random() < 0.2 else word
        word = (" " if generator.random() < 0.6 else "") + word + "a" * int(len(strings) % 3 == 0)
        letters = generator.integers(97, 123, size=int(generator.integers(0, 3)))
        extra = bytes(letters.tolist()).decode()
        strings[(word + extra).encode()] = None
    return Vocabulary([*strings, b""], [size - 1])


def prose(num_bytes: int) -> str:
    """Some text to quote from."""
    generator = np.random.default_rng(1)
    chosen = [WORDS[generator.integers(len(WORDS))] for _ in range(num_bytes)]
    return " ".join(chosen)[:num_bytes]


def tools(max_length: int | None = None) -> list[ToolSpec]:
    """Four tools with two to four arguments, their texts bounded or not."""
    text = {"type": "string"} | ({} if max_length is None else {"maxLength": max_length})
    return [
        {
            "name": name,
            "description": "",
            "parameters": {
                "type": "object",
                "properties": {key: text for key in keys} | {"count": {"type": "integer"}},
                "required": list(keys),
            },
        }
        for name, *keys in (
            ("FindBus", "from_location", "to_location", "date"),
            ("GetWeather", "city", "date"),
            ("BookTable", "restaurant", "city", "time"),
            ("PlayMedia", "title", "subtitles"),
        )
    ]


def cases() -> dict[str, Constraint]:
    """The constraints that are measured."""
    text = {"type": "string"}
    person = {
        "type": "object",
        "properties": {
            "name": text,
            "email": {"type": "string", "format": "email"},
            "born": {"type": "string", "format": "date"},
            "kind": {"enum": ["guest", "member", "staff"]},
            "tags": {"type": "array", "items": text, "maxItems": 4},
            "score": {"type": "number"},
        },
        "required": ["name", "email", "kind"],
    }
    return {
        "choice of 3": Choice(["yes", "no", "unknown"]),
        "1 tool": ToolCalls(tools()[:1]),
        "2 tools": ToolCalls(tools()[:2]),
        "4 tools": ToolCalls(tools()),
        "record": JsonSchema(person),
        "2 tools, maxLength 40": ToolCalls(tools(40)[:2]),
        "4 tools, maxLength 40": ToolCalls(tools(40)),
        "any JSON": JsonSchema({}),
        "quote of 4 kB": Quote([prose(4096)]),
        "answer + quotes": Object(answer=Text(), quotes=List(Quote([prose(4096)]))),
    }


def cpu_ms(call: Callable[[], object]) -> float:
    """Processor time of a call, in milliseconds."""
    begun = time.thread_time()
    call()
    return (time.thread_time() - begun) * 1e3


@dataclass(frozen=True)
class Canvases:
    """A constraint with logits to read and canvases to fill.

    Attributes:
        compiled: The constraint.
        pool: Some logits (L, V), so that a step does not find those of the one before in cache.
        half: (L,) a canvas whose first half is committed.
    """

    compiled: CompiledConstraint
    pool: list[Logits]
    half: NDArray[np.int64]

    @classmethod
    def of(cls, compiled: CompiledConstraint, length: int, num_logits: int) -> Canvases:
        """Noise, and a favourite accepted text that the model believes in by halves."""
        generator = np.random.default_rng(0)
        size = compiled.vocabulary.size
        count = min(num_logits, max(1, POOL_BYTES // (4 * length * size)))
        pool: list[Logits] = []
        for _ in range(count):
            logits = generator.normal(0, 2, (length, size)).astype(np.float32)
            text = infer(compiled, logits, [-1] * length, path="states").tokens
            favour = generator.uniform(4, 16, length).astype(np.float32)
            logits[np.arange(length), text] += favour
            pool.append(logits)
        proposed = infer(compiled, pool[0], [-1] * length, path="greedy")
        kept = np.arange(length) < min(length, proposed.end + 1) // 2
        return cls(compiled, pool, np.where(kept, proposed.tokens, -1))

    def step(self, number: int, kind: str) -> None:
        """One refinement step of a kind."""
        logits = self.pool[number % len(self.pool)]
        canvas = self.half if kind == "half" else np.full(len(logits), -1)
        if kind == "drawn":
            posterior = infer(self.compiled, logits, canvas, temperature=1.0, generator=number)
        else:
            posterior = infer(self.compiled, logits, canvas, path="greedy")
        masked = np.flatnonzero(canvas == -1)
        looked_at = masked if kind == "all" else masked[:WINDOW]
        posterior.confidence_at(looked_at)
        posterior.log_p_valid_until(int(looked_at[-1]) + 1)

    def times(self, kind: str, num_steps: int, num_rows: int = 1) -> NDArray[np.float64]:
        """Milliseconds of some steps, each of `num_rows` canvases one after another."""

        def rows(first: int) -> None:
            for row in range(num_rows):
                self.step(first + row, kind)

        rows(0)
        steps = [partial(rows, n * num_rows) for n in range(num_steps)]
        return np.array([min(cpu_ms(step) for _ in range(3)) for step in steps])


def table_of_kinds(vocabulary: Vocabulary, length: int, chosen: Iterable[str]) -> Table:
    """Compile and step each kind of constraint."""
    columns = [
        "states",
        "classes",
        "pairs",
        "MB",
        "compile",
        "first",
        "p95/mean",
        "half",
        "all",
        "drawn",
    ]
    table = Table("constraint", *columns, title=f"L = {length}, V = {vocabulary.size:,}, ms")
    options = CompileOptions(max_text_length=8 * length)
    for name in chosen:
        begun = time.thread_time()
        automaton = lift(cases()[name].automaton(options), vocabulary)
        compile_ms = (time.thread_time() - begun) * 1e3
        canvases = Canvases.of(CompiledConstraint(automaton, vocabulary), length, NUM_STEPS)
        first = canvases.times("first", NUM_STEPS)
        others = [
            f"{np.median(canvases.times(kind, NUM_STEPS // 4)):.1f}"
            for kind in ("half", "all", "drawn")
        ]
        table.add_row(
            name,
            *(f"{n:,}" for n in (automaton.num_states, automaton.num_classes, automaton.num_pairs)),
            f"{automaton.num_bytes / 1e6:.1f}",
            f"{compile_ms:.0f}",
            f"{np.median(first):.1f}",
            f"{np.percentile(first, 95) / first.mean():.2f}",
            *others,
        )
    return table


def table_of_rows(
    vocabulary: Vocabulary, lengths: list[int], rows: list[int], chosen: Iterable[str]
) -> Table:
    """First steps of several canvases at once, at several lengths."""
    columns = [f"L {length} x {num}" for length in lengths for num in rows]
    table = Table("constraint", *columns, title=f"V = {vocabulary.size:,}, ms a step of all rows")
    for name in chosen:
        cells: list[str] = []
        for length in lengths:
            options = CompileOptions(max_text_length=8 * length)
            automaton = lift(cases()[name].automaton(options), vocabulary)
            if automaton.distance[0] > length:
                cells += ["too short"] * len(rows)
                continue
            compiled = CompiledConstraint(automaton, vocabulary)
            canvases = Canvases.of(compiled, length, 8)
            cells += [f"{np.median(canvases.times('first', 3, num)):.1f}" for num in rows]
        table.add_row(name, *cells)
    return table


def table_of_shares(chosen: Iterable[str]) -> Table:
    """Real calls of the default model: time in the network and in the constraint, a step."""
    from agentloop.model.lm import DiffusionLM

    columns = ["steps", "network", "constraint", "share"]
    table = Table("constraint", *columns, title="default model, ms of wall time a step")
    with DiffusionLM.load("default", report=CONSOLE.print) as lm:
        for name in chosen:
            constraint = cases()[name]
            lm.generate_sync("Warm up.", constraint=constraint)
            asked = "A bus from Rome to Pisa on Friday, please; and what is the weather there?"
            answers = [lm.generate_sync(asked, constraint=constraint, seed=n) for n in range(3)]
            steps = max(1, sum(answer.num_steps for answer in answers))
            network = sum(answer.timings.network_s for answer in answers) / steps * 1e3
            ours = sum(answer.timings.constraint_s for answer in answers) / steps * 1e3
            share = ours / max(network + ours, 1e-9)
            table.add_row(name, f"{steps}", f"{network:.1f}", f"{ours:.1f}", f"{share:.1%}")
    return table


def numbers(text: str) -> list[int]:
    """Numbers parted by commas."""
    return [int(part) for part in text.split(",")]


def main() -> None:
    """Print the table that was asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--tokenizer", type=Path, help="tokenizer.json to measure with")
    parser.add_argument("--eos", type=int, default=2, help="its end of text")
    parser.add_argument("--size", type=int, default=49_152, help="of the synthetic vocabulary")
    parser.add_argument("--lengths", type=numbers, default=[64], help="of canvases, as 16,32,64")
    parser.add_argument("--rows", type=numbers, help="canvases at once, as 1,8,32")
    parser.add_argument("--only", help="constraints to measure, parted by semicolons")
    parser.add_argument("--served", action="store_true", help="real steps of the default model")
    arguments = parser.parse_args()
    chosen = arguments.only.split(";") if arguments.only else list(cases())
    if arguments.served:
        CONSOLE.print(table_of_shares(chosen))
        return
    vocabulary = synthetic_vocabulary(arguments.size)
    if arguments.tokenizer:
        tokenizer = Tokenizer.from_file(str(arguments.tokenizer))
        vocabulary = Vocabulary.from_tokenizer(tokenizer, [arguments.eos])
    if arguments.rows:
        CONSOLE.print(table_of_rows(vocabulary, arguments.lengths, arguments.rows, chosen))
        return
    for length in arguments.lengths:
        CONSOLE.print(table_of_kinds(vocabulary, length, chosen))


if __name__ == "__main__":
    main()
