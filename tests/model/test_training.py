"""The trainer resumes to the same weights, its loss falls, and its noise is what it says."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from agentloop.errors import ModelError
from agentloop.model.noise import (
    FAR_WEIGHT,
    KINDS,
    NEAR,
    TAIL_WEIGHT,
    TAIL_WEIGHTED,
    add_noise,
)
from agentloop.model.training import Trainer, TrainingOptions, held_out_loss
from agentloop.model.training_data import Row, batch_order, make_batch, read_rows, structure_of
from tests.model.tiny import tiny_network, tiny_tokenizer

OPTIONS = TrainingOptions(batch_size=4, learning_rate=3e-3, warmup=5)


def rows(count: int = 32) -> list[Row]:
    tokenizer = tiny_tokenizer()
    made: list[Row] = []
    for i in range(count):
        answer = tokenizer.encode(f'{{"name":"{i % 5}"}}').ids
        prompt = tokenizer.encode(f"say {i % 5} in the end {'x' * (i % 7)}").ids
        made.append(Row(prompt, answer, [False] * len(answer), "test"))
    return made


def trainer(folder: Path, warmup: int = OPTIONS.warmup) -> Trainer:
    options = dataclasses.replace(OPTIONS, warmup=warmup)
    return Trainer(tiny_network(), rows(), folder, options)


def test_a_resumed_run_equals_the_unbroken_one(tmp_path: Path) -> None:
    """Killed after a save and started again, the weights end bit for bit the same."""
    whole = trainer(tmp_path / "whole")
    list(whole.steps(12))
    first = trainer(tmp_path / "broken")
    list(first.steps(7))
    first.save()
    second = trainer(tmp_path / "broken")
    assert second.resume()
    assert second.step == 7
    list(second.steps(12))
    for name, expected in whole.masters.items():
        assert torch.equal(second.masters[name], expected), name
        assert torch.equal(second.average[name], whole.average[name]), name


def test_the_loss_falls_and_the_reader_stays(tmp_path: Path) -> None:
    """Training changes the canvas's blocks and lowers held-out loss; the base does not move."""
    run = trainer(tmp_path)
    before = {n: p.clone() for n, p in run.reader.named_parameters() if n.startswith("layers")}
    start = held_out_loss(run, rows(8))
    list(run.steps(60))
    end = held_out_loss(run, rows(8))
    assert end["all"] < 0.7 * start["all"]
    assert end["half"] < 0.7 * start["half"]
    for name, value in before.items():
        assert torch.equal(dict(run.reader.named_parameters())[name], value)


def test_a_run_may_start_from_given_weights(tmp_path: Path) -> None:
    """What the writer holds becomes masters and average; the first step moves on from there."""
    first, second = trainer(tmp_path / "a"), trainer(tmp_path / "b")
    list(first.steps(5))
    second.writer.load_state_dict(first.writer.state_dict())
    with torch.no_grad():
        second.writer.embed_tokens.weight[second.mask_id] = first.masters["mask_row"]
    second.adopt()
    for name, expected in first.masters.items():
        assert torch.equal(second.masters[name], expected), name
        assert torch.equal(second.average[name], expected), name
    assert held_out_loss(second, rows(8)) == held_out_loss(first, rows(8))


def test_cooldown_ends_with_a_small_rate(tmp_path: Path) -> None:
    """The rate falls linearly to its last step's share of the peak."""
    run = trainer(tmp_path, warmup=1)
    list(run.steps(20, cooldown=10))
    assert run.optimizer.param_groups[0]["lr"] == pytest.approx(OPTIONS.learning_rate / 10)


def test_noise_supervises_hidden_and_replaced_slots_only() -> None:
    """Hidden slots weigh up to 1, by distance; some ends of text a little, right ones mostly 0."""
    rng = np.random.default_rng(0)
    length, L = 20, 48
    clean = np.concatenate([np.arange(100, 120), np.full(L - length, 2)])
    halves = 0
    for _ in range(200):
        noisy = add_noise(clean, length, np.zeros(L, bool), mask_id=9, vocab_size=500, rng=rng)
        hidden = noisy.tokens == 9
        assert hidden.shape == (len(KINDS), L)
        assert hidden[0].all()
        halves += int(hidden[3].sum())
        wrong = ~hidden & (noisy.tokens != clean)
        assert (noisy.weights[wrong] == 1).all()
        assert not wrong[:, length:].any()
        answer = hidden & (np.arange(L) <= length)
        assert (noisy.weights[answer] >= FAR_WEIGHT).all()
        assert (noisy.weights[3][answer[3]] == 1).all()
        assert (noisy.weights[0, : NEAR + 1] == 1).all()
        assert noisy.weights[0, 2 * NEAR] == pytest.approx(0.5)
        tail = hidden & (np.arange(L) > length) & (np.arange(L) <= length + TAIL_WEIGHTED)
        assert (noisy.weights[tail] <= TAIL_WEIGHT + 1e-6).all()
        assert (noisy.weights[tail] > 0).all()
        assert (noisy.weights[:, length + 1 + TAIL_WEIGHTED :] == 0).all()
    assert 0.4 < halves / (200 * L) < 0.6


def test_skeleton_rows_show_structure() -> None:
    """With the skeleton always shown, no slot of structure is hidden in the second canvas."""
    rng = np.random.default_rng(1)
    structure = np.arange(16) % 2 == 0
    for _ in range(50):
        noisy = add_noise(
            np.arange(20, 36), 15, structure, mask_id=9, vocab_size=50, rng=rng, p_skeleton=1.0
        )
        assert not (noisy.tokens[1][structure] == 9).any()


def test_structure_marks_keys_and_punctuation() -> None:
    """Values of any kind are content; a comma or brace inside a string is too."""
    text = '[{"a":"x, {y}","b\\"c":[1,true]}]'
    content = "".join(c for c, s in zip(text, structure_of(text), strict=True) if not s)
    assert content == "x, {y}1true"


def test_batches_cover_an_epoch_once_and_differ_between_epochs() -> None:
    """Every row is seen once an epoch, in an order of its own."""
    data = rows(64)
    first, second = (batch_order(data, 4, epoch, seed=3) for epoch in (0, 1))
    assert sorted(i for batch in first for i in batch) == list(range(64))
    assert first != second
    assert first == batch_order(data, 4, 0, seed=3)


def test_a_batch_places_the_anchor_before_the_canvas() -> None:
    """The first canvas position is the prompt's last token at its place in the text."""
    config = tiny_network().config
    data = rows(4)
    batch = make_batch(data, config, np.random.default_rng(0))
    for b, row in enumerate(data):
        assert (batch.canvas[b, :, 0] == row.prompt[-1]).all()
        assert int(batch.positions[b, 0]) == len(row.prompt) - 1
        assert int(torch.isfinite(batch.prompt_bias[b]).sum()) == len(row.prompt) - 1
        assert [int(t) for t in batch.targets[b, 0, : len(row.answer)]] == row.answer


def test_a_bad_row_is_named(tmp_path: Path) -> None:
    """A line that lacks a field is an error with file and line, not a crash later."""
    path = tmp_path / "train.jsonl"
    good = {"messages": [{"role": "user", "content": "hi"}], "answer": "{}"}
    path.write_text(json.dumps(good) + "\n" + json.dumps({"messages": []}) + "\n")
    with pytest.raises(ModelError, match=r"train\.jsonl:2 is no training row"):
        read_rows(path, tiny_tokenizer())
