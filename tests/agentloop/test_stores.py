"""What every store must do, and what the SQLite file must survive."""

import asyncio
import itertools
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import pytest
from pydantic import BaseModel

from agentloop import END, START, Graph, Log, node
from agentloop.errors import JournalError, RunBusyError
from agentloop.sqlite_store import SQLiteStore, sqlite_store
from agentloop.store_checks import CHECKS, fill
from agentloop.store_checks import numbered_row as row
from agentloop.stores import MemoryStore, Row, RunLog, Store, prune


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@pytest.mark.parametrize("check", CHECKS)
def test_every_store_passes_every_check(
    check: Callable[[Callable[[], Store]], Awaitable[None]], kind: str, tmp_path: Path
) -> None:
    """The shared suite, on a new store each time."""
    numbers = itertools.count()

    def make() -> Store:
        if kind == "memory":
            return MemoryStore()
        return SQLiteStore(tmp_path / "deep" / f"runs{next(numbers)}.db")

    async def main() -> None:
        await check(make)

    asyncio.run(main())


def test_the_checks_find_what_is_wrong() -> None:
    """A store that loses rows, or lets two writers in, does not pass."""

    class Forgetful(MemoryStore):
        def rows(self, run: str) -> list[Row]:
            return super().rows(run)[:-1]

    class Open(MemoryStore):
        async def open(self, run: str) -> RunLog:
            return await MemoryStore().open(run)

    for kind in (Forgetful, Open):
        failed = 0
        for check in CHECKS:
            try:
                asyncio.run(cast(Any, check)(kind))
            except (AssertionError, JournalError):
                failed += 1
        assert failed >= 3


def test_hostile_rows_of_a_file_are_refused_and_harm_no_other_run(tmp_path: Path) -> None:
    """Wrong types, text that is none, another's process, gaps: an error, or simply data."""
    path = tmp_path / "runs.db"
    store = SQLiteStore(path)
    asyncio.run(fill(store, "good", [row(1)]))
    bad = [
        "x'00', 'patch', x'7b7d'",
        "'a', x'03', x'7b7d'",
        "'a', 'patch', 'text'",
        "'a', 'patch', 2.5",
    ]
    bad += ["cast(x'ff' as text), 'patch', x''"]
    for number, values in enumerate(bad):
        name = f"bad{number}"
        asyncio.run(fill(store, name, [row(1), row(2)]))
        with sqlite3.connect(path) as db:
            (run,) = db.execute("select id from run where name = ?", (name,)).fetchone()
            db.execute(f"insert into row values ({(run << 32) + 9}, {values})")
        with pytest.raises(JournalError, match=rf"run '{name}' has a damaged row, number 2"):
            store.rows(name)
        with pytest.raises(JournalError, match="has a damaged row"):
            asyncio.run(store.open(name))
    with sqlite3.connect(path) as db:
        db.execute("update run set process = 'rm -rf /', status = 'odd' where name = 'good'")
        (run,) = db.execute("select id from run where name = 'good'").fetchone()
        db.execute("insert into row values (?, 'late', 'patch', x'7b7d')", ((run << 32) + 7,))
    asyncio.run(fill(store, "good", [row(2)]))
    assert store.rows("good") == [row(1), Row("late", "patch", b"{}"), row(2)]
    assert store.runs()[0].status == "done"


def test_appends_do_not_copy_what_is_there(tmp_path: Path) -> None:
    """400 appends of 1 KB take less than 1 MB of disk, the log of the database included."""
    path = tmp_path / "runs.db"
    store = SQLiteStore(path)

    async def main() -> None:
        log = await store.open("a")
        for i in range(400):
            log.append(row(i, b"x" * 1000))
            if i % 40 == 0:
                await log.flush()
        await log.close("done")

    asyncio.run(main())
    store.close()
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) <= 1_000_000


class Pages(BaseModel):
    log: Log[str] = []


async def append(s: Pages) -> None:
    s.log.append("x" * 1000)


def test_a_record_takes_at_most_twice_what_was_written(tmp_path: Path) -> None:
    """A run of 400 nodes that append 1 KB each, with paths, times and the file's own structure."""
    steps = [node(append, name=f"append{number}") for number in range(400)]
    store = SQLiteStore(tmp_path / "runs.db")
    Graph(Pages).chain(START, *steps, END).run_sync(Pages(), run="r", store=store)
    written = sum(len(row.data) for row in store.rows("r"))
    store.close()
    taken = sum(file.stat().st_size for file in tmp_path.iterdir())
    assert taken <= 2 * 400_000
    assert taken <= 2 * written


def test_forgotten_runs_give_their_space_back(tmp_path: Path) -> None:
    """Compacting a file after pruning makes it smaller, and its runs stay as they are."""
    path = tmp_path / "runs.db"
    store = SQLiteStore(path)
    asyncio.run(fill(store, "old", [row(number, b"x" * 1000) for number in range(500)]))
    asyncio.run(fill(store, "kept", [row(1)], "waiting"))
    assert prune(store, older_than_s=0) == ["old"]
    store.close()
    before = path.stat().st_size
    SQLiteStore(path).compact()
    assert path.stat().st_size < before / 4
    again = SQLiteStore(path)
    assert again.rows("kept") == [row(1)]
    again.close()


