"""What a graph's state may look like.

The values of a state are shared between branches without copying, which is only right if nothing
can change them in place. So a state's fields hold immutable values, or one of the reducer types
that a draft knows how to record; anything else is refused when the graph is defined.

What this does not see: items typed `Any` or `TypedDict`. They are values; replace, never change.
"""

from __future__ import annotations

import collections
import collections.abc
import dataclasses
import typing
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast, get_args, get_origin

from pydantic import BaseModel

from agentloop.errors import GraphBuildError
from agentloop.reducers import LOG, MERGE, Reducer, reducers_of, type_name

_FIXES: dict[Any, str] = {
    list: "tuple[{0}, ...]",
    collections.deque: "tuple[{0}, ...]",
    collections.abc.Sequence: "tuple[{0}, ...]",
    collections.abc.MutableSequence: "tuple[{0}, ...]",
    collections.abc.Iterable: "tuple[{0}, ...]",
    collections.abc.Collection: "tuple[{0}, ...]",
    dict: "a frozen model, or tuple[tuple[{0}, {1}], ...]",
    collections.defaultdict: "a frozen model, or tuple[tuple[{0}, {1}], ...]",
    collections.OrderedDict: "tuple[tuple[{0}, {1}], ...]",
    collections.Counter: "tuple[tuple[{0}, int], ...]",
    collections.abc.Mapping: "a frozen model, or tuple[tuple[{0}, {1}], ...]",
    collections.abc.MutableMapping: "a frozen model, or tuple[tuple[{0}, {1}], ...]",
    set: "frozenset[{0}]",
    collections.abc.Set: "frozenset[{0}]",
    collections.abc.MutableSet: "frozenset[{0}]",
}
_FIELD_FIXES: dict[Any, str] = {
    list: "Log[{0}] to append to it from nodes, or tuple[{0}, ...] to replace it whole",
    dict: "Merge[{0}, {1}] to set its keys from nodes, or a frozen model to replace it whole",
    collections.abc.Mapping: "Merge[{0}, {1}]",
    collections.defaultdict: "Merge[{0}, {1}]",
}


def _fix_for(annotation: object, is_field: bool) -> str | None:
    """The type to write instead of a mutable container, `None` if it is not one."""
    kind = get_origin(annotation) or annotation
    fix = next((fix for mutable, fix in _FIXES.items() if kind is mutable), None)
    if fix is None:
        return None
    names = [type_name(argument) for argument in get_args(annotation)]
    if is_field:  # only a whole field can be of a reducer type
        fix = _FIELD_FIXES.get(kind, fix)
    return fix.format(*(names or ["..."]), "...")


def _parts(annotation: object) -> Iterable[tuple[str, object]]:
    """The annotations that a frozen model or dataclass is made of, by name."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        fields: Mapping[str, Any] = annotation.model_fields
        return [(name, field.annotation) for name, field in fields.items()]
    if isinstance(annotation, type) and dataclasses.is_dataclass(cast(Any, annotation)):
        return typing.get_type_hints(cast(Any, annotation)).items()
    return ()


def _thaw_fix(annotation: object) -> str | None:
    """How to freeze a model or dataclass, `None` if it is frozen or neither."""
    if not isinstance(annotation, type):
        return None
    if issubclass(annotation, BaseModel) and not annotation.model_config.get("frozen"):
        return f"class {annotation.__name__}(BaseModel, frozen=True)"
    parameters: Any = getattr(cast(object, annotation), "__dataclass_params__", None)
    if parameters is not None and not parameters.frozen:
        return f"@dataclass(frozen=True) on {type_name(cast(object, annotation))}"
    return None


def find_mutable(
    annotation: object,
    place: str,
    is_field: bool = False,
    seen: frozenset[object] = frozenset(),
) -> Iterator[tuple[str, str, str]]:
    """Every part of an annotation that could be changed in place: (place, what, fix)."""
    fix = _fix_for(annotation, is_field)
    if fix is not None:
        yield place, type_name(annotation), fix
        return
    fix = _thaw_fix(annotation)
    if fix is not None:
        yield place, f"{type_name(annotation)}, which is not frozen", fix
        return
    if get_origin(annotation) is not typing.Literal:
        for argument in get_args(annotation):
            yield from find_mutable(argument, place, seen=seen)
    if annotation not in seen:
        for name, part in _parts(annotation):
            inner = f"{type_name(annotation)}.{name}"
            yield from find_mutable(part, inner, seen=seen | {annotation})


def _check_field(state: type[BaseModel], name: str, reducers: Mapping[str, Reducer]) -> None:
    field: Any = state.model_fields[name]
    place = f"{state.__name__}.{name}"
    reducer = reducers.get(name)
    checked: tuple[object, ...] = (field.annotation,)
    is_field = reducer not in (LOG, MERGE)
    if reducer is not None and not is_field:
        checked = get_args(field.annotation)
        others = [mark for mark in field.metadata if not isinstance(mark, Reducer)]
        if others:
            raise GraphBuildError(
                f"{place} is a {reducer.name} with the constraint {others[0]!r}, which appending "
                f"would not check; put constraints on the item type instead: "
                f"{reducer.name}[Annotated[..., Field(...)]]"
            )
    for annotation in checked:
        for where, what, fix in find_mutable(annotation, place, is_field):
            raise GraphBuildError(
                f"{where} is {what}: a change inside it could not be recorded and would leak "
                f"into parallel branches; write {fix}"
            )


def check_state(state: type[BaseModel]) -> None:
    """Refuse a state class whose writes could not all be recorded.

    Raises:
        GraphBuildError: It is not a pydantic model, is frozen, has private attributes or takes
            extra fields, or a field could be changed in place.
    """
    name = getattr(state, "__name__", repr(state))
    is_model = isinstance(state, type) and issubclass(state, BaseModel)  # pyright: ignore[reportUnnecessaryIsInstance] - callers without a type checker
    if not is_model:
        raise GraphBuildError(f"Graph takes a state class, got {name}; write class S(BaseModel)")
    if state.model_config.get("frozen"):
        raise GraphBuildError(f"{name} is frozen, but nodes assign to its fields; drop frozen=True")
    if state.model_config.get("extra") == "allow":
        raise GraphBuildError(f"{name} allows extra fields; declare every field a node writes")
    if state.__private_attributes__:
        private = next(iter(state.__private_attributes__))
        raise GraphBuildError(f"{name}.{private} is private and would not be recorded; declare it")
    reducers = reducers_of(state)
    for field in state.model_fields:
        _check_field(state, field, reducers)
