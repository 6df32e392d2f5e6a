"""What every store of runs must do, as checks: run them on a store of your own.

`for check in CHECKS: asyncio.run(check(make))`, where `make()` gives a new, empty store. A check
raises `AssertionError` where the store does something else. Stores that outlive their process have
more to show (crashes, other processes); see the tests of the SQLite store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from agentloop.errors import GraphError, JournalError, RunBusyError
from agentloop.stores import MAX_DATA_LENGTH, MAX_PATH_LENGTH, Row, Store, prune

Make = Callable[[], Store]
_BYTES = [b"{}", b"\x00\xff", "ü💡".encode(), b"", b"[" * 5000, b'"' + b"x" * 100_000]
_NAMES = ["a", "'; drop table row; --", "ü/💡\x00\n", "A", " ", "x" * MAX_PATH_LENGTH]


def numbered_row(number: int, data: bytes = b"{}") -> Row:
    """A row as good as any other."""
    return Row(f"step#{number}", "patch", data)


async def fill(store: Store, run: str, rows: list[Row], status: str = "done") -> None:
    """Write some rows of a run and let it go."""
    log = await store.open(run)
    for row in rows:
        log.append(row)
    await log.close(status)


async def _refused(
    kind: type[Exception], words: str, action: Callable[[], object | Awaitable[object]]
) -> None:
    try:
        found = action()
        if isinstance(found, Awaitable):
            await found
    except kind as error:
        got = str(error)
    else:
        got = "no error"
    assert words in got, f"expected {kind.__name__} with {words!r}, got {got}"


async def rows_come_back_as_they_were(make: Make) -> None:
    """In order and byte for byte, whatever they hold: a store neither reads nor changes them."""
    store = make()
    rows = [numbered_row(number, data) for number, data in enumerate(_BYTES)]
    rows.append(Row("", "no such kind", b"{}"))
    rows.append(Row("ü/💡[1]#2:0", "call", b"null"))
    await fill(store, "a", rows[:2], "waiting")
    log = await store.open("a")
    assert (list(log.rows), log.status) == (rows[:2], "waiting"), log.rows
    for row in rows[2:]:
        log.append(row)
    await log.flush()
    assert store.rows("a") == rows, "rows are there once they are flushed"
    await log.close("failed")
    assert store.rows("a") == rows


async def runs_do_not_mix(make: Make) -> None:
    """Whatever their names; the list has each with its status and number of rows."""
    store = make()
    for number, name in enumerate(_NAMES):
        await fill(
            store, name, [numbered_row(number)] * number, "done" if number % 2 else "waiting"
        )
    for number, name in enumerate(_NAMES):
        assert store.rows(name) == [numbered_row(number)] * number, name
    found = {info.name: (info.status, info.num_rows) for info in store.runs()}
    assert found == {n: ("done" if i % 2 else "waiting", i) for i, n in enumerate(_NAMES)}, found


async def a_run_has_one_writer(make: Make) -> None:
    """A second one is refused while the first is there, and let in once it has closed."""
    store = make()
    log = await store.open("a")
    assert log.status == "running"
    await _refused(RunBusyError, "run 'a' is being written", lambda: store.open("a"))
    await _refused(RunBusyError, "is being written; delete it when", lambda: store.delete("a"))
    other = await store.open("b")
    await log.close("done")
    await other.close("done")
    await (await store.open("a")).close("done")


async def one_of_many_openings_wins(make: Make) -> None:
    """Of openings at the same time exactly one gets the run."""
    store = make()
    opened = await asyncio.gather(*(store.open("a") for _ in range(8)), return_exceptions=True)
    logs = [log for log in opened if not isinstance(log, BaseException)]
    assert len(logs) == 1, opened
    assert all(isinstance(e, RunBusyError) for e in opened if isinstance(e, BaseException)), opened
    await logs[0].close("done")


async def unknown_runs_are_refused(make: Make) -> None:
    """By name, with those there are; deleting forgets a run for good."""
    store = make()
    await fill(store, "known", [numbered_row(1)])
    await _refused(JournalError, "there is no run 'other'", lambda: store.rows("other"))
    await _refused(JournalError, "known", lambda: store.delete("other"))
    store.delete("known")
    assert store.runs() == []
    await fill(store, "known", [])
    assert store.rows("known") == [], "a deleted run leaves nothing to the next of its name"


async def old_runs_are_pruned(make: Make) -> None:
    """By status and age; the others keep their rows."""
    store = make()
    for name, status in (("a", "done"), ("b", "waiting"), ("c", "done")):
        await fill(store, name, [numbered_row(1)], status)
    assert prune(store, older_than_s=3600) == []
    assert sorted(prune(store, older_than_s=0)) == ["a", "c"]
    assert store.rows("b") == [numbered_row(1)]
    assert prune(store, older_than_s=0, statuses=["waiting", "failed"]) == ["b"]
    assert store.runs() == []


async def many_runs_are_written_at_once(make: Make) -> None:
    """Rows stay with their run, in their order, whoever flushes when."""
    store = make()

    async def one(name: str) -> None:
        log = await store.open(name)
        for number in range(50):
            log.append(numbered_row(number, name.encode()))
            if number % 20 == 0:
                await log.flush()
        await log.close("done")

    await asyncio.gather(*(one(f"r{i}") for i in range(20)))
    for i in range(20):
        assert store.rows(f"r{i}") == [numbered_row(j, f"r{i}".encode()) for j in range(50)]


async def sizes_are_bounded(make: Make) -> None:
    """What is too large is refused when it is given; what was there and comes after is kept."""
    store = make()
    log = await store.open("a")
    log.append(numbered_row(1))
    large = Row("big", "patch", bytes(MAX_DATA_LENGTH + 1))
    await _refused(JournalError, "the patch at big of run 'a' has", lambda: log.append(large))
    deep = Row("x" * (MAX_PATH_LENGTH + 1), "patch", b"")
    await _refused(JournalError, "characters", lambda: log.append(deep))
    log.append(numbered_row(2))
    await log.close("done")
    assert store.rows("a") == [numbered_row(1), numbered_row(2)]
    for name in ("", "x" * (MAX_PATH_LENGTH + 1)):
        await _refused(GraphError, "a run's name has", partial(store.open, name))


async def a_status_is_that_of_the_last_writer(make: Make) -> None:
    """A run that is open counts as running; the one that changed last comes first."""
    store = make()
    for status in ("waiting", "failed", "done"):
        await fill(store, status, [], status)
    assert [info.status for info in store.runs()] == ["done", "failed", "waiting"]
    log = await store.open("waiting")
    assert {i.name: i.status for i in store.runs()}["waiting"] == "running"
    assert log.status == "waiting"
    await log.close("done")
    assert next(iter(store.runs())).name == "waiting"


CHECKS: tuple[Callable[[Make], Awaitable[None]], ...] = (
    rows_come_back_as_they_were,
    runs_do_not_mix,
    a_run_has_one_writer,
    one_of_many_openings_wins,
    unknown_runs_are_refused,
    old_runs_are_pruned,
    many_runs_are_written_at_once,
    sizes_are_bounded,
    a_status_is_that_of_the_last_writer,
)
