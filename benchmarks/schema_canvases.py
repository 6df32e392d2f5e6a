"""Canvases over many real schemas, refined with random weights and judged by `jsonschema`.

    python -m benchmarks.schema_canvases --data data/maskbench_dev.jsonl.gz   # 100,000 canvases

What runs is the engine as it is: schema, automaton, lift to tokens, `CanvasRow.advance` with the
sampler's policies and the constraint's inference, once a step. What is small is around it: a
network of one random layer, whose logits depend on the whole canvas, over a vocabulary of 256 bytes
and the merges that byte-pair encoding learns from the schemas' own instances. Each schema is
refined at 1, 4, 16 and 64 steps, at temperature 0 and 1, with and without revisions, under both
weightings, by networks that differ from round to round. A text that `jsonschema` (with its checks
of formats) or `JsonSchema.parse` refuses, or a step without an answer, ends the run with its
schema and seed. A canvas one slot too small for a schema's shortest text must be refused, with both
numbers.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import torch
from jsonschema.validators import validator_for
from rich.console import Console
from rich.progress import track
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor

from agentloop.errors import CanvasTooSmallError, ConstraintError
from agentloop.model.constraint import JsonSchema
from agentloop.model.constraint.compiled import CompiledConstraint, compile_constraint
from agentloop.model.constraint.inference import PathScore, Weighting
from agentloop.model.constraint.vocabulary import Vocabulary
from agentloop.model.sampler import MASKED, CanvasRow, SamplerOptions
from agentloop.model.tensors import random_normal
from benchmarks.maskbench import read_entries

CONSOLE = Console()
STEPS = (1, 4, 16, 64)
TEMPERATURES = (0.0, 1.0)
WEIGHTINGS: tuple[Weighting, ...] = ("local", "product")
PATHS: tuple[PathScore, ...] = ("greedy", "states", "tokens")
VOCABULARY_SIZE = 512
WIDTH = 16
SPREAD = 3.0
MAX_LENGTH = 128
LARGE_PAIRS = 6_000
LARGE_ROUNDS = 16
NUM_NETWORKS = 7
EOS = "<end>"


@dataclass(frozen=True)
class Language:
    """A schema that is compiled.

    Attributes:
        name: Its id.
        schema: The schema as a constraint.
        validator: The independent judge.
        compiled: The automaton over the vocabulary.
    """

    name: str
    schema: JsonSchema
    validator: Any
    compiled: CompiledConstraint

    @property
    def is_large(self) -> bool:
        """Whether a step takes more than a few milliseconds."""
        return self.compiled.automaton.num_pairs > LARGE_PAIRS


class RandomNetwork:
    """One layer with random weights: every position sees every other and its own place."""

    def __init__(self, vocab_size: int, seed: int = 0) -> None:
        length = MAX_LENGTH
        self.embedding = random_normal((vocab_size + 1, WIDTH), 4 * seed)  # the last is [MASK]
        self.places = random_normal((length, WIDTH), 4 * seed + 1)
        self.mixing = random_normal((length, length), 4 * seed + 2)
        self.readout = random_normal((WIDTH, vocab_size), 4 * seed + 3, std=SPREAD / WIDTH**0.5)

    def logits(self, tokens: list[int]) -> Tensor:
        """Logits (L, V) float32 of a canvas of L ids, -1 where masked."""
        length = len(tokens)
        hidden = self.embedding[tokens] + self.places[:length]  # (L, D); -1 reads [MASK]
        mixed = self.mixing[:length, :length] @ hidden / length**0.5  # (L, D)
        return torch.tanh(mixed + hidden) @ self.readout  # (L, V)


def learnt_vocabulary(texts: list[str], size: int = VOCABULARY_SIZE) -> Vocabulary:
    """Bytes, the merges that pay most on some texts, and an end of text."""
    tokenizer: Any = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return Vocabulary.from_tokenizer(tokenizer, [tokenizer.token_to_id(EOS)])


def languages(
    entries: list[dict[str, Any]], most: int, counts: Counter[str] | None = None
) -> list[Language]:
    """The first schemas that compile and whose shortest text fits, and why others do not count."""
    counts = Counter[str]() if counts is None else counts
    instances = [json.dumps(t["data"], ensure_ascii=False) for e in entries for t in e["tests"]]
    vocabulary = learnt_vocabulary(instances)
    made: list[Language] = []
    for entry in entries:
        try:
            schema = JsonSchema(entry["schema"])
            compiled = compile_constraint(schema.automaton(), vocabulary)
        except ConstraintError as error:
            counts[type(error).__name__] += 1
            continue
        if compiled.min_tokens > MAX_LENGTH:
            counts["longer than a canvas"] += 1
            continue
        judge: Any = validator_for(entry["schema"], default=jsonschema.Draft202012Validator)
        validator = judge(entry["schema"], format_checker=judge.FORMAT_CHECKER)
        made.append(Language(entry["id"], schema, validator, compiled))
        if len(made) == most:
            break
    return made


@dataclass(frozen=True)
class Case:
    """One canvas: which schema, refined how, from which seed."""

    language: int
    options: SamplerOptions
    seed: int


def cases(made: list[Language], num_canvases: int, skip: int = 0) -> Iterator[Case]:
    """Every combination of schema, steps and temperature, with further seeds up to the count.

    After the first round, large automata take part in every 16th only.
    """
    everywhere = list(itertools.product(STEPS, TEMPERATURES, range(len(made))))
    numbered = itertools.chain.from_iterable(
        ((seed, *chosen) for chosen in everywhere) for seed in itertools.count()
    )
    kept = (one for one in numbered if not (made[one[3]].is_large and one[0] % LARGE_ROUNDS))
    for seed, steps, temperature, language in itertools.islice(kept, skip, skip + num_canvases):
        options = SamplerOptions(
            max_steps=steps,
            temperature=temperature,
            window=(8, None)[seed % 2],
            left_first=seed % 3 > 0,
            edit_threshold=0.05 if seed % 5 == 0 else 0.0,
            max_revisions=4,
            weighting=WEIGHTINGS[seed // 2 % 2],
            path=PATHS[(seed + language) % len(PATHS)],
        )
        yield Case(language, options, 1 + seed)


def refine(network: RandomNetwork, language: Language, case: Case) -> CanvasRow:
    """One finished canvas, with some slots beyond the shortest text."""
    generator = np.random.default_rng([case.language, case.seed])
    length = min(MAX_LENGTH, language.compiled.min_tokens + int(generator.integers(0, 16)))
    row = CanvasRow(language.compiled, case.options, length, int(generator.integers(2**31)))
    bound = case.options.max_steps + case.options.max_revisions + 1
    for _ in range(bound):
        if row.done:
            return row
        row.advance(network.logits(row.tokens.tolist()))
    raise AssertionError(f"not finished after {bound} steps, {int((row.tokens == MASKED).sum())}")


def check(language: Language, row: CanvasRow) -> str:
    """The text of a finished canvas, judged twice.

    Raises:
        ValueError: It is not JSON, or not finished.
        ConstraintError: `JsonSchema.parse` refuses it.
        jsonschema.ValidationError: `jsonschema` refuses it.
    """
    text = language.compiled.vocabulary.text(row.text_tokens).decode()
    language.validator.validate(json.loads(text))
    if not row.ended:
        raise ValueError(f"the canvas holds no end of text: {text!r}")
    language.schema.parse(text)
    return text


def check_too_small(language: Language) -> None:
    """A canvas one slot too small is refused before the first step, with both numbers."""
    needed = language.compiled.min_tokens
    try:
        language.compiled.check_fits(needed - 1)
    except CanvasTooSmallError as error:
        is_clear = (error.needed, error.available) == (needed, needed - 1)
    else:
        is_clear = False
    if not is_clear:
        raise AssertionError(f"{language.name} needs {needed} tokens; fewer were not refused")


def run(made: list[Language], todo: list[Case]) -> Counter[str]:
    """Refine and check all cases; counts of what came out."""
    size = made[0].compiled.vocabulary.size
    networks = [RandomNetwork(size, seed) for seed in range(NUM_NETWORKS)]
    counts: Counter[str] = Counter()
    is_terminal = sys.stdout.isatty()
    for case in track(todo, "canvases", console=CONSOLE, disable=not is_terminal):
        language = made[case.language]
        try:
            row = refine(networks[case.seed % NUM_NETWORKS], language, case)
            text = check(language, row)
        except Exception:
            CONSOLE.print(f"FAILED: {language.name} {case}\n{language.schema.schema}", markup=False)
            raise
        counts["canvases"] += 1
        counts["passes"] += len(row.trace)
        counts["bytes"] += len(text.encode())
        counts["revised"] += sum(step.num_revised for step in row.trace)
        if not is_terminal and counts["canvases"] % 2_000 == 0:
            print(f"{counts['canvases']:,} of {len(todo):,}", flush=True)
    return counts


def main() -> None:
    """Run the suite and print the counts."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="the file of schemas, gzipped")
    parser.add_argument("--canvases", type=int, default=100_000)
    parser.add_argument("--skip", type=int, default=0, help="leave out so many canvases first")
    parser.add_argument("--schemas", type=int, default=500)
    parser.add_argument("--every", type=int, default=11, help="take every n-th schema")
    options = parser.parse_args()
    torch.set_num_threads(1)
    begun, used = time.perf_counter(), time.process_time()
    passed_over: Counter[str] = Counter()
    made = languages(read_entries(options.data, options.every), options.schemas, passed_over)
    CONSOLE.print(f"{len(made)} schemas over {made[0].compiled.vocabulary.size} tokens")
    CONSOLE.print(f"passed over: {dict(passed_over)}", markup=False)
    for language in made:
        check_too_small(language)
    todo = list(cases(made, options.canvases, options.skip))
    counts = run(made, todo)
    CONSOLE.print(f"{dict(counts)}, invalid 0, without an answer 0", markup=False)
    CONSOLE.print(f"{time.perf_counter() - begun:.0f} s, {time.process_time() - used:.0f} s of CPU")


if __name__ == "__main__":
    main()
