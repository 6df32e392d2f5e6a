"""`llm` inside nodes: typed answers, prompts, events, and calls that share batches."""

import asyncio
from collections.abc import Sequence
from typing import Any, Literal, assert_type

import pytest
from pydantic import BaseModel, Field, field_validator

from agentloop import END, START, Graph, Log, ToolSet, call_tools, each, llm, tool, use_model
from agentloop.errors import GraphError, ModelError, ToolError
from agentloop.model.constraint import Choice
from agentloop.model.prompts import Message
from agentloop.model.quiet import QuietLoop
from agentloop.testing import ModelCall, ScriptedGeneration, ScriptedModel


class Plan(BaseModel):
    """Split the question."""

    queries: tuple[str, ...]


class S(BaseModel):
    question: str = "why?"
    queries: tuple[str, ...] = ()
    docs: Log[str] = []
    answer: str = ""


def ask(model: ScriptedModel, *args: Any, **options: Any) -> Any:
    """One `llm` call outside any graph."""

    async def main() -> Any:
        with use_model(model):
            return await llm(*args, **options)

    return asyncio.run(main())


def test_an_answer_is_an_instance_of_the_class_that_was_asked_for() -> None:
    """The constraint is the class's schema, and a checker knows the result's type."""
    model = ScriptedModel([{"queries": ["a", "b"]}])

    async def plan(s: S) -> None:
        plan = await llm(Plan, s.question)
        assert_type(plan, Plan)
        s.queries = plan.queries

    result = Graph(S).chain(START, plan, END).run_sync(S(), model=model)
    assert result.state.queries == ("a", "b")
    assert model.calls[0].constraint.accepts('{"queries":[]}')
    assert not model.calls[0].constraint.accepts("{}")
    assert model.calls[0].messages == [
        {
            "role": "system",
            "content": "Split the question.\nAnswer as JSON: {queries: string[]}",
        },
        {"role": "user", "content": "why?"},
    ]


ANSWERS: list[tuple[Any, Any, Any]] = [
    (str, "free text", "free text"),
    (None, "free text", "free text"),
    (bool, "true", True),
    (Literal["yes", "no"], '"yes"', "yes"),
    (tuple[int, ...], [1, 2], (1, 2)),
    (int | None, "null", None),
    (list[Plan], [{"queries": []}], [Plan(queries=())]),
    ({"type": "integer", "minimum": 3}, "4", 4),
    (Choice(["red", "blue"]), "red", "red"),
]


@pytest.mark.parametrize(("schema", "answer", "value"), ANSWERS)
def test_any_type_schema_or_constraint_can_be_asked_for(
    schema: Any, answer: Any, value: Any
) -> None:
    """The value is of the type asked for; free text has no constraint."""
    model = ScriptedModel([answer])
    assert ask(model, schema, "?") == value
    assert (model.calls[0].constraint is None) == (schema in (str, None))


def test_parts_become_messages() -> None:
    """Texts are paragraphs, lists numbered passages, models JSON; messages stay as they are."""
    model = ScriptedModel(["ok"])
    turn: Message = {"role": "assistant", "content": "Hello."}
    ask(model, str, "Read.", ["one", "two"], Plan(queries=("q",)), {"k": 1}, turn, "Then?")
    assert model.calls[0].messages == [
        {"role": "user", "content": 'Read.\n\n[1] one\n[2] two\n\n{"queries":["q"]}\n\n{"k": 1}'},
        turn,
        {"role": "user", "content": "Then?"},
    ]


def test_settings_reach_the_model() -> None:
    """Instructions come first; effort, length, temperature and seed are passed on."""
    model = ScriptedModel(["ok"])
    ask(model, str, "?", system="Be brief.", effort="low", max_tokens=8, temperature=0.5, seed=3)
    call = model.calls[0]
    assert call.messages[0] == {"role": "system", "content": "Be brief."}
    assert call.settings == {"effort": "low", "max_tokens": 8, "temperature": 0.5, "seed": 3}


