"""Patterns agree with an independent engine on random patterns and texts."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentloop.model.constraint import List, Regex
from agentloop.model.constraint.characters import StateBudgetError
from agentloop.model.constraint.pattern import compile_pattern
from agentloop.model.constraint.pattern_syntax import PatternError
from tests.model.constraint.schemas import sample

ATOMS = st.sampled_from(["a", "b", "é", ".", "[ab]", "[^a]", r"\d", "(?:ab|b)", "(a|)", "[a-c0]"])


@st.composite
def patterns(draw: st.DrawFn) -> str:
    """Patterns that both engines read alike on the texts below."""
    pieces: list[str] = []
    for _ in range(draw(st.integers(0, 4))):
        atom = draw(ATOMS)
        pieces.append(atom + draw(st.sampled_from(["", "", "*", "+", "?", "{2}", "{1,2}", "{0,}"])))
    body = "".join(pieces)
    cut = draw(st.integers(0, len(pieces)))
    if draw(st.booleans()):
        body = "".join(pieces[:cut]) + "|" + "".join(pieces[cut:])
    start = draw(st.sampled_from(["", "^", "^(?=.*a)", "^(?!b)", "^(?!.*aa)(?=.)"]))
    if "|" in body and "?" in start:
        body = f"(?:{body})"
    return start + body + draw(st.sampled_from(["", "$"]))


@given(patterns(), st.lists(st.text("abcé0 ", max_size=6), min_size=1, max_size=25))
@settings(deadline=None, max_examples=120)
def test_a_search_finds_what_the_reference_finds(pattern: str, texts: list[str]) -> None:
    """A pattern accepts a text exactly when some part of it matches."""
    automaton = compile_pattern(pattern)
    reference = re.compile(pattern.replace("$", r"\Z"))  # ECMA's $ is the very end
    for text in texts:
        assert automaton.accepts(text) == bool(reference.search(text)), text


@given(patterns(), st.lists(st.text("abcé0 ", max_size=6), min_size=1, max_size=10))
@settings(deadline=None, max_examples=50)
def test_a_full_match_covers_the_whole_text(pattern: str, texts: list[str]) -> None:
    """With `is_full_match` the pattern stands for the whole text."""
    if "(?=" in pattern or "(?!" in pattern:
        return
    automaton = compile_pattern(pattern, is_full_match=True)
    reference = re.compile(pattern.replace("$", r"\Z"))
    for text in texts:
        assert automaton.accepts(text) == bool(reference.fullmatch(text)), text


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        (r"^\w+$", ["a_9"], ["é", "a b", ""]),
        (r"^\s$", [" ", "\u00a0", "\ufeff", "\u2028"], ["x", "\u180e"]),
        (r"^\S$", ["x", "é"], [" ", "\u3000"]),
        (r"^.$", ["\u0085", "\U0001f600"], ["\n", "\u2029", "ab"]),
        (r"^\u00e9$", ["é"], ["e"]),
        (r"^\ud83d\udc32$", ["\U0001f432"], ["\U0001f433"]),
        (r"^\u{1f432}$", ["\U0001f432"], ["u"]),
        (r"^\p{Lu}+$", ["ABÉЖ"], ["a", "A1"]),
        (r"^\P{L}$", ["1", "-"], ["a"]),
        (r"^[\w-]+$", ["a-b"], ["a b"]),
        (r"^[\]\-a]$", ["]", "-", "a"], ["b", "\\"]),
        (r"^[^]$", ["x", "\n"], ["", "xy"]),
        (r"^\x41\cJ\0$", ["A\n\0"], ["A"]),
        (r"a{,2}", ["a{,2}"], ["aa"]),
        (r"^(?<year>\d{4})$", ["2026"], ["26"]),
        ("^a$|^b$", ["a", "b"], ["ab"]),
        ("(^a|b)c$", ["ac", "xbc"], ["xac"]),
        ("a$b", [], ["ab", "a$b", ""]),
    ],
)
def test_ecma_syntax(pattern: str, yes: list[str], no: list[str]) -> None:
    """Classes and escapes have the meaning of ECMA-262."""
    automaton = compile_pattern(pattern)
    assert [t for t in yes if not automaton.accepts(t)] == []
    assert [t for t in no if automaton.accepts(t)] == []


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        (r"(a)\1", r"the escape '\\1' is not supported"),
        (r"\bword", r"the escape '\\b' is not supported"),
        ("(?<=a)b", "look-behind is not supported"),
        ("a(?=b)c", "only right after a leading"),
        ("(?i)a", "flags and other"),
        ("(a", "missing '\\)'"),
        ("a)", "unbalanced '\\)'"),
        ("*a", "nothing to repeat"),
        ("a**", "multiple repeat"),
        ("[b-a]", "range out of order"),
        ("a{3,2}", "out of order"),
        ("[a", "ends too early"),
        (r"\p{Klingon}", "not a general category"),
        ("a{9999}", "over 5,000 is not supported"),
    ],
)
def test_what_has_no_automaton_is_refused(pattern: str, reason: str) -> None:
    """A refusal names the pattern, the place and the reason."""
    with pytest.raises(PatternError, match=reason) as caught:
        compile_pattern(pattern)
    assert repr(pattern) in str(caught.value)


@pytest.mark.parametrize(
    "pattern", [r"^\s+$", r"^\S+$", r"^[^\s]$", r"^\w\W$", r"^[^\w]$", r"^(?!\d)\D$", r"^[\s\d]$"]
)
def test_a_narrow_reading_holds_for_every_engine(pattern: str) -> None:
    """The narrow reading is inside both ECMA's and Python's, the wide one around both."""
    readings = {r: compile_pattern(pattern, reading=r) for r in ("narrow", "exact", "wide")}
    reference = re.compile(pattern.replace("$", r"\Z"))
    chars = "a1_ -\t\x1c\x85\xa0é٣\u2028\u3000\ufeff漢"
    for text in [*chars, *(a + b for a in chars for b in chars)]:
        in_python = bool(reference.search(text))
        accepted = {name: dfa.accepts(text) for name, dfa in readings.items()}
        assert not accepted["narrow"] or (in_python and accepted["exact"]), text
        assert accepted["wide"] or not (in_python or accepted["exact"]), text


def test_a_pattern_that_needs_too_many_states_is_refused() -> None:
    """A pattern whose automaton is exponential ends in an error, not in waiting."""
    with pytest.raises(StateBudgetError, match="needs more than 6,000 states"):
        compile_pattern("a.{20}$")


def _grouped(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    suffixes = st.sampled_from(["", "*", "+", "?", "{2}", "{0,2}", "{1,}", "*?", "??"])
    return st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map("(?:{0[0]}|{0[1]})".format),
        st.tuples(inner, suffixes).map("(?:{0[0]}){0[1]}".format),
        st.tuples(inner, inner).map("({0[0]}|)({0[1]})".format),
    )


LEAVES = [
    "a",
    "b",
    "c",
    "é",
    "😀",
    ".",
    "[ab]",
    "[^ab]",
    "[a-c0-9]",
    r"\d",
    r"[^\d]",
    r"\x61",
    r"\.",
]
nested: st.SearchStrategy[str] = st.recursive(st.sampled_from(LEAVES), _grouped, max_leaves=7)


@given(
    st.lists(nested, min_size=1, max_size=3).map("|".join),
    st.lists(st.text("abcé😀0.9 ", max_size=7), min_size=1, max_size=20),
)
@settings(deadline=None, max_examples=80)
def test_nested_patterns_agree_with_the_reference(pattern: str, texts: list[str]) -> None:
    """Groups in groups, alternatives and repeats of any sort, as a search and as a whole match."""
    try:
        search, whole = compile_pattern(pattern), compile_pattern(pattern, is_full_match=True)
    except StateBudgetError:
        return
    reference = re.compile(pattern)
    for text in texts:
        assert search.accepts(text) == bool(reference.search(text)), text
        assert whole.accepts(text) == bool(reference.fullmatch(text)), text


@given(nested, st.data())
@settings(deadline=None, max_examples=40)
def test_what_a_pattern_writes_matches(pattern: str, data: st.DataObject) -> None:
    """Random texts of the byte automaton, plain and inside JSON, match in the reference engine."""
    constraint = Regex(pattern)
    reference = re.compile(pattern, re.ASCII)  # ECMA's digits are ASCII
    seed = data.draw(st.integers(0, 99))
    assert reference.fullmatch(sample(constraint.automaton(), seed, length=12).decode())
    inside = sample(List(constraint, 1, 1).automaton(), seed, length=12)
    assert reference.fullmatch(json.loads(inside)[0])
