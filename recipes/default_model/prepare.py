"""Writes the training rows and the held-out rows of the default model as JSON lines.

    python -m recipes.default_model.prepare --data ARCHIVES --xquad XQUAD.tar.xz

The same archives and seed give the same files, byte for byte. Held-out rows: calls of the services
that SGD keeps for its test split, and English XQuAD questions. Nothing of them is in the training
rows; what shared a question or a dialogue with them is dropped and counted.
"""

from __future__ import annotations

import argparse
import json
import random
import tarfile
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from recipes.default_model.call_rows import RowMaker
from recipes.default_model.catalogue import Catalogue
from recipes.default_model.contamination import without_contamination
from recipes.default_model.dialogues import HELD_OUT_SERVICES, Moment, moments, read_dialogues
from recipes.default_model.questions import Question, read_qamr, read_qed, read_xquad
from recipes.default_model.reading_rows import Distractors, capped, paragraph_row, sentence_row

Row = dict[str, Any]

NUM_HELD_OUT_CALLS = 400
NUM_HELD_OUT_QUESTIONS = 300
P_NO_TOOL_HELD_OUT = 0.15
P_NO_TOOL = 0.12
NUM_MISSING = 1100
NUM_CLOSING = 800
NUM_CALLS = 26_000
QED_COPIES = 2  # each with a cut and distractors of its own
MAX_QAMR = 10_000


def unpack(archive: Path, folder: Path) -> Path:
    """Unpacks an archive once; returns the folder that holds its content.

    Raises:
        FileNotFoundError: if the archive is missing.
    """
    target = folder / archive.name.split(".")[0]
    if not target.exists():
        if not archive.exists():
            raise FileNotFoundError(f"{archive}: missing archive; give its folder with --data")
        partial = target.with_suffix(".partial")
        with tarfile.open(archive) as packed:
            packed.extractall(partial, filter="data")
        partial.rename(target)
    return target / target.name


def read_schemas(folder: Path, split: str, *, paraphrased: bool) -> dict[str, list[Any]]:
    """The schemas of one split of SGD by naming: the original, and SGD-X's v1 to v5."""
    places = {"original": folder / split}
    if paraphrased:
        places |= {f"v{i}": folder / f"sgd_x/data/v{i}" / split for i in range(1, 6)}
    return {
        naming: json.loads((place / "schema.json").read_text(encoding="utf-8"))
        for naming, place in places.items()
    }


def training_calls(folder: Path, rng: random.Random) -> list[Row]:
    """Call rows of SGD's training split."""
    dialogues = list(read_dialogues(folder / "train"))
    catalogue = Catalogue(read_schemas(folder, "train", paraphrased=True), dialogues)
    held_out = HELD_OUT_SERVICES & set(catalogue.services)
    if held_out:
        raise ValueError(f"{folder}/train/schema.json: has held-out services {sorted(held_out)}")
    chosen = [m for d in dialogues for m in moments(d)]
    rng.shuffle(chosen)
    maker = RowMaker(catalogue, rng, varied=True)
    limits = {"call": NUM_CALLS, "missing": NUM_MISSING, "closing": NUM_CLOSING}
    made: Counter[str] = Counter()
    rows: list[Row] = []
    for moment in chosen:
        if made[moment.kind] == limits[moment.kind] or not is_plain(moment, catalogue):
            continue
        has_tool = rng.random() >= P_NO_TOOL
        row = maker.row(moment, "sgd:train", has_tool=has_tool)
        if row is not None:
            made[moment.kind] += 1
            rows.append(row)
    return rows


def is_plain(moment: Moment, catalogue: Catalogue) -> bool:
    """Whether a moment's answer follows: a "missing" one lacks a required argument."""
    if moment.kind != "missing":
        return True
    actives = {
        f["state"]["active_intent"]
        for f in moment.turns[-1].frames
        if f["service"] == moment.service
    }
    return any(
        set(catalogue.intent(moment.service, method)["required_slots"]) - set(moment.state)
        for method in actives
        if method in catalogue.intents(moment.service)
    )


