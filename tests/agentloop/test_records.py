"""What is refused of a record: another graph, damaged and hostile rows, values without JSON."""

from collections.abc import Callable, Iterator
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from agentloop import END, START, Graph, node, tool
from agentloop.asking import ask
from agentloop.errors import GraphError, JournalError, StateError
from agentloop.stores import MemoryStore, Row
from tests.agentloop.recorded import S, go, nothing, resumed


def test_a_run_belongs_to_its_graph_and_its_state() -> None:
    """Another graph, another start, an unknown name or no name are refused, each with the fix."""
    graph = Graph(S).chain(START, nothing, END)
    longer = Graph(S).chain(START, nothing, node(nothing, name="more"), END)
    store = MemoryStore()
    go(graph, store, S())
    with pytest.raises(JournalError, match=r"recorded with another graph .* migrate=True"):
        go(longer, store)
    assert go(longer, store, migrate=True).state == S()
    assert go(longer, store).state == S()
    assert go(longer, store, S()).state == S()
    with pytest.raises(JournalError, match="started with another state; leave the state out"):
        go(longer, store, S(n=1))
    assert [info.status for info in store.runs()] == ["done"]
    with pytest.raises(JournalError, match="not in the store and no state was given"):
        graph.run_sync(run="other", store=store)
    with pytest.raises(GraphError, match="a recorded run needs a name"):
        graph.run_sync(S(), store=store)
    with pytest.raises(GraphError, match="a run needs a state to start with"):
        graph.run_sync()


DAMAGED: list[tuple[Callable[[Row], Row], str]] = [
    (lambda row: row._replace(data=b"{"), "damaged .* row at"),
    (lambda row: row._replace(data=b"[1]"), "damaged .* row at"),
    (lambda row: row._replace(data=b"\xff\x00"), "damaged .* row at"),
    (lambda row: row._replace(data=b'{"patch": {"n": "many"}}'), "row at|damaged row"),
    (lambda row: row._replace(data=b'{"patch": {"__class__": "os.system"}}'), "row at|damaged row"),
    (lambda row: row._replace(data=b'{"patch": {"log": {"x": 1}}}'), "row at|damaged row"),
    (lambda row: row._replace(data=b'{"patch": 3}'), "damaged row at"),
]


@pytest.mark.parametrize("case", range(len(DAMAGED)))
@pytest.mark.parametrize("place", [0, 1])
def test_a_hostile_row_is_data_and_is_refused(case: int, place: int) -> None:
    """Nothing in a store is executed or taken on trust: what is not valid stops the run."""
    damage, message = DAMAGED[case]

    async def work(s: S) -> None:
        s.n = 1

    graph = Graph(S).chain(START, work, END)
    store = MemoryStore()
    go(graph, store, S())
    rows = store.rows("r")
    rows[place] = damage(rows[place])
    with pytest.raises(JournalError, match=message if place else f"{message}|another graph"):
        go(graph, resumed(rows))


def test_a_recorded_choice_that_is_no_target_is_refused() -> None:
    """A row cannot send a run to a step that its route does not name."""

    async def choose(s: S) -> Literal["nothing", "END"]:
        return "END"

    graph = Graph(S).chain(START, choose).route(choose, nothing, END).chain(nothing, END)
    store = MemoryStore()
    go(graph, store, S())
    for choice in (b'"__import__"', b"3", b"[]", b"{}", b"null"):
        row = Row("choose", "patch", b'{"patch": {}, "choice": ' + choice + b"}")
        with pytest.raises(GraphError, match=r"none of its targets|has a damaged row at choose"):
            go(graph, resumed([store.rows("r")[0], row]))


def test_a_recorded_result_of_the_wrong_type_is_refused() -> None:
    """A tool's result is validated when it is read as when it was made."""

    @tool
    async def count() -> int:
        return 1

    async def work(s: S) -> None:
        s.total += await count()
        await ask("?", bool)

    graph = Graph(S).chain(START, work, END)
    store = MemoryStore()
    go(graph, store, S())
    rows = [
        row._replace(data=row.data.replace(b'"result":1', b'"result":"x"'))
        for row in store.rows("r")
    ]
    with pytest.raises(JournalError, match="the recorded result of count at work:0 is not valid"):
        go(graph, resumed(rows))


def test_what_has_no_json_form_cannot_be_recorded() -> None:
    """The error names the node; without a store the same graph runs."""

    class Odd(BaseModel):
        thing: Any = None

    async def work(s: Odd) -> None:
        s.thing = object()

    graph = Graph(Odd).chain(START, work, END)
    graph.run_sync(Odd())
    with pytest.raises(JournalError, match="what node work wrote cannot be recorded as JSON"):
        graph.run_sync(Odd(), run="r", store=MemoryStore())


def test_a_wrong_answer_to_a_route_is_not_recorded() -> None:
    """Once the node is put right, the run goes on."""
    answers: Iterator[Any] = iter(["nowhere", "END"])

    async def choose(s: S) -> Literal["nothing", "END"]:
        return next(answers)

    graph = Graph(S).chain(START, choose).route(choose, nothing, END).chain(nothing, END)
    store = MemoryStore()
    with pytest.raises(GraphError, match="none of its targets"):
        go(graph, store, S())
    assert [row.kind for row in store.rows("r")] == ["start", "error"]
    assert go(graph, store).status == "done"


def test_errors_of_nodes_are_the_same_with_a_store() -> None:
    """A wrong write persists nothing."""

    async def work(s: S) -> None:
        s.n = 5
        s.n = "many"  # type: ignore[assignment]  # pyright: ignore[reportAttributeAccessIssue] - the mistake

    store = MemoryStore()
    with pytest.raises(StateError):
        go(Graph(S).chain(START, work, END), store, S())
    assert [row.kind for row in store.rows("r")] == ["start", "error"]
