"""Calls that a model chooses: bounded repair of a wrong answer, and what limits a tool has."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from agentloop import END, START, Graph, Log, call_tools, tool, use_model
from agentloop.errors import GraphBuildError, GraphError, LimitError, ToolError
from agentloop.model_calls import RecordedGeneration
from agentloop.spending import Limits
from agentloop.stores import MemoryStore

ran: list[int] = []


@tool(effect="once")
async def pay(amount: Annotated[int, Field(le=100)]) -> str:
    """Pay an amount."""
    ran.append(amount)
    return f"paid {amount}"


class Loose:
    """A model that answers what it likes, as a remote one may."""

    def __init__(self, *answers: str, tokens: int = 0) -> None:
        self.answers = list(answers)
        self.asked: list[list[Any]] = []
        self.tokens = tokens

    async def generate(self, messages: Any, **_: Any) -> Any:
        self.asked.append(list(messages))
        text = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return RecordedGeneration(text, text, self.tokens, 1)


def choose(model: Any, **options: Any) -> Any:
    async def main() -> Any:
        with use_model(model):
            return await call_tools([pay], [{"role": "user", "content": "Pay!"}], **options)

    return asyncio.run(main())


def answer(amount: Any, name: str = "pay") -> str:
    return json.dumps([{"name": name, "arguments": {"amount": amount}}])


WRONG = [
    (answer(1000), "at /amount do not fit: 1000 is greater than the maximum of 100"),
    (answer("ten"), "at /amount do not fit: 'ten' is not of type 'integer'"),
    (answer(1, name="rob"), "there is no tool 'rob'; there are pay"),
    ('[{"name": ["pay"], "arguments": {}}]', "expected an object of name and arguments alone"),
    ('[{"name": "pay", "arguments": {"amount": 1}, "x": 1}]', "name and arguments alone"),
    ("Sure!", "expected a JSON list of calls"),
    ('{"a": 1}', "expected a JSON list of calls"),
    ("[" * 100_000, "expected a JSON list of calls"),
    ('[{"name": "pay", "arguments": {"amount": NaN}}]', "NaN is not JSON"),
    ("[" + ",".join([answer(1)[1:-1]] * 3) + "]", "answered with 3 calls, expected from 0 to 1"),
]


@pytest.mark.parametrize(("wrong", "message"), WRONG)
def test_a_wrong_answer_is_corrected_without_anything_having_run(wrong: str, message: str) -> None:
    """The model is told what is wrong, precisely and shortly, and asked again."""
    ran.clear()
    model = Loose(wrong, answer(7))
    (call,) = choose(model, execute=True)
    assert (call.arguments, call.result, ran) == ({"amount": 7}, "paid 7", [7])
    *_, echoed, told = model.asked[1]
    assert message in told["content"]
    assert "Nothing was called." in told["content"]
    assert len(told["content"]) < 1200
    assert echoed == {"role": "assistant", "content": wrong[:2000]}


@pytest.mark.parametrize("repairs", [0, 1, 3])
def test_repairs_are_bounded(repairs: int) -> None:
    """After the last one the error is raised; no call ran at any time."""
    ran.clear()
    model = Loose(answer(1000))
    with pytest.raises(ToolError) as caught:
        choose(model, repairs=repairs, execute=True)
    assert (caught.value.pointer, caught.value.expected) == ("/amount", "maximum 100")
    assert (len(model.asked), ran) == (repairs + 1, [])
    with pytest.raises(GraphError, match="repairs is -1; use 0 or more"):
        choose(model, repairs=-1)


@given(st.recursive(st.none() | st.integers() | st.text(max_size=5), st.lists, max_leaves=4))
def test_whatever_a_model_answers_a_call_runs_or_is_refused(value: Any) -> None:
    """One wrong call of a list stops all of them."""
    ran.clear()
    calls = [*json.loads(answer(3)), *json.loads(answer(value))]
    is_valid = isinstance(value, int) and not isinstance(value, bool) and value <= 100
    try:
        choose(Loose(json.dumps(calls)), max=2, repairs=0, execute=True)
    except ToolError:
        assert (is_valid, ran) == (False, [])
    else:
        assert (is_valid, ran) == (True, [3, value])


class S(BaseModel):
    log: Log[str] = []


def test_a_run_may_call_a_tool_only_so_often() -> None:
    """The call over the limit is refused, also after a resume; another run counts anew."""
    count = 0

    @tool(max_calls=2, effect="once")
    async def scarce() -> int:
        nonlocal count
        count += 1
        return count

    crash = [True]

    async def work(s: S) -> None:
        for _ in range(2):
            s.log.append(str(await scarce()))
        if crash:
            crash.pop()
            raise RuntimeError("crash")
        try:
            await scarce()
        except ToolError as error:
            s.log.append(str(error))

    graph, store = Graph(S).chain(START, work, END), MemoryStore()

    async def main() -> None:
        with pytest.raises(RuntimeError, match="crash"):
            await graph.run(S(), run="r", store=store)
        result = await graph.run(run="r", store=store)
        assert result.state.log[:2] == ["1", "2"]
        assert "made the 2 calls of it that it may" in result.state.log[2]
        assert count == 2
        assert (await graph.run(S())).state.log[:2] == ["3", "4"]

    asyncio.run(main())
    mistakes: list[Any] = [{"max_calls": 0}, {"timeout_s": 0.0}]
    for wrong in mistakes:
        with pytest.raises(GraphBuildError, match="use"):
            tool(**wrong)(lambda: None)


def test_a_slow_tool_fails_in_time() -> None:
    """The error names the tool and its limit."""

    @tool(timeout_s=0.01)
    async def slow() -> None:
        await asyncio.sleep(60)

    with pytest.raises(TimeoutError, match=r"'slow' took longer than its timeout of 0\.01 s"):
        asyncio.run(slow.call({}))


@pytest.mark.parametrize(
    ("options", "num", "message"),
    [
        ({"max_tokens": 25}, 3, "limit of 25 tokens before"),
        ({"max_cost": 2.5}, 3, "limit of 2.5 cost before"),
        ({"max_calls": 2}, 2, "limit of 2 calls before"),
    ],
)
def test_a_run_is_stopped_by_what_it_has_spent(options: Any, num: int, message: str) -> None:
    """Tokens and cost are counted when a call is over; a resumed run goes on counting."""

    @tool(cost=1.0)
    async def costly() -> str:
        return "x"

    crashes = [True]

    async def work(s: S) -> None:
        for i in range(9):
            if "max_tokens" in options:
                await call_tools([costly], [{"role": "user", "content": "?"}])
            else:
                await costly()
            done.append(i)
            if i == 1 and crashes:
                crashes.pop()
                raise RuntimeError("crash")

    graph, store = Graph(S).chain(START, work, END), MemoryStore()
    done: list[int] = []

    async def main() -> None:
        model = Loose("[]", tokens=10)
        with pytest.raises(RuntimeError, match="crash"):
            await graph.run(S(), run="r", store=store, model=model, **options)
        done.clear()
        with pytest.raises(LimitError, match=message):
            await graph.run(run="r", store=store, model=model, **options)
        assert len(done) == num

    asyncio.run(main())


@pytest.mark.parametrize("name", ["max_calls", "max_tokens", "max_cost"])
def test_a_limit_is_positive(name: str) -> None:
    """Nothing, or more than nothing."""
    options: Any = {name: 0}
    with pytest.raises(GraphError, match=f"{name} is 0; use"):
        Limits(**options)
