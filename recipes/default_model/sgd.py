"""Tool-call rows from the Schema-Guided Dialogue data (SGD and its SGD-X paraphrases).

Every system turn with a service call becomes one row: the dialogue before it, some tools, and the
call. A value belongs to the target only if the shown turns hold it. This file knows nothing of
files other than SGD's own, nor of tokens.
"""

from __future__ import annotations

import datetime
import json
import random
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentloop.model.prompts import Message, ToolSpec, tool_answer, tool_messages

Row = dict[str, Any]
Json = Mapping[str, Any]

HELD_OUT_SERVICES = frozenset(
    "Alarm_1 Buses_3 Events_3 Flights_4 Homes_2 Hotels_4 Media_3 Messaging_1 Movies_3 Music_3 "
    "Payment_1 RentalCars_3 Restaurants_2 Services_4 Trains_1".split()
)
TODAY = datetime.date(2019, 3, 1)  # the day on which SGD's dialogues take place
MAX_WORDS = 220  # of the shown dialogue
MAX_CHARACTERS = 1650  # of prompt and answer together: about 430 tokens
P_PARAPHRASED = 0.5
P_SNAKE_CASE = 0.5
P_DATE_FORMAT = 0.75
P_DROP_UNUSED = 0.3
P_OTHER_YEAR = 0.5

# Domains whose tools could answer the same request: never shown beside each other by chance.
ALIKE = ({"Movies", "Media"}, {"Hotels", "Homes"}, {"Events", "Movies"}, {"Calendar", "Events"})
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_TIME = re.compile(r"\d\d:\d\d")
_INTEGER = re.compile(r"\d+")
_NUMBER = re.compile(r"\d+(\.\d+)?")
_WEEKDAY = re.compile(r"(mon|tues|wednes|thurs|fri|satur|sun)day|week", re.IGNORECASE)


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


class Catalogue:
    """The services of one split under several namings, and the types of their slots.

    Args:
        schemas: naming -> schema.json content; the naming "original" must be there, the others
            list the same services, slots and intents in the same order.
        dialogues: the split's dialogues, from whose calls the types of open slots are read.
    """

    def __init__(self, schemas: Mapping[str, Sequence[Json]], dialogues: Iterable[Json]) -> None:
        original = schemas["original"]
        self.services = [s["service_name"] for s in original]
        self.namings = sorted(schemas)
        self._original = {s["service_name"]: s for s in original}
        self._schemas = {
            naming: {o["service_name"]: s for o, s in zip(original, listed, strict=True)}
            for naming, listed in schemas.items()
        }
        self._kinds = self._slot_kinds(dialogues)

    def _slot_kinds(self, dialogues: Iterable[Json]) -> dict[tuple[str, str], Json]:
        seen: dict[tuple[str, str], set[str]] = defaultdict(set)
        for dialogue in dialogues:
            for turn in dialogue["turns"]:
                for frame in turn["frames"]:
                    for slot, value in frame.get("service_call", {}).get("parameters", {}).items():
                        seen[frame["service"], slot].add(value)
        return {
            (service, slot["name"]): slot_kind(slot, seen[service, slot["name"]] - {"dontcare"})
            for service, schema in self._original.items()
            for slot in schema["slots"]
        }

    def intents(self, service: str) -> list[str]:
        """The original names of a service's intents."""
        return [i["name"] for i in self._original[service]["intents"]]

    def intent(self, service: str, method: str) -> Json:
        """The original description of an intent."""
        return next(i for i in self._original[service]["intents"] if i["name"] == method)

    def kind(self, service: str, slot: str) -> Json:
        """The JSON Schema of a slot."""
        return self._kinds[service, slot]

    def tool(
        self, service: str, method: str, naming: str, style: Style, keep: frozenset[str]
    ) -> tuple[ToolSpec, dict[str, str]]:
        """An intent as a tool, and the shown name of every original slot.

        Args:
            service: original name of the service.
            method: original name of the intent.
            naming: which schema the names and descriptions come from.
            style: how names and dates are written.
            keep: optional slots that must stay; others are dropped now and then.
        """
        original, shown = self._original[service], self._schemas[naming][service]
        index = self.intents(service).index(method)
        names = {
            o["name"]: s["name"] for o, s in zip(original["slots"], shown["slots"], strict=True)
        }
        intent = original["intents"][index]
        optional = [s for s in intent["optional_slots"] if s in keep or style.keeps_optional()]
        properties = {
            names[s]: style.schema(self.kind(service, s))
            for s in [*intent["required_slots"], *optional]
        }
        spec: ToolSpec = {
            "name": style.name(shown["intents"][index]["name"]),
            "description": shown["intents"][index]["description"],
            "parameters": {
                "type": "object",
                "properties": properties,
                "required": [names[s] for s in intent["required_slots"]],
                "additionalProperties": False,
            },
        }
        return spec, names


