"""Calling a node's function: its time limit, its thread, and what it may return."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Collection
from typing import Any

from agentloop.drafts import shorten
from agentloop.errors import GraphError
from agentloop.flow import Leaf


def check_choice(name: str, choices: Collection[str], choice: object) -> None:
    """Check what a node returned.

    Raises:
        GraphError: It is not one of the choices, or something where there are none.
    """
    if choices and choice not in choices:
        raise GraphError(
            f"node {name!r} returned {shorten(choice)}, which is none of its targets; "
            f"return one of {', '.join(choices)}"
        )
    if not choices and choice is not None:
        raise GraphError(
            f"node {name!r} returned {shorten(choice)}, but nothing routes on it; assign results "
            f"to the state, or return a Literal and add g.route({name}, ...)"
        )


async def call_leaf(leaf: Leaf, draft: object, arguments: tuple[object, ...]) -> object:
    """Call a node that has a time limit or is not a coroutine function (then in a thread)."""
    limit = asyncio.timeout(leaf.timeout_s)
    try:
        async with limit:
            if leaf.is_async:
                return await leaf.call(draft, *arguments)
            result: Any = await asyncio.to_thread(leaf.call, draft, *arguments)
            return await result if inspect.isawaitable(result) else result
    except TimeoutError as error:
        if limit.expired():
            raise TimeoutError(
                f"node {leaf.name!r} took longer than its timeout of {leaf.timeout_s} s"
            ) from error
        raise
