"""Where recorded runs live: the protocol of a store, and one that keeps them in memory.

A store knows rows, not what they mean. It holds append-only rows per run, gives each run at most
one writer at a time, and can say when everything appended so far is safe.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from agentloop.errors import JournalError, RunBusyError

MAX_DATA_LENGTH = 64 * 2**20
"""Bytes that the data of one row may have."""
MAX_PATH_LENGTH = 4000
"""Characters that the path of a row may have, and the name of a run."""


class Row(NamedTuple):
    """One thing that was recorded.

    Attributes:
        path: The place in the run.
        kind: What it is: `start`, `patch`, `call`, ...
        data: JSON.
    """

    path: str
    kind: str
    data: bytes


def checked_row(run: str, row: Row) -> Row:
    """A row that a store may take; every store checks the rows it is given.

    Raises:
        JournalError: It is too large.
    """
    if len(row.data) > MAX_DATA_LENGTH:
        raise JournalError(
            f"the {row.kind} at {row.path} of run {run!r} has {len(row.data):,} bytes as JSON, but "
            f"a row has at most {MAX_DATA_LENGTH:,}; keep large data in files and their names in "
            "the state"
        )
    if len(row.path) > MAX_PATH_LENGTH:
        raise JournalError(
            f"a path of run {run!r} has {len(row.path):,} characters, but at most "
            f"{MAX_PATH_LENGTH:,} fit: {row.path[:80]}...; nest graphs less deep"
        )
    return row


def checked_name(run: str) -> str:
    """A run's name that a store may take; every store checks the names it is given.

    Raises:
        JournalError: It is empty or too long.
    """
    if not 0 < len(run) <= MAX_PATH_LENGTH:
        raise JournalError(
            f"a run's name has 1 to {MAX_PATH_LENGTH:,} characters, got {len(run):,}; "
            "use a shorter one"
        )
    return run


@dataclass(frozen=True, slots=True)
class RunInfo:
    """What a store knows of a run without reading its rows.

    Attributes:
        name: The run's name.
        status: `running` (or killed while it was), `waiting`, `failed`, `done`.
        num_rows: Rows recorded.
        updated_s: When its status last changed, in seconds since 1970.
    """

    name: str
    status: str
    num_rows: int
    updated_s: float


class RunLog(Protocol):
    """The one writer of a run."""

    @property
    def rows(self) -> Sequence[Row]:
        """The rows that were there when it was opened."""
        ...

    @property
    def status(self) -> str:
        """How the run stood when it was opened."""
        ...

    def append(self, row: Row) -> None:
        """Record a row, soon; does not wait.

        Raises:
            JournalError: The row is too large, see `checked_row`.
        """
        ...

    async def flush(self) -> None:
        """Wait until every row appended so far would survive a crash.

        Raises:
            RunBusyError: Somebody else has taken the run over.
            JournalError: The rows could not be written.
        """
        ...

    async def close(self, status: str) -> None:
        """Flush, note how the run stands, and let others write."""
        ...


class Store(Protocol):
    """A place for recorded runs. `agentloop.store_checks` says in code what one must do."""

    async def open(self, run: str) -> RunLog:
        """Become the writer of a run, new or old.

        Raises:
            RunBusyError: Another writer, alive, has it.
            JournalError: Its name is empty or too long, or what is there cannot be read.
        """
        ...

    def runs(self) -> list[RunInfo]:
        """All runs, the one that changed last first."""
        ...

    def rows(self, run: str) -> list[Row]:
        """The rows of a run, without becoming its writer.

        Raises:
            JournalError: There is no such run.
        """
        ...

    def delete(self, run: str) -> None:
        """Forget a run.

        Raises:
            JournalError: There is no such run.
            RunBusyError: It has a writer.
        """
        ...


def prune(store: Store, *, older_than_s: float, statuses: Collection[str] = ("done",)) -> list[str]:
    """Forget runs that have not changed for a while.

    Args:
        store: The store.
        older_than_s: Seconds since a run last changed.
        statuses: How the runs to forget stand.

    Returns:
        The names of the runs forgotten.
    """
    limit = time.time() - older_than_s
    old = [r.name for r in store.runs() if r.status in statuses and r.updated_s <= limit]
    for name in old:
        store.delete(name)
    return old


@dataclass
class _Kept:
    rows: list[Row] = field(default_factory=lambda: [])
    status: str = "running"
    is_open: bool = False
    updated_s: float = field(default_factory=time.time)


class MemoryStore:
    """Runs that are forgotten with the process; for tests, and for `ask` within one process."""

    def __init__(self) -> None:
        self._runs: dict[str, _Kept] = {}
        self._lock = threading.Lock()

    async def open(self, run: str) -> RunLog:
        """Become the writer of a run, new or old."""
        with self._lock:
            kept = self._runs.setdefault(checked_name(run), _Kept())
            if kept.is_open:
                raise RunBusyError(f"run {run!r} is being written; wait for it or use another name")
            kept.is_open = True
            log = _MemoryLog(run, kept)
            kept.status = "running"
            return log

    def runs(self) -> list[RunInfo]:
        """All runs, the one that changed last first."""
        found = [RunInfo(n, k.status, len(k.rows), k.updated_s) for n, k in self._runs.items()]
        return sorted(found, key=lambda info: info.updated_s, reverse=True)

    def rows(self, run: str) -> list[Row]:
        """The rows of a run."""
        return list(self._kept(run).rows)

    def delete(self, run: str) -> None:
        """Forget a run."""
        if self._kept(run).is_open:
            raise RunBusyError(f"run {run!r} is being written; delete it when it is not")
        del self._runs[run]

    def _kept(self, run: str) -> _Kept:
        kept = self._runs.get(run)
        if kept is None:
            raise JournalError(f"there is no run {run!r}; there are {sorted(self._runs)[:10]}")
        return kept


class _MemoryLog:
    def __init__(self, run: str, kept: _Kept) -> None:
        self._run = run
        self.rows: Sequence[Row] = list(kept.rows)
        self.status = kept.status
        self._kept = kept

    def append(self, row: Row) -> None:
        self._kept.rows.append(checked_row(self._run, row))

    async def flush(self) -> None:
        return None

    async def close(self, status: str) -> None:
        self._kept.status = status
        self._kept.updated_s = time.time()
        self._kept.is_open = False