CHILD = """
import asyncio, os, sys
from agentloop.sqlite_store import SQLiteStore
from agentloop.stores import Row

async def main():
    log = await SQLiteStore(sys.argv[1]).open("a")
    for i in range(10):
        log.append(Row(f"safe{i}", "patch", b"{}"))
    await log.flush()
    for i in range(10_000):
        log.append(Row(f"unsafe{i}", "patch", b"{}"))
    os.kill(os.getpid(), 9)

asyncio.run(main())
"""


def test_a_killed_writer_loses_only_its_last_group_and_is_replaced(tmp_path: Path) -> None:
    """What was flushed is there, the rest is a prefix, and a new writer goes on after it."""
    path = tmp_path / "runs.db"
    child = subprocess.run([sys.executable, "-c", CHILD, str(path)], check=False)
    assert child.returncode == -signal.SIGKILL
    store = SQLiteStore(path)

    async def main() -> list[str]:
        log = await store.open("a")
        found = [one.path for one in log.rows]
        log.append(row(0))
        await log.close("done")
        return found

    found = asyncio.run(main())
    assert found[:10] == [f"safe{i}" for i in range(10)]
    assert found[10:] == [f"unsafe{i}" for i in range(len(found) - 10)]
    assert len(store.rows("a")) == len(found) + 1


def test_a_writer_that_was_replaced_cannot_write_any_more(tmp_path: Path) -> None:
    """Two stores stand for two machines that do not see each other's processes."""
    path = tmp_path / "runs.db"
    first, second = SQLiteStore(path), SQLiteStore(path)

    async def main() -> None:
        old = await first.open("a")
        old.append(row(1))
        await old.flush()
        with sqlite3.connect(path) as db:  # the first is taken for dead
            db.execute("update run set process = '999999999 1'")
        new = await second.open("a")
        old.append(row(2))
        with pytest.raises(RunBusyError, match="taken over by another writer"):
            await old.flush()
        new.append(row(3))
        with pytest.raises(RunBusyError, match="taken over"):
            await old.close("done")
        await new.close("waiting")

    asyncio.run(main())
    assert second.rows("a") == [row(1), row(3)]
    assert [info.status for info in second.runs()] == ["waiting"]


def test_another_process_that_is_alive_keeps_its_run(tmp_path: Path) -> None:
    """A second process is refused by name of the first."""
    path = tmp_path / "runs.db"

    async def main() -> None:
        log = await SQLiteStore(path).open("a")
        code = (
            "import asyncio, sys; from agentloop.sqlite_store import SQLiteStore\n"
            "asyncio.run(SQLiteStore(sys.argv[1]).open('a'))"
        )
        child = subprocess.run(
            [sys.executable, "-c", code, str(path)], check=False, capture_output=True, text=True
        )
        assert f"RunBusyError: run 'a' is being written by process {os.getpid()}" in child.stderr
        await log.close("done")

    asyncio.run(main())


def test_a_file_that_is_no_journal_is_refused(tmp_path: Path) -> None:
    """Neither a text file, nor a database of something else, nor of a later format is touched."""
    text = tmp_path / "text.db"
    text.write_text("not a database, " * 100)
    with pytest.raises(JournalError, match=r"text.db cannot be opened as a journal"):
        SQLiteStore(text)
    other, later = tmp_path / "other.db", tmp_path / "later.db"
    with sqlite3.connect(other) as db:
        db.execute("create table mine (x)")
    with sqlite3.connect(later) as db:
        db.execute("pragma user_version = 99")
    with pytest.raises(JournalError, match="is not a journal of this version"):
        SQLiteStore(other)
    with pytest.raises(JournalError, match="found format 99, expected 1"):
        SQLiteStore(later)


def test_a_file_has_one_store_per_process(tmp_path: Path) -> None:
    """So all runs on a file commit together; a closed store is opened anew."""
    path = tmp_path / "runs.db"
    store = sqlite_store(path)
    assert sqlite_store(str(path)) is store
    store.close()
    with pytest.raises(JournalError, match="is closed"):
        store.runs()
    assert sqlite_store(path) is not store
    sqlite_store(path).close()


def test_a_cancelled_opening_does_not_keep_the_run(tmp_path: Path) -> None:
    """A caller that goes away while the run is being opened leaves it free."""
    store = SQLiteStore(tmp_path / "runs.db")

    async def main() -> None:
        task = asyncio.create_task(store.open("a"))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        for _ in range(100):
            try:
                log = await store.open("a")
            except RunBusyError:
                continue
            await log.close("done")
            return
        raise AssertionError("the run stayed busy")

    asyncio.run(main())


def test_a_disk_that_fails_is_reported_and_nothing_half_is_kept(tmp_path: Path) -> None:
    """The writer learns it at its next flush, and its later rows are refused as well."""
    path = tmp_path / "runs.db"
    store = SQLiteStore(path)

    async def main() -> None:
        log = await store.open("a")
        log.append(row(1))
        await log.flush()
        with sqlite3.connect(path) as db:
            db.execute(
                "create trigger fail before insert on row when new.path = 'step#2' "
                "begin select raise(abort, 'no space left'); end"
            )
        log.append(row(2))
        log.append(row(3))
        with pytest.raises(JournalError, match="could not be written: no space left"):
            await log.flush()
        log.append(row(4))
        with pytest.raises(JournalError, match="could not be written"):
            await log.close("done")

    asyncio.run(main())
    assert store.rows("a") == [row(1)]
