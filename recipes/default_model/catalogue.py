"""SGD's services as tools: names from SGD or its SGD-X paraphrases, typed parameters.

SGD writes every value as text; here a slot gets the JSON Schema that its values allow.
"""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from agentloop.model.prompts import ToolSpec
from recipes.default_model.dialogues import Json

P_SNAKE_CASE = 0.5
P_DATE_FORMAT = 0.75
P_DROPS_UNUSED = 0.5  # that a row drops unused optional parameters at all
P_DROP_UNUSED = 0.6  # that such a row drops one
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_INTEGER = re.compile(r"\d+")
_NUMBER = re.compile(r"\d+(\.\d+)?")


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
    """The random choices of one row about how tools are written.

    Attributes:
        has_date: whether a date was among the parameters written so far.
    """

    def __init__(self, rng: random.Random, *, varied: bool) -> None:
        self._rng = rng
        self._varied = varied
        self._is_snake_case = varied and rng.random() < P_SNAKE_CASE
        self._shows_dates = not varied or rng.random() < P_DATE_FORMAT
        self._drops = varied and rng.random() < P_DROPS_UNUSED
        self.has_date = False

    def name(self, name: str) -> str:
        """A tool's name in this row's case."""
        return snake_case(name) if self._is_snake_case else name

    def schema(self, kind: Json) -> dict[str, Any]:
        """A slot's schema, with or without the format of a date."""
        is_date = kind.get("format") == "date"
        self.has_date |= is_date
        return {"type": "string"} if is_date and not self._shows_dates else dict(kind)

    def keeps_optional(self) -> bool:
        """Whether an optional parameter that the call does not use is shown."""
        return not (self._drops and self._rng.random() < P_DROP_UNUSED)


def snake_case(name: str) -> str:
    """A name in snake case.

    Example:
        >>> snake_case("FindABus")
        'find_a_bus'
    """
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


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
