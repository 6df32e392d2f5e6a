"""Weights from a Hugging Face style folder: config.json, safetensors, tokenizer.json.

Shards are memory-mapped and copied tensor by tensor. Nothing in the folder is executed; names that
are missing, unexpected or of another shape are listed in the error.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError
from tokenizers import Tokenizer
from torch import Tensor

from agentloop.errors import CheckpointError
from agentloop.model.config import ModelConfig
from agentloop.model.network import Transformer
from agentloop.model.tensors import tensors_of

FAMILIES = ("llama", "qwen2", "qwen3")


def read_config(folder: Path) -> ModelConfig:
    """The configuration in `folder`/config.json.

    Raises:
        CheckpointError: The file is missing, not JSON, of an unknown family, or lacks a size.
    """
    path = folder / "config.json"
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(
            f"{folder} holds no config.json; expected a folder with config.json, "
            "*.safetensors and tokenizer.json"
        ) from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path} is not JSON: {error}") from None
    if not isinstance(raw, dict):
        raise CheckpointError(f"{path} holds {type(raw).__name__}, expected a JSON object")
    return _config_of(path, cast(dict[str, Any], raw))


def _config_of(path: Path, raw: dict[str, Any]) -> ModelConfig:
    family = raw.get("model_type")
    if family not in FAMILIES:
        raise CheckpointError(
            f"{path}: model_type is {family!r}, expected one of {', '.join(FAMILIES)}"
        )
    if raw.get("rope_scaling"):
        raise CheckpointError(f"{path}: rope_scaling {raw['rope_scaling']!r} is not supported")
    try:
        heads = int(raw["num_attention_heads"])
        width = int(raw["hidden_size"])
        return ModelConfig(
            vocab_size=int(raw["vocab_size"]),
            hidden_size=width,
            num_layers=int(raw["num_hidden_layers"]),
            num_heads=heads,
            num_kv_heads=int(raw.get("num_key_value_heads") or heads),
            head_dim=int(raw.get("head_dim") or width // heads),
            intermediate_size=int(raw["intermediate_size"]),
            rope_theta=_rope_theta(raw),
            rms_norm_eps=float(raw.get("rms_norm_eps", 1e-6)),
            tie_word_embeddings=bool(raw.get("tie_word_embeddings", False)),
            qkv_bias=family == "qwen2" or bool(raw.get("attention_bias", False)),
            qk_norm=family == "qwen3",
            max_position_embeddings=int(raw.get("max_position_embeddings", 2048)),
            mask_id=raw.get("mask_token_id"),
            eos_ids=_ids(raw.get("eos_token_id")),
        )
    except KeyError as error:
        raise CheckpointError(f"{path} lacks {error.args[0]!r}") from None


def _ids(value: int | list[int] | None) -> tuple[int, ...]:
    """Token ids that may be given as none, one or a list."""
    if value is None:
        return ()
    return tuple(value) if isinstance(value, list) else (value,)


def _rope_theta(raw: dict[str, Any]) -> float:
    parameters: dict[str, Any] = raw.get("rope_parameters") or {}
    return float(raw.get("rope_theta") or parameters.get("rope_theta") or 10_000.0)


def read_tensors(folder: Path) -> Iterator[tuple[str, Tensor]]:
    """Every tensor of the folder's *.safetensors, one at a time.

    Raises:
        CheckpointError: There is no such file, or one is damaged.
    """
    paths = sorted(folder.glob("*.safetensors"))
    if not paths:
        raise CheckpointError(f"{folder} holds no *.safetensors file")
    for path in paths:
        try:
            yield from tensors_of(path)
        except SafetensorError as error:
            raise CheckpointError(f"{path} is damaged: {error}; fetch it again") from None


def load_network(folder: Path, dtype: torch.dtype = torch.bfloat16) -> Transformer:
    """The network of a folder, in evaluation mode.

    Raises:
        CheckpointError: Tensors are missing, unexpected or of the wrong shape; all are named.
    """
    config = read_config(folder)
    with torch.device("meta"):
        network = Transformer(config)
    network = network.to(dtype)
    wanted = dict(network.named_parameters())
    found: dict[str, Tensor] = {}
    problems: list[str] = []
    for full_name, tensor in read_tensors(folder):
        name = full_name.removeprefix("model.")
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        if name.endswith("rotary_emb.inv_freq"):
            continue
        if name not in wanted:
            problems.append(f"unexpected {full_name}")
        elif tensor.shape != wanted[name].shape:
            expected, got = tuple(wanted[name].shape), tuple(tensor.shape)
            problems.append(f"{full_name} has shape {got}, expected {expected}")
        else:
            found[name] = tensor.to(dtype)
    problems += [f"missing {name}" for name in wanted if name not in found]
    if problems:
        listed = "\n  ".join(problems[:20])
        more = f"\n  and {len(problems) - 20} more" if len(problems) > 20 else ""
        raise CheckpointError(
            f"the tensors in {folder} do not fit its config.json:\n  {listed}{more}"
        )
    network.load_state_dict(found, assign=True)
    return network.eval().requires_grad_(False)


def load_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer of a folder.

    Raises:
        CheckpointError: tokenizer.json is missing or damaged.
    """
    path = folder / "tokenizer.json"
    if not path.exists():
        raise CheckpointError(f"{folder} holds no tokenizer.json")
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises a bare Exception
        raise CheckpointError(f"{path} cannot be read: {error}") from None
