"""Running a coroutine from synchronous code, whether or not an event loop is running there."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run_blocking(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end from synchronous code, whether or not a loop is running here.

    Where one is running (a notebook), the coroutine gets a loop of its own in a thread, in a copy
    of the caller's context, and the caller waits.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(main)
    outcome: list[T] = []
    failure: list[BaseException] = []

    def work() -> None:
        try:
            outcome.append(asyncio.run(main))
        except BaseException as error:
            failure.append(error)

    context = contextvars.copy_context()
    thread = threading.Thread(target=context.run, args=(work,), name="agentloop-run-sync")
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return outcome[0]
