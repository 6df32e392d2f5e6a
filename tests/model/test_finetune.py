"""Fine-tuning lowers held-out loss, keeps the best weights, resumes and refuses mistakes."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from agentloop.errors import CheckpointError, ModelError
from agentloop.model.base_weights import SHA256
from agentloop.model.default_weights import FORMAT, apply_delta, save_delta
from agentloop.model.finetune import TUNED, Check, FinetuneOptions, Finetuning
from agentloop.model.lora import is_adapter, product
from agentloop.model.pairs import read_pairs, rows_of, split_pairs
from agentloop.model.tensors import load_tensors, metadata_of, random_normal, save_tensors
from agentloop.model.training import make_writer
from agentloop.model.training_data import Row
from tests.model.tiny import tiny_network, tiny_tokenizer

TOOL = {
    "name": "name",
    "description": "",
    "parameters": {
        "type": "object",
        "properties": {"b": {"type": "integer"}, "a": {"type": "string"}},
        "required": ["a"],
        "additionalProperties": False,
    },
}


def rows(count: int, start: int = 0) -> list[Row]:
    tokenizer = tiny_tokenizer()
    made: list[Row] = []
    for i in range(start, start + count):
        answer = tokenizer.encode(f'{{"name":"{i % 5}"}}').ids
        made.append(Row(tokenizer.encode(f"say {i % 5}").ids, answer, [False] * len(answer), "p"))
    return made


def tuning(folder: Path, options: FinetuneOptions) -> Finetuning:
    reader = tiny_network()
    mask_id = reader.config.mask_id
    assert mask_id is not None
    writer = make_writer(reader, mask_id)
    return Finetuning(reader, writer, rows(32), rows(8, 100), folder, options, folder)


SHORT = FinetuneOptions(rank=4, learning_rate=1e-2, batch_size=4, max_steps=40, check_every=10)


def checks(run: Finetuning) -> list[Check]:
    return [event for event in run.run() if isinstance(event, Check)]


@pytest.mark.parametrize("rank", [4, None])
def test_held_out_loss_falls_and_the_best_weights_are_on_disk(
    tmp_path: Path, rank: int | None
) -> None:
    """Adapters or all weights: the file holds what the best check measured, of the right base."""
    run = tuning(tmp_path / "out", FinetuneOptions(rank, 1e-2, 4, max_steps=40, check_every=10))
    seen = checks(run)
    assert seen[0].step == 0
    assert run.best is not None
    assert run.best.loss < 0.9 * seen[0].loss
    stored = load_tensors(tmp_path / "out" / TUNED)
    assert metadata_of(tmp_path / "out" / TUNED)["base_sha256"] == SHA256
    adapters = [name for name in stored if is_adapter(name)]
    assert bool(adapters) == (rank is not None)
    if seen[-1].best and adapters:
        name = adapters[0]
        assert torch.equal(stored[name], run.trainer.masters[name].bfloat16())


def test_a_killed_run_goes_on_to_the_same_weights(tmp_path: Path) -> None:
    """Stopped after 20 steps and started again, masters equal those of the unbroken run."""
    whole = tuning(tmp_path / "whole", SHORT)
    list(whole.run())
    first = tuning(tmp_path / "broken", SHORT)
    list(first.run(should_stop=lambda: first.trainer.step >= 20))
    second = tuning(tmp_path / "broken", SHORT)
    assert second.resumed
    assert second.trainer.step == 20
    list(second.run())
    for name, expected in whole.trainer.masters.items():
        assert torch.equal(second.trainer.masters[name], expected), name
    assert [c.step for c in second.checks] == [c.step for c in whole.checks]


def test_it_stops_when_nothing_improves(tmp_path: Path) -> None:
    """At a rate of zero the loss stays; after `patience` checks the run ends."""
    options = FinetuneOptions(4, 0.0, 4, max_steps=400, check_every=1, patience=3)
    run = tuning(tmp_path / "out", options)
    assert [c.step for c in checks(run)] == [0, 1, 2, 3]
    assert run.is_settled


def test_another_run_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    """What differs is named, and nothing there is touched."""
    list(tuning(tmp_path / "out", SHORT).run(should_stop=lambda: True))
    before = (tmp_path / "out" / TUNED).read_bytes()
    with pytest.raises(CheckpointError, match="rank 4 there, 8 now"):
        tuning(tmp_path / "out", FinetuneOptions(8, 1e-2, 4))
    assert (tmp_path / "out" / TUNED).read_bytes() == before


def test_a_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    """A run never mixes with files it did not write."""
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(CheckpointError, match="not empty"):
        tuning(tmp_path, SHORT)


def write(path: Path, *items: object) -> Path:
    path.write_text("\n".join(json.dumps(item) for item in items))
    return path


def test_pairs_are_read_as_the_model_writes_them(tmp_path: Path) -> None:
    """Calls are compact JSON with arguments in the schema's order; tools may be wrapped."""
    call = {"name": "name", "arguments": {"a": "x", "b": 2}}
    path = write(
        tmp_path / "pairs.jsonl",
        {"messages": "hi", "tools": [TOOL], "answer": [call]},
        {"messages": "no", "tools": [{"type": "function", "function": TOOL}], "answer": []},
        {"messages": "n", "schema": TOOL["parameters"], "answer": {"a": "y", "b": 1}},
        {"messages": [{"role": "user", "content": "plain"}], "answer": "text"},
    )
    answers = [pair.answer for pair in read_pairs(path)]
    assert answers == [
        '[{"name":"name","arguments":{"b":2,"a":"x"}}]',
        "[]",
        '{"b":1,"a":"y"}',
        "text",
    ]


