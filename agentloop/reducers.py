"""Field types whose parallel writes combine: `Log`, `Sum`, `Max`, `Merge`.

A plain field holds one value, so two branches that both write it contradict each other. These four
say in the type how writes combine. For a type checker they are the plain type (`Log[str]` is
`list[str]`), at run time the marker in the annotation is the rule. Knows nothing of graphs.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True)
class Reducer:
    """How writes to a field combine.

    Attributes:
        name: The name a user writes in the annotation.
        combine: Makes one recorded write of two, the earlier first.
        apply: Makes the new value of a field from its value and a recorded write.
    """

    name: str
    combine: Callable[[Any, Any], Any]
    apply: Callable[[Any, Any], Any]


def _extend(old: list[Any], new: list[Any]) -> list[Any]:
    return [*old, *new]


def _add(old: Any, new: Any) -> Any:
    return old + new


def _larger(old: Any, new: Any) -> Any:
    if old is None or new is None:  # None is "nothing yet", below everything
        return new if old is None else old
    return max(old, new)


def _union(old: Mapping[Any, Any], new: Mapping[Any, Any]) -> dict[Any, Any]:
    return {**old, **new}


LOG = Reducer("Log", _extend, _extend)
SUM = Reducer("Sum", _add, _add)
MAX = Reducer("Max", _larger, _larger)
MERGE = Reducer("Merge", _union, _union)

Log = Annotated[list[T], LOG]
"""A list that nodes may only append to; parallel appends follow each other in branch order."""

Sum = Annotated[T, SUM]
"""A number that nodes add to; parallel additions add up."""

Max = Annotated[T, MAX]
"""A value that only grows; of parallel writes the largest stays. `None` is below everything."""

Merge = Annotated[dict[K, V], MERGE]
"""A dict that nodes only set keys of; parallel branches must set different keys."""


def type_name(annotation: object) -> str:
    """An annotation as a programmer writes it."""
    if isinstance(annotation, type) and not isinstance(annotation, types.GenericAlias):
        return annotation.__name__
    return str(annotation).replace("typing.", "")


def reducers_of(state: type[BaseModel]) -> dict[str, Reducer]:
    """The reducer of every field that has one, by field name."""
    return {
        name: marker
        for name, field in state.model_fields.items()
        for marker in field.metadata
        if isinstance(marker, Reducer)
    }


def compose(
    reducers: Mapping[str, Reducer], first: Mapping[str, Any], second: Mapping[str, Any]
) -> dict[str, Any]:
    """One patch that does what two patches of the same branch do, one after the other."""
    result = dict(first)
    for field, write in second.items():
        reducer = reducers.get(field)
        if reducer is not None and field in result:
            result[field] = reducer.combine(result[field], write)
        else:
            result[field] = write
    return result


def apply(
    reducers: Mapping[str, Reducer], values: dict[str, Any], patch: Mapping[str, Any]
) -> None:
    """Change the field values of a state by a patch, in place."""
    for field, write in patch.items():
        reducer = reducers.get(field)
        values[field] = write if reducer is None else reducer.apply(values[field], write)


@dataclass(frozen=True)
class Conflict:
    """A field, or a key of a `Merge` field, that several parallel branches wrote."""

    field: str
    key: str
    branches: tuple[str, ...]


def join(
    reducers: Mapping[str, Reducer], patches: Iterable[tuple[str, Mapping[str, Any]]]
) -> tuple[dict[str, Any], list[Conflict]]:
    """Combine the patches of parallel branches, in the order given.

    Args:
        reducers: The reducer of each field that has one.
        patches: The branch's name and its patch, for every branch.

    Returns:
        The patch of all branches together, and the conflicts. A field or key in conflict is not in
        the patch: no branch wins.
    """
    joined: dict[str, Any] = {}
    plain: dict[str, list[str]] = {}  # who wrote a plain field
    keys: dict[tuple[str, object], list[str]] = {}  # who wrote a key of a Merge field
    logs: dict[str, list[Any]] = {}
    for branch, patch in patches:
        for field, write in patch.items():
            reducer = reducers.get(field)
            if reducer is LOG:  # in place, so that many branches cost no more than their items
                logs.setdefault(field, []).extend(write)
            elif reducer is not None:
                joined[field] = reducer.combine(joined[field], write) if field in joined else write
                for key in write if reducer is MERGE else ():
                    keys.setdefault((field, key), []).append(branch)
            else:
                joined[field] = write
                plain.setdefault(field, []).append(branch)
    joined.update(logs)
    return joined, [*_drop_conflicts(joined, plain), *_drop_key_conflicts(joined, keys)]


def _drop_conflicts(joined: dict[str, Any], plain: dict[str, list[str]]) -> Iterator[Conflict]:
    for field, branches in plain.items():
        if len(branches) > 1:
            del joined[field]
            yield Conflict(field, "", tuple(branches))


def _drop_key_conflicts(
    joined: dict[str, Any], keys: dict[tuple[str, object], list[str]]
) -> Iterator[Conflict]:
    for (field, key), branches in keys.items():
        if len(branches) > 1:
            joined[field] = {k: v for k, v in joined[field].items() if k != key}
            yield Conflict(field, repr(key), tuple(branches))
