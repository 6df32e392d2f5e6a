"""What a person sees: results on standard output, everything else on standard error.

Progress is drawn only where standard error is a terminal, and is gone when the work is done.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from platformdirs import user_cache_path
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.progress_bar import ProgressBar
from rich.text import Text

if TYPE_CHECKING:
    from agentloop.model.lm import DiffusionLM

out = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
err = Console(highlight=False, markup=False, emoji=False, soft_wrap=True, stderr=True)

_FULL = 0.98  # how far a bar of expected time goes before the work is really done
_PATH_LENGTH = 36


def cache_folder() -> Path:
    """Where what can be made again is kept: `$AGENTLOOP_CACHE` or the user's cache."""
    chosen = os.environ.get("AGENTLOOP_CACHE")
    return Path(chosen) if chosen else user_cache_path("agentloop")


def print_json(value: object) -> None:
    """A result as JSON on standard output, and nothing around it."""
    print(json.dumps(value, ensure_ascii=False, indent=2), file=out.file)


def printable(text: str) -> str:
    r"""A text of the same length without what would steer a terminal.

    Example:
        >>> printable("a\tb\x1b[2J")
        'a b�[2J'
    """
    if all(char.isprintable() for char in text):
        return text
    return "".join(_shown(char) for char in text)


def print_error(message: str) -> None:
    """What went wrong, on standard error."""
    err.print(Text.assemble(("error: ", "bold red"), message))


def note(message: str) -> None:
    """Something worth knowing that is no result, on standard error."""
    err.print(Text(message, style="dim"))


def counted(number: int, noun: str, plural: str = "") -> str:
    """A number with its noun.

    Example:
        >>> counted(1, "file"), counted(1200, "file"), counted(2, "pass", "passes")
        ('1 file', '1,200 files', '2 passes')
    """
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def milliseconds(seconds: float) -> str:
    """A time for people.

    Example:
        >>> milliseconds(0.0123), milliseconds(1.5)
        ('12 ms', '1,500 ms')
    """
    return f"{1000 * seconds:,.0f} ms"


class _ExpectedBar(ProgressColumn):
    """A bar that fills over the time that the same work took before."""

    def render(self, task: Task) -> ProgressBar | Text:
        expected = task.fields["expected_s"]
        if not expected:
            return Text("")
        spent = min((task.elapsed or 0.0) / expected, _FULL)
        return ProgressBar(total=1.0, completed=spent, width=24)


class _ExpectedTime(ProgressColumn):
    """Seconds left by the time that the same work took before, else seconds spent."""

    def render(self, task: Task) -> Text:
        expected, spent = task.fields["expected_s"], task.elapsed or 0.0
        if not expected or spent > expected:
            return Text(f"{spent:.0f} s so far", style="dim")
        return Text(f"about {expected - spent:.0f} s left", style="dim")


@contextmanager
def waiting(text: str, *, kind: str) -> Generator[Callable[[str], None]]:
    """Show what is being waited for, with the time it took last time.

    Args:
        text: What is being done.
        kind: Work of the same kind takes about the same time.

    Yields:
        A function that replaces the text.
    """
    memory = cache_folder() / "durations.json"
    known = _durations(memory)
    began = time.perf_counter()
    with _progress(SpinnerColumn(), _said(), _ExpectedBar(), _ExpectedTime()) as progress:
        task = progress.add_task(text, total=None, expected_s=known.get(kind))
        yield lambda now: progress.update(task, description=now)
    _remember(memory, {**known, kind: time.perf_counter() - began})


@contextmanager
def counting(text: str) -> Generator[Callable[[int, int, str], None]]:
    """Show how many files are done and when the rest will be.

    Yields:
        A function that takes files done, files in all, and the last one's path.
    """
    columns = (BarColumn(24), MofNCompleteColumn(), TimeRemainingColumn(elapsed_when_finished=True))
    with _progress(SpinnerColumn(), _said(), *columns, TextColumn("{task.fields[path]}")) as bar:
        task = bar.add_task(text, total=None, path="")

        def show(done: int, total: int, path: str) -> None:
            short = path if len(path) <= _PATH_LENGTH else "…" + path[1 - _PATH_LENGTH :]
            bar.update(task, completed=done, total=total, path=Text(short, style="dim").plain)

        yield show


def load_model(name_or_folder: str) -> DiffusionLM:
    """A model, with the time that is left to wait for it.

    Raises:
        CheckpointError: There is none, or it is damaged.
    """
    with waiting("loading the model", kind=f"load {name_or_folder}") as report:
        from agentloop.model.lm import DiffusionLM  # brings torch, so only when needed

        return DiffusionLM.load(name_or_folder, report=report)


def _shown(char: str) -> str:
    if char.isprintable() or char == "\n":
        return char
    return " " if char.isspace() else "\ufffd"


def _said() -> TextColumn:
    return TextColumn("{task.description}", markup=False)


def _progress(*columns: ProgressColumn) -> Progress:
    return Progress(*columns, console=err, transient=True, disable=not err.is_terminal)


def _durations(memory: Path) -> dict[str, float]:
    """Seconds that each kind of work took; whatever cannot be read is not known."""
    try:
        found: Any = json.loads(memory.read_text(encoding="utf-8"))
        return {str(kind): float(seconds) for kind, seconds in found.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def _remember(memory: Path, durations: Mapping[str, float]) -> None:
    """Keep the durations; a bar is not worth an error."""
    try:
        memory.parent.mkdir(parents=True, exist_ok=True)
        memory.write_text(json.dumps(dict(durations)), encoding="utf-8")
    except OSError:
        return
