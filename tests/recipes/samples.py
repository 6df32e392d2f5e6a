"""Samples of each data set, small enough to read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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


QED_RECORD: Json = {
    "example_id": 7,
    "title_text": "Sparrow",
    "question_text": "where do sparrows  nest",
    "paragraph_text": "Sparrows are small . They nest in trees , mostly . Some sing .",
    "answer_spans": [[34, 39]],
    "sentence_starts": [0, 21, 51],
    "answer_type": "single_sentence",
}


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
