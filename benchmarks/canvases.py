"""The validity suite: thousands of canvases, every text parsed and validated by `jsonschema`.

    python -m benchmarks.canvases                  # 20,000 canvases: random weights and the default
    python -m benchmarks.canvases --canvases 2000 --weights random

Tools are made from a seed. Half of the canvases hold one tool's arguments, half a list of calls
over four tools. Each is refined at 1, 4, 16 and 64 steps, at temperature 0 and 1. One invalid
text, or one canvas without an answer, ends the run with its schema and seed.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import jsonschema
import torch
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TimeRemainingColumn

from agentloop.model.config import ModelConfig
from agentloop.model.constraint import Constraint, JsonSchema, ToolCalls
from agentloop.model.engine import Job
from agentloop.model.lm import DiffusionLM
from agentloop.model.network import Transformer
from agentloop.model.sampler import CanvasRow, SamplerOptions
from agentloop.model.tensors import random_normal
from benchmarks.tool_schemas import make_tools

CONSOLE = Console()
STEPS = (1, 4, 16, 64)
TEMPERATURES = (0.0, 1.0)
BATCH = 32


@dataclass(frozen=True)
class Case:
    """One canvas: which schema, refined how, from which seed."""

    schema: int
    max_steps: int
    temperature: float
    seed: int


@dataclass(frozen=True)
class Language:
    """A constraint, and the schema that judges its texts."""

    constraint: Constraint
    schema: dict[str, Any]


def languages(count: int) -> list[Language]:
    """Arguments of single tools, and calls over four tools, in turn."""
    tools = make_tools(count + 3)
    made: list[Language] = []
    for i in range(count):
        if i % 2:
            schema = dict(tools[i]["parameters"])
            made.append(Language(JsonSchema(schema), schema))
            continue
        offered = tools[i : i + 4]
        call = [
            {
                "type": "object",
                "properties": {"name": {"const": t["name"]}, "arguments": t["parameters"]},
                "required": ["name", "arguments"],
                "additionalProperties": False,
            }
            for t in offered
        ]
        judge: dict[str, Any] = {"type": "array", "items": {"anyOf": call}}
        judge.update(minItems=1, maxItems=2)
        made.append(Language(ToolCalls(offered, min=1, max=2), judge))
    return made


def cases(num_schemas: int, num_canvases: int) -> Iterator[Case]:
    """Every combination of schema, steps and temperature, with further seeds up to the count."""
    combinations = list(itertools.product(STEPS, TEMPERATURES, range(num_schemas)))
    for number in range(num_canvases):
        seed, at = divmod(number, len(combinations))
        steps, temperature, schema = combinations[at]
        yield Case(schema, steps, temperature, seed)


def random_lm(like: DiffusionLM) -> DiffusionLM:
    """A two-layer network with random weights over another model's vocabulary."""
    c = like.config
    config = ModelConfig(
        vocab_size=c.vocab_size,
        hidden_size=32,
        num_layers=2,
        num_heads=4,
        num_kv_heads=2,
        head_dim=8,
        intermediate_size=48,
        mask_id=c.mask_id,
        eos_ids=c.eos_ids,
    )
    network = Transformer(config)
    with torch.no_grad():
        for number, parameter in enumerate(network.parameters()):
            if parameter.dim() > 1:
                parameter.copy_(random_normal(tuple(parameter.shape), number, std=0.4))
    network = network.eval().requires_grad_(False)
    return DiffusionLM(network, network, like.tokenizer, name="random")


def refine(lm: DiffusionLM, language: Language, case: Case) -> Job:
    """Start one canvas; its length leaves some room beyond the shortest text."""
    compiled = lm.compile(language.constraint)
    length = min(128, max(48, compiled.min_tokens + 16 + 8 * (case.seed % 4)))
    options = SamplerOptions(
        max_steps=case.max_steps,
        temperature=case.temperature,
        edit_threshold=0.05 if case.seed % 3 == 0 else 0.0,
        max_revisions=8,
    )
    row = CanvasRow(compiled, options, length, case.seed)
    prompt = lm.prompt_ids(f"Request {case.seed} about {case.schema}.")
    return Job(prompt, lambda _: None, row, Future())


def check(lm: DiffusionLM, language: Language, job: Job) -> Any:
    """The parsed value of a finished canvas.

    Raises:
        ValueError: It is not JSON.
        jsonschema.ValidationError: The schema refuses it.
    """
    value = json.loads(lm.vocabulary.text(job.written))
    jsonschema.validate(value, language.schema)
    return value


def run(lm: DiffusionLM, made: list[Language], todo: list[Case]) -> Counter[str]:
    """Refine and check all cases; counts of what came out."""
    counts: Counter[str] = Counter()
    columns = (*Progress.get_default_columns()[:2], MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=CONSOLE) as progress:
        task = progress.add_task(lm.name, total=len(todo))
        for start in range(0, len(todo), BATCH):
            batch = todo[start : start + BATCH]
            jobs = [refine(lm, made[case.schema], case) for case in batch]
            lm.engine.submit(jobs)
            for case, job in zip(batch, jobs, strict=True):
                try:
                    check(lm, made[case.schema], job.future.result())
                except Exception:
                    CONSOLE.print(f"FAILED: {case}\n{made[case.schema].schema}", markup=False)
                    raise
                counts["canvases"] += 1
                counts["passes"] += job.num_steps
                counts["revised"] += sum(step.num_revised for step in job.row.trace)
            progress.advance(task, len(batch))
            if not CONSOLE.is_terminal and start // BATCH % 25 == 0:
                CONSOLE.print(f"{lm.name}: {counts['canvases']:,} of {len(todo):,}")
    return counts


def main() -> None:
    """Run the suite and print the counts."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--canvases", type=int, default=20_000)
    parser.add_argument("--schemas", type=int, default=50)
    parser.add_argument("--weights", choices=("both", "random", "default"), default="both")
    parser.add_argument("--default-share", type=float, default=0.08)
    options = parser.parse_args()
    default = DiffusionLM.load("default", report=CONSOLE.print)
    made = languages(options.schemas)
    todo = list(cases(options.schemas, options.canvases))
    of_default = int(len(todo) * options.default_share)
    parts = {
        "both": [(random_lm(default), todo[of_default:]), (default, todo[:of_default])],
        "random": [(random_lm(default), todo)],
        "default": [(default, todo)],
    }
    began = time.perf_counter()
    for lm, chosen in parts[options.weights]:
        counts = run(lm, made, chosen)
        CONSOLE.print(f"{lm.name} weights: {dict(counts)}, invalid 0, without an answer 0")
    CONSOLE.print(f"{time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