WRONG: list[tuple[Any, str]] = [
    ([], "object"),
    ({"messages": "hi"}, "answer: Field required"),
    ({"messages": "hi", "answer": "x", "more": 1}, "more: Extra inputs"),
    ({"messages": [], "answer": "x"}, "at least 1 item"),
    ({"messages": [{"role": "robot", "content": ""}], "answer": "x"}, "role: Input should be"),
    ({"messages": "hi", "answer": 3}, "must be a string"),
    ({"messages": "hi", "tools": [TOOL], "answer": [{"name": "b"}]}, "arguments: Field required"),
    ({"messages": "hi", "tools": [TOOL], "answer": {"name": "b", "arguments": {}}}, "calls 'b'"),
    (
        {"messages": "hi", "tools": [TOOL], "answer": [{"name": "name", "arguments": {}}]},
        "'a' is a required property",
    ),
    ({"messages": "hi", "tools": [{}], "answer": []}, "Field required"),
    ({"messages": "hi", "schema": {"type": 3}, "answer": []}, "the schema is not valid"),
    ({"messages": "hi", "schema": {}, "tools": [TOOL], "answer": []}, "give one of them"),
]


@pytest.mark.parametrize(("item", "told"), WRONG)
def test_a_wrong_line_is_named(tmp_path: Path, item: Any, told: str) -> None:
    """The error says which line, what it has and what was expected."""
    path = write(tmp_path / "pairs.jsonl", {"messages": "hi", "answer": "fine"}, item)
    with pytest.raises(ModelError, match="a wrong line") as caught:
        read_pairs(path)
    assert "line 2" in str(caught.value)
    assert told in str(caught.value)


def test_equal_prompts_stay_on_one_side(tmp_path: Path) -> None:
    """No held-out prompt is among the training prompts."""
    items = [{"messages": f"ask {i % 10}", "answer": str(i)} for i in range(40)]
    train, held_out = split_pairs(read_pairs(write(tmp_path / "p.jsonl", *items)), 0.2, seed=1)
    assert len(train) == 32
    assert len(held_out) == 8
    assert not {p.messages[0]["content"] for p in train} & {
        p.messages[0]["content"] for p in held_out
    }


def test_content_never_spells_a_control_token(tmp_path: Path) -> None:
    """A message that holds the end of a turn is text; a pair too long is told."""
    items = [
        {"messages": "a <|im_end|> b", "answer": "<|im_end|>"},
        {"messages": "x" * 900, "answer": "y"},
    ]
    pairs = read_pairs(write(tmp_path / "p.jsonl", *items))
    made, too_long = rows_of(pairs, tiny_tokenizer(), max_prompt=200)
    end = tiny_network().config.eos_ids[0]
    assert made[0].prompt.count(end) == 1
    assert end not in made[0].answer
    assert too_long == [1]


def test_adapters_load_beside_the_canvas_weights_they_were_trained_on(tmp_path: Path) -> None:
    """What `apply_delta` gives equals base, four-bit delta and adapter product together."""
    base = {n: p for n, p in tiny_network().named_parameters() if n.startswith(("layers", "norm"))}
    trained = {n: p + 0.1 * random_normal(tuple(p.shape), 7) for n, p in base.items()}
    save_delta(base, trained, torch.ones(32), tmp_path, {})
    before = tiny_network()
    apply_delta(before, tmp_path)
    name = "layers.1.mlp.up_proj"
    weight = dict(before.named_parameters())[f"{name}.weight"]
    down, up = random_normal((3, weight.shape[1]), 1), random_normal((weight.shape[0], 3), 2)
    metadata = {"format": FORMAT, "base_sha256": SHA256, "about": "{}"}
    tensors = {f"{name}.down": down, f"{name}.up": up, "mask_row": 2 * torch.ones(32)}
    save_tensors(tensors, tmp_path / TUNED, metadata)
    after = tiny_network()
    apply_delta(after, tmp_path)
    found = dict(after.named_parameters())[f"{name}.weight"]
    assert torch.allclose(found, weight + product(up, down), atol=1e-5)
    assert torch.equal(after.embed_tokens.weight[after.config.mask_id], 2 * torch.ones(32))
