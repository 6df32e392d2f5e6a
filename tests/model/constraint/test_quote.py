"""A quote is a span of the texts, no more and no less."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentloop.errors import ConstraintError
from agentloop.model.constraint import (
    Choice,
    CompileOptions,
    List,
    Nullable,
    Object,
    OneOf,
    Quote,
    fragment,
    quote,
)
from agentloop.model.constraint.quote import Unit, split
from agentloop.model.constraint.suffix_automaton import SuffixAutomaton
from agentloop.model.prompts import reading_answer

texts = st.lists(st.text("ab .3\n\"'é\U0001f600", min_size=1, max_size=12), min_size=1, max_size=2)
UNITS: list[Unit] = ["words", "chars", "sentences"]


def spans(sources: list[str], unit: Unit, most: int | None = None) -> set[str]:
    """Every span from the start of a unit to the end of one, by listing them."""
    found: set[str] = set()
    for source in sources:
        symbols = split(source, unit)
        for i, (starts, _) in enumerate(symbols):
            for j in range(i, len(symbols)):
                part = symbols[i : j + 1]
                num_units = sum(is_unit for is_unit, _ in part)
                if starts and symbols[j][0] and (most is None or num_units <= most):
                    found.add("".join(text for _, text in part))
    return found


@given(texts.filter(lambda sources: any(s.strip() for s in sources)), st.sampled_from(UNITS))
@settings(deadline=None, max_examples=60)
def test_exactly_the_spans_are_accepted(sources: list[str], unit: Unit) -> None:
    """Automaton and `accepts` hold the listed spans, and nothing else that is made of them."""
    quote = Quote(sources, unit)
    dfa = quote.automaton()
    inside = Object(q=quote).automaton()
    wanted = spans(sources, unit)
    everything = {s[i:j] for s in sources for i in range(len(s)) for j in range(i, len(s) + 1)}
    for text in everything | {a + b for a in wanted for b in list(wanted)[:3]}:
        is_span = text in wanted
        assert dfa.accepts(text.encode()) == is_span, text
        assert quote.accepts(text) == is_span, text
        spelt = json.dumps({"q": text}, ensure_ascii=False, separators=(",", ":"))
        assert inside.accepts(spelt.encode()) == is_span, text


@given(
    texts.filter(lambda sources: any(s.strip() for s in sources)),
    st.integers(1, 3),
    st.integers(1, 8),
)
@settings(deadline=None, max_examples=60)
def test_bounds_on_quotes(sources: list[str], most_units: int, most: int) -> None:
    """Bounds on units and characters leave exactly the spans that keep them."""
    wanted = {t for t in spans(sources, "words", most_units) if 2 <= len(t) <= max(most, 2)}
    quote = Quote(sources, min_length=2, max_length=max(most, 2), max_units=most_units)
    if not wanted:
        with pytest.raises(ConstraintError, match="no quote by words"):
            quote.automaton()
        return
    dfa = quote.automaton()
    for text in spans(sources, "words"):
        assert dfa.accepts(text.encode()) == (text in wanted)
        assert quote.accepts(text) == (text in wanted)


@given(st.lists(st.text("ab", max_size=8), max_size=3))
@settings(deadline=None, max_examples=60)
def test_the_suffix_automaton_reads_runs_only(sources: list[str]) -> None:
    """From its start it reads every run of symbols of the texts, and no other."""
    automaton = SuffixAutomaton(sources)
    runs = {s[i:j] for s in sources for i in range(len(s)) for j in range(i, len(s) + 1)} | {""}

    def reads(text: str) -> bool:
        state: int | None = 0
        for char in text:
            state = automaton.moves[state].get(char) if state is not None else None
        return state is not None

    for text in runs | {run + char for run in runs for char in "ab"}:
        assert reads(text) == (text in runs)
    assert len(automaton.moves) <= 2 * sum(map(len, sources)) + 1


@given(st.text("ab .3\n\"'é?", max_size=20), st.sampled_from(UNITS))
@settings(deadline=None)
def test_splitting_loses_nothing(text: str, unit: Unit) -> None:
    """The symbols of a text joined give the text, and no unit is blank at its edges."""
    symbols = split(text, unit)
    joined = "".join(symbol for _, symbol in symbols)
    assert text.startswith(joined)
    assert not text[len(joined) :].strip()
    assert all(symbol for _, symbol in symbols)
    if unit != "chars":
        assert all(s == s.strip() for is_unit, s in symbols if is_unit)


def test_sentences_are_whole() -> None:
    """A sentence ends at its mark, with its closing quotes, and not after an abbreviation."""
    text = 'He said "Go." Then e.g. some 3.5 km. No?\nYes'
    units = [symbol for is_unit, symbol in split(text, "sentences") if is_unit]
    assert units == ['He said "Go."', "Then e.g. some 3.5 km.", "No?", "Yes"]


def test_the_reading_format_composes() -> None:
    """An answer from the passages with sentences that show it, or null, in canonical spelling."""
    passages = ['The "Café" opened in 1999. It closed.', "Nothing\there."]
    constraint = Object(
        answer=Nullable(Quote(passages)), quotes=List(Quote(passages, "sentences"), max=2)
    )
    dfa = constraint.automaton()
    for answer, quotes in [
        ('"Café"', ['The "Café" opened in 1999.']),
        ("Nothing\there", ["Nothing\there.", "It closed."]),
        (None, []),
    ]:
        text = reading_answer(answer, quotes)
        assert dfa.accepts(text.encode())
        assert constraint.parse(text) == {"answer": answer, "quotes": quotes}
    for answer, quotes in [("Caf", []), ("1998", []), (None, ["It"]), (None, ["It closed."] * 3)]:
        assert not dfa.accepts(reading_answer(answer, quotes).encode())
        assert not constraint.accepts(reading_answer(answer, quotes))
    spaced = constraint.automaton(CompileOptions("spaced"))
    assert spaced.accepts('{"answer": "Café", "quotes": []}'.encode())


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: Quote([]), "needs a text"),
        (lambda: Quote(["  "]), "not blank"),
        (lambda: Quote(["a"], "lines"), "must be one of"),  # type: ignore[arg-type]  # on purpose
        (lambda: Quote(["a"], min_length=0), "1 <= min_length"),
        (lambda: Quote(["a"], max_units=0), "max_units of 1"),
    ],
)
def test_bad_arguments_are_refused(make: object, reason: str) -> None:
    """Each wrong argument is an error that says what is wanted."""
    assert callable(make)
    with pytest.raises(ConstraintError, match=reason):
        make()


def test_a_quote_among_alike_objects_is_refused_with_the_way_out() -> None:
    """Objects that differ only inside a quote are an error that says so, not a crash."""
    quoted = Object(answer=Quote(["Lima is in Peru."]), more=Choice(["a"]))
    either = OneOf(quoted, Object(answer=Choice(["none"]), more=Choice(["b"])))
    with pytest.raises(ConstraintError, match="a Quote stands alone for its value"):
        either.automaton()


def test_a_quote_may_need_more_arcs_than_the_keys_of_an_object(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The bound on what an object's keys take is not that of a long text, which has its own."""
    monkeypatch.setattr(fragment, "MAX_OWN_ARCS", 10)
    assert Quote(["The cat sat on the mat."]).automaton().accepts(b"cat sat")
    monkeypatch.setattr(quote, "MAX_QUOTE_ARCS", 10)
    with pytest.raises(ConstraintError, match="too much text"):
        Quote(["The cat sat on the mat, again."]).automaton()
