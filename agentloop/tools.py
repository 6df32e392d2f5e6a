"""Tools: functions a model may call, with arguments that are checked before anything runs."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, cast, overload
from weakref import WeakKeyDictionary

import jsonschema
import jsonschema.exceptions
import jsonschema.validators
from pydantic import ValidationError
from referencing import Registry

from agentloop.context import Call, Effect, make_call
from agentloop.drafts import shorten
from agentloop.errors import GraphBuildError, ToolError
from agentloop.flow import is_async
from agentloop.model.prompts import Schema, ToolSpec
from agentloop.signatures import Signature, read_signature

P = ParamSpec("P")
R = TypeVar("R")
_MESSAGE_LENGTH = 400


class Tool(Generic[P, R]):
    """A function with a name, a description and a JSON schema of its arguments.

    Awaiting `tool(...)` calls it as Python; `await tool.call({...})` as a model would.

    Attributes:
        name: What models call it.
        description: What models read about it.
        parameters: The JSON schema of its arguments, an object.
        effect: `"none"` if calling it again changes nothing, `"once"` if it must never run twice,
            `"idempotent"` if the outside sorts out repeats by key.
    """

    def __init__(
        self,
        name: str,
        description: str,
        parameters: Schema,
        *,
        effect: Effect = "none",
        limit: int | None = None,
        signature: Signature | None = None,
    ) -> None:
        self.name = name
        self.description = description
        self.parameters = parameters
        self.effect: Effect = effect
        self._limit = limit
        self._gates: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = (
            WeakKeyDictionary()
        )
        self._signature = signature
        if limit is not None and limit < 1:
            raise GraphBuildError(f"tool {name!r} has limit={limit}; use 1 or more, or None")
        self._validator = _validator(name, parameters)

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

    def check(self, arguments: object) -> None:
        """Check arguments against the schema.

        Raises:
            ToolError: They do not fit; it says where, what was expected and what came.
        """
        best_match = cast(Any, jsonschema.exceptions).best_match
        best = best_match(self._validator.iter_errors(arguments))
        if best is None:
            return
        pointer = "".join(f"/{_escape(part)}" for part in best.absolute_path)
        limit = shorten(best.validator_value, 120)
        expected, got = f"{best.validator} {limit}", shorten(best.instance, 120)
        raise ToolError(
            f"tool {self.name!r} was not called: its arguments at "
            f"{pointer or 'the top'} do not fit: {best.message[:_MESSAGE_LENGTH]} "
            f"(expected {expected}, got {got})",
            tool=self.name,
            pointer=pointer,
            expected=expected,
            got=got,
        )

    async def call(self, arguments: Mapping[str, Any]) -> R:
        """Call with JSON arguments: check them, run the function, check its result.

        Raises:
            ToolError: The arguments do not fit the schema (then the function did not run), or the
                result does not fit the return annotation, or there is no function.
            Exception: Whatever the function raises.
        """
        self.check(arguments)
        signature = self._runnable()
        try:
            positional, named = signature.arguments(arguments)
        except ValidationError as error:
            raise self._refusal(error, "its arguments do not fit") from error
        return await self._run(signature, positional, named, arguments)

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call as Python: check what was passed against the annotations, then run the function."""
        signature = self._runnable()
        try:
            request = signature.bind(args, kwargs)
            positional, named = signature.arguments(request)
        except ValidationError as error:
            raise self._refusal(error, "its arguments do not fit") from error
        return await self._run(signature, positional, named, request)

    async def _run(
        self,
        signature: Signature,
        positional: list[Any],
        named: dict[str, Any],
        request: Mapping[str, Any],
    ) -> R:
        async def make() -> Any:
            async with self._gate():
                if is_async(signature.call):
                    return await signature.call(*positional, **named)
                result = await asyncio.to_thread(signature.call, *positional, **named)
                return await result if inspect.isawaitable(result) else result

        adapter = signature.result
        if adapter is None:
            return cast(R, await make_call(Call("tool", self.name, request, make, self.effect)))

        async def make_checked() -> Any:
            result = await make()
            try:
                return adapter.validate_python(result)
            except ValidationError as error:
                what = "its result does not fit its return annotation"
                raise self._refusal(error, what) from error

        return await make_call(
            Call(
                "tool",
                self.name,
                request,
                make_checked,
                self.effect,
                encode=lambda result: adapter.dump_python(result, mode="json"),
                decode=adapter.validate_python,
            )
        )

    def _gate(self) -> asyncio.Semaphore | _Open:
        if self._limit is None:
            return _Open()
        loop = asyncio.get_running_loop()
        return self._gates.setdefault(loop, asyncio.Semaphore(self._limit))

    def _runnable(self) -> Signature:
        if self._signature is None:
            raise ToolError(
                f"tool {self.name!r} was loaded from a specification and has no function to run; "
                "use its checked arguments, or define it with @tool",
                tool=self.name,
            )
        return self._signature

    def _refusal(self, error: ValidationError, what: str) -> ToolError:
        first = error.errors(include_url=False, include_context=False)[0]
        pointer = "".join(f"/{_escape(part)}" for part in first["loc"])
        got = shorten(first["input"], 120)
        return ToolError(
            f"tool {self.name!r}: {what} at {pointer or 'the top'}: "
            f"{first['msg'][:_MESSAGE_LENGTH]}, got {got}",
            tool=self.name,
            pointer=pointer,
            expected=first["msg"][:_MESSAGE_LENGTH],
            got=got,
        )


