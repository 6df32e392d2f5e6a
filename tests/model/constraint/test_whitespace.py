"""Every way in which models space their JSON is read under the tolerant profile."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentloop.errors import ConstraintError
from agentloop.model.constraint import CompileOptions, JsonSchema
from benchmarks.maskbench import judge_spellings
from benchmarks.spellings import STYLES, respaced
from tests.model.constraint.schemas import compact
from tests.model.constraint.suite import groups

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(codec="utf-8"), max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)
DUMPED: dict[str, dict[str, Any]] = {
    "spaced": {},
    "indent 2": {"indent": 2},
    "indent 4": {"indent": 4},
    "tabs": {"indent": "\t"},
    "lines without indentation": {"indent": 0},
}


@given(values)
@settings(deadline=None)
def test_styles_change_nothing_but_the_spacing(value: Any) -> None:
    """A spaced text is the same value; where Python has the style, it is Python's own text."""
    text = compact(value)
    for name, style in STYLES.items():
        spelt = respaced(text, style)
        assert json.loads(spelt) == value
        if name in DUMPED:
            assert spelt == json.dumps(value, ensure_ascii=False, **DUMPED[name])


def test_arrays_may_stay_on_one_line() -> None:
    """Lines of objects with arrays inside a line are a style of their own."""
    style = STYLES["indent 2, arrays on one line"]
    assert respaced('{"a":[1,{"b":2}],"c":[]}', style) == ('{\n  "a": [1, {"b": 2}],\n  "c": []\n}')
    assert respaced('{"a":[1]}', STYLES["padded"]) == '{ "a": [ 1 ] }'


def test_every_style_of_every_valid_instance_is_read() -> None:
    """The valid instances of every fifth group of the JSON-Schema-Test-Suite, in ten styles.

    Distinct items that cannot be listed are written in groups, so their instances are left out.
    """
    judged = [judge_spellings({**g, "id": g["group"]}) for g in groups("draft2020-12", every=5)]
    assert {one.name: one.wrong for one in judged if one.wrong} == {}
    assert {one.name for one in judged if one.counts["not written"]} == {"uniqueItems validation"}
    assert sum(one.counts["instances"] for one in judged) >= 140


@pytest.mark.parametrize("style", STYLES)
def test_invalid_texts_are_read_in_no_style(style: str) -> None:
    """Spacing lets nothing invalid in."""
    tolerant = CompileOptions(whitespace="tolerant", extra_keys="allowed", portable_patterns=False)
    count = 0
    for group in groups("draft2020-12", every=40):
        try:
            schema = JsonSchema(group["schema"], formats="annotate")
            dfa = schema.automaton(tolerant)
        except ConstraintError:
            continue
        for test in group["tests"]:
            if not test["valid"]:
                text = respaced(schema.canonical(json.dumps(test["data"])), STYLES[style])
                assert not dfa.accepts(text.encode()), (group["group"], text)
                count += 1
    assert count > 5


def test_whitespace_has_its_places() -> None:
    """A line is never broken between a key, its colon and its value, nor inside a string."""
    dfa = JsonSchema({"properties": {"a": {"const": "b c"}}, "required": ["a"]}).automaton(
        CompileOptions(whitespace="tolerant", max_indent=4)
    )
    for text in ('{"a": "b c"}', '{\n    "a": "b c"\n}', '{\n\t"a":"b c" }', '{ "a": "b c"\n}'):
        assert dfa.accepts(text.encode()), text
    for text in (
        '{"a":\n"b c"}',
        '{"a" :"b c"}',
        '{"a":"b  c"}',
        '{\n     "a":"b c"}',
        '{  "a":"b c"}',
    ):
        assert not dfa.accepts(text.encode()), text
