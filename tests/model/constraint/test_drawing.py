"""What is drawn is the automaton: the same texts, few states, readable arrows."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentloop.errors import ConstraintError
from agentloop.model.constraint import Choice, Constraint, JsonSchema, Quote, Regex, draw
from agentloop.model.constraint.drawing import Sketch, sketch

CONSTRAINTS: dict[str, Constraint] = {
    "choices": Choice(["yes", "no", "nothing", "né", "漢字", "😀"]),
    "pattern": Regex(r"(ab|cd)*[0-9é-ü]{1,2}[^a]?"),
    "any text": Regex(r"[\s\S]*"),
    "object": JsonSchema(
        {
            "type": "object",
            "properties": {"a": {"enum": ["x", "y\n"]}, "b": {"type": "integer", "maximum": 3}},
            "required": ["a"],
            "additionalProperties": False,
        }
    ),
    "quote": Quote(["A cat. A dog."]),
}


def reads(drawn: Sketch, text: str) -> bool:
    """Whether a text leads along the arrows to a last state."""
    places = {(0, 0)}
    todo = list(places)
    while todo:
        state, at = todo.pop()
        if at == len(text) and state in drawn.accepting:
            return True
        for arrow in drawn.arrows:
            end = at + len(arrow.steps)
            points = [ord(char) for char in text[at:end]]
            fits = len(points) == len(arrow.steps) and all(
                any(lo <= point <= hi for lo, hi in ranges)
                for point, ranges in zip(points, arrow.steps, strict=True)
            )
            if arrow.source == state and fits and (arrow.target, end) not in places:
                places.add((arrow.target, end))
                todo.append((arrow.target, end))
    return False


@pytest.mark.parametrize("name", CONSTRAINTS)
@given(data=st.data())
@settings(deadline=None, max_examples=25)
def test_the_drawing_reads_what_the_automaton_reads(name: str, data: st.DataObject) -> None:
    """Over random texts near the language, beyond ASCII included."""
    dfa = CONSTRAINTS[name].automaton()
    drawn = sketch(dfa)
    letters = st.sampled_from([*'yesno thingé漢字😀abcd09üÿx{}":,AC.', "\\n", '{"a":', '"x"}'])
    valid = ["nothing", "né", "漢字", "😀", "abcd7é", '{"a":"x"}', '{"a":"y\\n","b":-12}', "cat. A"]
    text = data.draw(st.one_of(st.lists(letters, max_size=6).map("".join), st.sampled_from(valid)))
    assert reads(drawn, text) == dfa.accepts(text.encode())


@pytest.mark.parametrize("name", CONSTRAINTS)
def test_every_drawing_is_well_formed(name: str) -> None:
    """Each line is of the form that Mermaid, or Graphviz, reads; all states are declared."""
    mermaid = draw(CONSTRAINTS[name]).splitlines()
    assert mermaid[0] == "flowchart LR"
    state = re.compile(r'    (s\d+)(\(\(" "\)\)|\(\(\(" "\)\)\))')
    arrow = re.compile(r'    (s\d+) -->\|"[^"|`<>]+"\| (s\d+)')
    declared = {m[1] for line in mermaid if (m := state.fullmatch(line))}
    drawn = [m for line in mermaid if (m := arrow.fullmatch(line))]
    assert len(declared) + len(drawn) == len(mermaid) - 1
    assert {end for m in drawn for end in (m[1], m[2])} == declared
    dot = draw(CONSTRAINTS[name], "dot")
    label = re.compile(r'    s\d+ -> s\d+ \[label="(?:[^"\\]|\\.)+"\];')
    assert len(label.findall(dot)) == len(drawn)
    assert dot.startswith("digraph constraint {\n")
    assert dot.endswith("}\n")


def test_what_has_no_choice_is_one_arrow() -> None:
    """An object with one key is a start, a fork at the value, and an end."""
    drawn = sketch(JsonSchema({"const": {"key": ["a", 1]}}).automaton())
    assert drawn.num_states == 2
    assert [arrow.label for arrow in drawn.arrows] == ['{"key":["a",1]}']
    classes = sketch(Regex("[0-9][^x]").automaton())
    assert [arrow.label for arrow in classes.arrows] == ["a digit", 'any character but "x"']


def test_a_large_automaton_is_refused() -> None:
    """The refusal has both numbers and says what to do."""
    many = Choice([f"{i * i:05}" for i in range(150)])
    with pytest.raises(ConstraintError, match=r"\d+ states to draw, more than max_states = 60"):
        draw(many)
    assert draw(many, max_states=500).count("-->") > 60
    with pytest.raises(ConstraintError, match="more than the 20,000"):
        draw(JsonSchema({"type": "array", "items": {"minLength": 200}, "minItems": 12}))
    with pytest.raises(ConstraintError, match="form must be one of"):
        draw(many, "png")  # type: ignore[arg-type]  # on purpose
