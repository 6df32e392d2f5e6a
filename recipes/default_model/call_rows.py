"""Tool-call rows: a dialogue, some tools and the call that answers it.

Training rows vary what SGD keeps fixed: names and their case, which tools stand beside the right
one, whether the right one is there at all, how much of the dialogue is shown, and the year.
"""

from __future__ import annotations

import datetime
import random
import re
from collections.abc import Sequence
from typing import Any, Literal

from agentloop.model.prompts import Message, ToolSpec, tool_answer, tool_messages
from recipes.default_model.arguments import Target, target, window
from recipes.default_model.catalogue import Catalogue, Style
from recipes.default_model.dialogues import Moment, Turn, is_alike

Row = dict[str, Any]

TODAY = datetime.date(2019, 3, 1)  # the day on which SGD's dialogues take place
MAX_CHARACTERS = 1650  # of prompt and answer together: about 430 tokens
P_PARAPHRASED = 0.5
P_OTHER_YEAR = 0.5
P_REQUEST = 0.3  # that the user's turns that matter are shown as one message
P_SIBLING = 0.6  # that a distractor is another tool of the right tool's service
_WEEKDAY = re.compile(r"(mon|tues|wednes|thurs|fri|satur|sun)day|week", re.IGNORECASE)


def conversation(turns: Sequence[Turn]) -> list[Message]:
    """Turns as messages; neighbours of one speaker become one message.

    Example:
        >>> conversation([Turn(True, "Hi.", ()), Turn(True, "A cab, please.", ())])
        [{'role': 'user', 'content': 'Hi. A cab, please.'}]
    """
    messages: list[Message] = []
    for turn in turns:
        role: Literal["user", "assistant"] = "user" if turn.is_user else "assistant"
        if messages and messages[-1]["role"] == role:
            text = f"{messages[-1]['content']} {turn.text}"
            messages[-1] = {"role": role, "content": text}
        else:
            messages.append({"role": role, "content": turn.text})
    return messages


def shown_year(
    moment: Moment, arguments: dict[str, Any], catalogue: Catalogue, rng: random.Random
) -> int:
    """Moves the dates of a call to another year, in place, where no weekday forbids it.

    Returns:
        The year in which the dialogue now takes place.
    """
    dates = [s for s in arguments if catalogue.kind(moment.service, s).get("format") == "date"]
    forms = [f for s in dates for f in moment.state.get(s, ())]
    forms += [moment.turns[-1].text]
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
        return self._finish(
            moment, learnt, tools, calls, year, style.has_date, f"{source}:{naming}"
        )

    def _learnt(self, moment: Moment) -> Target | None:
        if moment.method is not None:
            p_request = P_REQUEST if self._varied else 0.0
            return target(moment, self._catalogue, self._rng, p_request=p_request)
        shown = window(moment, [], [], self._rng)
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
        if siblings and count and self._rng.random() < P_SIBLING:
            chosen.append(self._rng.choice(siblings))
        chosen += self._rng.sample(others, min(count - len(chosen), len(others)))
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
        has_date: bool,
        source: str,
    ) -> Row | None:
        if len({t["name"] for t in tools}) < len(tools):
            return None
        self._rng.shuffle(tools)
        turns = conversation([moment.turns[i] for i in learnt.shown])
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
