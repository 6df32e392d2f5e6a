"""Dialogues of the Schema-Guided Dialogue data (SGD) and the moments in them that become rows.

A moment is a point where the assistant acts. This file knows nothing of tools as a model sees them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Json = Mapping[str, Any]

# The services that only SGD's test split has (and its dev split, which nothing here reads).
HELD_OUT_SERVICES = frozenset(
    [
        *("Alarm_1", "Buses_3", "Events_3", "Flights_4", "Homes_2", "Hotels_4", "Media_3"),
        *("Messaging_1", "Movies_3", "Music_3", "Payment_1", "RentalCars_3", "Restaurants_2"),
        *("Services_4", "Trains_1"),
    ]
)
# Domains whose tools could answer the same request: never shown beside each other by chance.
ALIKE = ({"Movies", "Media"}, {"Hotels", "Homes"}, {"Events", "Movies"}, {"Calendar", "Events"})


@dataclass(frozen=True)
class Turn:
    """One utterance with SGD's annotation of the services it concerns."""

    is_user: bool
    text: str
    frames: Sequence[Json]


@dataclass(frozen=True)
class Moment:
    """A point of a dialogue where the assistant acts: the turns before it and what it does.

    `method` is None when nothing is called; `values` then is empty and `service` is the service
    the last user turn speaks of.
    """

    id: str
    kind: str  # "call", "missing" (a required argument is not known yet) or "closing"
    turns: Sequence[Turn]
    service: str
    method: str | None
    values: Mapping[str, str]
    state: Mapping[str, Sequence[str]]


def is_alike(one: str, other: str) -> bool:
    """Whether two services could answer the same request.

    Example:
        >>> is_alike("Buses_1", "Buses_2"), is_alike("Buses_1", "Weather_1")
        (True, False)
    """
    a, b = one.split("_")[0], other.split("_")[0]
    return a == b or any({a, b} <= group for group in ALIKE)


def read_dialogues(folder: Path) -> Iterator[Json]:
    """The dialogues of one split, in the order of the file names."""
    for path in sorted(folder.glob("dialogues_*.json")):
        yield from json.loads(path.read_text(encoding="utf-8"))


def moments(dialogue: Json) -> Iterator[Moment]:
    """Every point of a dialogue that can become a row."""
    turns = [
        Turn(t["speaker"] == "USER", " ".join(t["utterance"].split()), t["frames"])
        for t in dialogue["turns"]
    ]
    for i in range(1, len(turns)):
        if turns[i].is_user:
            continue
        before = turns[:i]
        states = {f["service"]: f["state"] for f in before[-1].frames if "state" in f}
        for frame in turns[i].frames:
            service, state = frame["service"], states.get(frame["service"])
            if state is None:
                continue
            name = f"{dialogue['dialogue_id']}:{i}"
            call = frame.get("service_call")
            if call is not None:
                yield Moment(
                    name, "call", before, service, call["method"], call["parameters"],
                    state["slot_values"],
                )  # fmt: skip
            elif kind := _kind_without_call(frame, before[-1].frames):
                yield Moment(name, kind, before, service, None, {}, state["slot_values"])


def _kind_without_call(frame: Json, user_frames: Sequence[Json]) -> str | None:
    acts = {a["act"] for a in frame["actions"]}
    user_acts = {a["act"] for f in user_frames for a in f["actions"]}
    if "REQUEST" in acts and user_acts <= {"INFORM", "INFORM_INTENT", "AFFIRM_INTENT"}:
        return "missing"
    if user_acts & {"GOODBYE", "THANK_YOU"} and not user_acts & {"INFORM", "INFORM_INTENT"}:
        return "closing"
    return None
