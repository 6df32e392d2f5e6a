"""The command `watch`: a canvas as it is refined, in the terminal."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.live import Live
from rich.panel import Panel
from rich.text import Text

from agentloop.cli_calls import load_tools
from agentloop.errors import ConstraintError
from agentloop.model.call_options import AnswerOptions
from agentloop.model.prompts import Message, tool_messages, type_of
from agentloop.terminal import counted, load_model, milliseconds, out, printable

if TYPE_CHECKING:
    from agentloop.model.generation import Draft
    from agentloop.model.lm import DiffusionLM

MASK = "░"
_LEAST = -12.0  # log10 of a probability that is drawn as nothing
_LEVELS = "▁▂▃▄▅▆▇█"
_NEW = "new"
_STYLES = {
    "masked": "dim",
    "committed": "",
    "revised": "black on yellow",
    "fixed": "blue",
    _NEW: "black on green",
}


@dataclass(frozen=True, slots=True)
class Form:
    """What the answer must be, and how the prompt says so.

    Attributes:
        constraint: A constraint of `agentloop.model.constraint`, None for free text.
        hint: Told to the model first, "" for nothing.
        tools: The tools of a constraint on calls.
    """

    constraint: Any = None
    hint: str = ""
    tools: Any = None

    def messages(self, prompt: str) -> list[Message]:
        """The conversation that asks for it."""
        asked: list[Message] = [{"role": "user", "content": prompt}]
        if self.tools is not None:
            return tool_messages(self.tools.specs, asked)
        return [{"role": "system", "content": self.hint}, *asked] if self.hint else asked


def form_of(schema: Path | None, choices: str | None, tools: Path | None) -> Form:
    """The form that the options of `watch` ask for.

    Raises:
        ConstraintError: More than one form is asked for, or the schema file is not one.
        ToolError: The tools file holds no tools.
    """
    names = {"--schema": schema, "--choices": choices, "--tools": tools}
    given = [name for name, value in names.items() if value is not None]
    if len(given) > 1:
        raise ConstraintError(f"{' and '.join(given)} are given; an answer has one form, leave one")
    if schema is not None:
        return _schema_form(schema)
    if choices is not None:
        return _choice_form(choices)
    if tools is not None:
        from agentloop.model.constraint import ToolCalls  # brings numpy, so only when needed

        known = load_tools(tools)
        return Form(ToolCalls(known.specs, min=0), tools=known)
    return Form()


def _schema_form(path: Path) -> Form:
    from agentloop.model.constraint import JsonSchema  # as above

    try:
        schema: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise ConstraintError(f"{path} cannot be read: {why}; give a JSON schema") from error
    except json.JSONDecodeError as error:
        raise ConstraintError(
            f"{path}:{error.lineno}:{error.colno} is not JSON: {error.msg}"
        ) from error
    if type(schema) not in (dict, bool):
        raise ConstraintError(f"{path} holds {type(schema).__name__}, expected a JSON schema")
    constraint = JsonSchema(schema)
    hint = "" if isinstance(schema, bool) else f"Answer as JSON: {type_of(schema)}"
    return Form(constraint, hint)


def _choice_form(choices: str) -> Form:
    from agentloop.model.constraint import Choice  # as above

    texts = [text for part in choices.split(",") if (text := part.strip())]
    return Form(Choice(texts), f"Answer with one of: {', '.join(texts)}.")


@dataclass(frozen=True, slots=True)
class Watched:
    """A call to be watched, as in `DiffusionLM.draft_stream`."""

    prompt: str
    form: Form
    options: AnswerOptions = field(default_factory=AnswerOptions)


@dataclass(slots=True)
class CanvasView:
    """The canvas at a step, drawn.

    Attributes:
        title: What is above it.
        p_valid: P(valid) of every step so far.
    """

    title: str
    p_valid: list[float] = field(default_factory=list[float])
    _marks: Sequence[str] = ()
    _began: float = field(default_factory=time.perf_counter)

    def frame(self, draft: Draft) -> Group:
        """What is on the screen after a step."""
        self.p_valid.append(draft.p_valid)
        canvas = self._canvas(draft)
        self._marks = draft.marks
        title = Text(self.title)
        panel = Panel(canvas, title=title, title_align="left", border_style="dim")
        return Group(panel, self._status(draft), _legend())

    def _canvas(self, draft: Draft) -> Text:
        canvas = Text(overflow="fold")
        for slot, (piece, mark) in enumerate(zip(draft.pieces, draft.marks, strict=True)):
            was_masked = slot >= len(self._marks) or self._marks[slot] == "masked"
            kind = _NEW if mark == "committed" and was_masked else mark
            canvas.append(MASK if mark == "masked" else printable(piece), _STYLES[kind])
        return canvas

    def _status(self, draft: Draft) -> Text:
        done = sum(mark != "masked" for mark in draft.marks)
        spent = milliseconds(time.perf_counter() - self._began)
        return Text.assemble(
            (f" step {draft.step:<3}", "bold"),
            f" {done:>3}/{len(draft.marks)} slots   P(valid) {draft.p_valid:.2g}  ",
            (sparkline(self.p_valid), "cyan"),
            (f"  {spent}", "dim"),
        )


def sparkline(probabilities: Sequence[float]) -> str:
    """Probabilities as bars on a scale of logarithms, from 1e-12 to 1, one character each.

    Example:
        >>> sparkline([0.0, 1e-6, 1.0])
        '▁▅█'
    """
    shares = (1 - math.log10(max(p, 10**_LEAST)) / _LEAST for p in probabilities)
    return "".join(_LEVELS[round(share * (len(_LEVELS) - 1) + 0.01)] for share in shares)


def _legend() -> Text:
    new, revised = (" new ", _STYLES[_NEW]), (" revised ", _STYLES["revised"])
    return Text.assemble((f" {MASK} masked ", "dim"), " ", new, " committed  ", revised)


def run_watch(watched: Watched, model: str, *, delay_s: float) -> None:
    """`agentloop watch`; where standard output is no terminal, only the answer is printed."""
    with load_model(model) as lm:
        began = time.perf_counter()
        last = asyncio.run(_watch(lm, watched, delay_s))
    if not out.is_terminal:
        print(last.text(MASK), file=out.file)
        return
    spent = milliseconds(time.perf_counter() - began)
    out.print(f" {counted(last.step, 'step')}, {spent} with the rests between", style="dim")


async def _watch(lm: DiffusionLM, watched: Watched, delay_s: float) -> Draft:
    """Draw every draft; the last one is the answer."""
    view = CanvasView(watched.prompt.replace("\n", " ")[:60])
    last: Draft | None = None
    with Live(console=out, auto_refresh=False, vertical_overflow="visible") as live:
        async for draft in lm.draft_stream(
            watched.form.messages(watched.prompt),
            constraint=watched.form.constraint,
            **watched.options,
        ):
            last = draft
            if out.is_terminal:
                live.update(view.frame(draft), refresh=True)
                await asyncio.sleep(delay_s)
    assert last is not None  # a call that is answered has taken a step
    return last
