"""Recorded runs in one SQLite file.

One thread owns the connection and commits in groups: rows of all runs that arrived while it was
busy become one transaction, one write to the disk. A killed process loses at most the group that
was not yet committed, and never a part of one.

Each run has at most one writer. A writer that died is replaced; should it wake up after all, what
it still writes is refused, because every writer has a number and only the latest counts.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import closing
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, TypeVar

from agentloop.errors import JournalError, RunBusyError
from agentloop.sqlite_rows import connect, find_run, read_rows, run_infos, span_of
from agentloop.stores import Row, RunInfo, RunLog, checked_name, checked_row

T = TypeVar("T")
_GROUP = 1000  # most rows of one transaction


class _Append(NamedTuple):
    id: int
    path: str
    kind: str
    data: bytes
    log: _SQLiteLog


class _Job(NamedTuple):
    work: Callable[[sqlite3.Connection], Any]
    future: Future[Any]


def _started(pid: int) -> str:
    """When a process started, so that a reused number is not taken for it; `""` if it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        if Path("/proc/self/stat").exists():
            return ""
    else:
        return stat.rpartition(")")[2].split()[19]
    try:
        os.kill(pid, 0)  # no /proc here: only ask whether the process is there
    except ProcessLookupError:
        return ""
    except PermissionError:
        return "?"
    return "?"


class SQLiteStore:
    """Runs in a SQLite file, which any number of processes may share.

    Args:
        path: The file; created with its folder where it is missing.

    Raises:
        JournalError: The file cannot be opened, or is not one of ours.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).absolute()
        self._queue: SimpleQueue[_Append | _Job | None] = SimpleQueue()
        self._is_synced = True  # as `connect` sets it
        self._process = f"{os.getpid()} {_started(os.getpid())}"
        opened: Future[None] = Future()
        self._thread = threading.Thread(
            target=self._work, args=(opened,), name=f"journal {self.path.name}", daemon=True
        )
        self._thread.start()
        opened.result()

    # ---------------------------------------------------------------- what callers do

    async def open(self, run: str) -> RunLog:
        """Become the writer of a run, new or old."""
        checked_name(run)
        claim = self._ask(lambda db: self._claim(db, run))
        try:
            return await asyncio.shield(asyncio.wrap_future(claim))
        except asyncio.CancelledError:
            claim.add_done_callback(self._give_up)
            raise

    def runs(self) -> list[RunInfo]:
        """All runs, the one that changed last first."""
        return self._ask(run_infos).result()

    def rows(self, run: str) -> list[Row]:
        """The rows of a run."""
        return self._ask(lambda db: read_rows(db, run, find_run(db, run)[0])[0]).result()

    def delete(self, run: str) -> None:
        """Forget a run; its space in the file goes to later ones."""

        def work(db: sqlite3.Connection) -> None:
            number, process = find_run(db, run)
            if process and self._is_alive(process):
                raise RunBusyError(f"run {run!r} is being written; delete it when it is not")
            db.execute("delete from row where id between ? and ?", span_of(number))
            db.execute("delete from run where id = ?", (number,))

        self._ask(work).result()

    def compact(self) -> None:
        """Close the file and give the space of forgotten runs back to the disk.

        Raises:
            JournalError: Another process is writing.
        """
        self.close()
        try:
            with closing(sqlite3.connect(self.path, timeout=30)) as db:
                db.execute("vacuum")
        except sqlite3.Error as error:
            raise JournalError(f"{self.path} could not be made smaller now: {error}") from error

    def close(self) -> None:
        """Commit what is there and close the file."""
        self._queue.put(None)
        self._thread.join()

    def append(self, item: _Append) -> None:
        """Hand a row to the writing thread."""
        self._queue.put(item)

    def _ask(self, work: Callable[[sqlite3.Connection], T]) -> Future[T]:
        """Let the writing thread do something, after what it was given before."""
        if not self._thread.is_alive():
            raise JournalError(f"{self.path} is closed; open it again with SQLiteStore(path)")
        future: Future[T] = Future()
        self._queue.put(_Job(work, future))
        return future

    def ask_async(self, work: Callable[[sqlite3.Connection], T]) -> asyncio.Future[T]:
        """As `_ask`, to be awaited."""
        return asyncio.wrap_future(self._ask(work))

    # ---------------------------------------------------------------- what the thread does

    def _work(self, opened: Future[None]) -> None:
        try:
            db = connect(self.path)
        except (sqlite3.Error, OSError, JournalError) as error:
            opened.set_exception(
                error
                if isinstance(error, JournalError)
                else JournalError(f"{self.path} cannot be opened as a journal: {error}")
            )
            return
        opened.set_result(None)
        is_last = False
        while not is_last:
            batch, is_last = self._next_group()
            self._commit(db, batch)
        db.close()

    def _next_group(self) -> tuple[list[_Append | _Job], bool]:
        """Wait for something to do; take along what else is there. Whether it is the last."""
        found = [self._queue.get()]
        while len(found) < _GROUP:
            try:
                found.append(self._queue.get_nowait())
            except Empty:
                break
        group = [item for item in found if item is not None]
        return group, len(group) < len(found)

    def _commit(self, db: sqlite3.Connection, batch: list[_Append | _Job]) -> None:
        """Do a group in one transaction; tell those who wait only when it is on the disk."""
        done: list[tuple[Future[Any], Any]] = []
        rows: list[_Append] = []
        logs: dict[int, _SQLiteLog] = {}
        try:
            self._sync_next(db, any(isinstance(item, _Append) for item in batch))
            db.execute("begin immediate")
            for item in batch:
                if isinstance(item, _Append):
                    rows.append(item)
                    logs[id(item.log)] = item.log
                    continue
                self._write(db, rows)
                rows = []
                done.append((item.future, _outcome(item, db)))
            self._write(db, rows)
            db.execute("commit")
        except sqlite3.Error as error:
            failure = JournalError(f"{self.path} could not be written: {error}")
            if db.in_transaction:
                db.execute("rollback")
            for log in logs.values():
                log.failure = failure
            done = [(item.future, failure) for item in batch if isinstance(item, _Job)]
        for future, result in done:
            if not future.set_running_or_notify_cancel():
                continue
            if isinstance(result, Exception):
                future.set_exception(result)
            else:
                future.set_result(result)

    def _sync_next(self, db: sqlite3.Connection, has_rows: bool) -> None:
        """Wait for the disk only where there are rows.

        Who writes a run and how it stands need not survive a power cut: the writer does not either,
        and the rows say how far it got. A killed process loses neither.
        """
        if has_rows != self._is_synced:
            db.execute(f"pragma synchronous = {'full' if has_rows else 'normal'}")
            self._is_synced = has_rows

    def _write(self, db: sqlite3.Connection, rows: list[_Append]) -> None:
        """Insert rows of writers that are still the latest of their run; refuse the others'."""
        if not rows:
            return
        for log in {id(row.log): row.log for row in rows}.values():
            found = db.execute("select writer from run where id = ?", (log.number,)).fetchone()
            if found is None or found[0] != log.writer:
                log.failure = RunBusyError(f"run {log.name!r} was taken over by another writer")
        valid = [row[:4] for row in rows if row.log.failure is None]
        db.executemany("insert into row values (?, ?, ?, ?)", valid)

    def _claim(self, db: sqlite3.Connection, run: str) -> _SQLiteLog:
        now = time.time()
        db.execute(
            "insert or ignore into run (name, status, updated, writer, process) "
            "values (?, 'running', ?, 0, '')",
            (run, now),
        )
        number, process = find_run(db, run)
        if process and self._is_alive(process):
            raise RunBusyError(
                f"run {run!r} is being written by process {process.split()[0]}; wait for it, or "
                "use another name"
            )
        query = "select writer, status from run where id = ?"
        writer, status = db.execute(query, (number,)).fetchone()
        db.execute(
            "update run set status = 'running', updated = ?, writer = writer + 1, process = ? "
            "where id = ?",
            (now, self._process, number),
        )
        rows, last = read_rows(db, run, number)
        return _SQLiteLog(self, run, number, writer + 1, status, rows, last + 1)

    def _give_up(self, claim: Future[_SQLiteLog]) -> None:
        """Let a run go whose opening was cancelled after it had been claimed."""
        if claim.exception() is None:
            log = claim.result()
            self._ask(log.let_go(log.status))

    @property
    def is_open(self) -> bool:
        """Whether the file is open."""
        return self._thread.is_alive()

    def _is_alive(self, process: str) -> bool:
        pid, _, started = str(process).partition(" ")
        return pid.isdecimal() and len(pid) < 10 and _started(int(pid)) == started


