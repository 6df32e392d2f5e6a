"""Fine-tuning of the default model on a user's pairs, with early stopping.

Only canvas weights learn, so every cached prompt stays valid. The folder that comes out holds the
default's canvas weights and what was learned beside them: `DiffusionLM.load(folder)` takes it.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from torch import Tensor

from agentloop.errors import CheckpointError, ModelError
from agentloop.model.base_weights import SHA256
from agentloop.model.default_weights import FORMAT
from agentloop.model.lora import add_adapters
from agentloop.model.network import Transformer
from agentloop.model.tensors import save_tensors
from agentloop.model.training import StepReport, Trainer, TrainingOptions, held_out_loss
from agentloop.model.training_data import Row

TUNED = "tuned.safetensors"
STATE = "state"
RUN = "run.json"
SAVE_SECONDS = 60.0


@dataclass(frozen=True)
class FinetuneOptions:
    """Numbers of a fine-tuning run.

    Attributes:
        rank: Of the adapters; None trains every canvas weight, which needs four times the memory.
        learning_rate: Peak rate; None is 1e-3 for adapters and 1e-4 for all weights.
        batch_size: Pairs per step, each with several noisy canvases.
        max_steps: Steps at most.
        max_seconds: Seconds at most, this start of the run alone.
        check_every: Steps between held-out losses.
        patience: Checks without a better held-out loss before it stops.
        seed: Source of order and noise.
    """

    rank: int | None = 16
    learning_rate: float | None = None
    batch_size: int = 8
    max_steps: int = 2000
    max_seconds: float = 600.0
    check_every: int = 20
    patience: int = 5
    seed: int = 0

    @property
    def rate(self) -> float:
        """The learning rate in force."""
        if self.learning_rate is not None:
            return self.learning_rate
        return 1e-3 if self.rank is not None else 1e-4


@dataclass(frozen=True)
class Check:
    """A look at the held-out pairs.

    Attributes:
        step: Steps done.
        loss: Mean cross-entropy over the kinds of canvas, nats per token.
        best: Whether it is the lowest so far; its weights are then on disk.
    """

    step: int
    loss: float
    best: bool


Event = StepReport | Check


class Finetuning:
    """One run in one folder; the same arguments go on where it stopped.

    Args:
        reader: The frozen prompt reader.
        writer: The canvas network to start from; it is changed.
        rows: Training rows.
        held_out: Rows that decide when to stop.
        folder: Where weights and state go.
        options: Numbers of the run.
        start: The folder whose canvas weights `writer` holds.

    Raises:
        CheckpointError: The folder holds a run with other data or options.
    """

    def __init__(
        self,
        reader: Transformer,
        writer: Transformer,
        rows: Sequence[Row],
        held_out: Sequence[Row],
        folder: Path,
        options: FinetuneOptions,
        start: Path,
    ) -> None:
        if len(rows) < options.batch_size:
            raise ModelError(
                f"{len(rows)} training pairs are fewer than a batch of {options.batch_size}; "
                "give more pairs or a smaller batch"
            )
        self.held_out = list(held_out)
        self.folder = folder
        self.options = options
        self.start = start
        self._base = {n: p.detach() for n, p in reader.named_parameters()}
        if options.rank is not None:
            add_adapters(writer, options.rank, options.seed)
        chosen = TrainingOptions(options.batch_size, options.rate, warmup=20, seed=options.seed)
        self.trainer = Trainer(reader, list(rows), folder / STATE, chosen, writer.train())
        self._remember(rows)
        self.checks: list[Check] = self._known_checks()
        self.resumed = self.trainer.resume()
        if not self.resumed:
            self.checks = []

    @property
    def best(self) -> Check | None:
        """The best look at the held-out pairs so far."""
        return min(self.checks, key=lambda check: check.loss, default=None)

    @property
    def is_settled(self) -> bool:
        """Whether the last `patience` checks brought nothing."""
        best = self.best
        if best is None:
            return False
        return len([c for c in self.checks if c.step > best.step]) >= self.options.patience

    def run(self, should_stop: Callable[[], bool] = lambda: False) -> Iterator[Event]:
        """Train; yields each step and each check. Whatever ends it, the best weights are on disk.

        Args:
            should_stop: Asked after each step.
        """
        began = saved = time.monotonic()
        if not self.checks:
            yield self._check()
        for report in self.trainer.steps(self.options.max_steps):
            yield report
            if report.step % self.options.check_every == 0:
                yield self._check()
            now = time.monotonic()
            if now - saved > SAVE_SECONDS:
                self.trainer.save()
                saved = now
            if now - began > self.options.max_seconds or self.is_settled or should_stop():
                break
        if self.checks[-1].step != self.trainer.step:
            yield self._check()
        self.trainer.save()

    def _check(self) -> Check:
        self.trainer.writer.eval()
        by_kind = held_out_loss(self.trainer, self.held_out)
        self.trainer.writer.train()
        loss = sum(by_kind.values()) / len(by_kind)
        step = self.trainer.step
        self.checks = [c for c in self.checks if c.step != step]  # seen before a kill
        best = self.best
        check = Check(step, loss, best is None or loss < best.loss)
        self.checks.append(check)
        if check.best:
            self._export()
        self._write_json(RUN, {**self._about, "checks": [asdict(c) for c in self.checks]})
        return check

    def _export(self) -> None:
        """The weights as they are now, whole on disk or not at all."""
        tensors: dict[str, Tensor] = {"mask_row": self.trainer.masters["mask_row"].clone()}
        learned = {n: m for n, m in self.trainer.masters.items() if n != "mask_row"}
        if self.options.rank is None:
            for name, master in learned.items():
                tensors[name] = (master - self._base[name].float()).bfloat16()
        else:
            tensors |= {name: master.bfloat16() for name, master in learned.items()}
            for shard in sorted(self.start.glob("canvas-*.safetensors")):
                if not (self.folder / shard.name).exists():
                    shutil.copyfile(shard, self.folder / shard.name)
        about = {"step": self.trainer.step, "rank": self.options.rank}
        metadata = {"format": FORMAT, "base_sha256": SHA256, "about": json.dumps(about)}
        scratch = self.folder / "tuned.tmp"
        save_tensors(tensors, scratch, metadata)
        os.replace(scratch, self.folder / TUNED)

    def _remember(self, rows: Sequence[Row]) -> None:
        """Note what this run is; refuse to go on with another one."""
        self._about = {
            "rank": self.options.rank,
            "batch_size": self.options.batch_size,
            "learning_rate": self.options.rate,
            "seed": self.options.seed,
            "pairs": [len(rows), sum(sum(r.prompt) + sum(r.answer) for r in rows)],
        }
        path = self.folder / RUN
        self.folder.mkdir(parents=True, exist_ok=True)
        if path.exists():
            known = json.loads(path.read_text(encoding="utf-8"))
            other = [k for k, v in self._about.items() if known.get(k) != v]
            if other:
                told = ", ".join(f"{k} {known.get(k)} there, {self._about[k]} now" for k in other)
                raise CheckpointError(
                    f"{self.folder} holds another run ({told}); give the same arguments to go on, "
                    "or another folder"
                )
        elif any(self.folder.iterdir()):
            raise CheckpointError(f"{self.folder} is not empty and holds no run; give another one")
        else:
            self._write_json(RUN, {**self._about, "checks": []})

    def _known_checks(self) -> list[Check]:
        known = json.loads((self.folder / RUN).read_text(encoding="utf-8"))
        return [Check(**check) for check in known["checks"]]

    def _write_json(self, name: str, value: object) -> None:
        scratch = self.folder / f"{name}.tmp"
        scratch.write_text(json.dumps(value), encoding="utf-8")
        os.replace(scratch, self.folder / name)