def test_without_a_model_the_error_says_how_to_give_one() -> None:
    """The same node works once the run or the context names a model."""

    async def answer(s: S) -> None:
        s.answer = await llm(str, "?")

    graph = Graph(S).chain(START, answer, END)
    with pytest.raises(GraphError, match=r"g\.run\(\.\.\., model=lm\)"):
        graph.run_sync(S())
    with use_model(ScriptedModel(["context"])):
        assert graph.run_sync(S()).state.answer == "context"
        assert graph.run_sync(S(), model=ScriptedModel(["run"])).state.answer == "run"
    with pytest.raises(GraphError, match="no model to go to"):
        graph.run_sync(S())


def test_the_innermost_model_answers() -> None:
    """A block inside a node goes before the run's model, which goes before a block around it."""

    async def answer(s: S) -> None:
        with use_model(ScriptedModel(["node"])):
            inner = await llm(str, "?")
        s.answer = f"{inner} {await llm(str, '?')}"

    async def nest(s: S) -> None:
        with use_model(ScriptedModel(["block"])):
            named = await graph.run(S(), model=ScriptedModel(["inner run"]))
            unnamed = await graph.run(S())
        s.answer = f"{named.state.answer}, {unnamed.state.answer}"

    graph = Graph(S).chain(START, answer, END)
    with use_model(ScriptedModel(["around"])):
        result = graph.run_sync(S(), model=ScriptedModel(["run"]))
        assert result.state.answer == "node run"
        assert graph.run_sync(S()).state.answer == "node around"
    nested = Graph(S).chain(START, nest, END).run_sync(S(), model=ScriptedModel(["outer run"]))
    assert nested.state.answer == "node inner run, node block"


def test_a_rule_that_only_python_knows_is_reported() -> None:
    """A validator the schema does not show can refuse an answer; the error says what to do."""

    class Even(BaseModel):
        n: int = Field(ge=0)

        @field_validator("n")
        @classmethod
        def even(cls, value: int) -> int:
            if value % 2:
                raise ValueError("odd")
            return value

    model = ScriptedModel(lambda call: "unused")
    model.generate = _always(ScriptedGeneration('{"n":3}', {"n": 3}))  # type: ignore[method-assign]
    with pytest.raises(GraphError, match=r"its validator refuses it: .*odd; say the rule in the"):
        ask(model, Even, "?")


def _always(generation: ScriptedGeneration) -> Any:
    async def generate(*args: Any, **options: Any) -> ScriptedGeneration:
        return generation

    return generate


def test_a_call_is_in_the_runs_events() -> None:
    """What was asked and what came back, at the call's place in its node."""

    async def answer(s: S) -> None:
        s.answer = await llm(str, s.question)

    result = Graph(S).chain(START, answer, END).run_sync(S(), model=ScriptedModel(["because"]))
    start, end = (event for event in result.events if event.kind.startswith("call."))
    assert (start.path, start.kind, start.data["name"]) == ("answer:0", "call.start", "str")
    assert start.data["request"]["messages"] == [{"role": "user", "content": "why?"}]
    assert (end.path, end.kind, end.data.text) == ("answer:0", "call.end", "because")


def test_a_script_answers_only_what_a_model_could() -> None:
    """A script that is over, raises, or breaks the constraint fails the call."""
    with pytest.raises(ModelError, match=r"the script has 1 answers, but call 2 came: 'second'"):
        ask_twice(ScriptedModel(["one"]))
    with pytest.raises(OSError, match="down"):
        ask(ScriptedModel([OSError("down")]), str, "?")
    with pytest.raises(ModelError, match="which JsonSchema does not accept"):
        ask(ScriptedModel(['{"queries": 3}']), Plan, "?")


def ask_twice(model: ScriptedModel) -> None:
    ask(model, str, "first")
    ask(model, str, "second")


def test_a_script_may_be_a_function_of_the_call() -> None:
    """Answers can depend on the prompt, in whatever order the calls come."""

    def reply(call: ModelCall) -> str:
        return call.prompt.upper()

    assert ask(ScriptedModel(reply), str, "loud") == "LOUD"


