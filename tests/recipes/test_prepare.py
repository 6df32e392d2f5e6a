"""The preparation of training and held-out rows, on samples of each set small enough to read."""

from __future__ import annotations

import json
import random
import re
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop.model.prompts import tool_messages
from recipes.default_model import prepare
from recipes.default_model.arguments import is_said, last_mention, target, verbatim_form
from recipes.default_model.call_rows import RowMaker, conversation, shown_year
from recipes.default_model.catalogue import Catalogue, slot_kind, snake_case, typed_value
from recipes.default_model.contamination import normalised, without_contamination
from recipes.default_model.detokenise import Detokenised
from recipes.default_model.dialogues import HELD_OUT_SERVICES, Moment, is_alike, moments
from recipes.default_model.questions import (
    Question,
    content_words,
    qamr_question,
    qed_question,
    read_xquad,
)
from recipes.default_model.reading_rows import Distractors, cut, paragraph_row, sentence_row

Json = dict[str, Any]


def slot(name: str, *values: str, is_categorical: bool = False) -> Json:
    return {
        "name": name,
        "description": name,
        "is_categorical": is_categorical,
        "possible_values": list(values),
    }


def intent(name: str, required: list[str], optional: Mapping[str, str]) -> Json:
    return {
        "name": name,
        "description": f"{name} it",
        "required_slots": required,
        "optional_slots": dict(optional),
    }


BUS: Json = {
    "service_name": "Buses_9",
    "slots": [
        slot("origin"),
        slot("departure_date"),
        slot("seats", "1", "2", "3", is_categorical=True),
        slot("luggage", "True", "False", is_categorical=True),
    ],
    "intents": [
        intent("BuyTicket", ["origin", "departure_date"], {"seats": "1", "luggage": "False"}),
        intent("FindBus", ["origin"], {}),
    ],
}
FILM: Json = {
    "service_name": "Media_9",
    "slots": [slot("genre")],
    "intents": [intent("FindFilm", ["genre"], {})],
}
PARAPHRASED_BUS: Json = {
    "service_name": "Buses_91",
    "slots": [
        slot("leaving_from"),
        slot("day_of_trip"),
        slot("places", "1", "2", "3", is_categorical=True),
        slot("bags", "True", "False", is_categorical=True),
    ],
    "intents": [
        intent("GetABus", ["leaving_from", "day_of_trip"], {"places": "1", "bags": "False"}),
        intent("LookForBus", ["leaving_from"], {}),
    ],
}
PARAPHRASED_FILM: Json = {
    "service_name": "Media_91",
    "slots": [slot("kind")],
    "intents": [intent("LookForFilm", ["kind"], {})],
}


def act(name: str, slot_name: str = "", *values: str, canonical: str = "") -> Json:
    known = [canonical] if canonical else list(values)
    return {"act": name, "slot": slot_name, "values": list(values), "canonical_values": known}


def turn(speaker: str, text: str, frame: Json) -> Json:
    return {"speaker": speaker, "utterance": text, "frames": [frame]}


def state(service: str, method: str, actions: list[Json], **values: list[str]) -> Json:
    return {
        "service": service,
        "actions": actions,
        "state": {"active_intent": method, "slot_values": values},
    }


def bus_dialogue(parameters: Mapping[str, str], service: str = "Buses_9") -> Json:
    """A dialogue that buys a ticket from San Jose, called the bay town, on March 4th."""
    call = {"method": "BuyTicket", "parameters": dict(parameters)}
    return {
        "dialogue_id": "1_00001",
        "turns": [
            turn(
                "USER",
                "I need a bus from  the bay town.",
                state(
                    service,
                    "BuyTicket",
                    [
                        act("INFORM_INTENT", "intent", "BuyTicket"),
                        act("INFORM", "origin", "the bay town", canonical="San Jose"),
                    ],
                    origin=["the bay town"],
                ),
            ),
            turn(
                "SYSTEM",
                "On which day?",
                {"service": service, "actions": [act("REQUEST", "departure_date")]},
            ),
            turn(
                "USER",
                "On March 4th, please.",
                state(
                    service,
                    "BuyTicket",
                    [act("INFORM", "departure_date", "March 4th", canonical="2019-03-04")],
                    origin=["the bay town"],
                    departure_date=["March 4th"],
                ),
            ),
            turn(
                "SYSTEM",
                "Your ticket is booked.",
                {
                    "service": service,
                    "actions": [act("NOTIFY_SUCCESS")],
                    "service_call": call,
                },
            ),
            turn(
                "USER",
                "Thanks, bye!",
                state(service, "NONE", [act("GOODBYE")], origin=["the bay town"]),
            ),
            turn("SYSTEM", "Bye.", {"service": service, "actions": [act("GOODBYE")]}),
        ],
    }


