"""Several agents as one graph: a supervisor lets a researcher and a writer act in turn.

python examples/08_team.py

The team is an ordinary graph: it can be drawn, and steps can be added. A scripted model stands in
for a real one.
"""

from typing import Any

from agentloop import agent, tool
from agentloop.agents import Turn
from agentloop.teams import Team, supervisor
from agentloop.testing import ScriptedModel


@tool
async def look_up(topic: str) -> str:
    """Look something up."""
    return {"Bern": "Bern has 134,591 inhabitants."}.get(topic, "nothing found")


SCRIPT: list[Any] = [
    '"researcher"',
    [{"name": "look_up", "arguments": {"topic": "Bern"}}],
    [],
    "Bern has 134,591 inhabitants.",
    '"writer"',
    [],
    "Bern, small as capitals go, is home to 134,591 people.",
    '"answer"',
    "Bern, small as capitals go, is home to 134,591 people.",
]


def main() -> None:
    """Draw the team, then run it."""
    team = supervisor(
        {
            "researcher": (agent([look_up], "Find the facts."), "finds facts"),
            "writer": (agent([look_up], "Write it nicely."), "writes texts"),
        }
    )
    print(team.mermaid())
    question = Team(turns=[Turn(role="user", content="Write a line about the size of Bern.")])
    result = team.run_sync(question, model=ScriptedModel(SCRIPT))
    for event in result.events:
        if event.kind == "route" and event.path.startswith("choose"):
            print(f"{event.path}: {event.data}")
    print(result.state.answer)


if __name__ == "__main__":
    main()
