"""Tools: functions a model may call, with arguments that are checked before anything runs.

A tool knows its schema and how it may be called. What it does is its body: a Python function
(`agentloop.signatures`) or a tool of another program (`agentloop.mcp_client`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, Generic, ParamSpec, Protocol, TypedDict, TypeVar, Unpack, cast, overload
from weakref import WeakKeyDictionary

from pydantic import ValidationError

from agentloop.bodies import Body
from agentloop.context import Call, Effect, make_call
from agentloop.drafts import shorten
from agentloop.errors import GraphBuildError, ToolError
from agentloop.model.prompts import Schema, ToolSpec
from agentloop.schema_checks import MESSAGE_LENGTH, argument_check, pointer_to
from agentloop.signatures import read_signature

P = ParamSpec("P")
R = TypeVar("R")


class ToolOptions(TypedDict, total=False):
    """How a tool may be called; described at `Tool`."""

    effect: Effect
    sends: bool
    trusted: bool
    limit: int | None
    max_calls: int | None
    timeout_s: float | None
    cost: float


class Tool(Generic[P, R]):
    """A function with a name, a description and a JSON schema of its arguments.

    Awaiting `tool(...)` calls it as Python; `await tool.call({...})` as a model would.

    Attributes:
        name: What models call it.
        description: What models read about it.
        parameters: The JSON schema of its arguments, an object.
        effect: `"none"` if calling it again changes nothing, `"once"` if it must never run twice
            for one call, `"idempotent"` if the outside sorts out repeats by key.
        sends: Whether its arguments leave your control although nothing changes: an address that
            is fetched, a search that a third party answers. Approval treats it like an effect.
        trusted: Whether a model may read its results without approvals becoming necessary:
            nobody else has a say in what they hold.
        limit: How many calls may be running at once, in all runs together.
        max_calls: How many calls one run may make.
        timeout_s: Seconds after which a call fails. A plain `def` goes on in its thread.
        cost: What one call costs, in the unit of a run's `max_cost`.
        is_foreign: Whether another program wrote its schema, so that the engine may refuse it.
    """

    is_foreign = False

    def __init__(
        self,
        name: str,
        description: str,
        parameters: Schema,
        *,
        body: Body | None = None,
        **options: Unpack[ToolOptions],
    ) -> None:
        self.name = name
        self.description = description
        self.parameters = parameters
        self.effect: Effect = options.get("effect", "none")
        self.sends = options.get("sends", False)
        self.trusted = options.get("trusted", False)
        self.limit = options.get("limit")
        self.max_calls = options.get("max_calls")
        self.timeout_s = options.get("timeout_s")
        self.cost = options.get("cost", 0.0)
        self._gates: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = (
            WeakKeyDictionary()
        )
        self._body = body
        for option in ("limit", "max_calls"):
            value = getattr(self, option)
            if value is not None and value < 1:
                raise GraphBuildError(f"tool {name!r} has {option}={value}; use 1 or more, or None")
        if self.timeout_s is not None and self.timeout_s <= 0:
            raise GraphBuildError(
                f"tool {name!r} has timeout_s={self.timeout_s}; use more than 0, or None"
            )
        self._check = argument_check(parameters, name)

    def __repr__(self) -> str:
        return f"Tool({self.name!r})"

    @property
    def spec(self) -> ToolSpec:
        """The tool as a model sees it."""
        return {
            "name": self.name,
            "description": self.description,
            "parameters": self.parameters,
        }

    @property
    def is_runnable(self) -> bool:
        """Whether there is a function to run: a tool that was loaded from a file has none."""
        return self._body is not None

    @property
    def returns(self) -> Schema | None:
        """The JSON schema of its results, `None` if it does not say."""
        return self._body.returns if self._body is not None else None

    def check(self, arguments: object) -> None:
        """Check arguments against the schema.

        Raises:
            ToolError: They do not fit; it says where, what was expected and what came.
        """
        misfit = self._check.misfit(arguments)
        if misfit is not None:
            raise ToolError(
                f"tool {self.name!r} was not called: its arguments at "
                f"{misfit.pointer or 'the top'} do not fit: {misfit.message} "
                f"(expected {misfit.expected}, got {misfit.got})",
                tool=self.name,
                pointer=misfit.pointer,
                expected=misfit.expected,
                got=misfit.got,
            )

    async def call(self, arguments: Mapping[str, Any]) -> R:
        """Call with JSON arguments: check them, run the function, check its result.

        Raises:
            ToolError: The arguments do not fit the schema (then the function did not run), or the
                result does not fit the return annotation, or there is no function.
            LimitError: The run has made as many calls of it as it may.
            TimeoutError: It took longer than its `timeout_s`.
            Exception: Whatever the function raises.
        """
        self.check(arguments)
        return await self._run(self._runnable(), arguments)

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call as Python: check what was passed against the annotations, then run the function."""
        body = self._runnable()
        request = body.bind(args, kwargs)
        if self.is_foreign:
            self.check(request)
        return await self._run(body, request)

    async def encoded(self, arguments: Mapping[str, Any]) -> Any:
        """`call`, with the result as JSON data."""
        return self._runnable().encode(await self.call(arguments))

    async def _run(self, body: Body, request: Mapping[str, Any]) -> R:
        try:
            invoke = body.prepare(request)
        except ValidationError as error:
            raise self._refusal(error, "its arguments do not fit") from error

        async def make() -> Any:
            async with self._gate():
                result = await self._timely(invoke)
            try:
                return body.checked(result)
            except ValidationError as error:
                what = "its result does not fit its return annotation"
                raise self._refusal(error, what) from error

        call = Call(
            "tool",
            self.name,
            request,
            make,
            self.effect,
            encode=body.encode,
            decode=body.checked,
            cost=self.cost,
            limit=self.max_calls,
        )
        return cast(R, await make_call(call))

    async def _timely(self, invoke: Callable[[], Awaitable[Any]]) -> Any:
        if self.timeout_s is None:
            return await invoke()
        limit = asyncio.timeout(self.timeout_s)
        try:
            async with limit:
                return await invoke()
        except TimeoutError as error:
            if limit.expired():
                raise TimeoutError(
                    f"tool {self.name!r} took longer than its timeout of {self.timeout_s} s"
                ) from error
            raise

    def _gate(self) -> AbstractAsyncContextManager[Any]:
        if self.limit is None:
            return nullcontext()
        loop = asyncio.get_running_loop()
        return self._gates.setdefault(loop, asyncio.Semaphore(self.limit))

    def _runnable(self) -> Body:
        if self._body is None:
            raise ToolError(
                f"tool {self.name!r} was loaded from a specification and has no function to run; "
                "use its checked arguments, or define it with @tool",
                tool=self.name,
            )
        return self._body

    def _refusal(self, error: ValidationError, what: str) -> ToolError:
        first = error.errors(include_url=False, include_context=False)[0]
        pointer = pointer_to(first["loc"])
        message, got = first["msg"][:MESSAGE_LENGTH], shorten(first["input"], 120)
        return ToolError(
            f"tool {self.name!r}: {what} at {pointer or 'the top'}: {message}, got {got}",
            tool=self.name,
            pointer=pointer,
            expected=message,
            got=got,
        )


