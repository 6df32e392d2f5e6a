"""The graph as networkx and Mermaid see it."""

import re
from typing import Literal

from pydantic import BaseModel

from agentloop import END, START, Graph, both, each
from agentloop.runs import RunResult


class S(BaseModel):
    items: tuple[int, ...] = ()


async def plan(s: S) -> None: ...
async def work(s: S, i: int) -> None: ...
async def left(s: S) -> None: ...
async def right(s: S) -> None: ...
async def verify(s: S) -> Literal["plan", "END"]:
    return "END"


def graph() -> Graph[S]:
    g = Graph(S).chain(START, plan, each(work, over="items", limit=2), both(left, right), verify)
    return g.route(verify, plan, END, limit=3, then=END)


def test_the_networkx_view_has_every_step_and_arrow() -> None:
    """Steps carry their kind, routes their label and limit; changing the view changes nothing."""
    view = graph().nx
    assert {name: data["kind"] for name, data in view.nodes(data=True)} == {
        "START": "end",
        "plan": "node",
        "work": "each",
        "left+right": "both",
        "verify": "node",
        "END": "end",
    }
    assert view.nodes["work"]["over"] == "items"
    assert view.nodes["left+right"]["branches"] == [["left"], ["right"]]
    assert view.edges["verify", "plan"] == {"label": "plan", "limit": 3}
    assert list(view.edges) == [
        ("START", "plan"),
        ("plan", "work"),
        ("work", "left+right"),
        ("left+right", "verify"),
        ("verify", "plan"),
        ("verify", "END"),
    ]
    view.remove_node("plan")
    graph().check()


def test_the_mermaid_text_draws_every_step_and_arrow() -> None:
    """Identifiers are safe whatever the names; routes are dotted and labelled."""
    assert graph().mermaid() == (
        "flowchart TD\n"
        "  n0_START((START))\n"
        '  n1_plan["plan"]\n'
        '  n2_work[["work for each of items, limit 2"]]\n'
        '  n3_left_right[["left ∥ right"]]\n'
        '  n4_verify["verify"]\n'
        "  n5_END((END))\n"
        "  n0_START --> n1_plan\n"
        "  n1_plan --> n2_work\n"
        "  n2_work --> n3_left_right\n"
        "  n3_left_right --> n4_verify\n"
        '  n4_verify -.->|"plan"| n1_plan\n'
        '  n4_verify -.->|"END"| n5_END\n'
        "  %% verify: at most 3 visits, then END\n"
    )


def test_a_run_is_drawn_over_its_graph() -> None:
    """Every step shows how often its nodes ran, branches and visits together, and how long."""
    g = graph()
    result: RunResult[S] = g.run_sync(S(items=(1, 2, 3)))
    text = re.sub(r"[\d.]+ ms", "0 ms", g.mermaid(result))
    assert '["plan · 1x, 0 ms"]' in text
    assert '[["work for each of items, limit 2 · 3x, 0 ms"]]' in text
    assert '[["left ∥ right · 2x, 0 ms"]]' in text
    assert "START · " not in text