PARAMETERS = {"origin": "San Jose", "departure_date": "2019-03-04", "seats": "1"}
DIALOGUE = bus_dialogue(PARAMETERS)


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


WORDS = st.sampled_from(
    [
        *("He", "left", "(", ")", ",", ".", "'s", "n't", "-LRB-", "-RRB-", "``", "''", "--", "-"),
        *("gon", "na", "$", "9.8", "1986", "%", '"', "McBurney", "é"),
    ]
)


@given(st.lists(WORDS, min_size=1, max_size=20), st.data())
def test_detokenised_spans_stand_in_the_text(tokens: list[str], data: st.DataObject) -> None:
    """Every span of tokens is a span of the plain text, and only spaces and names of signs go."""
    tokenised = " ".join(tokens)
    plain = Detokenised(tokenised)
    first = data.draw(st.integers(0, len(tokens) - 1))
    last = data.draw(st.integers(first, len(tokens) - 1))
    start = len(" ".join([*tokens[:first], ""])) if first else 0
    span = plain.span(start, start + len(" ".join(tokens[first : last + 1])))
    assert span
    assert span in plain.text
    signs = {"-LRB-": "(", "-RRB-": ")", "``": '"', "''": '"', "--": "–"}
    letters = "".join(signs.get(t, t) for t in tokens)
    assert plain.text.replace(" ", "") == letters


@pytest.mark.parametrize(
    ("tokenised", "plain"),
    [
        ("He did n't pay $ 9.8 , alas .", "He didn't pay $9.8, alas."),
        ("Two ( 1986 -- 1987 ) all - star games", "Two (1986–1987) all-star games"),
        ('It is called " the end " now', 'It is called "the end" now'),
        ("McBurney 's `` point '' -LRB- left -RRB-", 'McBurney\'s "point" (left)'),
    ],
)
def test_detokenised_text_reads_like_text(tokenised: str, plain: str) -> None:
    """Spaces go where typesetting has none."""
    assert Detokenised(tokenised).text == plain


QED_RECORD: Json = {
    "example_id": 7,
    "title_text": "Sparrow",
    "question_text": "where do sparrows  nest",
    "paragraph_text": "Sparrows are small . They nest in trees , mostly . Some sing .",
    "answer_spans": [[34, 39]],
    "sentence_starts": [0, 21, 51],
    "answer_type": "single_sentence",
}


def test_qed_record_becomes_a_question() -> None:
    """The answer and its sentence are plain and exact."""
    question = qed_question(QED_RECORD)
    assert question is not None
    assert question.text == "where do sparrows nest"
    assert question.answers == ["trees"]
    assert question.quote == "They nest in trees, mostly."


@pytest.mark.parametrize(
    "change", [{"answer_type": "multi_sentence"}, {"answer_spans": [[34, 60]]}]
)
def test_qed_answers_over_sentences_are_left_out(change: Json) -> None:
    """Only an answer that stands in one sentence can be quoted."""
    assert qed_question({**QED_RECORD, **change}) is None


def test_qamr_needs_validators_and_a_span() -> None:
    """A line is used if its answer is contiguous and every validator gave it."""
    tokens = {
        "Wiki1k:wikipedia:1:2:3": [
            "The",
            "sponge",
            ",",
            "-LRB-",
            "a",
            "sea",
            "animal",
            "-RRB-",
            ",",
            "eats",
            "plankton",
            ".",
        ]
    }
    head = ["Wiki1k:wikipedia:1:2:3", "1", "5", "0", "3", "What does the sponge eat?"]
    question = qamr_question([*head, "10", "2:10", "3:10"], tokens, "q")
    assert question is not None
    assert question.answers == ["plankton"]
    assert question.quote == "The sponge, (a sea animal), eats plankton."
    assert qamr_question([*head, "10", "2:10", "3:Invalid"], tokens, "q") is None
    assert qamr_question([*head, "1 10", "2:1 10", "3:1 10"], tokens, "q") is None


