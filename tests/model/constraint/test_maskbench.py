"""A slice of MaskBench, where its file lies in data/: its schemas cannot be shipped."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from benchmarks.maskbench import Judged, judge, judge_spellings, read_entries, worse_than

DATA = Path(__file__).resolve().parents[3] / "data" / "maskbench_dev.jsonl.gz"
needs_data = pytest.mark.skipif(
    not DATA.exists(),
    reason="data/maskbench_dev.jsonl.gz is not there; see benchmarks/maskbench.py",
)


@needs_data
def test_real_schemas_are_judged_right() -> None:
    """Every 150th schema compiles, and all of its instances are judged right."""
    judged = [judge(entry, None) for entry in read_entries(DATA, every=150)]
    assert {one.name: one.refusal or one.wrong for one in judged if one.refusal or one.wrong} == {}
    total = sum((one.counts for one in judged), Counter[str]())
    assert total["valid"] > 40
    assert total["invalid"] > 40
    assert total["valid written"] >= 0.9 * total["valid"]


@needs_data
def test_real_instances_are_read_in_every_style() -> None:
    """The valid instances of every 400th schema are read in ten styles."""
    judged = [judge_spellings(entry) for entry in read_entries(DATA, every=400)]
    assert {one.name: one.wrong for one in judged if one.wrong} == {}
    assert sum(one.counts["instances"] for one in judged) > 10


def test_a_wrong_verdict_is_counted() -> None:
    """An instance that is judged otherwise than the file says makes its schema unclean."""
    tests = [{"valid": True, "data": "a"}, {"valid": False, "data": 1}]
    entry = {"id": "made", "schema": {"type": "integer"}, "tests": tests}
    judged = judge(entry, None)
    assert judged.counts["valid rejected"] == 1
    assert judged.counts["invalid accepted"] == 2  # once by the verdict, once by the automaton
    assert judged.wrong == ['"a"', "1", "1"]
    refused = judge({**entry, "schema": {"$ref": "https://example.org/other"}}, None)
    assert "$ref" in refused.refusal


def test_a_baseline_may_only_improve() -> None:
    """Fewer clean schemas or more wrong verdicts are named, with what they were before."""
    good, bad = Judged("good"), Judged("bad", wrong=["1"])
    bad.counts["invalid accepted"] = 1
    assert list(worse_than({"clean": 1, "invalid accepted": 1}, [good, bad])) == []
    assert list(worse_than({"clean": 2, "invalid accepted": 0}, [good, bad])) == [
        "clean: 1, 2 before",
        "invalid accepted: 1, 0 before",
    ]
