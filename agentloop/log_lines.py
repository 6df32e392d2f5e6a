"""A run's events as lines of a log: `g.run(..., on_event=LogLines())`.

Runs and failures are told at INFO and above, steps and calls at DEBUG. Times are seconds since the
run began. What a run holds is named, never written out: logs are read by more people than runs.
"""

from __future__ import annotations

import logging

from agentloop.events import Event

_LEVELS = {
    "run.error": logging.ERROR,
    "node.error": logging.WARNING,
    "call.error": logging.WARNING,
    "node.retry": logging.WARNING,
    "skip": logging.WARNING,
    "limit": logging.WARNING,
}


class LogLines:
    """A listener that writes one line per event.

    Example:
        >>> from agentloop.log_lines import line_of
        >>> line_of(Event("42", "plan", "node.end", {"queries": ("a",)}, 0.0123))
        '42 0.012 node.end plan wrote queries'

    Args:
        logger: Where to; by default the logger `agentloop.run`.
    """

    def __init__(self, logger: logging.Logger | None = None) -> None:
        self._logger = logger or logging.getLogger("agentloop.run")

    def __call__(self, event: Event) -> None:
        """Write an event's line, if somebody listens at its level."""
        default = logging.DEBUG if event.path else logging.INFO
        level = _LEVELS.get(event.kind, default)
        if self._logger.isEnabledFor(level):
            self._logger.log(level, "%s", line_of(event))


def line_of(event: Event) -> str:
    """An event as one line; control characters of names and errors are escaped."""
    said = _said(event)
    parts = [event.run, f"{event.at_s:.3f}", event.kind, event.path, said]
    line = " ".join(part for part in parts if part)
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in line)


def _said(event: Event) -> str:
    data = event.data
    if isinstance(data, BaseException):
        return f"{type(data).__name__}: {data}"
    if event.kind == "node.end" and isinstance(data, dict):
        return f"wrote {', '.join(map(str, data))}" if data else ""  # pyright: ignore[reportUnknownArgumentType] - names
    if event.kind == "call.start":
        return f"{data['kind']} {data['name']}"
    if event.kind == "route":
        return f"to {data}"
    if event.kind == "limit":
        return f"{data['asked']}; goes to {data['then']}"
    if event.kind == "run.waiting":
        return f"for {', '.join(data)}"
    return ""
