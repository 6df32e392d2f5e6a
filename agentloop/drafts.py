"""The typed draft a node writes on: every assignment is validated at its line and recorded.

A draft is an instance of a subclass of the user's state, so a node sees exactly the type it
declared. Reading costs what reading a pydantic model costs; writing runs the field's own validator
and adds to the patch. Knows nothing of graphs: one draft, one node, one patch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn, TypeVar, cast

from pydantic import BaseModel, TypeAdapter, ValidationError

from agentloop.errors import StateError
from agentloop.reducers import LOG, MAX, MERGE, Reducer, type_name

S = TypeVar("S", bound=BaseModel)
_set = object.__setattr__
_RECORD = "__agentloop_record__"
_GOT_LENGTH = 80
_NOT_ITEMS: tuple[type, ...] = (str, bytes, Mapping)  # can be iterated, but that is a mistake


class _Record:
    """What one node wrote so far."""

    __slots__ = ("is_open", "node", "patch")

    def __init__(self, node: str) -> None:
        self.node = node
        self.patch: dict[str, Any] = {}
        self.is_open = True


def shorten(value: object, length: int = _GOT_LENGTH) -> str:
    """The repr of a value, cut to a length that fits a message."""
    text = repr(value)
    return text if len(text) <= length else f"{text[: length - 3]}..."


def _refuse(draft: BaseModel, field: str, expected: str, got: str, fix: str) -> NoReturn:
    record: _Record = getattr(draft, _RECORD)
    place = f"{type(draft).__name__}.{field}"
    raise StateError(
        f"node {record.node!r} wrote {place}: expected {expected}, got {got}; {fix}",
        node=record.node,
        field=field,
        expected=expected,
        got=got,
    )


def _explain(draft: BaseModel, field: str, expected: str, error: ValidationError) -> NoReturn:
    """Turn pydantic's error into ours, keeping its first reason and where inside the value."""
    first = error.errors(include_url=False, include_context=False)[0]
    inside = [str(part) for part in first["loc"] if part != field]
    where = f" at {'.'.join(inside)}" if inside else ""
    got = f"{type(first['input']).__name__} {shorten(first['input'])}{where}"
    _refuse(draft, field, expected, got, first["msg"])


def _writable(draft: BaseModel, field: str) -> _Record:
    record: _Record = getattr(draft, _RECORD)
    if not record.is_open:
        _refuse(draft, field, "no write", "one", "the node is over: await what it starts")
    return record


class LogDraft(list[Any]):
    """A `Log` field inside a node: a list that records what is appended and refuses the rest."""

    __slots__ = ("_draft", "_field", "_validate")

    def __init__(
        self, items: Iterable[Any], draft: BaseModel, field: str, validate: Callable[[Any], Any]
    ) -> None:
        super().__init__(items)
        self._draft = draft
        self._field = field
        self._validate = validate

    def append(self, item: Any) -> None:
        """Append one item, validated and recorded."""
        self.extend((item,))

    def extend(self, items: Iterable[Any]) -> None:
        """Append items, validated and recorded."""
        record = _writable(self._draft, self._field)
        given: object = items
        if isinstance(given, _NOT_ITEMS):
            kind = f"{type(given).__name__} {shorten(given)}"
            _refuse(self._draft, self._field, "a list of items", kind, "append() takes one item")
        try:
            new = self._validate(list(items))
        except ValidationError as error:
            _explain(self._draft, self._field, "items of the log's type", error)
        super().extend(new)
        record.patch.setdefault(self._field, []).extend(new)

    def __iadd__(self, items: Iterable[Any]) -> LogDraft:  # type: ignore[misc]  # stays a recording list
        self.extend(items)
        return self

    def _append_only(self, *_args: object, **_options: object) -> NoReturn:
        _refuse(self._draft, self._field, "appending", "another change", "a Log only grows: use +=")

    insert = pop = remove = clear = reverse = _append_only
    sort: Any = _append_only
    __setitem__ = __delitem__ = __imul__ = _append_only


class MergeDraft(dict[Any, Any]):
    """A `Merge` field inside a node: a dict that records what is set and refuses the rest."""

    __slots__ = ("_draft", "_field", "_validate")

    def __init__(
        self,
        items: Mapping[Any, Any],
        draft: BaseModel,
        field: str,
        validate: Callable[[Any], Any],
    ) -> None:
        super().__init__(items)
        self._draft = draft
        self._field = field
        self._validate = validate

    def __setitem__(self, key: Any, value: Any) -> None:
        self.update({key: value})

    def update(self, *items: Any, **named: Any) -> None:
        """Set keys, validated and recorded."""
        record = _writable(self._draft, self._field)
        try:
            new: dict[Any, Any] = self._validate(dict(*items, **named))
        except ValidationError as error:
            _explain(self._draft, self._field, "keys and values of the field's type", error)
        super().update(new)
        record.patch.setdefault(self._field, {}).update(new)

    def setdefault(self, key: Any, default: Any = None) -> Any:
        """The value of a key, set to the default first where it is missing."""
        if key not in self:
            self.update({key: default})
        return self[key]

    def __ior__(self, items: Any) -> MergeDraft:  # type: ignore[misc]  # stays recording
        self.update(items)
        return self

    def _set_only(self, *_args: object, **_options: object) -> NoReturn:
        _refuse(self._draft, self._field, "setting keys", "a removal", "a Merge field only grows")

    pop = popitem = clear = __delitem__ = _set_only


