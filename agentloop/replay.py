"""Recorded runs used again: forked from a step, or replayed offline from their recorded calls."""

from __future__ import annotations

from agentloop.errors import JournalError
from agentloop.stores import MemoryStore, Row, Store


async def _copy(rows: list[Row], store: Store, run: str) -> None:
    log = await store.open(run)
    status = log.status if log.rows else "running"
    try:
        if log.rows:
            raise JournalError(f"run {run!r} is there already; choose another name")
        for row in rows:
            log.append(row)
    finally:
        await log.close(status)


async def fork(store: Store, run: str, new_run: str, *, before: str) -> None:
    """Copy a run up to a step, so that the copy goes on from there, with new code if there is.

    `await fork(store, "42", "43", before="answer#2")`, then `await g.run(run="43", store=store)`.
    Everything recorded before the step's first row is kept; the step itself and whatever was
    recorded later run again. Pass `migrate=True` to the run if the graph has changed.

    Args:
        store: The store of both runs.
        run: The run to copy.
        new_run: The copy's name.
        before: The path of the step, as in events.

    Raises:
        JournalError: There is no such run or step, or the new name is taken.
    """
    rows = store.rows(run)
    inside = (f"{before}:", f"{before}~", f"{before}/", f"{before}[")
    found = [i for i, row in enumerate(rows) if row.path == before or row.path.startswith(inside)]
    if not found:
        paths = ", ".join(dict.fromkeys(row.path for row in rows if row.kind == "patch"))
        raise JournalError(f"run {run!r} has no step {before!r}; it has {paths}")
    kept = [row for row in rows[: found[0]] if row.kind not in ("end", "error", "trace")]
    await _copy(kept, store, new_run)


async def cassette(store: Store, run: str) -> MemoryStore:
    """A store that holds a run's start, calls and answers, but none of its nodes' patches.

    Running the graph on it under the same name calls every node again, offline: models, tools and
    questions give what they gave. A node that now asks something else is a `DeterminismError`.

    Raises:
        JournalError: There is no such run.
    """
    rows = store.rows(run)
    made = {row.path for row in rows if row.kind == "call"}
    kept = [
        row
        for row in rows
        if row.kind in ("start", "call") or (row.kind == "intent" and row.path in made)
    ]
    copy = MemoryStore()
    await _copy(kept, copy, run)
    return copy