class _Open:
    """A gate that is always open."""

    async def __aenter__(self) -> None:
        return None

    async def __aexit__(self, *_: object) -> None:
        return None


def _escape(part: object) -> str:
    return str(part).replace("~", "~0").replace("/", "~1")


def _validator(name: str, parameters: Schema) -> Any:
    if not isinstance(parameters, Mapping) or parameters.get("type") != "object":  # pyright: ignore[reportUnnecessaryIsInstance] - may come from a file
        raise GraphBuildError(
            f"tool {name!r} needs a JSON schema of an object for its arguments, got "
            f"{shorten(parameters)}; write {{'type': 'object', 'properties': {{...}}}}"
        )
    kind: Any = jsonschema.validators.validator_for(
        parameters, default=jsonschema.Draft202012Validator
    )
    try:
        kind.check_schema(parameters)
    except jsonschema.exceptions.SchemaError as error:
        pointer = "".join(f"/{_escape(part)}" for part in error.absolute_path)
        raise GraphBuildError(
            f"tool {name!r} has an invalid JSON schema at {pointer or 'the top'}: "
            f"{error.message[:_MESSAGE_LENGTH]}"
        ) from error
    offline: Any = Registry  # an empty one: references to other documents fetch nothing
    return kind(parameters, registry=offline())


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
    *,
    name: str | None = None,
    description: str | None = None,
    effect: Effect = "none",
    limit: int | None = None,
) -> _Decorator: ...
def tool(
    call: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    effect: Effect = "none",
    limit: int | None = None,
) -> Any:
    """Make a tool of a function: `@tool` or `@tool(effect="once")`.

    Name, description and the JSON schema of the arguments come from the function's name, its
    docstring (first paragraph and `Args:`) and its annotations. A plain `def` runs in a thread.

    Args:
        call: The function.
        name: Another name than the function's.
        description: Another description than the docstring's first paragraph.
        effect: `"none"` for a tool that only reads, `"once"` for one that must never run twice for
            one call, `"idempotent"` for one that may.
        limit: How many calls may be running at once, in all runs together.

    Raises:
        GraphBuildError: A parameter has no annotation or cannot be passed by name.
    """

    def make(function: Callable[..., Any]) -> Tool[..., Any]:
        signature = read_signature(function)
        return Tool(
            name or function.__name__,
            signature.description if description is None else description,
            signature.parameters,
            effect=effect,
            limit=limit,
            signature=signature,
        )

    return make if call is None else make(call)
