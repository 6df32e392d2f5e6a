"""Our transformer against the reference classes of `transformers`, on tiny random weights."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PretrainedConfig,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from agentloop.model.checkpoint import load_network
from agentloop.model.network import PackedRow, Transformer
from agentloop.model.tensors import from_array, random_normal, save_tensors

SIZES: dict[str, Any] = {
    "vocab_size": 97,
    "hidden_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "intermediate_size": 80,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "attn_implementation": "eager",
}
TOLERANCE = 1e-4


def reference(family: str) -> Any:
    """A tiny random model of a family, norms and biases random too."""
    models: dict[str, Any] = {
        "llama": lambda: LlamaForCausalLM(LlamaConfig(**SIZES, tie_word_embeddings=True)),
        "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**SIZES, tie_word_embeddings=False)),
        "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**SIZES, head_dim=16)),
    }
    model: Any = models[family]()
    model.eval()
    with torch.no_grad():
        for number, parameter in enumerate(model.parameters()):
            noise = random_normal(tuple(parameter.shape), number, std=0.15)
            parameter.copy_(noise + (1.0 if parameter.dim() == 1 else 0.0))
    return model


@pytest.fixture(params=["llama", "qwen2", "qwen3"])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Any, Transformer]:
    """A reference model and ours, loaded from the folder that the reference wrote."""
    model = reference(request.param)
    config: PretrainedConfig = model.config
    (tmp_path / "config.json").write_text(json.dumps(config.to_dict()))
    tied = bool(config.tie_word_embeddings)
    tensors = {
        name: tensor.contiguous().clone()
        for name, tensor in model.state_dict().items()
        if not (tied and name == "lm_head.weight")
    }
    save_tensors(tensors, tmp_path / "model.safetensors")
    return model, load_network(tmp_path, torch.float32)


def ids(length: int, seed: int = 0) -> torch.Tensor:
    draws = np.random.default_rng(seed).integers(0, SIZES["vocab_size"], (1, length))
    return from_array(draws)


@torch.no_grad()
def test_causal_logits_agree(pair: tuple[Any, Transformer]) -> None:
    """Reading a prompt gives the reference's logits at every position."""
    model, ours = pair
    tokens = ids(41)
    expected = model(tokens).logits
    got = ours.logits(ours.read(tokens)[0])
    assert (got - expected).abs().max() < TOLERANCE


@torch.no_grad()
def test_canvas_logits_agree(pair: tuple[Any, Transformer]) -> None:
    """A canvas that sees its prompt and itself both ways equals the reference under that mask."""
    model, ours = pair
    prompt, canvas = ids(23), ids(17, seed=1)
    tokens = torch.cat([prompt, canvas], dim=1)
    visible = torch.ones(40, 40, dtype=torch.bool).tril()
    visible[23:, 23:] = True
    mask = torch.where(visible, 0.0, float("-inf"))[None, None]
    expected = model(tokens, attention_mask=mask).logits[:, 23:]
    _, keys = ours.read(prompt)
    embedded = ours.embed_tokens(canvas)[:, None]
    got = ours.logits(ours.refine(embedded, torch.arange(23, 40), keys))[:, 0]
    assert (got - expected).abs().max() < TOLERANCE


@torch.no_grad()
def test_packed_canvases_agree_with_single_ones(pair: tuple[Any, Transformer]) -> None:
    """Canvases of different lengths over different prompts, in one pass, equal one at a time."""
    _, ours = pair
    cases = [(ids(5, 1), ids(9, 2)), (ids(30, 3), ids(17, 4)), (ids(12, 5), ids(3, 6))]
    rows: list[PackedRow] = []
    alone: list[torch.Tensor] = []
    places: list[int] = []
    for prompt, canvas in cases:
        keys = ours.read(prompt)[1]
        positions = torch.arange(prompt.shape[1], prompt.shape[1] + canvas.shape[1])
        alone.append(ours.refine(ours.embed_tokens(canvas)[:, None], positions, keys)[0, 0])
        rows.append(PackedRow(len(places), len(places) + canvas.shape[1], keys))
        places += map(int, positions)
    embedded = ours.embed_tokens(torch.cat([canvas[0] for _, canvas in cases]))
    together = ours.refine_packed(embedded, torch.tensor(places), rows)
    torch.testing.assert_close(together, torch.cat(alone), atol=1e-5, rtol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("cuts", [(1,), (10, 20), (7, 8, 31)])
def test_a_prompt_read_in_pieces_equals_it_read_whole(
    pair: tuple[Any, Transformer], cuts: tuple[int, ...]
) -> None:
    """Keys kept from earlier pieces stand for the tokens themselves."""
    _, ours = pair
    tokens = ids(37)
    whole_hidden, whole = ours.read(tokens)
    keys = None
    hidden: list[torch.Tensor] = []
    for start, stop in zip((0, *cuts), (*cuts, 37), strict=True):
        out, more = ours.read(tokens[:, start:stop], keys)
        keys = keys.extended(more) if keys else more
        hidden.append(out)
    assert keys is not None
    torch.testing.assert_close(torch.cat(hidden, dim=1), whole_hidden, atol=1e-5, rtol=1e-5)
    for got, expected in zip(keys.keys + keys.values, whole.keys + whole.values, strict=True):
        torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-5)
