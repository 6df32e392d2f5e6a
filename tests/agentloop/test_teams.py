"""Several agents as one: ordinary graphs whose members are sub-graphs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agentloop import END, START, ask, tool
from agentloop.agents import Conversation, Turn, agent
from agentloop.errors import GraphBuildError
from agentloop.graph import Graph
from agentloop.stores import MemoryStore
from agentloop.teams import Plan, Team, plan_and_execute, router, supervisor
from agentloop.testing import ModelCall, ScriptedModel


@tool
async def look(place: str) -> str:
    """Look somewhere."""
    return f"nothing in {place}"


async def agree(s: Conversation) -> None:
    s.answer = "agreed" if await ask("Do you agree?", bool) else "refused"
    s.turns.append(Turn(role="assistant", content=s.answer))


def members() -> dict[str, tuple[Graph[Any], str]]:
    asker = Graph(Conversation, name="asker").chain(START, agree, END)
    return {
        "finder": (agent([look], name="agent"), "looks into places"),
        "asker": (asker, "asks the user whether they agree"),
    }


def question(text: str) -> Team:
    return Team(turns=[Turn(role="user", content=text)])


def test_a_router_lets_one_member_answer() -> None:
    """The model chooses among the members' names alone; the chosen one's answer is the answer."""
    wanted = [{"name": "look", "arguments": {"place": "the attic"}}]
    model = ScriptedModel(['"finder"', wanted, [], "Nothing there."])
    state = router(members()).run_sync(question("Is it in the attic?"), model=model).state
    assert state.answer == "Nothing there."
    assert [turn.role for turn in state.turns] == ["user", "assistant", "tool", "assistant"]
    first = model.calls[0]
    assert "finder: looks into places\nasker: asks the user" in first.messages[0]["content"]
    assert [first.constraint.accepts(f'"{name}"') for name in ("finder", "asker", "cook")] == [
        True,
        True,
        False,
    ]


def test_a_supervisor_lets_members_act_in_turn_and_they_may_ask() -> None:
    """A member's question stops the one run, which goes on with the answer; nothing is repeated."""
    graph, store = supervisor(members()), MemoryStore()
    model = ScriptedModel(['"finder"', [], "Not found.", '"asker"', '"answer"', "They agree."])

    async def main() -> None:
        waiting = await graph.run(question("Buy a new one?"), run="r", store=store, model=model)
        assert waiting.questions == {"asker/asker/agree:0": "Do you agree?"}
        answers = {"asker/asker/agree:0": True}
        result = await graph.run(run="r", store=store, model=model, answers=answers)
        assert result.state.answer == "They agree."
        said = [turn.content for turn in result.state.turns]
        assert said == ["Buy a new one?", "Not found.", "agreed", "They agree."]
        assert len(model.calls) == 6

    asyncio.run(main())


def test_a_supervisor_has_to_answer_in_the_end() -> None:
    """One that never stops choosing is stopped by its limit."""

    def reply(call: ModelCall) -> Any:
        if call.constraint is None:
            return "Enough."
        return '"finder"' if call.constraint.accepts('"finder"') else []

    state = supervisor(members(), max_rounds=3).run_sync(
        question("Look!"), model=ScriptedModel(reply)
    )
    assert state.state.answer == "Enough."
    assert len(state.state.turns) == 4


def test_plan_and_execute_plans_works_and_plans_anew() -> None:
    """A step at a time, with what is left planned again, until nothing is left."""
    script: list[Any] = [
        ["look in the attic", "look in the cellar"],
        [{"name": "look", "arguments": {"place": "attic"}}],
        [],
        "Not in the attic.",
        [],
        "It is nowhere.",
    ]
    model = ScriptedModel(script)
    graph = plan_and_execute(agent([look]), "Be thorough.")
    state = graph.run_sync(Plan(goal="Find it."), model=model).state
    assert state.answer == "It is nowhere."
    assert state.turns[0].content == "Find it.\nNow do only this: look in the attic"
    assert "Be thorough.\nPlan the steps" in model.calls[0].messages[0]["content"]
    assert "Planned: - look in the cellar" in model.calls[4].prompt


def test_plan_and_execute_is_bounded() -> None:
    """A plan that never ends is cut off after its steps."""

    def reply(call: ModelCall) -> Any:
        if call.constraint is None:
            return "Done."
        return [] if "Tools:" in call.messages[0]["content"] else ["again"]

    graph = plan_and_execute(agent([look]), max_steps=2)
    state = graph.run_sync(Plan(goal="Find it."), model=ScriptedModel(reply)).state
    assert state.answer == "Done."
    assert sum("Now do only this" in turn.content for turn in state.turns) == 2


def test_a_team_of_one_is_refused() -> None:
    """There is nothing to choose."""
    (finder, *_) = members().items()
    with pytest.raises(GraphBuildError, match="two members or more"):
        router(dict([finder]))
    with pytest.raises(GraphBuildError, match="none called 'answer'"):
        supervisor({**members(), "answer": finder[1]})


def test_teams_can_be_drawn_and_changed() -> None:
    """They are ordinary graphs: named steps, and more can be added."""
    drawn = supervisor(members()).mermaid()
    assert all(name in drawn for name in ("finder", "asker", "choose", "answer"))
