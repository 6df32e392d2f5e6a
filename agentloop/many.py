"""Many runs of one graph: some at once, their results in order, as a table."""

from __future__ import annotations

import asyncio
import csv
from collections.abc import Callable, Generator, Iterable, Iterator, Sized
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, Generic, TypeAlias, TypeVar

from pydantic import BaseModel
from pydantic_core import to_json

from agentloop.errors import GraphError
from agentloop.flow import Flow
from agentloop.runs import Options, RunResult, execute_checked

S = TypeVar("S", bound=BaseModel)
Report: TypeAlias = Callable[[int, int | None, int], object]
"""Told after every run: runs over, runs in all where that is known, and how many failed."""


class MapResult(list[RunResult[S]], Generic[S]):
    """The results of many runs in the order of their states, and what they add up to.

    A list of results like any other; empty where the runs were told to keep none.

    Attributes:
        counts: Runs by status: `done`, `waiting`, `failed`.
        num_calls: Calls of all runs.
        num_tokens: Tokens of all runs.
        cost: Cost of all runs.
    """

    def __init__(self) -> None:
        super().__init__()
        self.counts: dict[str, int] = {"done": 0, "waiting": 0, "failed": 0}
        self.num_calls = 0
        self.num_tokens = 0
        self.cost = 0.0

    def add(self, result: RunResult[S]) -> None:
        """Add a run to the sums."""
        self.counts[result.status] += 1
        self.num_calls += result.num_calls
        self.num_tokens += result.num_tokens
        self.cost += result.cost

    @property
    def num_over(self) -> int:
        """Runs that have come to an end or wait."""
        return sum(self.counts.values())

    def failed(self) -> list[RunResult[S]]:
        """The results of the runs that failed."""
        return [result for result in self if result.error is not None]

    def rows(self) -> Iterator[dict[str, Any]]:
        """One row per run: its name, status, seconds, calls, tokens, cost, error, and its state.

        The state's fields come after the others, named as they are; what is no number, text or
        truth value is JSON.
        """
        for result in self:
            error = result.error
            yield {
                "run": result.run,
                "status": result.status,
                "seconds": round(result.seconds, 6),
                "calls": result.num_calls,
                "tokens": result.num_tokens,
                "cost": result.cost,
                "error": f"{type(error).__name__}: {error}" if error is not None else "",
                **{f"state.{name}": _cell(value) for name, value in result.state},
            }

    def to_csv(self, path: str | PathLike[str]) -> None:
        """Write the table as a CSV file (UTF-8).

        A cell that a spreadsheet would take for a formula gets a `'` in front.
        """
        rows = [{key: _safe(cell) for key, cell in row.items()} for row in self.rows()]
        with Path(path).open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]) if rows else ["run"])
            writer.writeheader()
            writer.writerows(rows)


def _cell(value: object) -> Any:
    if value is None or isinstance(value, str | int | float):
        return value
    return to_json(value, fallback=repr, inf_nan_mode="strings").decode()


def _safe(cell: Any) -> Any:
    return f"'{cell}" if isinstance(cell, str) and cell[:1] in ("=", "+", "-", "@") else cell


async def execute_all(
    flow: Flow,
    states: Iterable[S],
    options: Options,
    *,
    concurrency: int,
    name: str | None,
    check: bool,
    is_kept: bool = True,
    on_result: Callable[[int, RunResult[S]], object] | None = None,
    report: Report | None = None,
) -> MapResult[S]:
    """Run a flow on many states, some at once. Results in the order of the states."""
    if concurrency < 1:
        raise GraphError(f"concurrency is {concurrency}; use 1 or more")
    results: MapResult[S] = MapResult()
    kept: dict[int, RunResult[S]] = {}
    num_all = len(states) if isinstance(states, Sized) else None
    inputs = enumerate(states)

    async def work() -> None:
        for index, state in inputs:  # shared: every worker takes the next one
            own = f"{name}-{index}" if name is not None else None
            result = await execute_checked(flow, state, options, own, check)
            results.add(result)
            if is_kept:
                kept[index] = result
            if on_result is not None:
                on_result(index, result)
            if report is not None:
                report(results.num_over, num_all, results.counts["failed"])

    first: BaseException
    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(concurrency if num_all is None else min(concurrency, num_all)):
                group.create_task(work())
        results.extend(kept[index] for index in range(len(kept)))
        return results
    except BaseExceptionGroup as failed:
        first = failed.exceptions[0]
    raise first


@contextmanager
def reporting(progress: bool | Report) -> Generator[Report | None]:
    """What is told of the progress: nothing, what the caller gave, or a bar on the terminal."""
    if not isinstance(progress, bool):
        yield progress
    elif not progress:
        yield None
    else:
        from agentloop.terminal import counting  # brings rich, so only when needed

        with counting("runs") as show:
            yield lambda done, num_all, failed: show(
                done, num_all or 0, f"{failed} failed" if failed else ""
            )