XQUAD: Json = {
    "data": [
        {
            "paragraphs": [
                {
                    "context": "Fort Caroline stood on the St. Johns. It was rebuilt in 1964.",
                    "qas": [
                        {
                            "id": "x1",
                            "question": "On which river did the fort stand? ",
                            "answers": [{"text": "the St. Johns", "answer_start": 23}],
                        }
                    ],
                }
            ]
        },
        {
            "paragraphs": [
                {
                    "context": "Oxygen was named in 1777. Lavoisier named it.",
                    "qas": [
                        {
                            "id": "x2",
                            "question": "Who named oxygen?",
                            "answers": [{"text": "Lavoisier", "answer_start": 26}],
                        }
                    ],
                }
            ]
        },
    ]
}


def test_xquad_sentences_are_not_cut_at_abbreviations(tmp_path: Path) -> None:
    """The quote is the whole sentence around the answer."""
    path = tmp_path / "xquad.en.json"
    path.write_text(json.dumps(XQUAD), encoding="utf-8")
    first, second = read_xquad(path)
    assert first.quote == "Fort Caroline stood on the St. Johns."
    assert first.text == "On which river did the fort stand?"
    assert second.quote == "Lavoisier named it."


QUESTION = Question(
    "q", "who wrote the poem", ["Ada"], ["It is old.", "Ada wrote the poem.", "It rhymes."], 1, "p"
)
OTHERS = Distractors(
    [("p", ["The poem is long."]), ("o", ["Ada wrote it."]), ("o", ["A poem is read.", "Here."])]
)


def test_distractors_do_not_answer() -> None:
    """Neither a passage of the same page nor one that holds the answer is a distractor."""
    assert OTHERS.choose(QUESTION, 3, 7, random.Random(0)) == ["A poem is read. Here."]


@given(st.integers(0, 10_000))
def test_reading_rows_quote_exactly(seed: int) -> None:
    """An answer is quoted from a shown passage; without one, no passage holds it."""
    row = paragraph_row(QUESTION, OTHERS, "s", random.Random(seed), num_words=(4, 12))
    assert row is not None
    answer = json.loads(row["answer"])
    if answer["answer"] is None:
        assert answer["quotes"] == row["answers"] == []
        assert not any("Ada" in p for p in row["passages"])
    else:
        assert answer == {"answer": "Ada", "quotes": ["Ada wrote the poem."]}
        assert any("Ada wrote the poem." in p for p in row["passages"])


def test_a_vague_question_on_a_sentence_makes_no_row() -> None:
    """A question that names nothing of its sentence cannot find it among others."""
    vague = Question("q", "What is it?", ["Ada"], ["Ada wrote the poem."], 0, "p")
    assert sentence_row(vague, OTHERS, "s", random.Random(0)) is None


@given(st.lists(st.integers(1, 9), min_size=1, max_size=9), st.data())
def test_cut_keeps_the_place_and_the_limit(lengths: list[int], data: st.DataObject) -> None:
    """A cut is neighbouring sentences with the place in it, within the limit if it can be."""
    sentences = [" ".join([f"s{i}"] * n) for i, n in enumerate(lengths)]
    place = data.draw(st.integers(0, len(lengths) - 1))
    kept = cut(sentences, place, 12, random.Random(0))
    first = sentences.index(kept[0])
    assert kept == sentences[first : first + len(kept)]
    assert sentences[place] in kept
    assert sum(len(s.split()) for s in kept) <= 12


def test_contamination_is_dropped_and_counted() -> None:
    """A row with a held-out question, or with a run of its paragraph's words, goes."""
    run = "one two three four five six seven eight nine ten eleven twelve thirteen"
    held_out = Question("x", "Who wrote it?", ["Ada"], [f"And {run}."], 0, "p")

    def reading_row(asked: str, passage: str) -> Json:
        message = {"role": "user", "content": f"[1] {passage}\n\nQuestion: {asked}"}
        return {"task": "reading", "messages": [message], "passages": [passage]}

    same, shared, clean = (
        reading_row("who wrote IT", "a"),
        reading_row("Why?", run.title()),
        reading_row("Why?", "one two three"),
    )
    kept, dropped = without_contamination([same, shared, clean], [], [held_out])
    assert kept == [clean]
    assert sum(dropped.values()) == 2


def test_questions_compare_without_case_and_signs() -> None:
    """Two spellings of a question are one."""
    assert normalised("Who wrote  it?") == normalised("who wrote IT") == "who wrote it"