def slot_kind(slot: Json, values: set[str]) -> dict[str, Any]:
    """The JSON Schema of a slot, from its declared values or from those of the calls.

    Example:
        >>> slot_kind({"name": "n", "is_categorical": True, "possible_values": ["1", "2"]}, set())
        {'type': 'integer', 'minimum': 1, 'maximum': 2}
    """
    possible = slot["possible_values"]
    if slot["is_categorical"]:
        if set(possible) <= {"True", "False"}:
            return {"type": "boolean"}
        if all(_INTEGER.fullmatch(v) for v in possible):
            numbers = [int(v) for v in possible]
            return {"type": "integer", "minimum": min(numbers), "maximum": max(numbers)}
        return {"type": "string", "enum": list(possible)}
    for pattern, schema in (
        (_DATE, {"type": "string", "format": "date"}),
        (_INTEGER, {"type": "integer"}),
        (_NUMBER, {"type": "number"}),
    ):
        if values and all(pattern.fullmatch(v) for v in values):
            return schema
    return {"type": "string"}


class Style:
    """The random choices of one row about how tools are written."""

    def __init__(self, rng: random.Random, *, varied: bool) -> None:
        self._rng = rng
        self._varied = varied
        self._is_snake_case = varied and rng.random() < P_SNAKE_CASE
        self._shows_dates = not varied or rng.random() < P_DATE_FORMAT
        self._drops = varied and rng.random() < 0.5

    def name(self, name: str) -> str:
        """A tool's name in this row's case."""
        return snake_case(name) if self._is_snake_case else name

    def schema(self, kind: Json) -> dict[str, Any]:
        """A slot's schema, with or without the format of a date."""
        if kind.get("format") == "date" and not self._shows_dates:
            return {"type": "string"}
        return dict(kind)

    def keeps_optional(self) -> bool:
        """Whether an optional parameter that the call does not use is shown."""
        return not (self._drops and self._rng.random() < 2 * P_DROP_UNUSED)


def snake_case(name: str) -> str:
    """A name in snake case.

    Example:
        >>> snake_case("FindBusTickets")
        'find_bus_tickets'
    """
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def typed_value(value: str, kind: Json) -> Any:
    """A value of SGD (always text) in the type of its schema, or None if it does not fit."""
    match kind["type"]:
        case "boolean":
            return {"True": True, "False": False}.get(value)
        case "integer":
            number = int(value) if _INTEGER.fullmatch(value) else None
            fits = number is not None and number in range(
                kind.get("minimum", 0), kind.get("maximum", 10**9) + 1
            )
            return number if fits else None
        case "number":
            return float(value) if _NUMBER.fullmatch(value) else None
        case _:
            return value if value in kind.get("enum", (value,)) else None


def last_mention(moment: Moment, slot: str, forms: Sequence[str]) -> int | None:
    """The last turn that says the value of a slot: by its annotation or by its words."""
    value = moment.values[slot]
    verbatim = [f.casefold() for f in forms if len(f) > 2 and not f.isdigit()]
    for i in range(len(moment.turns) - 1, -1, -1):
        turn = moment.turns[i]
        if any(f in turn.text.casefold() for f in verbatim):
            return i
        for frame in turn.frames:
            if frame["service"] != moment.service:
                continue
            for action in frame["actions"]:
                known = (*action["canonical_values"], *action["values"])
                if action["slot"] == slot and (value in known or set(forms) & set(known)):
                    return i
    return None


