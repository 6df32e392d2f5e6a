"""Tools: schemas from signatures, arguments checked before anything runs, results after."""

import asyncio
import json
from contextlib import nullcontext
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal, assert_type

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from pydantic import BaseModel, Field

from agentloop import END, START, Graph, Log, ToolSet, tool
from agentloop.errors import GraphBuildError, ToolError
from agentloop.model.prompts import tool_signature
from agentloop.signatures import read_docstring
from agentloop.tools import Tool

ran: list[Any] = []


class Place(BaseModel):
    """Where to go."""

    title: str
    guests: int = Field(default=2, ge=1)


@tool
async def book(
    place: Place, kind: Literal["flat", "house"] = "flat", *, schema: date | None = None
) -> list[str]:
    """Book a place.

    It is paid for at once.

    Args:
        place: Where to go,
            and for whom.
        kind (str): What kind.
        schema: A name that pydantic uses itself.
    """
    ran.append((place, kind, schema))
    return [place.title, kind, str(schema)]


@tool(effect="once", name="plus", description="Adds.")
def add(a: int, b: Annotated[int, Field(le=10)] = 1, /) -> int:
    return a + b


def test_a_tool_is_described_by_its_signature_and_docstring() -> None:
    """Name, first paragraph, and a self-contained closed schema with the docstring's words."""
    assert book.spec == {
        "name": "book",
        "description": "Book a place.",
        "parameters": {
            "type": "object",
            "properties": {
                "place": {
                    "type": "object",
                    "properties": {
                        "title": {"type": "string"},
                        "guests": {"type": "integer", "minimum": 1, "default": 2},
                    },
                    "required": ["title"],
                    "description": "Where to go, and for whom.",
                },
                "kind": {
                    "type": "string",
                    "enum": ["flat", "house"],
                    "default": "flat",
                    "description": "What kind.",
                },
                "schema": {
                    "anyOf": [{"type": "string", "format": "date"}, {"type": "null"}],
                    "default": None,
                    "description": "A name that pydantic uses itself.",
                },
            },
            "required": ["place"],
            "additionalProperties": False,
        },
    }
    assert tool_signature(book.spec).startswith("book(place: {title: string, guests?: integer")
    assert (add.name, add.description, add.effect, book.effect) == ("plus", "Adds.", "once", "none")


def test_a_tool_keeps_the_type_of_its_function() -> None:
    """Calling it as Python is checked like the function; its result has the function's type."""

    async def main() -> None:
        total = await add(1, 2)
        assert_type(total, int)
        names = await book(Place(title="Rome"), kind="house")
        assert_type(names, list[str])
        assert (total, names) == (3, ["Rome", "house", "None"])

    asyncio.run(main())


def test_json_arguments_become_the_annotated_types() -> None:
    """Models, dates and defaults arrive as Python values."""
    ran.clear()
    asyncio.run(book.call({"place": {"title": "Rome"}, "schema": "2026-01-02"}))
    assert ran == [(Place(title="Rome", guests=2), "flat", date(2026, 1, 2))]
    assert asyncio.run(add.call({"a": 2})) == 3


