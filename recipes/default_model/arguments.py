"""Which arguments of a call its dialogue says, in which words, and which turns must be shown.

A value belongs to a training target only if the shown turns hold it: else a model would learn to
make values up.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recipes.default_model.catalogue import Catalogue, typed_value
from recipes.default_model.dialogues import Json, Moment, Turn

MAX_WORDS = 220  # of the shown dialogue
_TIME = re.compile(r"\d\d:\d\d")
_NUMBER_WORDS = {
    "1": ("one", "a", "an", "single", "me", "myself"), "2": ("two", "couple", "both"),
    "3": ("three",), "4": ("four",), "5": ("five",), "6": ("six",),
}  # fmt: skip


def last_mention(
    moment: Moment, slot: str, forms: Sequence[str], *, by_user: bool = False
) -> int | None:
    """The last turn (or user turn) that says a slot's value: by its words or its annotation."""
    for i in range(len(moment.turns) - 1, -1, -1):
        turn = moment.turns[i]
        if by_user and not turn.is_user:
            continue
        if any(len(f) > 2 and verbatim_form([f], turn.text) for f in forms):
            return i
        if any(a["slot"] == slot and _is_about(a, forms) for a in _actions(turn, moment.service)):
            return i
    return None


def _actions(turn: Turn, service: str) -> list[Json]:
    return [a for f in turn.frames if f["service"] == service for a in f["actions"]]


def _is_about(action: Json, forms: Sequence[str]) -> bool:
    return not set(forms).isdisjoint((*action["canonical_values"], *action["values"]))


def is_said(value: str, kind: Json, slot: str, text: str) -> bool:
    """Whether a text says a value in words; for yes and no, whether it speaks of the slot.

    Example:
        >>> is_said("False", {"type": "boolean"}, "additional_luggage", "One ticket, right?")
        False
    """
    words = text.casefold()
    if kind["type"] == "boolean":
        return any(part[:5] in words for part in slot.split("_") if len(part) > 3)
    if kind["type"] == "integer" and value in _NUMBER_WORDS:
        return any(verbatim_form([form], words) for form in (value, *_NUMBER_WORDS[value]))
    return verbatim_form([value], words) is not None


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


def target(
    moment: Moment, catalogue: Catalogue, rng: random.Random, *, p_request: float = 0.0
) -> Target | None:
    """The learnable part of a call, or None if a required argument is nowhere said.

    Args:
        moment: a moment with a call.
        catalogue: the types of its arguments.
        rng: decides how many turns are shown.
        p_request: how often only the user's turns that matter are shown, if they say all there is.
    """
    found = _said_arguments(moment, catalogue)
    if found is None:
        return None
    arguments, needed = found
    request = _request(moment, catalogue, arguments) if rng.random() < p_request else None
    if request is not None and (whole := _in_shown_form(moment, catalogue, arguments, request)):
        return Target(whole, request)
    shown = window(moment, [*needed, intent_turn(moment)], needed, rng)
    if shown is None:
        return None
    whole = _in_shown_form(moment, catalogue, arguments, shown)
    return None if whole is None else Target(whole, shown)


def _forms(moment: Moment, slot: str) -> list[str]:
    return [moment.values[slot], *moment.state.get(slot, ())]


def _said_arguments(
    moment: Moment, catalogue: Catalogue
) -> tuple[dict[str, Any], list[int]] | None:
    """The arguments that some turn says, typed, and those turns; None if a needed one is not."""
    assert moment.method is not None
    intent = catalogue.intent(moment.service, moment.method)
    optional = intent["optional_slots"]
    arguments: dict[str, Any] = {}
    needed: list[int] = []
    for slot in (*intent["required_slots"], *optional):
        if slot not in moment.values:
            if slot in optional:
                continue
            return None
        value, kind = moment.values[slot], catalogue.kind(moment.service, slot)
        is_default = value in (optional.get(slot), "dontcare") and slot in optional
        turn = None if value == "dontcare" else last_mention(moment, slot, _forms(moment, slot))
        typed = typed_value(value, kind)
        if turn is not None and is_default and not moment.turns[turn].is_user:
            turn = turn if is_said(value, kind, slot, moment.turns[turn].text) else None
        if turn is not None and typed is not None:
            arguments[slot] = typed
            needed.append(turn)
        elif not is_default:
            return None
    return arguments, needed


def _in_shown_form(
    moment: Moment, catalogue: Catalogue, arguments: Mapping[str, Any], shown: Sequence[int]
) -> dict[str, Any] | None:
    """The arguments with open text as the shown turns have it; None if they do not."""
    text = "\n".join(moment.turns[i].text for i in shown)
    whole = dict(arguments)
    for slot, typed in arguments.items():
        kind = catalogue.kind(moment.service, slot)
        if isinstance(typed, str) and "enum" not in kind and not _is_canonical(typed, kind):
            form = verbatim_form(_forms(moment, slot), text)
            if form is None:
                return None
            whole[slot] = form
    return whole


def _request(
    moment: Moment, catalogue: Catalogue, arguments: Mapping[str, Any]
) -> list[int] | None:
    """The user's turns that together are the request, or None if they leave something out."""
    first = intent_turn(moment)
    turns = [last_mention(moment, s, _forms(moment, s), by_user=True) for s in arguments]
    said = sorted({first, *(t for t in turns if t is not None)})
    acts = {a["act"] for a in _actions(moment.turns[first], moment.service)}
    if None in turns or "INFORM_INTENT" not in acts or _num_words(moment, said) > MAX_WORDS:
        return None
    return said


def _is_canonical(value: str, kind: Json) -> bool:
    return kind.get("format") == "date" or bool(_TIME.fullmatch(value))


def verbatim_form(forms: Sequence[str], text: str) -> str | None:
    """The first of some forms that a text holds, in the text's own letters.

    Example:
        >>> verbatim_form(["Comedy", "funny"], "I like Funny films")
        'Funny'
    """
    for flags in (re.NOFLAG, re.IGNORECASE):
        for form in forms:
            found = re.search(rf"(?<!\w){re.escape(form)}(?!\w)", text, flags)
            if found:
                return found.group()
    return None


def window(
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