def intent_turn(moment: Moment) -> int:
    """The user turn in which the intent of the last turn became active."""
    start = len(moment.turns) - 1
    for i in range(len(moment.turns) - 1, -1, -1):
        if not moment.turns[i].is_user:
            continue
        intents = {
            f["state"]["active_intent"]
            for f in moment.turns[i].frames
            if f["service"] == moment.service and "state" in f
        }
        if moment.method not in intents:
            break
        start = i
    return start


@dataclass(frozen=True)
class Target:
    """The arguments of a call under original slot names, and the turns that must be shown."""

    arguments: dict[str, Any]
    shown: list[int]


def target(moment: Moment, catalogue: Catalogue, rng: random.Random) -> Target | None:
    """The learnable part of a call, or None if a required argument is nowhere said."""
    assert moment.method is not None
    intent = catalogue.intent(moment.service, moment.method)
    optional = intent["optional_slots"]
    arguments: dict[str, Any] = {}
    needed: list[int] = []
    for slot in (*intent["required_slots"], *optional):
        if slot not in moment.values:
            continue
        value, kind = moment.values[slot], catalogue.kind(moment.service, slot)
        forms = [value, *moment.state.get(slot, ())]
        turn = None if value == "dontcare" else last_mention(moment, slot, forms)
        typed = typed_value(value, kind)
        if turn is None or typed is None:
            if slot in optional and value in (optional[slot], "dontcare"):
                continue
            return None
        arguments[slot] = typed
        needed.append(turn)
    shown = _window(moment, [*needed, intent_turn(moment)], needed, rng)
    if shown is None:
        return None
    text = "\n".join(moment.turns[i].text for i in shown)
    for slot, typed in arguments.items():
        kind = catalogue.kind(moment.service, slot)
        if isinstance(typed, str) and "enum" not in kind and not _is_canonical(typed, kind):
            form = verbatim_form([typed, *moment.state.get(slot, ())], text)
            if form is None:
                return None
            arguments[slot] = form
    return Target(arguments, shown)


def _is_canonical(value: str, kind: Json) -> bool:
    return kind.get("format") == "date" or bool(_TIME.fullmatch(value))


def verbatim_form(forms: Sequence[str], text: str) -> str | None:
    """The first of some forms that a text holds, in the text's own letters.

    Example:
        >>> verbatim_form(["Comedy", "funny"], "I like Funny films")
        'Funny'
    """
    for form in forms:
        if form in text:
            return form
    for form in forms:
        found = re.search(rf"(?<!\w){re.escape(form)}(?!\w)", text, re.IGNORECASE)
        if found:
            return found.group()
    return None


def _window(
    moment: Moment, wanted: Sequence[int], needed: Sequence[int], rng: random.Random
) -> list[int] | None:
    """Turns to show: the last few, from the first wanted one if that fits, else only what must be.

    None if even that is too long.
    """
    last = len(moment.turns) - 1
    start = min([*wanted, last - rng.choice((0, 2, 2, 4, 4, 6))])
    tail = max(0, last - 2)
    for first in (start, min([*needed, tail])):
        first = max(0, first - (not moment.turns[max(0, first)].is_user))
        whole = list(range(first, last + 1))
        if _num_words(moment, whole) <= MAX_WORDS:
            return whole
    some = sorted({*needed, *range(tail, last + 1)})
    return some if _num_words(moment, some) <= MAX_WORDS else None


def _num_words(moment: Moment, shown: Sequence[int]) -> int:
    return sum(len(moment.turns[i].text.split()) for i in shown)


def shown_year(
    moment: Moment, arguments: dict[str, Any], catalogue: Catalogue, rng: random.Random
) -> int:
    """Moves the dates of a call to another year, in place, where no weekday forbids it.

    Returns:
        The year in which the dialogue now takes place.
    """
    dates = [s for s in arguments if catalogue.kind(moment.service, s).get("format") == "date"]
    forms = [f for s in dates for f in moment.state.get(s, ())]
    if rng.random() >= P_OTHER_YEAR or any(_WEEKDAY.search(f) or "2019" in f for f in forms):
        return TODAY.year
    year = rng.randint(2015, 2032)
    for slot in dates:
        arguments[slot] = f"{year}{arguments[slot][4:]}"
    return year


