"""What tools do once their arguments are checked: the protocol, and the body for JSON data."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from agentloop.model.prompts import Schema


class Body(Protocol):
    """What a tool does."""

    @property
    def returns(self) -> Schema | None:
        """The JSON schema of what it gives, `None` if it gives anything."""
        ...

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Python arguments by name; `TypeError` as for a function."""
        ...

    def prepare(self, request: Mapping[str, Any]) -> Callable[[], Awaitable[Any]]:
        """The call with arguments by name, ready to make; `ValidationError` if they do not fit."""
        ...

    def checked(self, result: Any) -> Any:
        """A result, or a recorded one, as what the tool gives; `ValidationError` if it is not."""
        ...

    def encode(self, result: Any) -> Any:
        """A result as JSON data."""
        ...


class JsonBody:
    """A body that is given its arguments as JSON data, and gives JSON data.

    With it a tool can be made of a schema that is not a function's:
    `Tool("add", "Add.", {"type": "object", ...}, body=JsonBody("add", call))`.

    Args:
        name: The tool's name, for errors.
        call: Makes the call with arguments by name.
        returns: The JSON schema of what it gives, `None` if it gives anything.
    """

    def __init__(
        self,
        name: str,
        call: Callable[[dict[str, Any]], Awaitable[Any]],
        returns: Schema | None = None,
    ) -> None:
        self.returns = returns
        self._name = name
        self._call = call

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Python arguments by name; there are no others."""
        if args:
            raise TypeError(f"{self._name}() takes arguments by name only")
        return dict(kwargs)

    def prepare(self, request: Mapping[str, Any]) -> Callable[[], Awaitable[Any]]:
        """The call, ready to make."""
        return lambda: self._call(dict(request))

    def checked(self, result: Any) -> Any:
        """A result as it is."""
        return result

    def encode(self, result: Any) -> Any:
        """A result as it is."""
        return result