def test_balance_keeps_short_rows_and_the_share() -> None:
    """Long rows go, every short call stays, and reading rows are thinned to their share."""

    def rows(task: str, count: int, length: int) -> list[Json]:
        return [
            {"task": task, "messages": [{"content": "x" * length}], "answer": str(i)}
            for i in range(count)
        ]

    given_rows = [*rows("call", 60, 8), *rows("call", 5, 20), *rows("reading", 90, 8)]
    kept = prepare.balanced(given_rows, 10, 0.25, random.Random(0))
    assert sum(r["task"] == "call" for r in kept) == 60
    assert sum(r["task"] == "reading" for r in kept) == 20
    assert "reading" in {r["task"] for r in kept[:40]}


def test_content_words_leave_out_the_common_ones() -> None:
    """Only words that carry meaning are compared."""
    assert content_words("What is THE name of it?") == {"name"}


def write_archives(folder: Path) -> None:
    """Archives like the real ones, each with a row or two."""
    source = folder / "source"
    held_out = sorted(HELD_OUT_SERVICES)[1]
    test_bus = {**BUS, "service_name": held_out}
    files: dict[str, str] = {
        "sgd/train/dialogues_001.json": json.dumps([DIALOGUE]),
        "sgd/train/schema.json": json.dumps([BUS, FILM]),
        "sgd/test/dialogues_001.json": json.dumps([bus_dialogue(PARAMETERS, held_out)]),
        "sgd/test/schema.json": json.dumps([test_bus, FILM]),
        "qed/nq-train-00-qed.jsonlines": json.dumps(QED_RECORD) + "\n",
        "qamr/data/wiki-sentences.tsv": "s:1:2\tThe sponge of the sea eats fine plankton .\n"
        "t:1:2\tA whale of the sea eats much more than that .\n",
        "qamr/data/filtered/dev.tsv": "s:1:2\t1\t5\t0\t3\tWhat does the sea sponge eat?"
        "\t7\t2:7\t3:7\n",
        "qamr/data/filtered/test.tsv": "",
        "xquad/xquad.en.json": json.dumps(XQUAD),
    }
    for i in range(1, 6):
        files[f"sgd/sgd_x/data/v{i}/train/schema.json"] = json.dumps(
            [PARAPHRASED_BUS, PARAPHRASED_FILM]
        )
    for name, text in files.items():
        path = source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    for name in ("sgd", "qed", "qamr", "xquad"):
        with tarfile.open(folder / f"{name}.tar.xz", "w:xz") as archive:
            archive.add(source / name, arcname=name)


def test_the_same_archives_give_the_same_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From archives to files, twice, byte for byte; another seed gives other rows."""
    write_archives(tmp_path)

    def files(out: str, seed: int) -> dict[str, bytes]:
        where = ["--work", str(tmp_path / "work"), "--out", str(tmp_path / out)]
        prepare.main(["--data", str(tmp_path), *where, "--seed", str(seed)])
        return {p.name: p.read_bytes() for p in sorted((tmp_path / out).iterdir())}

    once = files("a", 0)
    assert files("b", 0) == once
    assert files("c", 1)["train.jsonl"] != once["train.jsonl"]
    assert set(once) == {"train.jsonl", "dev_calls.jsonl", "dev_reading.jsonl", "statistics.txt"}
    rows = [json.loads(line) for line in once["train.jsonl"].splitlines()]
    assert {r["source"].split(":")[0] for r in rows} == {"sgd", "qed", "qamr"}
    assert len(once["dev_calls.jsonl"].splitlines()) == 1
    assert "train:" in capsys.readouterr().out


def test_held_out_services_are_refused_in_training(tmp_path: Path) -> None:
    """A training split with a held-out service stops the preparation."""
    (tmp_path / "train").mkdir()
    for i in range(1, 6):
        (tmp_path / f"sgd_x/data/v{i}/train").mkdir(parents=True)
    alarm = {**BUS, "service_name": "Alarm_1"}
    for path in [tmp_path / "train", *tmp_path.glob("sgd_x/data/*/train")]:
        (path / "schema.json").write_text(json.dumps([alarm]), encoding="utf-8")
    with pytest.raises(ValueError, match=r"held-out services \['Alarm_1'\]"):
        prepare.training_calls(tmp_path, random.Random(0))


def test_a_missing_archive_is_named(tmp_path: Path) -> None:
    """The error says which archive is missing and how to give it."""
    with pytest.raises(FileNotFoundError, match=r"sgd\.tar\.xz: missing archive; .*--data"):
        prepare.unpack(tmp_path / "sgd.tar.xz", tmp_path)