class BatchingModel:
    """Answers together what was asked before the event loop went quiet, as the engine does."""

    def __init__(self) -> None:
        self.batches: list[int] = []
        self._quiet: QuietLoop[tuple[str, asyncio.Future[ScriptedGeneration]]] = QuietLoop(
            self._answer
        )

    async def generate(
        self,
        messages: Sequence[Message],
        *,
        constraint: Any = None,
        effort: str = "medium",
        max_tokens: int | None = None,
        temperature: float = 0.0,
        seed: int | None = None,
    ) -> ScriptedGeneration:
        """Wait for the batch this call ends up in."""
        future: asyncio.Future[ScriptedGeneration] = asyncio.get_running_loop().create_future()
        self._quiet.add((messages[-1]["content"], future))
        return await future

    def _answer(self, batch: Sequence[tuple[str, asyncio.Future[ScriptedGeneration]]]) -> None:
        self.batches.append(len(batch))
        for prompt, future in batch:
            future.set_result(ScriptedGeneration(f"re: {prompt}", None))


def test_calls_of_all_branches_and_runs_share_batches() -> None:
    """64 runs of one, three and one calls make exactly three batches."""

    async def plan(s: S) -> None:
        s.queries = (await llm(str, s.question),) * 3

    async def retrieve(s: S, query: str) -> None:
        s.docs += [await llm(str, query)]

    async def answer(s: S) -> None:
        s.answer = await llm(str, s.docs)

    graph = Graph(S).chain(START, plan, each(retrieve, over="queries"), answer, END)
    model = BatchingModel()
    states = [S(question=f"q{i}") for i in range(64)]
    results = asyncio.run(graph.map(states, concurrency=64, model=model))
    assert model.batches == [64, 192, 64]
    assert [r.state.docs for r in results] == [[f"re: re: q{i}"] * 3 for i in range(64)]


@tool
async def weather(city: str, days: int = 1) -> str:
    """The weather of a city."""
    return f"{city}: {days} days of sun"


def call(model: ScriptedModel, **options: Any) -> Any:
    async def main() -> Any:
        with use_model(model):
            question: Message = {"role": "user", "content": "Rome?"}
            return await call_tools([weather], [question], **options)

    return asyncio.run(main())


def test_a_model_calls_tools_with_checked_arguments() -> None:
    """The prompt shows the tools, the constraint admits their calls only; calls run on demand."""
    answer = [{"name": "weather", "arguments": {"city": "Rome", "days": 2}}]
    model = ScriptedModel([answer, answer, []])
    (found,) = call(model)
    assert (found.name, found.arguments) == ("weather", {"city": "Rome", "days": 2})
    assert (found.is_executed, found.result) == (False, None)
    (found,) = call(model, execute=True)
    assert (found.is_executed, found.result) == (True, "Rome: 2 days of sun")
    assert call(model) == []
    assert "weather(city: string, days?: integer = 1)  # The weather" in str(model.calls[0])
    constraint = model.calls[0].constraint
    assert not constraint.accepts('[{"name":"weather","arguments":{"city":3}}]')


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "expected a JSON list"),
        ("{}", "expected a JSON list of calls"),
        ('["weather"]', "expected an object of name and arguments alone"),
        ('[{"name": "wether", "arguments": {}}]', "there is no tool 'wether'; there are weather"),
        ('[{"name": "weather", "arguments": {"city": 3}}]', "arguments at /city do not fit"),
    ],
)
def test_calls_of_a_model_without_the_constraint_are_checked_all_the_same(
    text: str, message: str
) -> None:
    """A model that ignores the constraint gets an error, and nothing is executed."""
    model = ScriptedModel([])
    model.generate = _always(ScriptedGeneration(text, None))  # type: ignore[method-assign]
    with pytest.raises(ToolError, match=message):
        call(model, execute=True)


def test_call_tools_takes_a_tool_set() -> None:
    """A set and a list of tools are the same."""

    async def main() -> Any:
        with use_model(ScriptedModel([[]])):
            return await call_tools(ToolSet([weather]), [{"role": "user", "content": "Hi"}])

    assert asyncio.run(main()) == []
