"""What the commands `agentloop runs ...` do."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import json
import os
import re
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from rich.table import Table
from rich.text import Text

from agentloop.context import RETRY
from agentloop.errors import GraphError, JournalError
from agentloop.graph import Graph
from agentloop.replay import fork
from agentloop.report import report_page
from agentloop.run_view import RunView, StepView, view_recorded
from agentloop.runs import RunResult
from agentloop.sqlite_store import SQLiteStore
from agentloop.stores import RunInfo, prune
from agentloop.terminal import counted, load_model, note, out, print_json, printable, waiting
from agentloop.testing import Replay

_STYLES = {"done": "green", "waiting": "yellow", "failed": "red", "running": "blue"}
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_SHOWN_LENGTH = 100


@dataclass(frozen=True, slots=True)
class Resumed:
    """How to go on with a run.

    Attributes:
        graph: Where its graph is.
        answers: `path=JSON` for each question that is answered.
        retry: Paths of interrupted effects to run.
        model: The model that `llm` goes to.
        is_migrating: Whether to go on although the graph has changed.
    """

    graph: str
    answers: tuple[str, ...]
    retry: tuple[str, ...]
    model: str | None
    is_migrating: bool


@contextmanager
def _opened(path: Path) -> Generator[SQLiteStore]:
    if not path.exists():
        raise JournalError(f"there is no store {path}; give the file that g.run(..., store=) made")
    store = SQLiteStore(path)
    try:
        yield store
    finally:
        store.close()


def list_runs(path: Path, statuses: Sequence[str], *, as_json: bool) -> None:
    """`agentloop runs list`."""
    _check_statuses(statuses)
    with _opened(path) as store:
        found = [info for info in store.runs() if not statuses or info.status in statuses]
    if as_json:
        print_json([asdict(info) for info in found])
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("run", "status", "rows", "changed"):
        table.add_column(title, justify="right" if title == "rows" else "left", no_wrap=True)
    for info in found:
        style = _STYLES.get(info.status, "")
        cells = [Text(printable(info.name)), Text(printable(info.status), style=style)]
        table.add_row(*cells, f"{info.num_rows:,}", _ago(time.time() - info.updated_s))
    out.print(table) if found else note("no runs")


def show_run(path: Path, run: str, *, as_json: bool) -> None:
    """`agentloop runs show`."""
    with _opened(path) as store:
        view = view_recorded(store, run)
    if as_json:
        print_json({**asdict(view), "num_tokens": view.num_tokens, "cost": view.cost})
        return
    _print_head(view)
    for step in sorted(view.steps.values(), key=lambda step: step.began_s or float("inf")):
        _print_step(step)
    for path_, question in view.questions.items():
        out.print(
            Text.assemble(("? ", "yellow"), (printable(path_), "bold"), ": ", _short(question))
        )
    for error in view.errors[-1:]:
        out.print(Text.assemble(("! ", "red"), printable(error)))


def resume_run(path: Path, run: str, asked: Resumed, *, as_json: bool) -> None:
    """`agentloop runs resume`.

    Raises:
        GraphError: What the run fails with, if that is ours.
        Exception: What a node raises.
    """
    answers = dict(_answer(text) for text in asked.answers) | dict.fromkeys(asked.retry, RETRY)
    graph = load_graph(asked.graph)
    model = load_model(asked.model) if asked.model is not None else None
    try:
        with _opened(path) as store, waiting(f"resuming {run}", kind=asked.graph) as report:
            result = graph.run_sync(
                run=run,
                store=store,
                answers=answers,
                model=model,
                migrate=asked.is_migrating,
                check=False,
                on_event=lambda event: report(printable(f"{event.kind} {event.path}")),
            )
    finally:
        if model is not None:
            model.close()
    _print_result(result, as_json=as_json)


def replay_run(path: Path, run: str, graph: str, *, as_json: bool) -> None:
    """`agentloop runs replay`."""
    loaded = load_graph(graph)
    with _opened(path) as store:
        result = asyncio.run(Replay(store, run).run(loaded, check=False))
    _print_result(result, as_json=as_json)


def fork_run(path: Path, run: str, new_run: str, before: str) -> None:
    """`agentloop runs fork`."""
    with _opened(path) as store:
        asyncio.run(fork(store, run, new_run, before=before))
    note(f"{printable(new_run)} goes on before {printable(before)}: agentloop runs resume")


def prune_runs(
    path: Path, older_than: str, statuses: Sequence[str], *, is_dry: bool, as_json: bool
) -> None:
    """`agentloop runs prune`."""
    _check_statuses(statuses)
    older_than_s = _seconds(older_than)
    with _opened(path) as store:
        if is_dry:
            limit = time.time() - older_than_s
            names = [i.name for i in store.runs() if _is_old(i, limit, statuses)]
        else:
            names = prune(store, older_than_s=older_than_s, statuses=statuses)
            store.compact()
    if as_json:
        print_json(names)
        return
    for name in names:
        out.print(Text(printable(name)))
    note(f"{counted(len(names), 'run')} {'would be ' if is_dry else ''}forgotten")


def report_run(path: Path, run: str, page: Path, graph: str | None) -> None:
    """`agentloop runs report`."""
    loaded = load_graph(graph) if graph is not None else None
    with _opened(path) as store:
        view = view_recorded(store, run)
    try:
        page.write_text(report_page(view, loaded), encoding="utf-8")
    except OSError as error:
        raise GraphError(f"{page} cannot be written: {error.strerror}; choose another") from error
    note(f"{page}: {counted(len(view.steps), 'step')}")


def load_graph(where: str) -> Graph[Any]:
    """A graph by module or file, and name; loading it runs that module.

    Raises:
        GraphError: There is no such module, or no graph of that name in it.
    """
    place, colon, name = where.rpartition(":")
    if not colon:
        raise GraphError(f"{where!r} does not name a graph; write module:name or file.py:name")
    try:
        module = _file_module(Path(place)) if place.endswith(".py") else _module(place)
    except (ImportError, OSError) as error:
        raise GraphError(f"{place} cannot be loaded: {error}") from error
    known: dict[str, Any] = dict(vars(module))
    graphs: dict[str, Graph[Any]] = {n: v for n, v in known.items() if isinstance(v, Graph)}
    if name not in graphs:
        names = ", ".join(graphs) or "none"
        raise GraphError(f"{place} has no graph {name!r}; it has {names}")
    return graphs[name]


def _module(name: str) -> ModuleType:
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    return importlib.import_module(name)


def _file_module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.exists():
        raise ImportError("there is no such file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # its classes are looked up there
    spec.loader.exec_module(module)
    return module


def _answer(text: str) -> tuple[str, Any]:
    path, equals, value = text.partition("=")
    if not equals:
        raise GraphError(f"--answer {text!r} has no value; write PATH=JSON, such as approve:0=true")
    try:
        return path, json.loads(value)
    except json.JSONDecodeError:
        return path, value  # a word needs no quotes


def _print_result(result: RunResult[Any], *, as_json: bool) -> None:
    if as_json:
        error = result.error
        print_json(
            {
                "run": result.run,
                "status": result.status,
                "state": result.state.model_dump(mode="json"),
                "questions": dict(result.questions),
                "error": f"{type(error).__name__}: {error}" if error is not None else None,
            }
        )
    else:
        style = _STYLES[result.status]
        out.print(Text.assemble((printable(result.run), "bold"), " ", (result.status, style)))
        for field, value in result.state:
            out.print(Text.assemble((f"  {field} ", "dim"), _short(value)))
        for path, question in result.questions.items():
            out.print(
                Text.assemble(("? ", "yellow"), (printable(path), "bold"), ": ", _short(question))
            )
    if result.error is not None:
        if isinstance(result.error, GraphError):
            raise result.error
        raise GraphError(f"{type(result.error).__name__}: {result.error}") from result.error


def _print_head(view: RunView) -> None:
    style = _STYLES.get(view.status, "")
    out.print(Text.assemble((printable(view.name), "bold"), " ", (printable(view.status), style)))
    sums = [counted(len(view.steps), "step"), counted(len(view.calls), "call")]
    sums += [counted(view.num_tokens, "token")] if view.num_tokens else []
    sums += [f"cost {view.cost:g}"] if view.cost else []
    note(", ".join([*sums, f"{view.busy_s:.3f} s"]))
    if view.limit:
        out.print(Text(f"took its way out: {printable(view.limit)}", style="yellow"))
    for damaged in view.damaged:
        out.print(Text(f"damaged: {printable(damaged)}", style="red"))


def _print_step(step: StepView) -> None:
    style = _STYLES.get(step.status, "dim")
    choice = f" → {printable(step.choice)}" if step.choice else ""
    took = f" {1000 * step.took_s:,.1f} ms" if step.began_s is not None else ""
    out.print(
        Text.assemble(
            (f"{step.status:8} ", style), (printable(step.path), "bold"), choice, (took, "dim")
        )
    )
    patch: Mapping[str, Any] = step.patch or {}
    for field, value in patch.items():
        out.print(Text.assemble((f"           {printable(field)} ", "dim"), _short(value)))
    for call in step.calls:
        asked = f"{call.kind} {call.name} " if call.name != call.kind else f"{call.kind} "
        result = ("  → ", "dim"), _short(call.result)
        out.print(Text.assemble((f"         · {printable(asked)}", "cyan"), _short(call.request)))
        out.print(Text.assemble("         ", *result))
    if step.error:
        out.print(Text(f"           {printable(step.error)}", style="red"))


def _short(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    text = printable(" ".join(text.split()))
    return text if len(text) <= _SHOWN_LENGTH else f"{text[: _SHOWN_LENGTH - 1]}…"


def _check_statuses(statuses: Sequence[str]) -> None:
    for status in statuses:
        if status not in _STYLES:
            raise GraphError(f"--status {status!r} is none; use one of {', '.join(_STYLES)}")


def _is_old(info: RunInfo, limit: float, statuses: Sequence[str]) -> bool:
    return info.status in statuses and info.updated_s <= limit


def _seconds(text: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text)
    if found is None:
        raise GraphError(f"--older-than {text!r} is no time; write 30d, 12h, 90m or 10s")
    return float(found[1]) * _UNITS[found[2]]


def _ago(seconds: float) -> str:
    for unit in ("d", "h", "m"):
        if seconds >= _UNITS[unit]:
            return f"{seconds / _UNITS[unit]:.0f} {unit} ago"
    return f"{max(seconds, 0.0):.0f} s ago"
