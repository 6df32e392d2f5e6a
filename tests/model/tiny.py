"""A tiny random model with a real byte-level tokenizer, for tests of all but the weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from agentloop.model.config import ModelConfig
from agentloop.model.network import Transformer
from agentloop.model.tensors import random_normal, save_tensors

if TYPE_CHECKING:
    from agentloop.model.lm import DiffusionLM
    from agentloop.model.products import Precision

MERGES = [
    "th",
    "he",
    "in",
    "er",
    "an",
    '":',
    '{"',
    '"}',
    '",',
    "00",
    "na",
    "me",
    "name",
    "tr",
    "ue",
    "true",
]
SPECIAL = ["<|im_start|>", "<|im_end|>", "<|mask|>"]


def tiny_tokenizer() -> Tokenizer:
    """Bytes, a few merges, and the three control tokens (the last ids)."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {token: i for i, token in enumerate(alphabet)}
    merges: list[tuple[str, str]] = []
    for token in MERGES:
        cut = len(token) // 2
        merges.append((token[:cut], token[cut:]))
        vocab[token] = len(vocab)
    tokenizer: Any = Tokenizer(models.BPE(vocab, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in SPECIAL])
    return cast(Tokenizer, tokenizer)


def tiny_config() -> ModelConfig:
    """Two layers of width 32 over the tiny tokenizer."""
    size = tiny_tokenizer().get_vocab_size()
    return ModelConfig(
        vocab_size=size,
        hidden_size=32,
        num_layers=2,
        num_heads=4,
        num_kv_heads=2,
        head_dim=8,
        intermediate_size=48,
        max_position_embeddings=1024,
        mask_id=size - 1,
        eos_ids=(size - 2,),
    )


def tiny_network(seed: int = 0, dtype: torch.dtype = torch.float32) -> Transformer:
    """Random weights, large enough that predictions are far from uniform."""
    network = Transformer(tiny_config())
    with torch.no_grad():
        for number, parameter in enumerate(network.parameters()):
            if parameter.dim() > 1:
                shape = tuple(parameter.shape)
                parameter.copy_(random_normal(shape, 100 * seed + number, std=0.3))
    return network.to(dtype).eval().requires_grad_(False)


def tiny_lm(seed: int = 0, precision: Precision = "float32") -> DiffusionLM:
    """A model whose reader and writer are one random network."""
    from agentloop.model.lm import DiffusionLM

    network = tiny_network(seed)
    return DiffusionLM(network, network, tiny_tokenizer(), name="tiny", precision=precision)


def write_folder(folder: Path, seed: int = 0) -> None:
    """The tiny model as a Hugging Face style folder."""
    network = tiny_network(seed)
    c = network.config
    config = {
        "model_type": "llama",
        "vocab_size": c.vocab_size,
        "hidden_size": c.hidden_size,
        "num_hidden_layers": c.num_layers,
        "num_attention_heads": c.num_heads,
        "num_key_value_heads": c.num_kv_heads,
        "head_dim": c.head_dim,
        "intermediate_size": c.intermediate_size,
        "max_position_embeddings": c.max_position_embeddings,
        "rms_norm_eps": c.rms_norm_eps,
        "tie_word_embeddings": True,
        "mask_token_id": c.mask_id,
        "eos_token_id": list(c.eos_ids),
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    tensors = {f"model.{name}": p.data.clone() for name, p in network.named_parameters()}
    save_tensors(tensors, folder / "model.safetensors")
    (folder / "tokenizer.json").write_text(tiny_tokenizer().to_str())