_CONTAINERS: dict[Reducer, type[Any]] = {LOG: LogDraft, MERGE: MergeDraft}


def _container_property(field: str, kind: type[Any], validate: Callable[[Any], Any]) -> property:
    """A property that makes the recording container when a node first reads the field."""

    def read(draft: BaseModel) -> Any:
        values: dict[str, Any] = vars(draft)
        value = values[field]
        if type(value) is not kind:
            value = values[field] = kind(value, draft, field, validate)
        return value

    return property(read)


def _assign_plain(draft: BaseModel, record: _Record, field: str, value: object) -> None:
    before: dict[str, Any] = vars(draft)
    try:
        type(draft).__pydantic_validator__.validate_assignment(draft, field, value)
    except ValidationError as error:
        _set(draft, "__dict__", before)  # a model validator fails after the value is in
        expected = type_name(type(draft).model_fields[field].annotation)
        _explain(draft, field, expected, error)
    record.patch[field] = draft.__dict__[field]


def _assign_reduced(draft: BaseModel, field: str, value: object, reducer: Reducer) -> None:
    record = _writable(draft, field)
    before = draft.__dict__[field]
    if reducer in _CONTAINERS:
        if value is not before:  # `+=` assigns the very container it has recorded into
            fix = f"s.{field} += [...]" if reducer is LOG else f"s.{field}[key] = value"
            _refuse(draft, field, fix, "a whole new value", f"{reducer.name} fields only grow")
        return
    written = record.patch.get(field)
    _assign_plain(draft, record, field, value)
    after = draft.__dict__[field]
    if reducer is MAX:
        values: dict[str, Any] = vars(draft)
        values[field] = reducer.combine(before, after)
        record.patch[field] = after if written is None else reducer.combine(written, after)
    else:
        delta = after - before
        record.patch[field] = delta if written is None else written + delta


def _assign_other(draft: BaseModel, field: str, value: object) -> None:
    """Set a property of the state, which sets fields in turn; anything else is refused."""
    setter = getattr(getattr(type(draft), field, None), "fset", None)
    if setter is None:
        names = ", ".join(type(draft).model_fields)
        _refuse(draft, field, f"one of {names}", field, "declare the field on the state")
    setter(draft, value)


def _write_method(
    state: type[BaseModel], reducers: Mapping[str, Reducer]
) -> Callable[[Any, str, Any], None]:
    """The `__setattr__` of a draft class."""
    plain = frozenset(name for name in state.model_fields if name not in reducers)

    def write(draft: BaseModel, field: str, value: object) -> None:
        if not hasattr(draft, _RECORD):  # a copy of a draft is a state of its own
            BaseModel.__setattr__(draft, field, value)
        elif field in plain:
            _assign_plain(draft, _writable(draft, field), field, value)
        elif field in reducers:
            _assign_reduced(draft, field, value, reducers[field])
        else:
            _assign_other(draft, field, value)

    return write


def _refuse_delete(draft: BaseModel, field: str) -> NoReturn:
    _refuse(draft, field, "a value", "del", "assign another value instead")


def draft_class(state: type[S], reducers: Mapping[str, Reducer]) -> type[S]:
    """The class of a state's drafts: a subclass of the state that records writes."""
    body = {
        "__slots__": (_RECORD,),
        "__module__": state.__module__,
        "__qualname__": state.__qualname__,
        "__doc__": state.__doc__,
        "__setattr__": _write_method(state, reducers),
        "__delattr__": _refuse_delete,
    }
    metaclass: Any = type(cast(object, state))
    made: Any = metaclass(state.__name__, (state,), body)
    for field, reducer in reducers.items():
        kind = _CONTAINERS.get(reducer)
        if kind is not None:
            annotation: Any = state.model_fields[field].annotation
            validate = TypeAdapter(annotation).validator.validate_python
            setattr(made, field, _container_property(field, kind, validate))
    return cast(type[S], made)


def build(state: type[S], values: dict[str, Any]) -> S:
    """An instance with these field values, which are valid already and owned by it from now on.

    By name whatever aliases the fields have, which `model_construct` would ask for.
    """
    untyped: Any = state
    made: S = untyped.__new__(untyped)
    _set(made, "__dict__", values)
    _set(made, "__pydantic_fields_set__", set(values))
    _set(made, "__pydantic_extra__", None)
    _set(made, "__pydantic_private__", None)
    return made


def open_draft(draft: type[S], values: dict[str, Any], node: str) -> S:
    """A draft of some field values. The dict itself is not changed by what the node writes."""
    made = build(draft, values.copy())
    _set(made, _RECORD, _Record(node))
    return made


def close_draft(draft: BaseModel) -> dict[str, Any]:
    """End a draft: later writes are errors. Returns its patch."""
    record: _Record = getattr(draft, _RECORD)
    record.is_open = False
    return record.patch
