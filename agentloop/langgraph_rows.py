"""A LangGraph thread as rows: its checkpoints, channel values and pending writes."""

from __future__ import annotations

import asyncio
from typing import Any

from pydantic_core import from_json, to_json

from agentloop.errors import JournalError
from agentloop.json_data import as_object
from agentloop.stores import Row, RunLog

EMPTY = ["empty", ""]


class SavedThread:
    """What is recorded of one thread, and its writer once something is to be written."""

    def __init__(self) -> None:
        self.log: RunLog | None = None
        self.lock = asyncio.Lock()
        self.checkpoints: dict[tuple[str, str], dict[str, Any]] = {}
        self.blobs: dict[tuple[str, str, Any], Any] = {}
        self.writes: dict[tuple[str, str], dict[tuple[str, int], dict[str, Any]]] = {}

    def add(self, row: Row) -> None:
        """Take a row in.

        Raises:
            JournalError: It is none of ours.
        """
        entry = as_object(from_json(row.data))
        try:
            assert entry is not None
            if row.kind == "checkpoint":
                self.checkpoints[row.path, str(entry["id"])] = entry
            elif row.kind == "blob":
                self.blobs[row.path, str(entry["channel"]), entry["version"]] = entry["value"]
            elif row.kind == "write":
                known = self.writes.setdefault((row.path, str(entry["checkpoint"])), {})
                known[str(entry["task"]), int(entry["idx"])] = entry
            elif row.kind == "forget":
                self.checkpoints.pop((row.path, str(entry["id"])), None)
                self.writes.pop((row.path, str(entry["id"])), None)
        except (AssertionError, KeyError, TypeError, ValueError) as error:
            raise JournalError(f"a damaged {row.kind} row at {row.path!r}: {error!r}") from error

    def latest(self, namespace: str) -> str | None:
        """The id of the last checkpoint of a namespace."""
        return max((i for ns, i in self.checkpoints if ns == namespace), default=None)


def make_row(namespace: str, kind: str, **entry: Any) -> Row:
    """A row of a thread."""
    return Row(namespace, kind, to_json(entry))
