"""Adaptation of an autoregressive base to a prefix-causal diffusion canvas.

The prompt is read by the frozen base without gradient; the canvas runs through its own copy of the
blocks, which is what learns. Embedding and head stay the base's, but for the row of [MASK]. The
loss is cross-entropy on hidden slots with uniform weight. Learning rate: warm-up, then constant,
until a cool-down is asked for; so a run can be continued for as long as it pays.
"""

from __future__ import annotations

import copy
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from agentloop.errors import CheckpointError
from agentloop.model.lora import is_adapter
from agentloop.model.network import PromptKeys, Transformer
from agentloop.model.noise import KINDS
from agentloop.model.tensors import load_tensors, metadata_of, save_tensors
from agentloop.model.training_data import Batch, Row, batch_order, make_batch


@dataclass(frozen=True)
class TrainingOptions:
    """Numbers of a run.

    Attributes:
        batch_size: Prompts per step; each carries len(KINDS) noisy canvases.
        learning_rate: Peak rate of the body.
        warmup: Steps of linear warm-up.
        weight_decay: Decoupled weight decay on matrices.
        clip: Largest gradient norm.
        ema: Decay per step of the running average that is evaluated and shipped.
        seed: Source of order, noise and corruption.
    """

    batch_size: int = 8
    learning_rate: float = 2e-4
    warmup: int = 50
    weight_decay: float = 0.01
    clip: float = 1.0
    ema: float = 0.99
    seed: int = 0


@dataclass(frozen=True)
class StepReport:
    """What one step did.

    Attributes:
        step: Steps done, this one included.
        loss: Weighted cross-entropy, nats per token.
        by_kind: The same per kind of canvas.
        tokens: Positions processed.
        seconds: Wall time.
    """

    step: int
    loss: float
    by_kind: dict[str, float]
    tokens: int
    seconds: float


def make_writer(reader: Transformer, mask_id: int) -> Transformer:
    """A trainable copy of the base for canvases; embedding and head are shared with `reader`.

    The row of [MASK] in the shared embedding becomes the mean of all rows.
    """
    weight = reader.embed_tokens.weight
    with torch.no_grad():
        weight[mask_id] = weight.float().mean(0).to(weight.dtype)
    shared = {id(weight): weight}
    if reader.lm_head is not None:
        shared[id(reader.lm_head.weight)] = reader.lm_head.weight
    return copy.deepcopy(reader, shared).train()


def canvas_loss(
    writer: Transformer, mask_row: Tensor, mask_id: int, prompt: PromptKeys, batch: Batch
) -> tuple[Tensor, Tensor]:
    """Loss of a batch.

    Args:
        writer: The canvas network.
        mask_row: (D,) the trainable embedding of [MASK].
        mask_id: Its id.
        prompt: Keys of the prompts, from the frozen base.
        batch: What is seen and what is right.

    Returns:
        The weighted mean cross-entropy, and per kind of canvas (n,) the same without gradient.
    """
    with torch.no_grad():
        embedded = writer.embed_tokens(batch.canvas)  # (B, n, 1 + L, D)
    is_mask = (batch.canvas == mask_id).unsqueeze(-1)
    embedded = torch.where(is_mask, mask_row.to(embedded.dtype), embedded)
    hidden = writer.refine(embedded, batch.positions, prompt)[:, :, :-1]  # slot i from i - 1
    chosen = batch.weights > 0
    weights = batch.weights[chosen]
    losses = _token_losses(writer, hidden[chosen], batch.targets[chosen], mask_id)
    weighted = losses * weights
    kinds = chosen.nonzero()[:, 1]
    with torch.no_grad():
        sums = torch.zeros(len(KINDS)).index_add_(0, kinds, weighted.detach())
        totals = torch.zeros(len(KINDS)).index_add_(0, kinds, weights)
    return weighted.sum() / weights.sum(), sums / totals.clamp(min=1e-6)


