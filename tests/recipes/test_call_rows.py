"""Rows of tool calls from dialogues: only what was said, varied consistently."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop.model.prompts import tool_messages
from recipes.default_model.arguments import is_said, last_mention, target, verbatim_form
from recipes.default_model.call_rows import RowMaker, conversation, shown_year
from recipes.default_model.catalogue import Catalogue, slot_kind, snake_case, typed_value
from recipes.default_model.dialogues import Moment, is_alike, moments
from tests.recipes.samples import (
    BUS,
    DIALOGUE,
    FILM,
    PARAMETERS,
    PARAPHRASED_BUS,
    PARAPHRASED_FILM,
    bus_dialogue,
    slot,
)


@pytest.fixture
def catalogue() -> Catalogue:
    schemas = {"original": [BUS, FILM], "v1": [PARAPHRASED_BUS, PARAPHRASED_FILM]}
    return Catalogue(schemas, [DIALOGUE])


@pytest.fixture
def call() -> Moment:
    return next(m for m in moments(DIALOGUE) if m.kind == "call")


def test_moments_tell_calls_from_missing_arguments_and_closings() -> None:
    """Each system turn is a call, a request for what is missing, or an end."""
    assert [(m.kind, m.method) for m in moments(DIALOGUE)] == [
        ("missing", None),
        ("call", "BuyTicket"),
        ("closing", None),
    ]


def test_target_has_only_what_the_dialogue_says(catalogue: Catalogue, call: Moment) -> None:
    """Open text is in the user's words, dates are ISO, and an unsaid default is left out."""
    found = target(call, catalogue, random.Random(0))
    assert found is not None
    assert found.arguments == {"origin": "the bay town", "departure_date": "2019-03-04"}
    assert found.shown == [0, 1, 2]


@pytest.mark.parametrize(
    "parameters",
    [
        {**PARAMETERS, "seats": "3"},  # not the default, and nowhere said
        {"origin": "San Jose"},  # a required argument is absent
        {**PARAMETERS, "origin": "Fresno"},  # said nowhere in these words
    ],
)
def test_a_call_that_cannot_be_inferred_makes_no_row(
    catalogue: Catalogue, parameters: Mapping[str, str]
) -> None:
    """A value that no shown turn holds is never a target."""
    dialogue = bus_dialogue(parameters)
    dialogue["turns"][2]["frames"][0]["state"]["slot_values"].pop("origin")
    dialogue["turns"][0]["frames"][0]["actions"].pop()
    moment = next(m for m in moments(dialogue) if m.kind == "call")
    assert target(moment, catalogue, random.Random(0)) is None


def test_a_request_is_the_users_turns_alone(catalogue: Catalogue, call: Moment) -> None:
    """A row may show the user's turns as one message when they say all there is."""
    found = target(call, catalogue, random.Random(0), p_request=1.0)
    assert found is not None
    assert found.shown == [0, 2]
    assert conversation([call.turns[i] for i in found.shown]) == [
        {"role": "user", "content": "I need a bus from the bay town. On March 4th, please."}
    ]


def test_plain_row_is_exact(catalogue: Catalogue, call: Moment) -> None:
    """Without variation a row has SGD's own names and the prompt of the shared format."""
    row = RowMaker(catalogue, random.Random(3), varied=False).row(call, "sgd:test", has_tool=True)
    assert row is not None
    assert row["answer"] == (
        '[{"name":"BuyTicket","arguments":{"origin":"the bay town","departure_date":"2019-03-04"}}]'
    )
    turns = row["messages"][1:]
    today = {"role": "system", "content": "Today is 2019-03-01, Friday."}
    assert row["messages"] == tool_messages(row["tools"], [today, *turns])  # type: ignore[list-item]  # a literal