class _SQLiteLog:
    """The writer of one run."""

    def __init__(
        self,
        store: SQLiteStore,
        name: str,
        number: int,
        writer: int,
        status: str,
        rows: Sequence[Row],
        first: int,
    ) -> None:
        self.status = status
        self.rows = rows
        self.name = name
        self.number = number
        self.writer = writer
        self.failure: JournalError | None = None
        self._store = store
        self._next = first

    def append(self, row: Row) -> None:
        self._store.append(_Append(self._next, *checked_row(self.name, row), self))
        self._next += 1

    async def flush(self) -> None:
        await self._store.ask_async(self._check)

    async def close(self, status: str) -> None:
        await self._store.ask_async(self.let_go(status))

    def let_go(self, status: str) -> Callable[[sqlite3.Connection], None]:
        """What the thread does to end this writer."""

        def work(db: sqlite3.Connection) -> None:
            db.execute(
                "update run set status = ?, updated = ?, process = '' where id = ? and writer = ?",
                (status, time.time(), self.number, self.writer),
            )
            self._check(db)

        return work

    def _check(self, _db: sqlite3.Connection) -> None:
        if self.failure is not None:
            raise self.failure


def _outcome(job: _Job, db: sqlite3.Connection) -> Any:
    """What a job gives or raises; a fault of the file is raised, and undoes the whole group."""
    try:
        return job.work(db)
    except sqlite3.Error:
        raise
    except Exception as error:  # the caller's; the writing thread has others to serve
        return error


_stores: dict[Path, SQLiteStore] = {}
_lock = threading.Lock()


def sqlite_store(path: str | os.PathLike[str]) -> SQLiteStore:
    """The store of a file, one per file and process, so that all its runs commit together."""
    absolute = Path(path).absolute()
    with _lock:
        store = _stores.get(absolute)
        if store is None or not store.is_open:
            store = _stores[absolute] = SQLiteStore(absolute)
        return store
