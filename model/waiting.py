"""Waiting for the engine's answers, from an event loop or without one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from agentloop.model.engine import Engine, Job
from agentloop.model.quiet import QuietLoop


class Waiting:
    """Hands jobs to an engine and waits for them."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._quiet = QuietLoop[Job](engine.offer)

    def add(self, jobs: Sequence[Job]) -> None:
        """Hand jobs over when the running event loop goes quiet, and do not wait."""
        for job in jobs:
            self._quiet.add(job)

    async def run(self, jobs: Sequence[Job]) -> None:
        """Have some jobs done; one that fails, or cancelling the wait, drops the others."""
        self.add(jobs)
        try:
            for job in jobs:
                await asyncio.wrap_future(job.future)
        finally:
            _drop(jobs)

    def run_sync(self, jobs: Sequence[Job]) -> None:
        """As `run`, from code without an event loop."""
        self._engine.submit(jobs)
        try:
            for job in jobs:
                job.future.result()
        finally:
            _drop(jobs)


def _drop(jobs: Sequence[Job]) -> None:
    for job in jobs:
        job.future.cancel()