@given(st.integers(0, 10_000), st.booleans())
def test_varied_rows_are_consistent(seed: int, has_tool: bool) -> None:
    """Whatever varies, the answer's calls validate against the tools shown, or there are none."""
    schemas = {"original": [BUS, FILM], "v1": [PARAPHRASED_BUS, PARAPHRASED_FILM]}
    catalogue = Catalogue(schemas, [DIALOGUE])
    moment = next(m for m in moments(DIALOGUE) if m.kind == "call")
    row = RowMaker(catalogue, random.Random(seed), varied=True).row(moment, "s", has_tool=has_tool)
    assert row is not None
    tools = {t["name"]: t for t in row["tools"]}
    assert len(tools) == len(row["tools"])
    calls = json.loads(row["answer"])
    assert bool(calls) is has_tool
    for made in calls:
        parameters = tools[made["name"]]["parameters"]
        jsonschema.validate(made["arguments"], parameters)
        places = [list(parameters["properties"]).index(a) for a in made["arguments"]]
        assert places == sorted(places)
        year = next(v for v in made["arguments"].values() if re.fullmatch(r"\d{4}-03-04", v))[:4]
        assert f"Today is {year}-03-01" in row["messages"][0]["content"]
    if not has_tool:
        assert not {"BuyTicket", "buy_ticket", "GetABus", "get_a_bus"} & set(tools)


def test_dates_named_by_weekday_keep_their_year(catalogue: Catalogue) -> None:
    """A date that somebody called a weekday is right in one year only."""
    dialogue = bus_dialogue(PARAMETERS)
    dialogue["turns"][2]["frames"][0]["state"]["slot_values"]["departure_date"] = ["next Monday"]
    moment = next(m for m in moments(dialogue) if m.kind == "call")
    arguments = {"departure_date": "2019-03-04"}
    years = {shown_year(moment, arguments, catalogue, random.Random(i)) for i in range(30)}
    assert years == {2019}
    assert arguments == {"departure_date": "2019-03-04"}


def test_slot_types_follow_their_values() -> None:
    """SGD's text becomes booleans, bounded integers, enums, dates, numbers or text."""
    assert slot_kind(slot("a", "True", "False", is_categorical=True), set()) == {"type": "boolean"}
    assert slot_kind(slot("a", "red", "blue", is_categorical=True), set()) == {
        "type": "string",
        "enum": ["red", "blue"],
    }
    assert slot_kind(slot("a"), {"2019-03-01"}) == {"type": "string", "format": "date"}
    assert slot_kind(slot("a"), {"4", "4.50"}) == {"type": "number"}
    assert slot_kind(slot("a"), {"4", "four"}) == {"type": "string"}
    assert slot_kind(slot("a"), set()) == {"type": "string"}


def test_typed_values_that_do_not_fit_are_none() -> None:
    """A value outside its type is refused, not bent."""
    assert typed_value("2", {"type": "integer", "minimum": 1, "maximum": 3}) == 2
    assert typed_value("4", {"type": "integer", "minimum": 1, "maximum": 3}) is None
    assert typed_value("dontcare", {"type": "boolean"}) is None
    assert typed_value("4.50", {"type": "number"}) == 4.5
    assert typed_value("green", {"type": "string", "enum": ["red"]}) is None


def test_words_are_found_whole() -> None:
    """A value inside a longer word is no mention of it."""
    assert verbatim_form(["Pop"], "Popular songs") is None
    assert verbatim_form(["Pop"], "some POP songs") == "POP"
    assert is_said("1", {"type": "integer"}, "seats", "A ticket, please.")
    assert not is_said("2", {"type": "integer"}, "seats", "A ticket, please.")
    assert is_said("False", {"type": "boolean"}, "subtitles", "Without subtitles.")


def test_last_mention_is_the_latest_turn(call: Moment) -> None:
    """A value's turn is found by words or by annotation, the latest first."""
    assert last_mention(call, "departure_date", ["2019-03-04", "March 4th"]) == 2
    assert last_mention(call, "origin", ["San Jose"]) == 0
    assert last_mention(call, "origin", ["Fresno"]) is None


def test_names() -> None:
    """Snake case splits words and single letters; services of one domain are alike."""
    assert snake_case("FindABus") == "find_a_bus"
    assert is_alike("Movies_1", "Media_2")
    assert not is_alike("Buses_1", "Media_2")
