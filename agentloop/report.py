"""A run as one HTML page: nothing is loaded from elsewhere, nothing on it is executed.

Whatever a run holds is text here: every value is escaped, and the page's own policy forbids
scripts, pictures and requests.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from agentloop.json_data import as_object
from agentloop.run_view import CallView, RunView, StepView

if TYPE_CHECKING:
    from agentloop.graph import Graph

MAX_STEPS = 1000
"""Steps that a page shows in full; of those beyond it says how many there are."""
_MAX_LETTERS = 4000
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def report_page(view: RunView, graph: Graph[Any] | None = None) -> str:
    """A run as a page.

    Args:
        view: The run.
        graph: Its graph, to draw it.
    """
    style = files("agentloop").joinpath("report.css").read_text(encoding="utf-8")
    steps = sorted(view.steps.values(), key=lambda step: step.began_s or float("inf"))
    shown = steps[:MAX_STEPS]
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>Run {escape(view.name)}</title><style>{style}</style></head><body>",
        *_head(view),
        "<main>",
        *_problems(view),
        *_questions(view),
        *_picture(view, graph),
        *_timeline(view, shown),
        *_steps(shown, len(steps)),
        *_states(view),
        "</main></body></html>",
    ]
    return "\n".join(parts) + "\n"


def _head(view: RunView) -> Iterator[str]:
    yield f'<header><h1>{escape(view.name)} <span class="pill {escape(view.status)}">'
    yield f"{escape(view.status)}</span></h1><dl>"
    facts = [("steps", f"{len(view.steps):,}"), ("calls", f"{len(view.calls):,}")]
    facts.append(("busy", _time(view.busy_s)))
    if view.num_tokens:
        facts.append(("tokens", f"{view.num_tokens:,}"))
    if view.cost:
        facts.append(("cost", f"{view.cost:g}"))
    for name, value in facts:
        yield f"<div><dt>{name}</dt><dd>{value}</dd></div>"
    yield "</dl></header>"


def _problems(view: RunView) -> Iterator[str]:
    for error in view.errors[-1:]:
        yield _box("failed", "It failed", error)
    if view.limit:
        yield _box("waiting", "It took its way out", view.limit)
    if view.damaged:
        items = "".join(f"<li>{escape(row)}</li>" for row in view.damaged)
        yield f'<section class="box failed"><h2>Damaged rows</h2><ul>{items}</ul></section>'


def _box(kind: str, title: str, value: object) -> str:
    return f'<section class="box {kind}"><h2>{title}</h2>{_pre(value)}</section>'


def _questions(view: RunView) -> Iterator[str]:
    if not view.questions:
        return
    yield '<section class="box waiting"><h2>It waits for</h2><dl class="list">'
    for path, question in view.questions.items():
        yield f"<dt><code>{escape(path)}</code></dt><dd>{_pre(question)}</dd>"
    yield "</dl></section>"


def _picture(view: RunView, graph: Graph[Any] | None) -> Iterator[str]:
    if graph is not None:
        yield "<section><h2>Graph</h2>"
        yield '<div class="wide" tabindex="0" role="group" aria-label="the graph">'
        yield f"{graph.svg(view)}</div></section>"


# ------------------------------------------------------------------ the timeline


class _Scale:
    """Where a moment stands on the timeline, in percent; long waits between are cut short."""

    def __init__(self, intervals: list[tuple[float, float]]) -> None:
        busy = sum(end - start for start, end in intervals) or 1e-9
        self.cuts: list[float] = []
        self._pieces: list[tuple[float, float, float]] = []  # from, to, where it begins
        at = 0.0
        for number, (start, end) in enumerate(intervals):
            if number:
                wait = start - intervals[number - 1][1]
                if wait > 0.15 * busy:
                    self.cuts.append(at + 0.02 * busy)
                at += min(wait, 0.04 * busy) if wait > 0.15 * busy else wait
            self._pieces.append((start, end, at))
            at += end - start
        self._all = at or 1e-9
        self.cuts = [100 * cut / self._all for cut in self.cuts]

    def at(self, moment: float) -> float:
        """A moment's place."""
        for start, end, place in self._pieces:
            if moment <= end:
                return 100 * (place + max(0.0, moment - start)) / self._all
        return 100.0