class RowMaker:
    """Makes rows from moments.

    Args:
        catalogue: the services that may be shown.
        rng: source of every random choice.
        varied: whether names, case, formats and years vary (training) or stay SGD's own.
    """

    def __init__(self, catalogue: Catalogue, rng: random.Random, *, varied: bool) -> None:
        self._catalogue = catalogue
        self._rng = rng
        self._varied = varied

    def row(self, moment: Moment, source: str, *, has_tool: bool) -> Row | None:
        """One row, or None if the moment is not learnable or too long."""
        learnt = self._learnt(moment)
        if learnt is None:
            return None
        style = Style(self._rng, varied=self._varied)
        year = TODAY.year
        calls: list[tuple[str, dict[str, Any]]] = []
        tools: list[ToolSpec] = []
        naming = self._naming()
        if self._varied:
            year = shown_year(moment, learnt.arguments, self._catalogue, self._rng)
        if moment.method is not None and has_tool:
            spec, names = self._catalogue.tool(
                moment.service, moment.method, naming, style, frozenset(learnt.arguments)
            )
            by_name = {names[s]: v for s, v in learnt.arguments.items()}
            ordered = {n: by_name[n] for n in spec["parameters"]["properties"] if n in by_name}
            tools.append(spec)
            calls.append((spec["name"], ordered))
        elif moment.method is None:
            for method in self._catalogue.intents(moment.service):
                tools.append(
                    self._catalogue.tool(moment.service, method, naming, style, frozenset())[0]
                )
        tools += self._distractors(moment, naming, style, num_shown=len(tools))
        return self._finish(moment, learnt, tools, calls, year, f"{source}:{naming}")

    def _learnt(self, moment: Moment) -> Target | None:
        if moment.method is not None:
            return target(moment, self._catalogue, self._rng)
        shown = _window(moment, [], [], self._rng)
        return None if shown is None else Target({}, shown)

    def _naming(self) -> str:
        others = [n for n in self._catalogue.namings if n != "original"]
        if others and self._varied and self._rng.random() < P_PARAPHRASED:
            return self._rng.choice(others)
        return "original"

    def _distractors(
        self, moment: Moment, naming: str, style: Style, num_shown: int
    ) -> list[ToolSpec]:
        siblings = [
            (moment.service, m)
            for m in self._catalogue.intents(moment.service)
            if m != moment.method and moment.method is not None
        ]
        others = [
            (s, m)
            for s in self._catalogue.services
            if not is_alike(s, moment.service)
            for m in self._catalogue.intents(s)
        ]
        count = self._rng.choice((0, 1, 2, 3)) if num_shown else self._rng.choice((1, 2, 3))
        if num_shown > 1:
            count = self._rng.choice((0, 1))
        chosen: list[tuple[str, str]] = []
        if siblings and count and self._rng.random() < 0.6:
            chosen.append(self._rng.choice(siblings))
        chosen += self._rng.sample(others, count - len(chosen))
        shown: list[ToolSpec] = []
        for service, method in chosen:
            name = naming if service == moment.service else self._naming()
            shown.append(self._catalogue.tool(service, method, name, style, frozenset())[0])
        return shown

    def _finish(
        self,
        moment: Moment,
        learnt: Target,
        tools: list[ToolSpec],
        calls: list[tuple[str, dict[str, Any]]],
        year: int,
        source: str,
    ) -> Row | None:
        if len({t["name"] for t in tools}) < len(tools):
            return None
        self._rng.shuffle(tools)
        turns: list[Message] = [
            {"role": "user" if moment.turns[i].is_user else "assistant",
             "content": moment.turns[i].text}
            for i in learnt.shown
        ]  # fmt: skip
        has_date = any(
            '"date"' in json.dumps(t["parameters"]) or "_date" in json.dumps(t["parameters"])
            for t in tools
        )
        if has_date or self._rng.random() < 0.2:
            day = TODAY.replace(year=year)
            turns.insert(0, {"role": "system", "content": f"Today is {day:%Y-%m-%d, %A}."})
        answer = tool_answer(calls)
        messages = tool_messages(tools, turns)
        if sum(len(m["content"]) for m in messages) + len(answer) > MAX_CHARACTERS:
            return None
        return {
            "task": "call",
            "messages": messages,
            "answer": answer,
            "tools": tools,
            "source": source,
            "id": f"sgd:{moment.id}",
            "kind": moment.kind if calls or moment.method is None else "removed",
        }
