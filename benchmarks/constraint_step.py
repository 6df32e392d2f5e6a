"""What a constraint costs: compiling it, and one refinement step under it.

    python benchmarks/constraint_step.py [--tokenizer tokenizer.json --eos 2] [--length 64]

Without a tokenizer file the vocabulary is synthetic: 49,152 byte strings with the lengths and the
sharing of prefixes of a byte-level tokenizer. Logits are those of an unsure model: noise, with an
accepted text favoured. Times are milliseconds of this thread's processor time, best of several,
so that other work on the machine counts little. A step is everything from logits to the proposed
tokens with their confidence, which positions are forced, and P(valid).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
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
from agentloop.model.constraint.inference import Weighting, infer
from agentloop.model.constraint.lift import lift
from agentloop.model.constraint.vocabulary import Vocabulary
from agentloop.model.prompts import ToolSpec

T = TypeVar("T")
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


def cases() -> dict[str, Constraint]:
    """The constraints that are measured."""
    text = {"type": "string"}
    tools: list[ToolSpec] = [
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
        "1 tool": ToolCalls(tools[:1]),
        "2 tools": ToolCalls(tools[:2]),
        "4 tools": ToolCalls(tools),
        "record": JsonSchema(person),
        "any JSON": JsonSchema({}),
        "quote of 4 kB": Quote([prose(4096)]),
        "answer + quotes": Object(answer=Text(), quotes=List(Quote([prose(4096)]))),
    }


def cpu_ms(call: Callable[[], T], repeats: int) -> tuple[float, T]:
    """Least processor time of a call in milliseconds, and its last result."""
    best = float("inf")
    for _ in range(repeats - 1):
        begun = time.thread_time()
        call()
        best = min(best, time.thread_time() - begun)
    begun = time.thread_time()
    result = call()
    return min(best, time.thread_time() - begun) * 1e3, result


def unsure_logits(
    compiled: CompiledConstraint, length: int, generator: np.random.Generator
) -> NDArray[np.float32]:
    """Noise (L, V), and a favourite accepted text that the model believes in by halves."""
    logits = generator.normal(0, 2, (length, compiled.vocabulary.size)).astype(np.float32)
    favourite = infer(compiled, logits, [-1] * length).tokens
    logits[np.arange(length), favourite] += generator.uniform(4, 16, length).astype(np.float32)
    return logits


def step(
    compiled: CompiledConstraint,
    logits: NDArray[np.float32],
    tokens: list[int],
    weighting: Weighting,
) -> None:
    """One refinement step with everything that a sampler asks for."""
    posterior = infer(compiled, logits, tokens, weighting=weighting)
    _ = posterior.confidence, posterior.forced, posterior.log_p_valid


def measure(name: str, constraint: Constraint, vocabulary: Vocabulary, length: int) -> str:
    """One row of the table."""
    options = CompileOptions(max_text_length=8 * length)
    build, dfa = cpu_ms(lambda: constraint.automaton(options), 2)
    lifting, automaton = cpu_ms(lambda: lift(dfa, vocabulary), 4)
    compiled = CompiledConstraint(automaton, vocabulary)
    generator = np.random.default_rng(0)
    logits = unsure_logits(compiled, length, generator)
    proposed = infer(compiled, logits, [-1] * length).tokens
    half = np.where(generator.random(length) < 0.5, proposed, -1).tolist()
    weightings: tuple[Weighting, ...] = ("local", "product")
    times = [
        cpu_ms(partial(step, compiled, logits, canvas, weighting), 10)[0]
        for weighting in weightings
        for canvas in ([-1] * length, half)
    ]
    sizes = (
        f"{automaton.num_states:7,}{automaton.num_classes:7,}{automaton.num_pairs:8,}"
        f"{automaton.num_edges:8,}{automaton.num_bytes / 1e6:6.1f}"
    )
    return f"{name:16}{build:8.1f}{lifting:7.1f}{sizes}" + "".join(f"{t:9.1f}" for t in times)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--tokenizer", type=Path)
    parser.add_argument("--eos", type=int, default=2)
    parser.add_argument("--length", type=int, default=64)
    arguments = parser.parse_args()
    vocabulary = synthetic_vocabulary()
    if arguments.tokenizer:
        tokenizer = Tokenizer.from_file(str(arguments.tokenizer))
        vocabulary = Vocabulary.from_tokenizer(tokenizer, [arguments.eos])
    trie, _ = cpu_ms(lambda: vocabulary.trie, 1)
    print(f"L = {arguments.length}, V = {vocabulary.size:,}, trie {trie:.0f} ms once\n")
    print(f"{'':16}{'build':>8}{'lift':>7}{'':36}{'local':>18}{'product':>18}")
    header = ("states", "classes", "pairs", "edges", "MB")
    widths = (7, 8, 7, 8, 6)
    print(
        f"{'':16}{'ms':>8}{'ms':>7}"
        + "".join(f"{h:>{w}}" for h, w in zip(header, widths, strict=True))
        + "".join(f"{h:>9}" for h in ("all", "half", "all", "half"))
    )
    for name, constraint in cases().items():
        print(measure(name, constraint, vocabulary, arguments.length), flush=True)


if __name__ == "__main__":
    main()
