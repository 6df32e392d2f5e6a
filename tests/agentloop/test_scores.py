"""The scores of predictions, against cases counted by hand."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop.model.prompts import reading_answer, tool_answer
from agentloop.scores import (
    answer_f1,
    answer_scores,
    call_scores,
    canonical_value,
    choice_scores,
    normalised_answer,
    parse_calls,
    parse_reading,
    reading_scores,
)

GOLD_CALL = {"answer": tool_answer([("book", {"city": "San Jose", "seats": 2, "pets": False})])}
NO_CALL = {"answer": "[]"}
PASSAGES = ["It is old. Ada wrote the poem.", "A whale swims."]
ANSWERABLE: dict[str, Any] = {"answers": ["Ada", "Ada Lovelace"], "passages": PASSAGES}
UNANSWERABLE: dict[str, Any] = {"answers": [], "passages": PASSAGES}


def test_gold_calls_score_full() -> None:
    """The gold answers themselves are right by every measure."""
    rows = [GOLD_CALL, NO_CALL]
    assert set(call_scores([r["answer"] for r in rows], rows).values()) == {1.0}


def test_calls_compare_without_case_space_and_order() -> None:
    """Case and outer space of text, order of arguments and 2 against 2.0 do not matter."""
    prediction = '[{"name": "book", "arguments": {"pets":false,"seats":2.0,"city":" san jose"}}]'
    assert call_scores([prediction], [GOLD_CALL])["exact_call"] == 1


def test_call_scores_are_counted_by_hand() -> None:
    """Four rows: a wrong argument, a right refusal, a call where none is due, and no JSON."""
    wrong = tool_answer([("book", {"city": "Fresno", "seats": 2, "pets": False})])
    extra = tool_answer([("book", {"city": "Fresno"})])
    rows = [GOLD_CALL, NO_CALL, NO_CALL, GOLD_CALL]
    assert call_scores([wrong, "[]", extra, "[{"], rows) == {
        "valid": 0.75,
        "tool_name": 0.5,
        "exact_call": 0.25,
        "argument_f1": 2 * 2 / (4 + 6),
        "called": 0.5,
        "refused": 0.5,
        "exact_when_called": 0.0,
    }


def test_a_second_call_is_not_exact() -> None:
    """A call too many is wrong even if the first is right."""
    twice = json.dumps(json.loads(GOLD_CALL["answer"]) * 2)
    scores = call_scores([twice], [GOLD_CALL])
    assert scores["exact_call"] == scores["tool_name"] == 0
    assert scores["argument_f1"] == pytest.approx(2 * 3 / 9)


@pytest.mark.parametrize(
    "text", ["", "{}", "null", "[1]", '[{"name":"a"}]', '[{"name":1,"arguments":{}}]', "[]]"]
)
def test_what_is_no_list_of_calls_is_invalid(text: str) -> None:
    """Anything but a list of named calls with arguments is invalid."""
    assert parse_calls(text) is None


@pytest.mark.parametrize(
    ("one", "other"), [(True, 1), ("1", 1), ([1, 2], [2, 1]), ({"a": 1}, {"a": 2}), (None, False)]
)
def test_values_that_differ(one: Any, other: Any) -> None:
    """Types and the order of lists count."""
    assert canonical_value(one) != canonical_value(other)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(st.dictionaries(st.text(), JSON_VALUES))
def test_any_call_equals_itself(arguments: dict[str, Any]) -> None:
    """Whatever the arguments are, the same call is exact."""
    row = {"answer": tool_answer([("t", arguments)])}
    assert call_scores([row["answer"]], [row])["exact_call"] == 1


def test_reading_scores_are_counted_by_hand() -> None:
    """Four rows: right, half right with a false quote, a right null, and an answer for null."""
    quote = "Ada wrote the poem."
    predictions = [
        reading_answer("Ada.", [quote]),
        reading_answer("Ada Byron", ["Ada sang."]),
        reading_answer(None, []),
        reading_answer("whale", ["A whale swims."]),
    ]
    rows = [ANSWERABLE, ANSWERABLE, UNANSWERABLE, UNANSWERABLE]
    scores = reading_scores(predictions, rows)
    half = 2 / 3
    assert scores == {
        "valid": 1.0,
        "exact": 0.5,
        "f1": pytest.approx((1 + half + 1 + 0) / 4),
        "answerable_exact": 0.5,
        "answerable_f1": pytest.approx((1 + half) / 2),
        "unanswerable": 0.5,
        "quote_in_passage": pytest.approx(2 / 3),
        "quote_has_answer": pytest.approx(2 / 3),
    }


def test_null_is_wrong_where_there_is_an_answer() -> None:
    """To refuse an answerable question scores nothing, nor does what does not parse."""
    scores = reading_scores([reading_answer(None, []), "{"], [ANSWERABLE, UNANSWERABLE])
    assert scores["f1"] == 0
    assert scores["valid"] == 0.5


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"answer":1,"quotes":[]}', '{"answer":"a"}', '{"quotes":[]}']
)
def test_what_is_no_answer_with_quotes_is_invalid(text: str) -> None:
    """Both fields must be there in their types."""
    assert parse_reading(text) is None


def test_scores_without_rows_are_nan() -> None:
    """A share of nothing is not a number, not zero."""
    assert all(math.isnan(v) for v in call_scores([], []).values())
    assert all(math.isnan(v) for v in reading_scores([], []).values())


def test_every_row_needs_a_prediction() -> None:
    """A list too short is an error that says so."""
    with pytest.raises(ValueError, match="got 0 predictions for 1 rows; give one each"):
        call_scores([], [NO_CALL])
    with pytest.raises(ValueError, match="got 0 predictions for 1 rows"):
        reading_scores([], [ANSWERABLE])


def test_answers_are_normalised_as_in_squad() -> None:
    """Case, punctuation, articles and spaces go; word overlap is counted with repeats."""
    assert normalised_answer("The  Court, of a Justice.") == "court of justice"
    assert answer_f1("big big dog", "big dog") == pytest.approx(0.8)
    assert answer_f1("the", "a") == 1


def test_answers_of_any_kind_are_compared_as_values() -> None:
    """JSON is compared as values, other text by its words; calls get their own scores too."""
    calls = ['[{"name":"a","arguments":{"x":"Lima"}}]', "[]"]
    made = ['[{"name": "a", "arguments": {"x": "lima"}}]', '[{"name":"a","arguments":{}}]']
    assert answer_scores(made, calls) == {"exact": 0.5, "tool_name": 0.5, "argument_f1": 1.0}
    assert answer_scores(['{"a":1.0,"b":2}', " so  it is"], ['{"b":2,"a":1}', "so it is"]) == {
        "exact": 1.0
    }


def test_a_choice_is_right_or_not() -> None:
    """Only an offered text is valid, only the gold one is right."""
    row = {"choices": ["a", "b"], "answer": "a"}
    assert choice_scores(["a", "b", "c", "a"], [row] * 4) == {"valid": 0.75, "exact": 0.5}
