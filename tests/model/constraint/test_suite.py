"""The JSON-Schema-Test-Suite, judged by the automaton itself; results may only improve."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from agentloop.errors import UnsupportedSchemaError
from agentloop.model.constraint import CompileOptions, Dfa, EmptyConstraintError, JsonSchema
from agentloop.model.constraint.json_types import is_list, is_object
from agentloop.model.constraint.options import Formats
from tests.model.constraint.suite import SUITE, groups

BASELINE: dict[str, dict[str, int]] = json.loads((SUITE / "baseline.json").read_text())


def depth(value: Any) -> int:
    """How deeply containers nest in a value."""
    if is_object(value):
        return 1 + max(map(depth, value.values()), default=0)
    return 1 + max(map(depth, value), default=0) if is_list(value) else 0


def automaton(schema: JsonSchema, deepest: int) -> Dfa | None:
    """The automaton that judges: with every valid key, and as deep as the instances."""
    judge = CompileOptions(extra_keys="allowed", portable_patterns=False, max_depth=deepest + 1)
    try:
        return schema.automaton(judge)
    except EmptyConstraintError:
        return None


def verdicts(name: str) -> Counter[str]:
    """How often the automaton agrees with a file of the suite."""
    found: Counter[str] = Counter()
    refusals: list[UnsupportedSchemaError] = []
    formats: Formats = "assert" if name.endswith("optional") else "annotate"
    for group in groups(name):
        try:
            schema = JsonSchema(group["schema"], formats=formats)
            dfa = automaton(schema, max(depth(test["data"]) for test in group["tests"]))
        except UnsupportedSchemaError as error:
            refusals.append(error)
            found["refused"] += len(group["tests"])
            continue
        for test in group["tests"]:
            text = json.dumps(test["data"])
            accepted = dfa is not None and dfa.accepts(schema.canonical(text).encode())
            if "uniqueItems" not in json.dumps(group["schema"]):  # of which less is generated
                assert accepted == schema.accepts(text), (group["group"], test["description"])
            if accepted == test["valid"]:
                found["passed"] += 1
            else:
                found["invalid accepted" if accepted else "valid rejected"] += 1
    for refusal in refusals:
        assert refusal.reason
        assert f"at #{refusal.pointer}" in str(refusal)
    return found


@pytest.mark.parametrize("name", BASELINE)
def test_the_suite_is_judged_no_worse_than_before(name: str) -> None:
    """Nothing invalid is accepted, and no test that passed before is lost or refused."""
    found = verdicts(name)
    baseline = BASELINE[name]
    assert found["invalid accepted"] == 0
    assert found["valid rejected"] <= baseline["valid rejected"]
    assert found["refused"] <= baseline["refused"]
    assert found["passed"] >= baseline["passed"]
