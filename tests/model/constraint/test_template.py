"""Templates join languages end to end, exactly."""

from __future__ import annotations

import itertools
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentloop.errors import ConstraintError
from agentloop.model.constraint import (
    Choice,
    Constraint,
    JsonSchema,
    List,
    Object,
    Quote,
    Regex,
    Template,
    Text,
)
from tests.model.constraint.schemas import compact, sample

PATTERNS = ["a*", "(ab)*", "a|ab", "b?", "[ab]{1,2}", "ba*"]


@given(
    st.lists(st.one_of(st.sampled_from(PATTERNS), st.text("ab", max_size=2).map(repr)), max_size=4),
    st.data(),
)
@settings(deadline=None, max_examples=30)
def test_fields_one_after_another_are_as_one_pattern(
    pieces: list[str], data: st.DataObject
) -> None:
    """Judged and generated as `re` reads the joined pattern, however ambiguous the seams are."""
    fields = {f"f{i}": Regex(p) for i, p in enumerate(pieces) if not p.startswith("'")}
    text = "".join(
        piece[1:-1] if piece.startswith("'") else f"{{f{i}}}" for i, piece in enumerate(pieces)
    )
    if not text:
        return
    template = Template(text, **fields)
    joined = "".join(p[1:-1] if p.startswith("'") else f"(?:{p})" for p in pieces)
    dfa = template.automaton()
    for length in range(5):
        for word in map("".join, itertools.product("ab", repeat=length)):
            expected = re.fullmatch(joined, word) is not None
            assert template.accepts(word) == expected, word
            assert dfa.accepts(word.encode()) == expected, word
            if expected:
                values = template.fields(word)
                assert "".join(values.get(f"f{i}", p[1:-1]) for i, p in enumerate(pieces)) == word
            else:
                rejection = template.explain(word)
                assert rejection is not None
                assert 0 <= rejection.offset <= len(word)


LETTER = Template(
    "Dear {name},\n{{{quote}}} says {who}: {code}.",
    name=Choice(["Ann", "Anna"]),
    quote=Quote(["It rained in Oslo."]),
    who=Text(max_length=9),
    code=Regex("[A-Z]{2}[0-9]*"),
)
WRITTEN = "Dear Anna,\n{rained in} says you: AB12."


def test_fields_of_every_kind_of_text() -> None:
    """Choices, quotes, free texts and patterns in fixed text with braces."""
    assert LETTER.accepts(WRITTEN)
    assert LETTER.fields(WRITTEN) == {
        "name": "Anna", "quote": "rained in", "who": "you", "code": "AB12"
    }  # fmt: skip
    dfa = LETTER.automaton()
    for wrong in ("Anne", "snowed", "AB1x", "you: A1"):
        text = WRITTEN.replace({"Anne": "Anna", "snowed": "rained"}.get(wrong, "AB12"), wrong)
        assert not LETTER.accepts(text)
        assert not dfa.accepts(text.encode())
    assert dfa.accepts(WRITTEN.encode())


@pytest.mark.parametrize("seed", range(10))
def test_whatever_is_generated_is_accepted(seed: int) -> None:
    """As plain text and as a JSON string, whose escapes are the canonical ones."""
    assert LETTER.accepts(sample(LETTER.automaton(), seed).decode())
    inside = List(LETTER, min=1, max=1)
    assert inside.accepts(sample(inside.automaton(), seed).decode())


def test_a_template_is_a_string_in_json() -> None:
    """Inside a value it is one string; the newline is escaped."""
    form = Object(letter=LETTER, n=Choice(["1"]))
    text = compact({"letter": WRITTEN, "n": "1"})
    assert form.accepts(text)
    assert form.automaton().accepts(text.encode())
    assert not form.accepts(text.replace("Anna", "Bob"))


def test_json_in_a_field() -> None:
    """Where the template stands by itself a field may hold JSON; its value is parsed."""
    call = Template("Thought: {why}\nAction: {call}", why=Regex("[a-z ]+"), call=JsonSchema(
        {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    ))  # fmt: skip
    text = 'Thought: as asked\nAction: {"n":12}'
    assert call.fields(text) == {"why": "as asked", "call": {"n": 12}}
    assert call.automaton().accepts(text.encode())
    assert not call.accepts(text + " ")
    found = call.explain('Thought: as asked\nAction: {"n":1.5}')
    assert found is not None
    assert found.allowed == ("an integer",)
    numbers = Template("{a}{b}", a=JsonSchema({"type": "integer"}), b=Regex("[05]*"))
    assert numbers.accepts("100")
    assert numbers.automaton().accepts(b"1005")
    with pytest.raises(ConstraintError, match="field of JSON cannot be a JSON string"):
        List(call).automaton()


def test_a_rejection_says_what_the_place_could_hold() -> None:
    """The furthest place any reading gets to, with what each could go on with."""
    found = LETTER.explain("Dear Ann")
    assert found is not None
    assert (found.offset, set(found.allowed)) == (8, {'"Anna"', '",\\n{"'})
    wrong = LETTER.explain("Dear Ann,\n{snow")
    assert wrong is not None
    assert wrong.offset == 11
    assert '"rained"' in wrong.allowed
    over = LETTER.explain(WRITTEN + "!")
    assert over is not None
    assert (over.offset, over.allowed) == (len(WRITTEN), ("the end of the text",))


def build(template: str, **fields: Any) -> Constraint:
    return Template(template, **fields)


@pytest.mark.parametrize(
    ("template", "fields", "reason"),
    [
        ("", {}, "needs some text or a field"),
        ("{a}", {}, "'a' of the template has no constraint"),
        ("{a} {a}", {"a": Choice(["x"])}, "comes twice"),
        ("x", {"a": Choice(["x"])}, "not \\['a'\\]"),
        ("{a:>3}", {"a": Choice(["x"])}, "has a format"),
        ("{a", {"a": Choice(["x"])}, "malformed"),
        ("{a}", {"a": 3}, "must have a constraint"),
    ],
)
def test_bad_templates_are_refused(template: str, fields: dict[str, Any], reason: str) -> None:
    """Each mistake is an error that names the field."""
    with pytest.raises(ConstraintError, match=reason):
        build(template, **fields)
