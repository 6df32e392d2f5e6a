"""Calls that make a node's own doings repeatable: `ask`, `step`, `now`, `random`, `sleep`.

What they give is recorded, so a node that was interrupted gets the same values when it runs again.
"""

from __future__ import annotations

import asyncio
import inspect
import random as random_numbers
import time
import typing
from collections.abc import Awaitable, Callable
from typing import Any, ParamSpec, TypeVar, cast, overload

from pydantic import TypeAdapter

from agentloop.context import Call, here, make_call
from agentloop.errors import GraphError

P = ParamSpec("P")
T = TypeVar("T")


async def ask(question: object, answer: type[T]) -> T:
    """Ask whoever started the run, and wait for the answer, for minutes or for months.

    Without an answer the node ends here and the run stops when nothing else can go on; its result
    says what it waits for. `g.run(run=..., store=..., answers={result.waiting[0]: ...})` goes on:
    the node runs again, its earlier calls give what they gave, and this one gives the answer.

    Args:
        question: What to ask: text or any data.
        answer: The type of the answer.

    Raises:
        GraphError: This is not inside a run with a store, or the answer is not of the type.
    """
    place = here.get()
    if place is None:
        raise GraphError("ask() works inside a node of a run; run the graph with a store")
    adapter: TypeAdapter[Any] = TypeAdapter(cast(Any, answer))
    path = place.next_path(is_effect=False)

    request = {"question": question, "answer": adapter.json_schema()}
    call: Call[T] = Call("ask", "ask", request, _no_answer, decode=adapter.validate_python)
    return await place.run.ask(place, path, call)


async def _no_answer() -> Any:
    raise AssertionError("a question is answered by its run")


@overload
async def step(call: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
@overload
async def step(call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
async def step(call: Callable[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> Any:
    """Call any function as a recorded call: once it has returned, it is not called again.

    Its result must have a JSON form; with a return annotation it comes back as that type. A plain
    function runs in a thread.
    """
    annotation = _return_type(call)
    adapter: TypeAdapter[Any] | None = TypeAdapter(annotation) if annotation is not Any else None

    async def make() -> Any:
        if inspect.iscoroutinefunction(call):
            return await call(*args, **kwargs)
        result: Any = await asyncio.to_thread(call, *args, **kwargs)
        return await result if inspect.isawaitable(result) else result

    name = getattr(call, "__name__", type(call).__name__)
    request = {"args": args, "kwargs": kwargs}
    if adapter is None:
        return await make_call(Call("step", name, request, make))
    dump, decode = adapter.dump_python, adapter.validate_python
    return await make_call(
        Call("step", name, request, make, encode=lambda r: dump(r, mode="json"), decode=decode)
    )


def _return_type(call: Callable[..., Any]) -> Any:
    try:
        found = typing.get_type_hints(call, include_extras=True).get("return", Any)
    except (NameError, TypeError):
        return Any
    return type(None) if found is None else found


async def now() -> float:
    """The time in seconds since 1970; the same when the node runs again."""

    async def make() -> float:
        return time.time()

    return await make_call(Call("now", "now", None, make))


async def random() -> float:
    """A random number from 0 up to 1; the same when the node runs again."""

    async def make() -> float:
        return random_numbers.random()

    return await make_call(Call("random", "random", None, make))


async def sleep(seconds: float) -> None:
    """Wait. A run that is resumed after the time has passed does not wait again."""
    until = await now() + seconds
    while (left := until - time.time()) > 0:
        await asyncio.sleep(left)
