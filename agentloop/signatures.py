"""A function's signature and docstring as a JSON schema, and JSON arguments as its arguments."""

from __future__ import annotations

import asyncio
import inspect
import re
import typing
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, create_model
from pydantic.errors import PydanticInvalidForJsonSchema

from agentloop.errors import GraphBuildError
from agentloop.flow import is_async
from agentloop.json_data import as_array, as_object, inlined
from agentloop.model.prompts import Schema

_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


@dataclass(frozen=True)
class Signature:
    """What a function takes and gives: the body of a tool made with `@tool`.

    Attributes:
        call: The function.
        description: The first paragraph of its docstring, on one line.
        parameters: The JSON schema of its arguments.
    """

    call: Callable[..., Any]
    description: str
    parameters: Schema
    _result: TypeAdapter[Any] | None
    _model: type[BaseModel]
    _signature: inspect.Signature

    @property
    def returns(self) -> Schema | None:
        """The JSON schema of what it returns, `None` where it does not say or has none."""
        if self._result is None:
            return None
        try:
            return inlined(without_titles(self._result.json_schema(mode="serialization")))
        except PydanticInvalidForJsonSchema:
            return None

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Python arguments by name.

        Raises:
            TypeError: As calling the function would.
        """
        return dict(self._signature.bind(*args, **kwargs).arguments)

    def prepare(self, request: Mapping[str, Any]) -> Callable[[], Awaitable[Any]]:
        """The call with named values, ready to make.

        Raises:
            pydantic.ValidationError: A value does not fit its annotation.
        """
        checked = self._model.model_validate(dict(request))
        positional: list[Any] = []
        named: dict[str, Any] = {}
        for i, (name, parameter) in enumerate(self._signature.parameters.items()):
            value = getattr(checked, f"argument_{i}")
            if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
                positional.append(value)
            else:
                named[name] = value

        async def invoke() -> Any:
            if is_async(self.call):
                return await self.call(*positional, **named)
            result = await asyncio.to_thread(self.call, *positional, **named)
            return await result if inspect.isawaitable(result) else result

        return invoke

    def checked(self, result: Any) -> Any:
        """A result as its return annotation has it.

        Raises:
            pydantic.ValidationError: It does not fit.
        """
        return result if self._result is None else self._result.validate_python(result)

    def encode(self, result: Any) -> Any:
        """A result as JSON data."""
        return result if self._result is None else self._result.dump_python(result, mode="json")


def read_signature(call: Callable[..., Any]) -> Signature:
    """Read a function's signature, annotations and docstring.

    Raises:
        GraphBuildError: A parameter is `*args` or `**kwargs` or has no annotation, or an annotation
            cannot be evaluated or has no JSON schema.
    """
    name = getattr(call, "__name__", repr(call))
    signature = inspect.signature(call)
    try:
        hints = typing.get_type_hints(call, include_extras=True)
    except NameError as error:
        raise GraphBuildError(
            f"tool {name} has an annotation that cannot be evaluated: {error}; use names of the "
            "module that defines it"
        ) from error
    summary, about = read_docstring(inspect.getdoc(call) or "")
    fields: dict[str, Any] = {}
    for i, (parameter_name, parameter) in enumerate(signature.parameters.items()):
        if parameter.kind in _VARIADIC:
            raise GraphBuildError(
                f"tool {name} takes {parameter}, which has no schema; name its parameters"
            )
        if parameter_name not in hints:
            raise GraphBuildError(
                f"parameter {parameter_name} of tool {name} has no annotation to make a schema "
                f"from; write {parameter_name}: str, or whatever it is"
            )
        required = parameter.default is inspect.Parameter.empty
        default = ... if required else parameter.default
        description = about.get(parameter_name)
        field = Field(default, alias=parameter_name, description=description)
        fields[f"argument_{i}"] = (hints[parameter_name], field)
    made: Any = create_model
    model: type[BaseModel] = made(name, __config__=ConfigDict(extra="forbid"), **fields)
    has_result = "return" in hints
    return Signature(
        call,
        summary,
        _argument_schema(model),
        TypeAdapter(hints["return"]) if has_result else None,
        model,
        signature,
    )


def _argument_schema(model: type[BaseModel]) -> Schema:
    schema = inlined(without_titles(model.model_json_schema()))
    schema.setdefault("properties", {})
    return schema


def without_titles(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A JSON schema without the titles that pydantic adds, which tell a model nothing."""

    def clean(node: object, is_map: bool) -> Any:
        items, entries = as_array(node), as_object(node)
        if items is not None:
            return [clean(item, False) for item in items]
        if entries is None:
            return node
        return {
            key: clean(value, not is_map and key in ("properties", "$defs"))
            for key, value in entries.items()
            if is_map or key != "title" or not isinstance(value, str)
        }

    cleaned: dict[str, Any] = clean(dict(schema), False)
    return cleaned


def read_docstring(text: str) -> tuple[str, dict[str, str]]:
    """The first paragraph of a docstring and what its `Args:` section says of each parameter."""
    summary = " ".join(text.split("\n\n")[0].split())
    section = re.search(r"^(?:Args|Arguments|Parameters):\n((?:[ \t]+.*\n?|\n)*)", text, re.M)
    about: dict[str, str] = {}
    if section is not None:
        body = inspect.cleandoc("\n" + section[1])
        for entry in re.split(r"\n(?=\S)", body):
            found = re.match(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)", entry, re.S)
            if found is not None:
                about[found[1]] = " ".join(found[2].split())
    return summary, about
