"""Several agents as one: a router, a supervisor, and plan-and-execute.

Each is an ordinary graph that its user may read, draw, change and rebuild: its members are
sub-graphs, so that everything they do is journaled in the one run and they may ask at any depth.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from pydantic import BaseModel

from agentloop.agents import Turn, messages_of
from agentloop.errors import GraphBuildError
from agentloop.graph import Graph
from agentloop.model_calls import llm
from agentloop.prompt_parts import Part
from agentloop.reducers import Log
from agentloop.steps import END, START, checked_name

Members = Mapping[str, tuple[Graph[Any], str]]
"""Graphs by name, with what each is for. They share `turns` and `answer` with the team."""


class Team(BaseModel):
    """The state of a router or a supervisor: what was said, and the last answer."""

    turns: Log[Turn] = []
    answer: str = ""


def router(members: Members, instructions: str = "Choose who can help best.") -> Graph[Team]:
    """A graph in which the model chooses one member for the conversation.

    Args:
        members: Who there is, by name: a graph and what it is for.
        instructions: What the model is told ahead of the choice.
    """
    graphs = _named(members)
    choose = _chooser("choose", members, {}, instructions)
    graph = Graph(Team, name="router").chain(START, choose)
    for member in graphs:
        graph.chain(member, END)
    return graph.route(choose, *graphs)


def supervisor(
    members: Members,
    instructions: str = "Choose who acts next, or done when the user has an answer.",
    *,
    max_rounds: int = 8,
) -> Graph[Team]:
    """A graph in which the model lets members act in turn until the work is done.

    Args:
        members: Who there is, by name: a graph and what it is for.
        instructions: What the model is told ahead of each choice.
        max_rounds: How often it may choose; after the last it has to answer.
    """
    graphs = _named(members)

    async def answer(s: Team) -> None:
        told = "Answer the user from what was found."
        s.answer = await llm(str, *messages_of(s.turns, told))
        s.turns.append(Turn(role="assistant", content=s.answer))

    choose = _chooser("choose", members, {"answer": "nothing more has to be done"}, instructions)
    graph = Graph(Team, name="supervisor").chain(START, choose)
    for member in graphs:
        graph.chain(member, choose)
    graph.route(choose, *graphs, answer, limit=max_rounds, then=answer)
    return graph.chain(answer, END)


class Plan(BaseModel):
    """The state of plan-and-execute: the user's goal, what is left to do, and what was done."""

    goal: str
    left: tuple[str, ...] = ()
    turns: Log[Turn] = []
    answer: str = ""


def plan_and_execute(
    worker: Graph[Any], instructions: str | None = None, *, max_steps: int = 8
) -> Graph[Plan]:
    """A graph that plans steps for a goal, lets a worker do them, and plans anew after each.

    The first plan is made before anything is read, from the goal alone.

    Args:
        worker: Does a step: a graph with `turns` and `answer`, such as `agent(tools)`.
        instructions: What the model is told ahead of planning.
        max_steps: Steps that it may do; after the last it has to answer.
    """

    async def plan(s: Plan) -> None:
        told = "\n".join(text for text in (instructions, "Plan the steps to the goal.") if text)
        s.left = await llm(tuple[str, ...], s.goal, system=told)

    async def go_on(s: Plan) -> Literal["assign", "answer"]:
        return "assign" if s.left else "answer"

    async def assign(s: Plan) -> None:
        s.turns.append(Turn(role="user", content=f"{s.goal}\nNow do only this: {s.left[0]}"))

    async def revise(s: Plan) -> None:
        told = "Which steps are left? None if the goal is reached."
        planned = "\n".join(f"- {step}" for step in s.left[1:]) or "none"
        parts: list[Part] = [*messages_of(s.turns), f"Goal: {s.goal}\nPlanned: {planned}"]
        s.left = await llm(tuple[str, ...], *parts, system=told)

    async def answer(s: Plan) -> None:
        s.answer = await llm(str, *messages_of(s.turns), f"Goal: {s.goal}\nAnswer it.")

    work = renamed(worker, "work")
    graph = Graph(Plan, name="plan_and_execute").chain(START, plan, go_on)
    graph.route(go_on, assign, answer, limit=max_steps + 1, then=answer)
    return graph.chain(assign, work, revise, go_on).chain(answer, END)


def renamed(graph: Graph[Any], name: str) -> Graph[Any]:
    """A graph as a step of another under a name of the other's choosing."""
    outer: Graph[Any] = Graph(graph.state, name=checked_name(name))
    return outer.chain(START, graph, END)


def _named(members: Members) -> list[Graph[Any]]:
    if len(members) < 2 or "answer" in members:
        raise GraphBuildError(
            f"a team needs two members or more, none called 'answer', got {', '.join(members)}"
        )
    return [renamed(graph, name) for name, (graph, _) in members.items()]


def _chooser(
    name: str, members: Members, others: Mapping[str, str], instructions: str
) -> Callable[[Team], Any]:
    """A node in which the model chooses a name; its annotation is what a route needs."""
    about = {name: what for name, (_, what) in members.items()} | dict(others)
    choices: Any = Literal[tuple(about)]
    listed = "\n".join(f"{name}: {what}" for name, what in about.items())

    async def choose(s: Team) -> str:
        chosen: str = await llm(choices, *messages_of(s.turns), system=f"{instructions}\n{listed}")
        return chosen

    choose.__name__ = name
    choose.__annotations__["return"] = choices
    return choose
