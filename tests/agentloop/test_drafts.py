"""Drafts: what a node may write, what is recorded, what is refused at its line."""

from dataclasses import dataclass
from typing import Annotated, Any, assert_type

import pytest
from pydantic import BaseModel, Field, create_model, field_validator, model_validator

from agentloop import END, START, Graph, Log, Max, Merge, Sum
from agentloop.drafts import close_draft
from agentloop.errors import GraphBuildError, StateError
from agentloop.state import state_spec
from agentloop.stores import MemoryStore


class Frozen(BaseModel, frozen=True):
    word: str = ""


class State(BaseModel):
    count: int = 0
    words: tuple[str, ...] = ()
    inner: Frozen = Frozen()
    log: Log[str] = []
    total: Sum[int] = 10
    best: Max[float | None] = None
    facts: Merge[str, int] = {}

    @property
    def twice(self) -> int:
        return self.count * 2

    @twice.setter
    def twice(self, value: int) -> None:
        self.count = value // 2


def draft() -> State:
    return state_spec(State).draft(dict(State().__dict__), "probe")


def test_a_draft_is_the_state_and_its_writes_are_the_patch() -> None:
    """Reading sees what was written; the patch holds the writes by each field's reducer."""
    s = draft()
    assert isinstance(s, State)
    s.count = 3
    s.words = ("a",)
    s.log += ["x"]
    s.log.append("y")
    s.total += 5
    s.total += 1
    s.best = 2.0
    s.best = 1.0
    s.facts["k"] = 1
    s.facts |= {"m": 2}
    assert (s.count, s.log, s.total, s.best, s.facts) == (3, ["x", "y"], 16, 2.0, {"k": 1, "m": 2})
    assert s.model_dump()["log"] == ["x", "y"]
    assert close_draft(s) == {
        "count": 3,
        "words": ("a",),
        "log": ["x", "y"],
        "total": 6,
        "best": 2.0,
        "facts": {"k": 1, "m": 2},
    }


def test_reducer_types_are_plain_types_for_a_checker() -> None:
    """`Log[str]` is `list[str]`, so code on a state needs no cast."""
    s = State()
    assert_type(s.log, list[str])
    assert_type(s.total, int)
    assert_type(s.best, float | None)
    assert_type(s.facts, dict[str, int])


def test_a_property_of_the_state_can_be_assigned() -> None:
    """A property's setter runs on the draft, so what it sets is recorded."""
    s = draft()
    s.twice = 8
    assert s.twice == 8
    assert close_draft(s) == {"count": 4}


@pytest.mark.parametrize(
    ("code", "field", "expected", "got"),
    [
        ("s.count = 'many'", "count", "int", "str 'many'"),
        ("s.words = (1,)", "words", "tuple[str, ...]", "int 1 at 0"),
        ("s.inner = 4", "inner", "Frozen", "int 4"),
        ("s.log += [1]", "log", "items of the log's type", "int 1 at 0"),
        ("s.log += 'abc'", "log", "a list of items", "str 'abc'"),
        ("s.log = ['x']", "log", "s.log += [...]", "a whole new value"),
        ("s.log[0] = 'x'", "log", "appending", "another change"),
        ("s.log.clear()", "log", "appending", "another change"),
        ("s.facts['k'] = 'x'", "facts", "keys and values of the field's type", "str 'x' at k"),
        ("s.facts = {}", "facts", "s.facts[key] = value", "a whole new value"),
        ("s.facts.pop('k')", "facts", "setting keys", "a removal"),
        ("s.other = 1", "other", "one of count, words, inner, log, total, best, facts", "other"),
        ("del s.count", "count", "a value", "del"),
    ],
)
def test_a_wrong_write_fails_at_its_line_and_leaves_nothing(
    code: str, field: str, expected: str, got: str
) -> None:
    """The error names node, field, expected and got; neither the draft nor the patch changes."""
    s = draft()
    before = s.model_dump()
    with pytest.raises(StateError) as caught:
        exec(code, {"s": s})
    error = caught.value
    assert (error.node, error.field, error.expected, error.got) == ("probe", field, expected, got)
    assert f"node 'probe' wrote State.{field}: expected {expected}, got {got}" in str(error)
    assert s.model_dump() == before
    assert close_draft(s) == {}


def test_writing_after_the_node_is_over_is_refused() -> None:
    """A draft that leaks into something still running cannot change a later patch."""
    s = draft()
    log = s.log
    close_draft(s)
    with pytest.raises(StateError, match="the node is over"):
        s.count = 1
    with pytest.raises(StateError, match="the node is over"):
        log.append("x")