def _token_losses(writer: Transformer, hidden: Tensor, targets: Tensor, mask_id: int) -> Tensor:
    """Cross-entropy (N,) of hidden states (N, D); [MASK] is never an answer."""
    logits = writer.logits(hidden)
    column = torch.zeros(logits.shape[-1], device=logits.device)
    column[mask_id] = float("-inf")
    return F.cross_entropy(logits + column, targets, reduction="none")


class Trainer:
    """A resumable run: one folder, one state file, a log line per step.

    A writer with adapters (agentloop.model.lora) trains these alone, else all its blocks train.

    The folder holds `state.safetensors` (float32 masters, both Adam moments, average), `run.json`
    (options and step) and `log.jsonl`.
    """

    def __init__(
        self,
        reader: Transformer,
        rows: list[Row],
        folder: Path,
        options: TrainingOptions,
        writer: Transformer | None = None,
    ) -> None:
        mask_id = reader.config.mask_id
        assert mask_id is not None
        self.reader = reader
        self.rows = rows
        self.folder = folder
        self.options = options
        self.mask_id = mask_id
        self.step = 0
        self.writer = make_writer(reader, mask_id) if writer is None else writer
        self.mask_row = torch.nn.Parameter(reader.embed_tokens.weight[mask_id].detach().float())
        self._live = _learning(self.writer)
        for name, parameter in self.writer.named_parameters():
            parameter.requires_grad_(name in self._live)
        self.masters = {name: p.detach().float().clone() for name, p in self._live.items()}
        self.masters["mask_row"] = self.mask_row.detach()
        self.average = {name: m.clone() for name, m in self.masters.items()}
        decayed = [m for m in self.masters.values() if m.dim() > 1]
        plain = [m for m in self.masters.values() if m.dim() == 1]
        self.optimizer = torch.optim.AdamW(
            [
                {"params": decayed, "weight_decay": options.weight_decay},
                {"params": plain, "weight_decay": 0.0},
            ],
            lr=options.learning_rate,
            betas=(0.9, 0.98),
            fused=True,
        )

    @torch.no_grad()
    def adopt(self) -> None:
        """Start from the weights that `writer` holds now, with a fresh optimiser state."""
        self.mask_row.copy_(self.writer.embed_tokens.weight[self.mask_id])
        for name, parameter in {**self._live, "mask_row": self.mask_row}.items():
            self.masters[name].copy_(parameter)
            self.average[name].copy_(parameter)

    def read_prompts(self, batch: Batch) -> PromptKeys:
        """Keys of a batch's prompts from the frozen base, with the padding's bias."""
        with torch.no_grad():
            keys = self.reader.read(batch.prompt)[1]
        keys.bias = batch.prompt_bias
        return keys

    def steps(self, until: int, cooldown: int = 0) -> Iterator[StepReport]:
        """Train up to step `until`; the rate falls linearly to zero over the last `cooldown`."""
        while self.step < until:
            epoch, at = self._place(self.step)
            order = batch_order(self.rows, self.options.batch_size, epoch, self.options.seed)
            for index in range(at, len(order)):
                if self.step >= until:
                    return
                left = until - self.step
                fade = min(1.0, left / cooldown) if cooldown else 1.0
                yield self._train_on([self.rows[i] for i in order[index]], fade)

    def _place(self, step: int) -> tuple[int, int]:
        per_epoch = len(batch_order(self.rows, self.options.batch_size, 0, self.options.seed))
        return divmod(step, per_epoch)

    def _train_on(self, rows: list[Row], fade: float) -> StepReport:
        began = time.perf_counter()
        rng = np.random.default_rng([self.options.seed, 2, self.step])
        batch = make_batch(rows, self.reader.config, rng)
        prompt = self.read_prompts(batch)
        loss, by_kind = canvas_loss(self.writer, self.mask_row, self.mask_id, prompt, batch)
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        self._update(fade)
        self.step += 1
        return StepReport(
            self.step,
            float(loss.detach()),
            _merge_kinds(by_kind),
            batch.num_tokens,
            time.perf_counter() - began,
        )

    def _update(self, fade: float) -> None:
        options = self.options
        live = {**self._live, "mask_row": self.mask_row}
        for name, master in self.masters.items():
            grad = live[name].grad
            assert grad is not None, name
            master.grad = grad.float()
            live[name].grad = None
        torch.nn.utils.clip_grad_norm_(list(self.masters.values()), options.clip)
        rate = options.learning_rate * min(1.0, (self.step + 1) / options.warmup) * fade
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        cast(Any, self.optimizer).step()  # typed only in part
        with torch.no_grad():
            weight = max(1 - options.ema, 1 / (self.step + 1))
            for name, master in self.masters.items():
                live[name].data.copy_(master)
                self.average[name].lerp_(master, weight)

    def save(self) -> None:
        """Write the state; the file on disk is always a whole one."""
        self.folder.mkdir(parents=True, exist_ok=True)
        tensors: dict[str, Tensor] = {}
        for name, master in self.masters.items():
            tensors[f"master.{name}"] = master
            tensors[f"average.{name}"] = self.average[name]
            state = self.optimizer.state[master]
            if state:
                tensors[f"first.{name}"] = state["exp_avg"]
                tensors[f"second.{name}"] = state["exp_avg_sq"]
        about = {"step": str(self.step), "options": json.dumps(asdict(self.options))}
        scratch = self.folder / "state.tmp"
        save_tensors(tensors, scratch, about)
        os.replace(scratch, self.folder / "state.safetensors")

    def resume(self) -> bool:
        """Load the state if the folder has one; True if it had.

        Raises:
            CheckpointError: The state does not fit the network.
        """
        path = self.folder / "state.safetensors"
        if not path.exists():
            return False
        self.step = read_step(path)
        tensors = load_tensors(path)
        missing = [n for n in self.masters if f"master.{n}" not in tensors]
        if missing:
            raise CheckpointError(f"{path} lacks {missing[:5]}; it is of another network")
        live = {**self._live, "mask_row": self.mask_row}
        for name, master in self.masters.items():
            master.copy_(tensors[f"master.{name}"])
            live[name].data.copy_(master)
            self.average[name].copy_(tensors[f"average.{name}"])
            if f"first.{name}" in tensors:
                self.optimizer.state[master] = {
                    "step": torch.tensor(float(self.step)),
                    "exp_avg": tensors[f"first.{name}"],
                    "exp_avg_sq": tensors[f"second.{name}"],
                }
        return True


