"""From a name or a folder to the networks and the tokenizer of a model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer

from agentloop.errors import CheckpointError
from agentloop.model.checkpoint import load_network, load_tokenizer
from agentloop.model.long_context import stretched
from agentloop.model.network import Transformer
from agentloop.model.products import has_bfloat16_products


@dataclass(frozen=True)
class Loaded:
    """What a model is made of.

    Attributes:
        reader: The network that reads prompts.
        writer: The network that refines canvases; it may be the same.
        tokenizer: Between text and tokens.
        name: What was loaded.
    """

    reader: Transformer
    writer: Transformer
    tokenizer: Tokenizer
    name: str


def native_dtype() -> torch.dtype:
    """bfloat16 where this processor has instructions for its products, float32 elsewhere."""
    return torch.bfloat16 if has_bfloat16_products() else torch.float32


def load_networks(
    name_or_folder: str | Path,
    *,
    dtype: torch.dtype,
    context: int | None = None,
    report: Callable[[str], None] = lambda _: None,
) -> Loaded:
    """Load what `DiffusionLM.load` names.

    Raises:
        CheckpointError: There is no such model, or it is damaged.
        ModelError: `context` is not positive.
    """
    loaded = _load(name_or_folder, dtype, report)
    if context is not None:
        for network in (loaded.reader, loaded.writer):
            if network.config.max_position_embeddings != context:  # not twice, if it is one
                network.config = stretched(network.config, context)
    return loaded


def _load(name_or_folder: str | Path, dtype: torch.dtype, report: Callable[[str], None]) -> Loaded:
    from agentloop.model.default_weights import holds_delta, load_default  # it brings gguf

    if name_or_folder == "default":
        return Loaded(*load_default(report, dtype=dtype), "default")
    folder = Path(name_or_folder)
    if not folder.is_dir():
        raise CheckpointError(
            f"{str(name_or_folder)!r} is neither 'default' nor a folder with config.json, "
            "*.safetensors and tokenizer.json"
        )
    if holds_delta(folder):
        return Loaded(*load_default(report, folder=folder, dtype=dtype), str(folder))
    network = load_network(folder, dtype)
    return Loaded(network, network, load_tokenizer(folder), str(folder))