def test_the_states_own_validators_run_on_assignment() -> None:
    """Field and model validators see each write; one they refuse leaves the value as it was."""

    class Checked(BaseModel):
        low: int = 0
        high: int = 10

        @field_validator("low")
        @classmethod
        def even(cls, value: int) -> int:
            if value % 2:
                raise ValueError("low must be even")
            return value

        @model_validator(mode="after")
        def ordered(self) -> "Checked":
            if self.low > self.high:
                raise ValueError("low is above high")
            return self

    s = state_spec(Checked).draft({"low": 0, "high": 10}, "probe")
    with pytest.raises(StateError, match="low must be even"):
        s.low = 3
    with pytest.raises(StateError, match="low is above high"):
        s.low = 12
    assert s.low == 0
    s.low = 4
    assert close_draft(s) == {"low": 4}


class Open(BaseModel):
    word: str = ""


class Holder(BaseModel, frozen=True):
    words: list[str] = []


@dataclass
class Point:
    x: int


FIELDS: list[tuple[Any, str, str]] = [
    (list[str], "list[str]", "Log[str] to append to it from nodes, or tuple[str, ...]"),
    (dict[str, int], "dict[str, int]", "Merge[str, int]"),
    (set[int], "set[int]", "frozenset[int]"),
    (tuple[list[int], ...], "list[int]", "tuple[int, ...]"),
    (list[str] | None, "list[str]", "tuple[str, ...]"),
    (Open, "Open, which is not frozen", "class Open(BaseModel, frozen=True)"),
    (Point, "Point, which is not frozen", "@dataclass(frozen=True) on Point"),
    (Holder, "list[str]", "tuple[str, ...]"),
    (Log[list[int]], "list[int]", "tuple[int, ...]"),
]


@pytest.mark.parametrize(("annotation", "what", "fix"), FIELDS)
def test_a_field_that_can_change_in_place_is_refused(annotation: Any, what: str, fix: str) -> None:
    """The graph's definition fails, naming the field and the type to write instead."""
    state = create_model("Bad", f=(annotation, ...))
    with pytest.raises(GraphBuildError) as caught:
        Graph(state)
    place = "Holder.words" if annotation is Holder else "Bad.f"
    assert str(caught.value).startswith(f"{place} is {what}: ")
    assert f"write {fix}" in str(caught.value)


def test_other_states_that_cannot_be_recorded_are_refused() -> None:
    """Frozen states, extra fields, private attributes and constraints on a Log have no record."""

    class Extra(BaseModel, extra="allow"):
        pass

    class Private(BaseModel):
        _hidden: int = 0

    class Bounded(BaseModel):
        log: Annotated[Log[str], Field(max_length=3)] = []

    cases: list[tuple[type[BaseModel], str]] = [
        (Frozen, "Frozen is frozen"),
        (Extra, "Extra allows extra fields"),
        (Private, "Private._hidden is private"),
        (Bounded, "Bounded.log is a Log with the constraint"),
    ]
    for state, message in cases:
        with pytest.raises(GraphBuildError, match=message):
            Graph(state)


def test_a_node_can_be_called_in_a_unit_test_with_a_real_state() -> None:
    """A node is a plain function: outside a run it works on a plain state."""

    def work(s: State) -> None:
        s.count += 1
        s.log += ["x"]
        s.facts["k"] = 1

    state = State()
    work(state)
    assert (state.count, state.log, state.facts) == (1, ["x"], {"k": 1})


def test_fields_with_aliases_work_by_their_names() -> None:
    """An alias is for JSON that comes from outside; nodes and results use the field's name."""

    class Aliased(BaseModel):
        count: int = Field(default=0, alias="Count")

    async def work(s: Aliased) -> None:
        s.count += 1

    graph = Graph(Aliased).chain(START, work, END)
    result = graph.run_sync(Aliased(Count=4), run="r", store=MemoryStore())
    assert result.state.count == 5
    assert result.state == Aliased(Count=5)


def test_a_copy_of_a_draft_is_a_plain_state() -> None:
    """What a helper writes on a copy is not part of the node's patch."""
    s = draft()
    copy = s.model_copy(update={"words": ("a",)})
    copy.count = 7
    assert (copy.count, copy.words, s.count) == (7, ("a",), 0)
    assert close_draft(s) == {}
