"""Folders load exactly, and what is wrong with one is said by name; quantised deltas round-trip."""

import json
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agentloop.errors import CheckpointError
from agentloop.model import default_weights
from agentloop.model.checkpoint import load_network, load_tokenizer, read_config
from agentloop.model.quantize import GROUP, dequantize, quantize
from agentloop.model.tensors import load_tensors, random_normal, save_tensors
from agentloop.model.training import make_writer
from tests.model.tiny import tiny_config, tiny_network, write_folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_folder(tmp_path)
    return tmp_path


def test_a_folder_loads_as_it_was_written(folder: Path) -> None:
    """Configuration and every tensor come back equal."""
    network = load_network(folder, torch.float32)
    assert network.config == tiny_config()
    for name, parameter in tiny_network().named_parameters():
        assert torch.equal(dict(network.named_parameters())[name], parameter), name


def change(folder: Path, **changes: torch.Tensor | None) -> None:
    path = folder / "model.safetensors"
    tensors = load_tensors(path)
    for name, tensor in changes.items():
        full = name.replace("__", ".")
        if tensor is None:
            del tensors[full]
        else:
            tensors[full] = tensor
    save_tensors(tensors, path)


def test_missing_extra_and_misshapen_tensors_are_listed(folder: Path) -> None:
    """One error names them all."""
    change(
        folder,
        model__norm__weight=None,
        model__layers__0__mlp__up_proj__weight=torch.zeros(3, 3),
        surplus=torch.zeros(1),
    )
    with pytest.raises(CheckpointError) as caught:
        load_network(folder)
    text = str(caught.value)
    assert "missing norm.weight" in text
    assert "unexpected surplus" in text
    assert "up_proj.weight has shape (3, 3), expected (48, 32)" in text


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, "holds no config.json"),
        ("{", "is not JSON"),
        ("[1]", "expected a JSON object"),
        ('{"model_type": "bert"}', "model_type is 'bert', expected one of llama"),
        ('{"model_type": "llama", "hidden_size": 4}', "lacks 'num_attention_heads'"),
    ],
)
def test_a_bad_config_is_explained(folder: Path, content: str | None, expected: str) -> None:
    """Each way config.json can be wrong has its own message."""
    path = folder / "config.json"
    if content is None:
        path.unlink()
    else:
        path.write_text(content)
    with pytest.raises(CheckpointError, match=expected):
        read_config(folder)


def test_damaged_files_are_explained(folder: Path) -> None:
    """A cut weight file and a cut tokenizer are errors that name the file."""
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(CheckpointError, match=r"model\.safetensors is damaged"):
        load_network(folder)
    weights.unlink()
    with pytest.raises(CheckpointError, match=r"holds no \*\.safetensors"):
        load_network(folder)
    tokenizer = folder / "tokenizer.json"
    tokenizer.write_text(tokenizer.read_text()[:50])
    with pytest.raises(CheckpointError, match=r"tokenizer\.json cannot be read"):
        load_tokenizer(folder)
    tokenizer.unlink()
    with pytest.raises(CheckpointError, match=r"holds no tokenizer\.json"):
        load_tokenizer(folder)


def test_rope_scaling_is_refused(folder: Path) -> None:
    """What is not implemented is refused rather than ignored."""
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "rope_scaling": {"type": "yarn"}}))
    with pytest.raises(CheckpointError, match="rope_scaling"):
        read_config(folder)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**31), st.floats(1e-6, 1e3))
def test_quantisation_errs_by_at_most_a_step(seed: int, size: float) -> None:
    """Every value comes back within the full range's step; zeros stay zero."""
    weight = random_normal((6, 4 * GROUP), seed) * size
    weight[0] = 0
    back = dequantize(*quantize(weight))
    steps = weight.reshape(6, 4, GROUP).abs().amax(-1) / 7
    error = (back - weight).abs().reshape(6, 4, GROUP)
    assert torch.equal(back[0], weight[0])
    typical = error.square().mean().sqrt() / weight.square().mean().sqrt()
    assert typical < 0.12
    assert (error <= 2.6 * steps[..., None] + 1e-6).all()


def test_a_delta_round_trips(tmp_path: Path) -> None:
    """Base plus stored delta is the trained network up to the quantisation error."""
    base, trained = tiny_network(0), make_writer(tiny_network(0), 5)
    with torch.no_grad():
        for parameter in default_weights.trained_parts(trained).values():
            parameter.add_(torch.randn_like(parameter) * 0.01)
    names = default_weights.trained_parts(trained)
    row = torch.arange(32.0)
    sizes = default_weights.save_delta(
        default_weights.trained_parts(base), names, row, tmp_path, {"step": 3}
    )
    assert sizes["rms_error"] < 0.12 * sizes["rms_delta"] < sizes["rms_base"]
    again = tiny_network(0)
    default_weights.apply_delta(again, tmp_path)
    for name, expected in names.items():
        got = default_weights.trained_parts(again)[name]
        assert (got - expected).abs().max() < 0.01, name
    assert torch.equal(again.embed_tokens.weight[again.config.mask_id], row)


def test_a_delta_over_another_base_is_refused(tmp_path: Path) -> None:
    """The base's hash is checked before anything is added; an empty folder is explained."""
    with pytest.raises(CheckpointError, match="holds no canvas weights"):
        default_weights.check_format(tmp_path)
    save_tensors({"x": torch.zeros(1)}, tmp_path / "a.safetensors", {"format": "other"})
    with pytest.raises(CheckpointError, match="format 'other'"):
        default_weights.check_format(tmp_path)