def held_out_calls(folder: Path, rng: random.Random) -> list[Row]:
    """Call rows of the services that only SGD's test split has, with its own names."""
    dialogues = list(read_dialogues(folder / "test"))
    schemas = read_schemas(folder, "test", paraphrased=False)
    schemas["original"] = [s for s in schemas["original"] if s["service_name"] in HELD_OUT_SERVICES]
    catalogue = Catalogue(schemas, dialogues)
    chosen = [
        m
        for d in dialogues
        for m in moments(d)
        if m.kind == "call" and m.service in HELD_OUT_SERVICES
    ]
    rng.shuffle(chosen)
    maker = RowMaker(catalogue, rng, varied=False)
    rows: list[Row] = []
    per_service: Counter[str] = Counter()
    most = NUM_HELD_OUT_CALLS // len(HELD_OUT_SERVICES) + 12
    for moment in chosen:
        if len(rows) == NUM_HELD_OUT_CALLS:
            break
        if per_service[moment.service] == most:
            continue
        has_tool = rng.random() >= P_NO_TOOL_HELD_OUT
        row = maker.row(moment, f"sgd:test:{moment.service}", has_tool=has_tool)
        if row is not None:
            per_service[moment.service] += 1
            rows.append(row)
    return rows


def training_readings(qed: Path, qamr: Path, rng: random.Random) -> list[Row]:
    """Reading rows of QED's training files and of QAMR."""
    paragraphs = list(read_qed(qed))
    others = Distractors([(q.topic, q.sentences) for q in paragraphs], num_tried=150)
    made = [paragraph_row(q, others, "qed", rng) for q in paragraphs for _ in range(QED_COPIES)]
    questions, sentences = read_qamr(qamr / "data")
    single = Distractors([("", [s]) for s in sentences])
    chosen = capped(questions, 30, rng)
    rng.shuffle(chosen)
    short = [r for q in chosen if (r := sentence_row(q, single, "qamr", rng))]
    return [r for r in made if r is not None] + short[:MAX_QAMR]


def held_out_readings(questions: list[Question], rng: random.Random) -> list[Row]:
    """Reading rows of English XQuAD: one passage around the answer and a distractor."""
    others = Distractors([(q.topic, q.sentences) for q in questions])
    made = (
        paragraph_row(q, others, "xquad-en", rng, num_words=(90, 130), num_distractors=(1,))
        for q in rng.sample(questions, len(questions))
    )
    return [r for r in made if r is not None][:NUM_HELD_OUT_QUESTIONS]


def balanced(
    rows: Sequence[Row], max_characters: int, p_reading: float, rng: random.Random
) -> list[Row]:
    """The rows that are short enough, shuffled, with so many reading rows that they have a share.

    Args:
        rows: training rows.
        max_characters: longest prompt and answer together that stay.
        p_reading: the share of reading rows at most.
        rng: decides the order and which reading rows stay.
    """
    short = [
        r
        for r in rows
        if sum(len(m["content"]) for m in r["messages"]) + len(r["answer"]) <= max_characters
    ]
    rng.shuffle(short)
    num_calls = sum(r["task"] == "call" for r in short)
    left = round(num_calls * p_reading / (1 - p_reading))
    kept: list[Row] = []
    for row in short:
        if row["task"] == "reading":
            left -= 1
        if row["task"] == "call" or left >= 0:
            kept.append(row)
    rng.shuffle(kept)
    return kept