def _timeline(view: RunView, steps: list[StepView]) -> Iterator[str]:
    timed = [step for step in steps if step.began_s is not None]
    if not timed:
        return
    scale = _Scale(view.intervals())
    yield '<section><h2>Timeline</h2><div class="timeline" role="list">'
    cuts = "".join(f'<i class="cut" style="left:{cut:.3f}%"></i>' for cut in scale.cuts)
    for step in timed:
        bars = _bar(scale, step.began_s, step.took_s, f"bar {step.status}")
        bars += "".join(
            _bar(scale, call.began_s, call.took_s, f"call {call.kind}") for call in step.calls
        )
        told = f"{step.path}, {step.status}, {_time(step.took_s)}"
        yield (
            f'<div class="lane" role="listitem" aria-label="{escape(told)}">'
            f'<a href="#{_anchor(step)}">{escape(step.path)}</a>'
            f'<div class="track">{cuts}{bars}</div><span>{_time(step.took_s)}</span></div>'
        )
    yield "</div>"
    yield '<p class="key"><b class="bar done"></b> step <b class="call llm"></b> model call '
    yield '<b class="call tool"></b> tool <b class="call"></b> other call'
    yield " · dotted: a wait cut short</p>" if scale.cuts else "</p>"
    yield "</section>"


def _bar(scale: _Scale, began_s: float | None, took_s: float, kind: str) -> str:
    if began_s is None:
        return ""
    left, right = scale.at(began_s), scale.at(began_s + took_s)
    return (
        f'<i class="{escape(kind)}" style="left:{left:.3f}%;width:{max(right - left, 0):.3f}%"></i>'
    )


# ------------------------------------------------------------------ the steps


def _steps(steps: list[StepView], num_all: int) -> Iterator[str]:
    yield "<section><h2>Steps</h2>"
    for step in steps:
        calls = f"{len(step.calls)} call{'s' * (len(step.calls) != 1)}" if step.calls else ""
        choice = f"→ {escape(step.choice)}" if step.choice else ""
        yield (
            f'<details id="{_anchor(step)}"{" open" * (step.status in ("failed", "waiting"))}>'
            f'<summary><span class="pill {escape(step.status)}">{escape(step.status)}</span> '
            f"<code>{escape(step.path)}</code> <small>{choice} {calls}</small> "
            f"<small>{_time(step.took_s)}</small></summary>"
        )
        if step.error:
            yield f'<div class="box failed">{_pre(step.error)}</div>'
        if step.patch:
            yield f"<h3>It wrote</h3>{_fields(step.patch)}"
        if step.calls:
            yield from _calls(step.calls)
        if step.drafts:
            items = "".join(f"<li>{escape(draft)}</li>" for draft in step.drafts)
            yield f'<h3>Drafts</h3><ol class="drafts">{items}</ol>'
        for kind, data in step.notes:
            yield f"<h3>{escape(kind)}</h3>{_pre(data)}"
        yield "</details>"
    if num_all > len(steps):
        yield f"<p>{num_all - len(steps):,} more steps are left out of this page.</p>"
    yield "</section>"


def _calls(calls: Iterable[CallView]) -> Iterator[str]:
    yield "<h3>Calls</h3><table><thead><tr><th>call</th><th>asked</th><th>gave</th>"
    yield '<th class="number">tokens</th><th class="number">time</th></tr></thead><tbody>'
    for call in calls:
        gave = (
            f'<div class="box failed">{_pre(call.error)}</div>' if call.error else _pre(call.result)
        )
        name = "" if call.name == call.kind else f" {escape(call.name)}"
        tokens = f"{call.num_tokens:,}" if call.num_tokens else ""
        yield (
            f"<tr><td><b>{escape(call.kind)}</b>{name}</td><td>{_pre(call.request)}</td>"
            f'<td>{gave}</td><td class="number">{tokens}</td>'
            f'<td class="number">{_time(call.took_s)}</td></tr>'
        )
    yield "</tbody></table>"


def _states(view: RunView) -> Iterator[str]:
    for title, state in (("It began with", view.start), ("It ended with", view.end)):
        if state is not None:
            yield f"<section><details><summary>{title}</summary>{_fields(state)}"
            yield "</details></section>"


def _fields(values: Any) -> str:
    known = as_object(values)
    if known is None:
        return _pre(values)
    rows = "".join(
        f"<dt><code>{escape(str(name))}</code></dt><dd>{_pre(value)}</dd>"
        for name, value in known.items()
    )
    return f'<dl class="list">{rows}</dl>'


def _anchor(step: StepView) -> str:
    return "step-" + "".join(
        c if c.isalnum() and c.isascii() else f"_{ord(c):x}" for c in step.path
    )


def _pre(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)
    left_out = len(text) - _MAX_LETTERS
    cut = f"{text[:_MAX_LETTERS]}\n… {left_out:,} more characters" if left_out > 0 else text
    return f"<pre>{escape(cut)}</pre>"


def _time(seconds: float) -> str:
    if seconds >= 100:
        return f"{seconds:,.0f} s"
    return f"{seconds:.2f} s" if seconds >= 1 else f"{1000 * seconds:.1f} ms"
