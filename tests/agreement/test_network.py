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
from agentloop.model.network import Transformer
from agentloop.model.packed import PackedNetwork, Span
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


def listed(tokens: torch.Tensor) -> list[int]:
    return [int(token) for token in tokens[0]]


@torch.no_grad()
def test_packed_networks_agree(pair: tuple[Any, Transformer]) -> None:
    """Canvases of different lengths over different prompts, in one pass, equal single ones."""
    _, ours = pair
    packed = PackedNetwork(ours, "float32")
    texts: list[int] = []
    spans: list[Span] = []
    alone: list[torch.Tensor] = []
    for seed, (past, length) in enumerate([(5, 9), (30, 17), (1, 3), (0, 6)]):
        prompt, canvas = ids(past, seed), ids(length, 10 + seed)
        read = packed.new_keys(past + length)
        if past:
            packed.read(listed(prompt), read)
        spans.append(Span(len(texts), len(texts) + length, read, past))
        texts += listed(canvas)
        keys = ours.read(prompt)[1] if past else None
        positions = torch.arange(past, past + length)
        hidden = ours.refine(ours.embed_tokens(canvas)[:, None], positions, keys)
        alone.append(ours.logits(hidden[0, 0]))
    together = packed.logits(packed.run(texts, spans))
    torch.testing.assert_close(together, torch.cat(alone), atol=1e-4, rtol=1e-4)


@torch.no_grad()
def test_a_packed_network_reads_as_the_plain_one(pair: tuple[Any, Transformer]) -> None:
    """Read in pieces, a text has the logits, keys and values of the plain network."""
    _, ours = pair
    packed = PackedNetwork(ours, "float32")
    tokens = ids(37)
    hidden, keys = ours.read(tokens)
    mine = packed.new_keys(40)
    streams = [packed.read(listed(tokens)[a:b], mine) for a, b in ((0, 20), (20, 21), (21, 37))]
    got = packed.logits(torch.cat(streams))
    torch.testing.assert_close(got, ours.logits(hidden[0]), atol=1e-4, rtol=1e-4)
    for number in range(ours.config.num_layers):
        k, v = mine.keys[number, :, :37], mine.values[number, :, :37]
        torch.testing.assert_close(k, keys.keys[number][0], atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(v, keys.values[number][0], atol=1e-4, rtol=1e-4)


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