def write_rows(path: Path, rows: Iterable[Row]) -> None:
    """Writes rows as JSON lines."""
    with path.open("w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


def statistics(name: str, rows: Sequence[Row], length: Callable[[str], int]) -> str:
    """Counts and lengths of a set of rows, as text."""
    lines = [f"{name}: {len(rows)} rows"]
    for task in sorted({r["task"] for r in rows}):
        some = [r for r in rows if r["task"] == task]
        empty = sum(r["answer"] in ("[]", '{"answer":null,"quotes":[]}') for r in some)
        lines.append(f"  {task}: {len(some)}, of them {empty} with no call or answer")
        sources = Counter(":".join(r["source"].split(":")[:3]) for r in some)
        lines.append(f"    sources {dict(sorted(sources.items()))}")
        for part, texts in (
            ("prompt", ["\n".join(m["content"] for m in r["messages"]) for r in some]),
            ("answer", [r["answer"] for r in some]),
        ):
            sizes = sorted(length(t) for t in texts)
            shown = [sizes[int(q * (len(sizes) - 1))] for q in (0.5, 0.95, 1)]
            mean = sum(sizes) / len(sizes)
            lines.append(f"    {part} length: mean {mean:.0f}, p50/p95/max {shown}")
    return "\n".join(lines)


def measure(tokenizer: Path | None) -> Callable[[str], int]:
    """Length of a text in tokens of a tokenizer.json, or in characters without one."""
    if tokenizer is None:
        return len
    from tokenizers import Tokenizer  # only needed for this report

    loaded = Tokenizer.from_file(str(tokenizer))
    return lambda text: len(loaded.encode(text, add_special_tokens=False).ids)


def main(arguments: Sequence[str] | None = None) -> None:
    """Reads the archives, writes the rows, prints statistics and samples."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with the .tar.xz archives")
    parser.add_argument("--xquad", type=Path, help="xquad.tar.xz, if it is not in --data")
    parser.add_argument("--work", type=Path, default=Path("data"), help="where archives go")
    parser.add_argument("--out", type=Path, default=Path("training/data"))
    parser.add_argument("--tokenizer", type=Path, help="tokenizer.json, to report token lengths")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--max-characters", type=int, default=1650, help="of a training row")
    parser.add_argument("--p-reading", type=float, default=0.35, help="share of reading rows")
    parser.add_argument("--samples", type=int, default=20)
    given = parser.parse_args(arguments)
    given.work.mkdir(parents=True, exist_ok=True)
    given.out.mkdir(parents=True, exist_ok=True)

    folders = {n: unpack(given.data / f"{n}.tar.xz", given.work) for n in ("sgd", "qed", "qamr")}
    xquad = unpack(given.xquad or given.data / "xquad.tar.xz", given.work)
    dev_calls = held_out_calls(folders["sgd"], random.Random(f"{given.seed} held-out calls"))
    questions = list(read_xquad(xquad / "xquad.en.json"))
    dev_reading = held_out_readings(questions, random.Random(f"{given.seed} held-out readings"))
    calls = training_calls(folders["sgd"], random.Random(f"{given.seed} calls"))
    readings = training_readings(
        folders["qed"], folders["qamr"], random.Random(f"{given.seed} readings")
    )
    rows, dropped = without_contamination(
        [*calls, *readings], [*dev_calls, *dev_reading], questions
    )
    rows = balanced(
        rows, given.max_characters, given.p_reading, random.Random(f"{given.seed} order")
    )

    length = measure(given.tokenizer)
    report = [f"dropped for contamination: {dict(dropped)}"]
    for name, some in (("train", rows), ("dev_calls", dev_calls), ("dev_reading", dev_reading)):
        write_rows(given.out / f"{name}.jsonl", some)
        report.append(statistics(name, some, length))
    (given.out / "statistics.txt").write_text("\n".join(report) + "\n", encoding="utf-8")
    print("\n".join(report))
    for row in random.Random(given.seed).sample(rows, min(given.samples, len(rows))):
        print("=" * 80, row["source"], row["id"], sep="\n")
        print("\n".join(f"<{m['role']}> {m['content']}" for m in row["messages"]))
        print("->", row["answer"])


if __name__ == "__main__":
    main()
