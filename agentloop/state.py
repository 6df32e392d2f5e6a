"""A state class, prepared once: its drafts, and how patches apply, follow and join."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, TypeAdapter
from pydantic_core import to_json

from agentloop.drafts import build, draft_class, open_draft
from agentloop.errors import StateError
from agentloop.reducers import apply, compose, join, reducers_of
from agentloop.state_rules import check_state

S = TypeVar("S", bound=BaseModel)


class StateSpec(Generic[S]):
    """A state class, prepared: its reducers and its draft class.

    Attributes:
        state: The user's class.
        reducers: The reducer of each field that has one.
    """

    def __init__(self, state: type[S]) -> None:
        check_state(state)
        self.state = state
        self.reducers = reducers_of(state)
        self._adapters: dict[str, TypeAdapter[Any]] = {}
        self._draft = draft_class(state, self.reducers)

    def decode(self, field: str, value: object) -> Any:
        """A field's value, or a recorded write to it, from JSON data.

        Raises:
            KeyError: The state has no such field.
            pydantic.ValidationError: The value is not of the field's type.
        """
        adapter = self._adapters.get(field)
        if adapter is None:
            annotation: Any = self.state.model_fields[field].annotation
            adapter = self._adapters[field] = TypeAdapter(annotation)
        return adapter.validate_json(to_json(value))

    def draft(self, values: dict[str, Any], node: str) -> S:
        """A draft that reads the values and records what the node writes."""
        return open_draft(self._draft, values, node)

    def build(self, values: Mapping[str, Any]) -> S:
        """A real state that holds the values, which are valid already."""
        return build(self.state, dict(values))

    def apply(self, values: dict[str, Any], patch: Mapping[str, Any]) -> None:
        """Change the values by a patch, in place."""
        apply(self.reducers, values, patch)

    def compose(self, first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
        """One patch of two that follow each other."""
        return compose(self.reducers, first, second)

    def join(
        self, patches: Iterable[tuple[str, Mapping[str, Any]]], place: str, is_strict: bool = True
    ) -> dict[str, Any]:
        """One patch of those that parallel branches made.

        Args:
            patches: The branch's name and its patch, in branch order.
            place: The step that forked, for the message.
            is_strict: Whether a conflict is an error; if not, the field is left as it was.

        Raises:
            StateError: Two branches wrote the same plain field or the same key.
        """
        joined, conflicts = join(self.reducers, patches)
        if conflicts and is_strict:
            first = conflicts[0]
            key = f"[{first.key}]" if first.key else ""
            branches = ", ".join(first.branches[:5]) + (", ..." if len(first.branches) > 5 else "")
            fix = (
                "give each branch keys of its own"
                if first.key
                else "make it Log, Sum, Max or Merge, or write it after the branches join"
            )
            raise StateError(
                f"{len(first.branches)} parallel branches of {place} wrote "
                f"{self.state.__name__}.{first.field}{key}: {branches}; {fix}",
                node=place,
                field=first.field,
                expected="one writer",
                got=branches,
            )
        return joined


_specs: dict[type[BaseModel], StateSpec[Any]] = {}


def state_spec(state: type[S]) -> StateSpec[S]:
    """The spec of a state class, made once.

    Raises:
        GraphBuildError: The class cannot be a state, see `check_state`.
    """
    if state not in _specs:
        _specs[state] = StateSpec(state)
    return _specs[state]