@pytest.mark.parametrize(
    ("arguments", "pointer", "expected", "got"),
    [
        ({"place": 3}, "/place", "type 'object'", "3"),
        ({}, "", "required ['place']", "{}"),
        ({"place": {"title": "x", "guests": 0}}, "/place/guests", "minimum 1", "0"),
        ({"place": {"title": "x"}, "kind": "tent"}, "/kind", "enum ['flat', 'house']", "'tent'"),
        ([], "", "type 'object'", "[]"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_before_the_function_runs(
    arguments: Any, pointer: str, expected: str, got: str
) -> None:
    """The error says where, what was expected and what came; the function never ran."""
    ran.clear()
    with pytest.raises(ToolError) as caught:
        asyncio.run(book.call(arguments))
    error = caught.value
    assert (error.tool, error.pointer, error.expected, error.got) == (
        "book",
        pointer,
        expected,
        got,
    )
    assert str(error).startswith(f"tool 'book' was not called: its arguments at {pointer or 'the'}")
    assert ran == []


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    )
    | st.fixed_dictionaries({"a": st.integers() | st.text()}, optional={"b": st.integers()})
)
def test_a_call_runs_exactly_when_jsonschema_accepts_its_arguments(arguments: Any) -> None:
    """Whatever comes, it is either executed or refused, as an independent validator decides."""
    calls: list[int] = []

    @tool
    async def probe(a: int, b: Annotated[int, Field(le=3)] = 0) -> int:
        calls.append(a)
        return a

    validator: Any = Draft202012Validator(dict(probe.parameters))
    is_valid: bool = validator.is_valid(arguments)
    with nullcontext() if is_valid else pytest.raises(ToolError):
        asyncio.run(probe.call(arguments))
    assert len(calls) == is_valid


def test_an_error_of_a_huge_argument_stays_short() -> None:
    """What came is shortened, so that the message can be shown to a model again."""
    with pytest.raises(ToolError) as caught:
        asyncio.run(book.call({"place": "x" * 100_000}))
    assert len(str(caught.value)) < 1000


def test_a_python_call_is_checked_against_the_annotations() -> None:
    """A wrong argument is a ToolError that names it."""
    with pytest.raises(ToolError, match=r"'plus': its arguments do not fit at /b: .* 10, got 11"):
        asyncio.run(add(1, 11))


def test_a_result_of_the_wrong_type_is_reported() -> None:
    """A tool's result is checked as well, since a model will read it."""

    @tool
    async def wrong() -> int:
        return "many"  # type: ignore[return-value]  # pyright: ignore[reportReturnType] - the mistake

    with pytest.raises(ToolError, match="its result does not fit its return annotation"):
        asyncio.run(wrong.call({}))


def test_what_a_function_raises_comes_through() -> None:
    """The tool's own failure is not dressed up as a wrong call."""

    @tool
    def fails() -> None:
        raise OSError("no disk")

    with pytest.raises(OSError, match="no disk"):
        asyncio.run(fails.call({}))


def test_a_function_without_a_schema_is_refused() -> None:
    """The error names the parameter and what to write."""

    def bare(x) -> None: ...  # type: ignore[no-untyped-def]  # noqa: ANN001  # pyright: ignore - the mistake
    def variadic(*args: int) -> None: ...
    def unknown(x: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821  # pyright: ignore - the mistake

    cases: list[tuple[Any, str]] = [
        (bare, "parameter x of tool bare has no annotation"),
        (variadic, r"tool variadic takes \*args: int, which has no schema"),
        (unknown, "tool unknown has an annotation that cannot be evaluated"),
    ]
    for function, message in cases:
        with pytest.raises(GraphBuildError, match=message):
            tool(function)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType, reportCallIssue, reportArgumentType] - the mistake
    with pytest.raises(GraphBuildError, match="limit=0; use 1 or more"):
        tool(limit=0)(lambda: None)


def test_a_tools_limit_holds_over_all_runs() -> None:
    """However many runs and branches call it, no more calls than the limit are going on."""
    now = most = 0

    @tool(limit=2)
    async def scarce(i: int) -> int:
        nonlocal now, most
        now += 1
        most = max(most, now)
        for _ in range(3):
            await asyncio.sleep(0)
        now -= 1
        return i

    class S(BaseModel):
        log: Log[int] = []

    async def work(s: S) -> None:
        s.log += await asyncio.gather(*(scarce(i) for i in range(4)))

    graph = Graph(S).chain(START, work, END)

    async def main() -> list[list[int]]:
        return [result.state.log for result in await graph.map([S()] * 3)]

    assert asyncio.run(main()) == [[0, 1, 2, 3]] * 3
    assert most == 2


def test_calls_inside_a_node_are_numbered_as_they_are_made() -> None:
    """Calls gathered at once have stable places in the run, whichever ends first."""

    @tool
    async def wait(turns: int) -> int:
        for _ in range(turns):
            await asyncio.sleep(0)
        return turns

    class S(BaseModel):
        log: Log[int] = []

    async def work(s: S) -> None:
        s.log += await asyncio.gather(*(wait(turns) for turns in (9, 1, 5)))

    result = Graph(S).chain(START, work, END).run_sync(S())
    starts = {e.path: e.data["request"] for e in result.events if e.kind == "call.start"}
    ends = [(e.path, e.data) for e in result.events if e.kind == "call.end"]
    assert starts == {"work:0": {"turns": 9}, "work:1": {"turns": 1}, "work:2": {"turns": 5}}
    assert ends == [("work:1", 1), ("work:2", 5), ("work:0", 9)]
    assert result.state.log == [9, 1, 5]


def test_tools_load_from_a_file_in_either_form(tmp_path: Path) -> None:
    """Plain and OpenAI-style entries give the same tools, which have no function."""
    plain = {"name": "f", "description": "Does.", "parameters": {"type": "object"}}
    path = tmp_path / "tools.json"
    wrapped = {"type": "function", "function": {**plain, "name": "g"}}
    for data in ([plain, wrapped], {"tools": [plain, wrapped]}):
        path.write_text(json.dumps(data))
        tools = ToolSet.load(path)
        assert tools.specs == [plain, {**plain, "name": "g"}]
        assert [t.name for t in tools] == ["f", "g"]
        assert (len(tools), tools[0].name, tools.named("g").name) == (2, "f", "g")
    with pytest.raises(ToolError, match="'f' was loaded from a specification"):
        asyncio.run(tools.named("f").call({}))
    with pytest.raises(ToolError, match="there is no tool 'h'; there are f, g"):
        tools.named("h")


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("{", ToolError, r"tools.json:1:2 is not JSON"),
        ("3", ToolError, "holds 3, expected a JSON list of tools"),
        ('[{"nom": "f"}]', ToolError, r"tools.json#/0 is \{'nom': 'f'\}, which is not a tool"),
        ('[{"name": "f", "parameters": {"type": "array"}}]', GraphBuildError, "schema of an obj"),
        (
            '[{"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": 3}}}}]',
            GraphBuildError,
            "tool 'f' has an invalid JSON schema at /properties/a/type",
        ),
        ('[{"name": "f"}, {"name": "f"}]', GraphBuildError, "two tools are called 'f'"),
    ],
)
def test_a_bad_file_of_tools_is_refused(
    tmp_path: Path, text: str, error: type[Exception], message: str
) -> None:
    """The error names the file, the entry and what is wrong with it."""
    path = tmp_path / "tools.json"
    path.write_text(text)
    with pytest.raises(error, match=message):
        ToolSet.load(path)
    with pytest.raises(ToolError, match="cannot be read"):
        ToolSet.load(tmp_path / "missing.json")


def test_a_schema_fetches_nothing() -> None:
    """A reference to another document is an error, not a request."""
    schema = {"type": "object", "properties": {"a": {"$ref": "http://localhost/a.json"}}}
    remote: Tool[..., Any] = Tool("f", "", schema)
    with pytest.raises(Exception, match="Unresolvable"):
        remote.check({"a": 1})


def test_docstrings_give_a_summary_and_a_line_per_parameter() -> None:
    """Google sections, types in brackets, continued lines and a missing section are understood."""
    text = "Do it\nnow.\n\nMore.\n\nArgs:\n    a (int): First\n        thing.\n    b: Second.\n\n"
    text += "Returns:\n    c: no."
    assert read_docstring(text) == ("Do it now.", {"a": "First thing.", "b": "Second."})
    assert read_docstring("") == ("", {})
