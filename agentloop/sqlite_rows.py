"""The tables of a SQLite file of runs, and what is read from them."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from agentloop.errors import JournalError
from agentloop.stores import Row, RunInfo

FORMAT = 1
SHIFT = 32  # a row's id is its run's number, shifted, plus its own: no second index is needed
_SCHEMA = """
create table if not exists run (
    id integer primary key autoincrement, name text not null unique, status text not null,
    updated real not null, writer integer not null, process text not null);
create table if not exists row (
    id integer primary key, path text not null, kind text not null, data blob not null);
"""


def connect(path: Path) -> sqlite3.Connection:
    """A connection to a file of this format, made where it is missing.

    Raises:
        JournalError: It is a file of something else, or of another version.
        sqlite3.Error: It cannot be opened.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    db = sqlite3.connect(path, isolation_level=None, timeout=30)
    db.execute("pragma journal_mode = wal")
    db.execute("pragma synchronous = full")
    (found,) = db.execute("pragma user_version").fetchone()
    tables = {name for (name,) in db.execute("select name from sqlite_master where type = 'table'")}
    if found not in (0, FORMAT) or (found == 0 and tables - {"run", "row", "sqlite_sequence"}):
        db.close()
        raise JournalError(
            f"{path} is not a journal of this version (found format {found}, expected {FORMAT}); "
            "use another file"
        )
    db.executescript(_SCHEMA)
    db.execute(f"pragma user_version = {FORMAT}")
    return db


def find_run(db: sqlite3.Connection, run: str) -> tuple[int, str]:
    """The number of a run and the process that writes it.

    Raises:
        JournalError: There is no such run.
    """
    found = db.execute("select id, process from run where name = ?", (run,)).fetchone()
    if found is None:
        names = [name for (name,) in db.execute("select name from run order by id desc limit 10")]
        raise JournalError(f"there is no run {run!r}; the latest are {names}")
    number, process = found
    return number, process


def read_rows(db: sqlite3.Connection, run: str, number: int) -> tuple[list[Row], int]:
    """The rows of a run, and the id of the last.

    Raises:
        JournalError: One is none that this package has written.
    """
    query = "select id, path, kind, data from row where id between ? and ? order by id"
    rows: list[Row] = []
    last = (number << SHIFT) - 1
    try:
        for row_id, path, kind, data in db.execute(query, span_of(number)):
            last = row_id
            if not (type(path) is str and type(kind) is str and type(data) is bytes):
                types = ", ".join(type(value).__name__ for value in (path, kind, data))
                raise JournalError(
                    f"run {run!r} has a damaged row, number {len(rows)}: expected path, kind and "
                    f"data as str, str, bytes, got {types}; fork the run before it"
                )
            rows.append(Row(path, kind, data))
    except sqlite3.Error as error:  # text that is none, a damaged page
        raise JournalError(f"run {run!r} has a damaged row, number {len(rows)}: {error}") from error
    return rows, last


def span_of(run: int) -> tuple[int, int]:
    """The first and the last id that rows of a run can have."""
    return run << SHIFT, ((run + 1) << SHIFT) - 1


def run_infos(db: sqlite3.Connection) -> list[RunInfo]:
    """All runs, the one that changed last first."""
    query = (
        f"select name, status, (select count(*) from row where row.id between run.id << {SHIFT} "
        f"and ((run.id + 1) << {SHIFT}) - 1), updated from run order by updated desc, id desc"
    )
    return [RunInfo(*found) for found in db.execute(query)]