def _learning(writer: Transformer) -> dict[str, torch.nn.Parameter]:
    """What trains: the adapters if there are any, else all but embedding and head."""
    named = dict(writer.named_parameters())
    adapters = {name: p for name, p in named.items() if is_adapter(name)}
    shared = ("embed_tokens", "lm_head")
    return adapters or {name: p for name, p in named.items() if not name.startswith(shared)}


def read_step(path: Path) -> int:
    """The step a state file was written at."""
    return int(metadata_of(path)["step"])


def _merge_kinds(by_kind: Tensor) -> dict[str, float]:
    """Mean per name of kind; two canvases may be of one kind."""
    merged: dict[str, list[float]] = {}
    for name, value in zip(KINDS, by_kind, strict=True):
        merged.setdefault(name, []).append(float(value))
    return {name: sum(values) / len(values) for name, values in merged.items()}


@torch.no_grad()
def held_out_loss(
    trainer: Trainer, rows: list[Row], report: Callable[[str], None] = lambda _: None
) -> dict[str, float]:
    """Loss per kind of canvas on fixed rows with fixed noise, with the current weights."""
    size = trainer.options.batch_size
    totals: dict[str, list[float]] = {}
    for start in range(0, len(rows), size):
        batch = make_batch(
            rows[start : start + size], trainer.reader.config, np.random.default_rng(start)
        )
        prompt = trainer.read_prompts(batch)
        _, by_kind = canvas_loss(trainer.writer, trainer.mask_row, trainer.mask_id, prompt, batch)
        for name, value in _merge_kinds(by_kind).items():
            totals.setdefault(name, []).append(value)
        report(f"held out {min(start + size, len(rows))}/{len(rows)}")
    return {name: sum(values) / len(values) for name, values in totals.items()}