class _Decorator(Protocol):
    @overload
    def __call__(self, call: Callable[P, Awaitable[R]], /) -> Tool[P, R]: ...
    @overload
    def __call__(self, call: Callable[P, R], /) -> Tool[P, R]: ...


@overload
def tool(call: Callable[P, Awaitable[R]], /) -> Tool[P, R]: ...
@overload
def tool(call: Callable[P, R], /) -> Tool[P, R]: ...
@overload
def tool(
    *, name: str | None = None, description: str | None = None, **options: Unpack[ToolOptions]
) -> _Decorator: ...
def tool(
    call: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    **options: Unpack[ToolOptions],
) -> Any:
    """Make a tool of a function: `@tool` or `@tool(effect="once")`.

    Name, description and the JSON schema of the arguments come from the function's name, its
    docstring (first paragraph and `Args:`) and its annotations. A plain `def` runs in a thread.

    Args:
        call: The function.
        name: Another name than the function's.
        description: Another description than the docstring's first paragraph.
        **options: How it may be called: `effect`, `sends`, `trusted`, `limit`, `max_calls`,
            `timeout_s`, `cost`, as described at `Tool`.

    Raises:
        GraphBuildError: A parameter has no annotation or cannot be passed by name.
    """

    def make(function: Callable[..., Any]) -> Tool[..., Any]:
        signature = read_signature(function)
        about = signature.description if description is None else description
        label = name or function.__name__
        return Tool(label, about, signature.parameters, body=signature, **options)

    return make if call is None else make(call)
