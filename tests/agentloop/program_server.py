"""Runs programs in processes of their own, one per line of standard input.

Everything is imported once; each job is a fork, so that a new process costs milliseconds. A job may
be killed (SIGKILL) right after so many rows of its run are safe.
"""

import asyncio
import itertools
import json
import os
import signal
import sys
from typing import Any

from agentloop.runs import RunResult
from agentloop.sqlite_store import SQLiteStore
from agentloop.stores import MemoryStore, Row, Store
from agentloop.testing import ShuffledLoop, crash_at
from tests.agentloop.programs import S, answer_to, build


async def finish(job: dict[str, Any], store: Store) -> RunResult[S]:
    """Run the program's graph, and answer one question at a time until there is none."""
    graph = build(job["program"], itertools.count())
    start = S() if job["is_new"] else None

    result = await graph.run(start, run="r", store=store, check=False)
    while result.waiting and result.error is None:
        path = result.waiting[int(job["seed"]) % len(result.waiting)]
        answers = {path: answer_to(result.questions[path])}
        result = await graph.run(run="r", store=store, answers=answers, check=False)
    return result


async def fill(store: MemoryStore, rows: list[list[str]]) -> None:
    """Rows that came as text."""
    log = await store.open("r")
    for path, kind, data in rows:
        log.append(Row(path, kind, data.encode("latin-1")))
    await log.close("running")


async def do(job: dict[str, Any]) -> dict[str, Any]:
    """Run one job: what it left, and the rows of its run."""
    memory = MemoryStore()
    if job["rows"] is not None:
        await fill(memory, job["rows"])
    store: Store = SQLiteStore(job["path"]) if job["path"] is not None else memory
    kept: Store = store
    if job["kill_at"] is not None:
        kept = crash_at(store, job["kill_at"], lambda: os.kill(os.getpid(), signal.SIGKILL))
    result = await finish(job, kept)
    rows = [[row.path, row.kind, row.data.decode("latin-1")] for row in store.rows("r")]
    state = result.state
    left = None if result.error is not None else [state.trail, state.total, state.x]
    return {"left": left, "error": repr(result.error), "rows": rows}


def child(job: dict[str, Any], pipe: int) -> None:
    """The process of one job; it does not return."""
    try:
        os.environ["EFFECTS"] = job["effects"]
        with asyncio.Runner(loop_factory=lambda: ShuffledLoop(job["seed"])) as runner:
            found: dict[str, Any] = runner.run(do(job))
    except BaseException as error:
        found = {"left": None, "error": f"broken: {error!r}", "rows": []}
    with os.fdopen(pipe, "w") as file:
        file.write(json.dumps(found))
    os._exit(0)


def main() -> None:
    """Serve jobs until standard input ends."""
    for line in sys.stdin:
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reader)
            child(json.loads(line), writer)
        os.close(writer)
        with os.fdopen(reader) as file:
            text = file.read()
        _, status = os.waitpid(pid, 0)
        killed = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        nothing: dict[str, Any] = {"left": None, "error": "", "rows": []}
        found: dict[str, Any] = json.loads(text) if text else nothing
        print(json.dumps({**found, "signal": killed}), flush=True)


if __name__ == "__main__":
    main()
