"""Score a model on held-out sets, decoded under their constraints.

    python -m recipes.default_model.evaluate                      # the shipped weights
    python -m recipes.default_model.evaluate --weights training/export --limit 50 --show 8
    python -m recipes.default_model.evaluate --sets training/eval/snips.jsonl

Without `--sets` it scores the held-out calls and reading questions that prepare.py wrote; the
public sets are written by evaluation_sets.py. Prints a table, and writes the predictions and scores
as JSON beside the data.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from agentloop.cited_answer import CitedAnswer
from agentloop.model.call_options import ParsedConstraint
from agentloop.model.constraint import Choice, ToolCalls
from agentloop.model.constraint.quote import split
from agentloop.model.default_weights import FOLDER
from agentloop.model.generation import Generation
from agentloop.model.lm import DiffusionLM
from agentloop.model.sampler import EFFORTS, Effort
from agentloop.scores import call_scores, choice_scores, reading_scores
from recipes.default_model.bfcl_rules import bfcl_scores

CONSOLE = Console()
Row = dict[str, Any]
SCORES = {
    "call": call_scores,
    "reading": reading_scores,
    "choice": choice_scores,
    "bfcl": bfcl_scores,
}
MAX_TOKENS = {"call": 96, "reading": 128, "choice": 32, "bfcl": 128}


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path("training/data"))
    parser.add_argument("--sets", type=Path, nargs="+", help="files of evaluation_sets.py")
    parser.add_argument("--weights", type=Path, default=FOLDER)
    parser.add_argument("--limit", type=int, default=100, help="rows of each task")
    parser.add_argument("--effort", choices=list(EFFORTS), default="medium")
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument(
        "--dtype",
        choices=("float32", "bfloat16", "int8"),
        help="as DiffusionLM.load; by default its",
    )
    parser.add_argument(
        "--show", type=int, default=0, help="print so many predictions of each task"
    )
    parser.add_argument("--out", type=Path, default=Path("training/evaluation.json"))
    return parser.parse_args()


def constraint_of(row: Row) -> ParsedConstraint:
    """What the answer to a row must satisfy."""
    if row["task"] in ("call", "bfcl"):
        return ToolCalls(row["tools"], min=0, max=max(1, len(row.get("possible", []))))
    if row["task"] == "choice":
        return Choice(row["choices"])
    pieces = [piece for passage in row["passages"] for piece in split(passage, "sentences")]
    return CitedAnswer(text for is_sentence, text in pieces if is_sentence)


def read_rows(path: Path, limit: int) -> list[Row]:
    """The first rows of a JSONL file."""
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for _, line in zip(range(limit), lines, strict=False)]


async def predict(
    lm: DiffusionLM, rows: list[Row], effort: Effort, batch_size: int
) -> list[Generation]:
    """The model's answers, `batch_size` calls at once."""
    answers: list[Generation] = []
    with Progress(console=CONSOLE, transient=True) as progress:
        task = progress.add_task(f"{rows[0]['task']}, effort {effort}", total=len(rows))
        for start in range(0, len(rows), batch_size):
            batch = rows[start : start + batch_size]
            calls = [
                lm.generate(
                    row["messages"],
                    constraint=constraint_of(row),
                    effort=effort,
                    max_tokens=MAX_TOKENS[row["task"]],
                    seed=0,
                )
                for row in batch
            ]
            answers += await asyncio.gather(*calls)
            progress.advance(task, len(batch))
    return answers


def show(rows: list[Row], answers: list[Generation], count: int) -> None:
    """Print what was asked, what was right and what came."""
    for row, answer in list(zip(rows, answers, strict=True))[:count]:
        CONSOLE.rule(f"{row['id']}, {answer.num_steps} passes")
        CONSOLE.print(row["messages"][-1]["content"][-300:], markup=False, style="dim")
        CONSOLE.print("gold", row["answer"], markup=False)
        CONSOLE.print("got ", answer.text, markup=False)


def main() -> None:
    """Evaluate both tasks."""
    options = arguments()
    if options.threads:
        torch.set_num_threads(options.threads)
    name = "default" if options.weights == FOLDER else str(options.weights)
    dtype: torch.dtype | None = getattr(torch, options.dtype) if options.dtype else None
    lm = DiffusionLM.load(name, dtype=dtype, report=CONSOLE.print)
    report: dict[str, Any] = {"effort": options.effort, "limit": options.limit}
    for path in options.sets or sorted(options.data.glob("dev_*.jsonl")):
        rows = read_rows(path, options.limit)
        began = time.perf_counter()
        answers = asyncio.run(predict(lm, rows, options.effort, options.batch_size))
        spent = time.perf_counter() - began
        task = rows[0]["task"]
        scores = SCORES[task]([a.text for a in answers], rows)
        scores["passes"] = sum(a.num_steps for a in answers) / len(answers)
        scores["seconds_per_call"] = spent / len(answers)
        report[path.stem] = scores
        report[f"{path.stem}_predictions"] = [a.text for a in answers]
        table = Table(title=f"{path.stem}: {len(rows)} rows, effort {options.effort}")
        for name in scores:
            table.add_column(name.replace("_", " "))
        table.add_row(*(f"{value:.3f}" for value in scores.values()))
        CONSOLE.print(table)
        show(rows, answers, options.show)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(report, indent=1, ensure_ascii=False), encoding="utf-8")
    CONSOLE.print(f"written to {options.out}")


if __name__ == "__main__":
    main()
