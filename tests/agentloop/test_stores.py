"""What every store must do, and what the SQLite file must survive."""

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from agentloop.errors import JournalError, RunBusyError
from agentloop.sqlite_store import SQLiteStore, sqlite_store
from agentloop.stores import MemoryStore, Row, Store, prune

Make = Callable[[], Store]


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "memory":
        return MemoryStore()
    return SQLiteStore(tmp_path / "deep" / "runs.db")


def row(number: int, data: bytes = b"{}") -> Row:
    return Row(f"step#{number}", "patch", data)


async def fill(store: Store, run: str, rows: list[Row], status: str = "done") -> None:
    log = await store.open(run)
    for one in rows:
        log.append(one)
    await log.close(status)


def test_rows_come_back_in_order_and_byte_for_byte(store: Store) -> None:
    """Whatever the bytes, a store neither reads nor changes them; runs do not mix."""
    rows = [row(i, data) for i, data in enumerate([b"{}", b"\x00\xff", "ü💡".encode(), b""])]

    async def main() -> None:
        await fill(store, "a", rows[:2])
        await fill(store, "'; drop table row; --", rows[2:])
        await fill(store, "a", rows[2:], "waiting")
        log = await store.open("a")
        assert (list(log.rows), log.status) == (rows, "waiting")
        await log.close("failed")

    asyncio.run(main())
    assert store.rows("a") == rows
    assert store.rows("'; drop table row; --") == rows[2:]
    infos = {info.name: (info.status, info.num_rows) for info in store.runs()}
    assert infos == {"a": ("failed", 4), "'; drop table row; --": ("done", 2)}


def test_a_run_has_one_writer(store: Store) -> None:
    """A second one is refused while the first is there, and let in once it has closed."""

    async def main() -> None:
        log = await store.open("a")
        with pytest.raises(RunBusyError, match="run 'a' is being written"):
            await store.open("a")
        with pytest.raises(RunBusyError, match="is being written; delete it when"):
            store.delete("a")
        other = await store.open("b")
        await log.close("done")
        await other.close("done")
        await (await store.open("a")).close("done")

    asyncio.run(main())


def test_an_unknown_run_is_named_with_those_there_are(store: Store) -> None:
    """The error helps to find the right name; deleting forgets a run for good."""
    asyncio.run(fill(store, "known", [row(1)]))
    for missing in (store.rows, store.delete):
        with pytest.raises(JournalError, match=r"there is no run 'other'; .*\['known'\]"):
            missing("other")
    store.delete("known")
    assert store.runs() == []
    asyncio.run(fill(store, "known", []))
    assert store.rows("known") == []


def test_old_runs_are_pruned_by_status_and_age(store: Store) -> None:
    """Only runs that stand as named and are old enough go; the others keep their rows."""

    async def main() -> None:
        for name, status in (("a", "done"), ("b", "waiting"), ("c", "done")):
            await fill(store, name, [row(1)], status)

    asyncio.run(main())
    assert prune(store, older_than_s=3600) == []
    assert sorted(prune(store, older_than_s=0)) == ["a", "c"]
    assert prune(store, older_than_s=0, statuses=["waiting", "failed"]) == ["b"]
    assert store.runs() == []


def test_many_runs_write_at_once(store: Store) -> None:
    """Rows of runs that are written side by side stay with their run, in their order."""

    async def one(name: str) -> None:
        log = await store.open(name)
        for i in range(50):
            log.append(row(i, name.encode()))
            if i % 20 == 0:
                await log.flush()
        await log.close("done")

    async def main() -> None:
        await asyncio.gather(*(one(f"r{i}") for i in range(20)))

    asyncio.run(main())
    for i in range(20):
        assert store.rows(f"r{i}") == [row(j, f"r{i}".encode()) for j in range(50)]


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
