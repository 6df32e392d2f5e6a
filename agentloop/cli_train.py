"""The command `train`: fine-tune the default model on pairs, and score it before and after."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn
from rich.table import Table

from agentloop.errors import ModelError
from agentloop.scores import answer_scores
from agentloop.terminal import counted, err, note, out, print_json, waiting

if TYPE_CHECKING:
    from agentloop.model.finetune import FinetuneOptions, Finetuning
    from agentloop.model.lm import DiffusionLM
    from agentloop.model.pairs import Pair

AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class Lesson:
    """What to train on, from where, and what to score.

    Attributes:
        pairs: The JSONL file.
        out: Folder for the weights and the state.
        base: `"default"` or a folder that fine-tuning wrote.
        validation: A file of held-out pairs, or the share of `pairs` to hold out.
        score: Held-out pairs to decode before and after; 0 for none.
    """

    pairs: Path
    out: Path
    base: str = "default"
    validation: Path | float = 0.15
    score: int = 40


def run_train(lesson: Lesson, options: FinetuneOptions, *, as_json: bool) -> None:
    """Fine-tune, and print what it brought.

    Raises:
        ModelError: The pairs or the options are wrong.
        CheckpointError: The base is missing, or the folder holds another run.
    """
    from agentloop.model.default_weights import FOLDER, load_default
    from agentloop.model.finetune import Finetuning
    from agentloop.model.loading import native_dtype
    from agentloop.model.pairs import rows_of

    began = time.perf_counter()
    train, held_out = _read(lesson, options.seed)
    start = FOLDER if lesson.base == "default" else Path(lesson.base)
    with waiting("loading the model", kind="load to train") as report:
        reader, writer, tokenizer = load_default(report, folder=start, dtype=native_dtype())
    room = reader.config.max_position_embeddings // 2
    rows, long = rows_of(train, tokenizer, room)
    held_rows, held_long = rows_of(held_out, tokenizer, room)
    if long or held_long:
        note(f"left out {counted(len(long) + len(held_long), 'pair')} too long for the model")
    scored = [p for i, p in enumerate(held_out) if i not in set(held_long)][: lesson.score]
    before = _score_folder(lesson.base, scored, "before")
    run = Finetuning(reader, writer, rows, held_rows, lesson.out, options, start)
    note(f"{'going on' if run.resumed else 'starting'} at step {run.trainer.step}: "
         f"{counted(len(rows), 'pair')}, {len(held_rows):,} held out")  # fmt: skip
    _train(run)
    after = _score_folder(str(lesson.out), scored, "after")
    best = run.best
    assert best is not None
    result = {
        "out": str(lesson.out),
        "pairs": len(rows),
        "held_out": len(held_rows),
        "steps": run.trainer.step,
        "best_step": best.step,
        "loss_before": round(run.checks[0].loss, 4),
        "loss_best": round(best.loss, 4),
        "before": before,
        "after": after,
        "seconds": round(time.perf_counter() - began, 1),
    }
    print_json(result) if as_json else _print(result)


def _read(lesson: Lesson, seed: int) -> tuple[list[Pair], list[Pair]]:
    from agentloop.model.pairs import read_pairs, split_pairs

    pairs = read_pairs(lesson.pairs)
    if isinstance(lesson.validation, Path):
        return pairs, read_pairs(lesson.validation)
    return split_pairs(pairs, lesson.validation, seed)


def _score_folder(name: str, pairs: Sequence[Pair], when: str) -> dict[str, float]:
    """Scores of a model's answers to some pairs, decoded as a call would."""
    if not pairs:
        return {}
    from agentloop.model.lm import DiffusionLM

    with DiffusionLM.load(name) as lm, _bar(f"answering, {when} training") as (bar, task):
        bar.update(task, total=len(pairs))
        answers = asyncio.run(_answers(lm, pairs, lambda n: bar.advance(task, n)))
    return answer_scores(answers, [pair.answer for pair in pairs])


async def _answers(
    lm: DiffusionLM, pairs: Sequence[Pair], advance: Callable[[int], None]
) -> list[str]:
    texts: list[str] = []
    for start in range(0, len(pairs), AT_ONCE):
        batch = pairs[start : start + AT_ONCE]
        calls = [lm.generate(p.messages, constraint=p.constraint, seed=0) for p in batch]
        texts += [generation.text for generation in await asyncio.gather(*calls)]
        advance(len(batch))
    return texts


def _train(run: Finetuning) -> None:
    """Show loss, speed and time left; the first Ctrl-C ends the run with its best weights kept."""
    from agentloop.model.finetune import Check

    stop = False

    def ask_to_stop(_: int, __: FrameType | None) -> None:
        nonlocal stop
        stop = True

    previous = signal.signal(signal.SIGINT, ask_to_stop)
    began = time.monotonic()
    limit = run.options.max_seconds
    try:
        with _bar("training") as (bar, task):
            bar.update(task, total=limit)
            for event in run.run(lambda: stop):
                spent = time.monotonic() - began
                bar.update(task, completed=min(spent, limit))
                if isinstance(event, Check):
                    mark = ", the best so far" if event.best else ""
                    note(f"step {event.step:5d}  held-out loss {event.loss:.3f}{mark}")
                else:
                    rate = event.tokens / event.seconds
                    left = max(0.0, limit - spent) / 60
                    told = f"step {event.step}, loss {event.loss:.3f}, {rate:,.0f} tokens/s"
                    bar.update(task, description=f"{told}, at most {left:.0f} min left")
    finally:
        signal.signal(signal.SIGINT, previous)
    if stop:
        note("stopped; the same command goes on from here")


@contextmanager
def _bar(text: str) -> Generator[tuple[Progress, Any]]:
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(24))
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as bar:
        yield bar, bar.add_task(text, total=None)


def _print(result: dict[str, Any]) -> None:
    table = Table(title=f"{result['held_out']} held-out pairs", title_justify="left")
    for column in ("", "before", "after"):
        table.add_column(column, justify="right" if column else "left")
    table.add_row("loss", f"{result['loss_before']:.3f}", f"{result['loss_best']:.3f}")
    for name, value in result["before"].items():
        table.add_row(name.replace("_", " "), f"{value:.0%}", f"{result['after'][name]:.0%}")
    out.print(table)
    out.print(
        f"{result['steps']} steps in {result['seconds']:.0f} s; best at {result['best_step']}"
    )
    out.print(f"use it: --model {result['out']}, or DiffusionLM.load({json.dumps(result['out'])})")


def share_or_file(value: str) -> Path | float:
    """A share of the pairs such as 0.15, or a file.

    Raises:
        ModelError: It is neither.
    """
    try:
        share = float(value)
    except ValueError:
        if Path(value).is_file():
            return Path(value)
        raise ModelError(f"{value!r} is neither a share such as 0.15 nor a file") from None
    if not 0 < share < 1:
        raise ModelError(f"the held-out share is {share}, expected between 0 and 1")
    return share


def use_threads(count: int | None) -> None:
    """Let torch use so many threads; None leaves its choice."""
    if count is not None:
        import torch

        torch.set_num_threads(count)
