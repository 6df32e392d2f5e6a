"""Several tools together, by name: made of tools, or loaded from a file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from agentloop.drafts import shorten
from agentloop.errors import GraphBuildError, ToolError, UnsupportedSchemaError
from agentloop.json_data import as_array, as_object
from agentloop.loosening import loosened
from agentloop.model.prompts import ToolSpec
from agentloop.tools import Tool

if TYPE_CHECKING:
    from agentloop.model.constraint import ToolCalls


class ToolSet(Sequence[Tool[..., Any]]):
    """Tools with different names.

    Raises:
        GraphBuildError: Two tools have the same name.
    """

    def __init__(self, tools: Iterable[Tool[..., Any]]) -> None:
        self._tools = list(tools)
        self._by_name = {tool.name: tool for tool in self._tools}
        self._constraints: dict[tuple[int, int], ToolCalls] = {}
        if len(self._by_name) < len(self._tools):
            names = [tool.name for tool in self._tools]
            twice = next(name for name in names if names.count(name) > 1)
            raise GraphBuildError(f"two tools are called {twice!r}; use @tool(name=...)")

    @classmethod
    def load(cls, path: str | PathLike[str]) -> ToolSet:
        """Read tools from a JSON file: a list of specifications, or an object with `tools`.

        A specification is `{"name", "description", "parameters"}`, or the same inside
        `{"type": "function", "function": {...}}` as OpenAI writes it. Such tools have no function.

        Raises:
            ToolError: The file cannot be read, is not JSON, or an entry is not a tool.
            GraphBuildError: Two tools have the same name, or a schema is not valid.
        """
        try:
            data: object = json.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise ToolError(f"{path} cannot be read: {error}; give a file of tools") from error
        except json.JSONDecodeError as error:
            raise ToolError(
                f"{path}:{error.lineno}:{error.colno} is not JSON: {error.msg}"
            ) from error
        wrapped = as_object(data)
        entries = as_array(data if wrapped is None else wrapped.get("tools"))
        if entries is None:
            raise ToolError(
                f"{path} holds {shorten(data)}, expected a JSON list of tools "
                '[{"name": ..., "description": ..., "parameters": {...}}]'
            )
        return cls(_from_entry(entry, f"{path}#/{i}") for i, entry in enumerate(entries))

    @property
    def specs(self) -> list[ToolSpec]:
        """The tools as a model sees them."""
        return [tool.spec for tool in self._tools]

    def constraint(self, min: int, max: int) -> ToolCalls:
        """What a model's answer of so many calls must satisfy, made once.

        A schema that the engine refuses is loosened; see `agentloop.loosening`.
        """
        if (min, max) not in self._constraints:
            self._constraints[min, max] = _constraint(self._tools, min, max)
        return self._constraints[min, max]

    def named(self, name: str) -> Tool[..., Any]:
        """The tool of a name.

        Raises:
            ToolError: There is none; it lists those there are.
        """
        tool = self._by_name.get(name)
        if tool is None:
            names = ", ".join(sorted(self._by_name))
            raise ToolError(f"there is no tool {name!r}; there are {names}", tool=name)
        return tool

    @overload
    def __getitem__(self, index: int) -> Tool[..., Any]: ...
    @overload
    def __getitem__(self, index: slice) -> list[Tool[..., Any]]: ...
    def __getitem__(self, index: int | slice) -> Tool[..., Any] | list[Tool[..., Any]]:
        return self._tools[index]

    def __len__(self) -> int:
        return len(self._tools)

    def __iter__(self) -> Iterator[Tool[..., Any]]:
        return iter(self._tools)


def _constraint(tools: Sequence[Tool[..., Any]], min: int, max: int) -> ToolCalls:
    from agentloop.model.constraint import ToolCalls  # loads numpy, so only when needed

    try:
        specs = [loosened(tool.spec).spec if tool.is_foreign else tool.spec for tool in tools]
        return ToolCalls(specs, min=min, max=max)
    except UnsupportedSchemaError:
        return ToolCalls([loosened(tool.spec).spec for tool in tools], min=min, max=max)


def _from_entry(entry: object, place: str) -> Tool[..., Any]:
    known = as_object(entry) or {}
    known = as_object(known.get("function")) or known
    if not isinstance(known.get("name"), str):
        raise ToolError(
            f"{place} is {shorten(entry)}, which is not a tool; expected "
            '{"name": ..., "description": ..., "parameters": {...}}'
        )
    no_parameters: dict[str, Any] = {"type": "object", "properties": {}}
    parameters: dict[str, Any] = known.get("parameters") or no_parameters
    return Tool(known["name"], str(known.get("description") or ""), parameters)
