"""The default model's canvas weights: a four-bit delta over the base, shipped in this package.

The delta is what training added to the base's blocks. Being small, it loses little at four bits:
its error is a fraction of the base's own quantisation error. Files:
`weights/canvas-*.safetensors`, tensors `<name>.codes` and `<name>.scales` for matrices, `<name>`
for vectors, `mask_row` for [MASK].
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import Tensor

from agentloop.errors import CheckpointError
from agentloop.model.base_weights import MASK_ID, SHA256, base_folder
from agentloop.model.checkpoint import load_network, load_tokenizer, read_tensors
from agentloop.model.lora import DOWN, UP, product
from agentloop.model.network import Transformer
from agentloop.model.quantize import dequantize, quantize
from agentloop.model.tensors import metadata_of, save_tensors
from agentloop.model.training import make_writer

FOLDER = Path(__file__).parent / "weights"
SHARD_BYTES = 40_000_000
FORMAT = "agentloop-canvas-delta-1"


def load_default(
    report: Callable[[str], None] = lambda _: None,
    *,
    folder: Path = FOLDER,
    dtype: torch.dtype = torch.bfloat16,
) -> tuple[Transformer, Transformer, Tokenizer]:
    """The frozen prompt reader, the canvas writer, and the tokenizer.

    Raises:
        CheckpointError: The base cannot be fetched, or the shipped delta is missing or damaged.
    """
    base = base_folder(report)
    report("loading the default model")
    reader = load_network(base, dtype)
    reader.config = replace(reader.config, mask_id=MASK_ID)
    writer = make_writer(reader, MASK_ID)
    apply_delta(writer, folder)
    return reader, writer.eval().requires_grad_(False), load_tokenizer(base)


def trained_parts(network: Transformer) -> dict[str, Tensor]:
    """The tensors of a network that training changes, by name."""
    return {
        name: p.data
        for name, p in network.named_parameters()
        if not name.startswith(("embed_tokens", "lm_head"))
    }


@torch.no_grad()
def apply_delta(writer: Transformer, folder: Path) -> None:
    """Add a stored delta to a network that holds the base's weights.

    Raises:
        CheckpointError: Files are missing, of another base, or incomplete.
    """
    check_format(folder)
    stored = dict(read_tensors(folder))
    for name, weight in trained_parts(writer).items():
        if f"{name}.codes" in stored:
            delta = dequantize(stored[f"{name}.codes"], stored[f"{name}.scales"])
        elif name in stored:
            delta = stored[name].float()
        else:
            raise CheckpointError(f"the canvas weights in {folder} lack {name}; install again")
        stem = name.removesuffix(".weight")
        if f"{stem}{UP}" in stored:
            delta = delta + product(stored[f"{stem}{UP}"], stored[f"{stem}{DOWN}"])
        weight.copy_(weight.float() + delta)
    row = stored["mask_row"]
    assert writer.config.mask_id is not None
    writer.embed_tokens.weight[writer.config.mask_id] = row.to(writer.dtype)


def holds_delta(folder: Path) -> bool:
    """Whether a folder holds canvas weights over the default's base, as fine-tuning writes."""
    return not (folder / "config.json").exists() and any(folder.glob("*.safetensors"))


def check_format(folder: Path) -> None:
    """Refuse a folder without canvas weights, or with weights over another base."""
    first = next(iter(sorted(folder.glob("*.safetensors"))), None)
    if first is None:
        raise CheckpointError(f"{folder} holds no canvas weights (*.safetensors); install again")
    about = metadata_of(first)
    if about.get("format") != FORMAT or about.get("base_sha256") != SHA256:
        raise CheckpointError(
            f"{first} is a delta of format {about.get('format')!r} over base "
            f"{about.get('base_sha256')!r}; expected {FORMAT!r} over {SHA256!r}"
        )


def save_delta(
    base: Mapping[str, Tensor],
    trained: Mapping[str, Tensor],
    mask_row: Tensor,
    folder: Path,
    about: Mapping[str, object],
) -> dict[str, float]:
    """Write the delta between two sets of weights as shards.

    Args:
        base: Weights before training, by name.
        trained: The same names after training.
        mask_row: (D,) embedding of [MASK].
        folder: Where the shards go; shards already there are replaced.
        about: What to note in the files: step, data, scores.

    Returns:
        Bytes written, and the root mean square of the delta, of its quantisation error, and of the
        base weights, for matrices.
    """
    tensors: dict[str, Tensor] = {"mask_row": mask_row.float().contiguous()}
    sums = dict.fromkeys(("delta", "error", "base"), 0.0)
    count = 0
    for name, after in trained.items():
        delta = after.float() - base[name].float()
        if delta.dim() != 2:
            tensors[name] = delta.contiguous()
            continue
        codes, scales = quantize(delta)
        tensors[f"{name}.codes"], tensors[f"{name}.scales"] = codes, scales
        sums["delta"] += float(delta.square().sum())
        sums["error"] += float((dequantize(codes, scales) - delta).square().sum())
        sums["base"] += float(base[name].float().square().sum())
        count += delta.numel()
    written = _write_shards(tensors, folder, about)
    rms = {f"rms_{key}": (total / count) ** 0.5 for key, total in sums.items()}
    return {"bytes": float(written), **rms}


def _write_shards(tensors: dict[str, Tensor], folder: Path, about: Mapping[str, object]) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.safetensors"):
        old.unlink()
    shards: list[dict[str, Tensor]] = [{}]
    size = 0
    for name, tensor in tensors.items():
        if size + tensor.nbytes > SHARD_BYTES and shards[-1]:
            shards.append({})
            size = 0
        shards[-1][name] = tensor
        size += tensor.nbytes
    metadata = {"format": FORMAT, "base_sha256": SHA256, "about": json.dumps(dict(about))}
    for number, shard in enumerate(shards, start=1):
        save_tensors(shard, folder / f"canvas-{number}-of-{len(shards)}.safetensors", metadata)
    return sum(t.nbytes for t in tensors.values())
