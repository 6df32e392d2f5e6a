"""Adapt the base to a diffusion canvas; run the same command again to go on where it stopped.

    python recipes/default_model/train.py --hours 2
    python recipes/default_model/train.py --cooldown 300     # anneal, then stop: weights to ship

Reads `train.jsonl` and `dev_*.jsonl` that prepare.py wrote. Everything is kept in `--out`: the
state (written every few minutes and at the end), `log.jsonl` with a line per step, and held-out
losses.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import signal
import time
from collections import deque
from pathlib import Path
from types import FrameType

import torch
from rich.console import Console

from agentloop.model.base_weights import MASK_ID, base_folder
from agentloop.model.checkpoint import load_network, load_tokenizer
from agentloop.model.default_weights import FOLDER, apply_delta
from agentloop.model.training import StepReport, Trainer, TrainingOptions, held_out_loss
from agentloop.model.training_data import Row, read_rows

CONSOLE = Console()


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path("training/data"))
    parser.add_argument("--out", type=Path, default=Path("training/run"))
    parser.add_argument("--hours", type=float, default=2.0, help="stop after this much time")
    parser.add_argument(
        "--cooldown", type=int, default=0, help="anneal over so many steps, then stop"
    )
    parser.add_argument(
        "--from-base", action="store_true", help="without a state: not from the shipped weights"
    )
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--learning-rate", type=float, default=2e-4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--save-minutes", type=float, default=8.0)
    parser.add_argument(
        "--check-every", type=int, default=250, help="steps between held-out losses"
    )
    return parser.parse_args()


def open_trainer(options: argparse.Namespace) -> tuple[Trainer, dict[str, list[Row]]]:
    """The trainer, resumed if there is a state, and the held-out rows by task."""
    folder = base_folder(CONSOLE.print)
    network = load_network(folder)
    network.config = dataclasses.replace(network.config, mask_id=MASK_ID)
    tokenizer = load_tokenizer(folder)
    with CONSOLE.status("tokenising"):
        rows = read_rows(options.data / "train.jsonl", tokenizer)
        held_out = {
            path.stem: read_rows(path, tokenizer, limit=32)
            for path in sorted(options.data.glob("dev_*.jsonl"))
        }
    chosen = TrainingOptions(options.batch_size, options.learning_rate, seed=options.seed)
    trainer = Trainer(network, rows, options.out, chosen)
    begin = "resumed" if trainer.resume() else "starting from the base"
    if begin != "resumed" and not options.from_base and any(FOLDER.glob("*.safetensors")):
        apply_delta(trainer.writer, FOLDER)
        trainer.adopt()
        begin = "starting from the shipped weights"
    CONSOLE.print(f"{len(rows):,} rows; {begin}, step {trainer.step}")
    return trainer, held_out


class Progress:
    """Log lines with smoothed loss per kind of canvas, tokens per second and time left."""

    def __init__(self, log: Path, hours: float, last_step: int | None) -> None:
        self.log = log
        self.began = time.monotonic()
        self.budget_s = hours * 3600
        self.last_step = last_step
        self.recent: deque[StepReport] = deque(maxlen=50)

    @property
    def out_of_time(self) -> bool:
        """Whether the hours are spent."""
        return time.monotonic() - self.began > self.budget_s

    def add(self, report: StepReport) -> None:
        """Note a step, and print every tenth."""
        self.recent.append(report)
        self.write(dataclasses.asdict(report))
        if report.step % 10 == 0:
            CONSOLE.print(self.line(report), highlight=False)

    def line(self, report: StepReport) -> str:
        """One line about the last fifty steps."""
        seconds = sum(r.seconds for r in self.recent)
        rate = sum(r.tokens for r in self.recent) / seconds
        kinds = "  ".join(
            f"{kind} {sum(r.by_kind[kind] for r in self.recent) / len(self.recent):.3f}"
            for kind in report.by_kind
        )
        left_s = self.budget_s - (time.monotonic() - self.began)
        if self.last_step is not None:
            steps_left = self.last_step - report.step
            left_s = min(left_s, steps_left * seconds / len(self.recent))
        return f"step {report.step:6d}  {kinds}  {rate:6.0f} tokens/s  {left_s / 60:5.1f} min left"

    def write(self, record: dict[str, object]) -> None:
        """Append a record to the log file."""
        with self.log.open("a", encoding="utf-8") as out:
            out.write(json.dumps(record) + "\n")


def main() -> None:
    """Train until the hours or the steps are spent, or until interrupted."""
    options = arguments()
    torch.set_num_threads(options.threads)
    stop = False

    def ask_to_stop(_: int, __: FrameType | None) -> None:
        nonlocal stop
        stop = True

    signal.signal(signal.SIGTERM, ask_to_stop)
    signal.signal(signal.SIGINT, ask_to_stop)
    trainer, held_out = open_trainer(options)
    options.out.mkdir(parents=True, exist_ok=True)
    last = trainer.step + options.cooldown if options.cooldown else None
    progress = Progress(options.out / "log.jsonl", options.hours, last)
    saved = time.monotonic()
    for report in trainer.steps(last or 10**9, options.cooldown):
        progress.add(report)
        if report.step % options.check_every == 0:
            for name, rows in held_out.items():
                losses = held_out_loss(trainer, rows)
                progress.write({"step": report.step, "held_out": name, **losses})
                shown = "  ".join(f"{kind} {value:.3f}" for kind, value in losses.items())
                CONSOLE.print(f"[bold]held out {name}[/]: {shown}")
        if time.monotonic() - saved > options.save_minutes * 60:
            trainer.save()
            saved = time.monotonic()
        if stop or progress.out_of_time:
            break
    trainer.save()
    CONSOLE.print(f"saved at step {trainer.step} in {options.out}")


if __name__ == "__main__":
    main()
