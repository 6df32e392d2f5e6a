"""The preparation of training and held-out rows, from archives to files."""

from __future__ import annotations

import json
import random
import tarfile
from pathlib import Path

import pytest

from recipes.default_model import prepare
from recipes.default_model.contamination import normalised, without_contamination
from recipes.default_model.dialogues import HELD_OUT_SERVICES
from recipes.default_model.questions import (
    Question,
    content_words,
)
from tests.recipes.samples import (
    BUS,
    DIALOGUE,
    FILM,
    PARAMETERS,
    PARAPHRASED_BUS,
    PARAPHRASED_FILM,
    QED_RECORD,
    XQUAD,
    Json,
    bus_dialogue,
)


def test_contamination_is_dropped_and_counted() -> None:
    """A row with a held-out question, or with a run of its paragraph's words, goes."""
    run = "one two three four five six seven eight nine ten eleven twelve thirteen"
    held_out = Question("x", "Who wrote it?", ["Ada"], [f"And {run}."], 0, "p")

    def reading_row(asked: str, passage: str) -> Json:
        message = {"role": "user", "content": f"[1] {passage}\n\nQuestion: {asked}"}
        return {"task": "reading", "messages": [message], "passages": [passage]}

    same, shared, clean = (
        reading_row("who wrote IT", "a"),
        reading_row("Why?", run.title()),
        reading_row("Why?", "one two three"),
    )
    kept, dropped = without_contamination([same, shared, clean], [], [held_out])
    assert kept == [clean]
    assert sum(dropped.values()) == 2


def test_questions_compare_without_case_and_signs() -> None:
    """Two spellings of a question are one."""
    assert normalised("Who wrote  it?") == normalised("who wrote IT") == "who wrote it"


def test_balance_keeps_short_rows_and_the_share() -> None:
    """Long rows go, every short call stays, and reading rows are thinned to their share."""

    def rows(task: str, count: int, length: int) -> list[Json]:
        return [
            {"task": task, "messages": [{"content": "x" * length}], "answer": str(i)}
            for i in range(count)
        ]

    given_rows = [*rows("call", 60, 8), *rows("call", 5, 20), *rows("reading", 90, 8)]
    kept = prepare.balanced(given_rows, 10, 0.25, random.Random(0))
    assert sum(r["task"] == "call" for r in kept) == 60
    assert sum(r["task"] == "reading" for r in kept) == 20
    assert "reading" in {r["task"] for r in kept[:40]}


def test_content_words_leave_out_the_common_ones() -> None:
    """Only words that carry meaning are compared."""
    assert content_words("What is THE name of it?") == {"name"}


def write_archives(folder: Path) -> None:
    """Archives like the real ones, each with a row or two."""
    source = folder / "source"
    held_out = sorted(HELD_OUT_SERVICES)[1]
    test_bus = {**BUS, "service_name": held_out}
    files: dict[str, str] = {
        "sgd/train/dialogues_001.json": json.dumps([DIALOGUE]),
        "sgd/train/schema.json": json.dumps([BUS, FILM]),
        "sgd/test/dialogues_001.json": json.dumps([bus_dialogue(PARAMETERS, held_out)]),
        "sgd/test/schema.json": json.dumps([test_bus, FILM]),
        "qed/nq-train-00-qed.jsonlines": json.dumps(QED_RECORD) + "\n",
        "qamr/data/wiki-sentences.tsv": "s:1:2\tThe sponge of the sea eats fine plankton .\n"
        "t:1:2\tA whale of the sea eats much more than that .\n",
        "qamr/data/filtered/dev.tsv": "s:1:2\t1\t5\t0\t3\tWhat does the sea sponge eat?"
        "\t7\t2:7\t3:7\n",
        "qamr/data/filtered/test.tsv": "",
        "xquad/xquad.en.json": json.dumps(XQUAD),
    }
    for i in range(1, 6):
        files[f"sgd/sgd_x/data/v{i}/train/schema.json"] = json.dumps(
            [PARAPHRASED_BUS, PARAPHRASED_FILM]
        )
    for name, text in files.items():
        path = source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    for name in ("sgd", "qed", "qamr", "xquad"):
        with tarfile.open(folder / f"{name}.tar.xz", "w:xz") as archive:
            archive.add(source / name, arcname=name)


def test_the_same_archives_give_the_same_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From archives to files, twice, byte for byte; another seed gives other rows."""
    write_archives(tmp_path)

    def files(out: str, seed: int) -> dict[str, bytes]:
        where = ["--work", str(tmp_path / "work"), "--out", str(tmp_path / out)]
        prepare.main(["--data", str(tmp_path), *where, "--seed", str(seed)])
        return {p.name: p.read_bytes() for p in sorted((tmp_path / out).iterdir())}

    once = files("a", 0)
    assert files("b", 0) == once
    assert files("c", 1)["train.jsonl"] != once["train.jsonl"]
    assert set(once) == {"train.jsonl", "dev_calls.jsonl", "dev_reading.jsonl", "statistics.txt"}
    rows = [json.loads(line) for line in once["train.jsonl"].splitlines()]
    assert {r["source"].split(":")[0] for r in rows} == {"sgd", "qed", "qamr"}
    assert len(once["dev_calls.jsonl"].splitlines()) == 1
    assert "train:" in capsys.readouterr().out


def test_held_out_services_are_refused_in_training(tmp_path: Path) -> None:
    """A training split with a held-out service stops the preparation."""
    (tmp_path / "train").mkdir()
    for i in range(1, 6):
        (tmp_path / f"sgd_x/data/v{i}/train").mkdir(parents=True)
    alarm = {**BUS, "service_name": "Alarm_1"}
    for path in [tmp_path / "train", *tmp_path.glob("sgd_x/data/*/train")]:
        (path / "schema.json").write_text(json.dumps([alarm]), encoding="utf-8")
    with pytest.raises(ValueError, match=r"held-out services \['Alarm_1'\]"):
        prepare.training_calls(tmp_path, random.Random(0))


def test_a_missing_archive_is_named(tmp_path: Path) -> None:
    """The error says which archive is missing and how to give it."""
    with pytest.raises(FileNotFoundError, match=r"sgd\.tar\.xz: missing archive; .*--data"):
        prepare.unpack(tmp_path / "sgd.tar.xz", tmp_path)
