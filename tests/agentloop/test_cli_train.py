"""The command `train`: what it refuses before anything loads, and a whole run on the default."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

from agentloop.__main__ import main
from agentloop.cli_train import Lesson, run_train, share_or_file
from agentloop.errors import ModelError
from agentloop.model.default_weights import holds_delta
from agentloop.model.finetune import FinetuneOptions
from agentloop.model.pairs import read_pairs
from agentloop.model.tensors import metadata_of

EXAMPLE = Path(__file__).parents[2] / "examples" / "05_teach_tools.py"


def load_example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("teach_tools", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_share_or_a_file_is_told_apart(tmp_path: Path) -> None:
    """A number between 0 and 1 is a share, a file is a file, all else is refused."""
    assert share_or_file("0.2") == 0.2
    assert share_or_file(str(EXAMPLE)) == EXAMPLE
    for wrong in ("0", "1.5", str(tmp_path / "missing.jsonl")):
        with pytest.raises(ModelError, match="share"):
            share_or_file(wrong)


def test_wrong_pairs_end_the_command_before_it_loads_a_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The wrong line is named on standard error, and no folder is made."""
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text('{"messages": "hi"}\n')
    code = main(["train", str(pairs), "--out", str(tmp_path / "out")])
    assert code == 1
    assert "line 1: answer: Field required" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_the_example_writes_pairs_that_are_right(tmp_path: Path) -> None:
    """No held-out room or title is in the training pairs; all pass the checks."""
    train, held_out = load_example().write_pairs(tmp_path)
    assert len(read_pairs(train)) == 300
    assert len(read_pairs(held_out)) == 40
    assert "attic" not in train.read_text()
    assert "kitchen" not in held_out.read_text()


@pytest.mark.weights
def test_a_run_on_the_default_model_leaves_weights_beside_the_base(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One step leaves canvas weights and the record of the best step as JSON."""
    pairs, held_out = load_example().write_pairs(tmp_path)
    few = tmp_path / "few.jsonl"
    few.write_text("\n".join(held_out.read_text().splitlines()[:2]))
    options = FinetuneOptions(rank=2, batch_size=2, max_steps=1, check_every=1)
    lesson = Lesson(pairs, tmp_path / "model", validation=few, score=0)
    run_train(lesson, options, as_json=True)
    result = json.loads(capsys.readouterr().out)
    assert result["steps"] == 1
    assert result["before"] == result["after"] == {}
    assert holds_delta(tmp_path / "model")
    assert read_step_of(tmp_path / "model" / "tuned.safetensors") == result["best_step"]


def read_step_of(path: Path) -> int:
    """The step that a file of tuned weights was written at."""
    return int(json.loads(metadata_of(path)["about"])["step"])
