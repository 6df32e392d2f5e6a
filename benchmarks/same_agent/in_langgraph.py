"""The agent in LangGraph: checkpointed in SQLite, its question is an interrupt."""

# It runs in the environment of `make agents`; elsewhere its library is not installed.
# mypy: disable-error-code="import-not-found, misc, untyped-decorator, no-any-return"
# pyright: basic, reportMissingImports=false

import operator
from typing import Annotated, Any, TypedDict

from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Send, interrupt

from benchmarks.same_agent import world


# agent
class State(TypedDict):
    question: str
    queries: tuple[str, ...]
    passages: Annotated[list[str], operator.add]
    answer: str
    num_written: int
    is_approved: bool


async def plan(state: State) -> dict[str, Any]:
    return {"queries": await world.plan(state["question"])}


def fan_out(state: State) -> list[Send] | str:
    return [Send("look", query) for query in state["queries"]] or "write"


async def look(query: str) -> dict[str, Any]:
    return {"passages": await world.search(query)}


async def write(state: State) -> dict[str, Any]:
    text = await world.answer(state["question"], state["passages"])
    return {"answer": text, "num_written": state.get("num_written", 0) + 1}


async def verify(state: State) -> str:
    if await world.is_good(state["answer"]) or state["num_written"] >= 3:
        return "approve"
    return "write"


async def approve(state: State) -> dict[str, Any]:
    return {"is_approved": interrupt(state["answer"])}


builder = StateGraph(State)
builder.add_node("plan", plan)
builder.add_node("look", look)
builder.add_node("write", write)
builder.add_node("approve", approve)
builder.add_edge(START, "plan")
builder.add_conditional_edges("plan", fan_out, ["look", "write"])
builder.add_edge("look", "write")
builder.add_conditional_edges("write", verify, ["approve", "write"])
builder.add_edge("approve", END)
# end


async def main(question: str, folder: str) -> dict[str, Any]:
    """Run it until it asks, then go on from the file."""
    config: Any = {"configurable": {"thread_id": "1"}}
    async with AsyncSqliteSaver.from_conn_string(f"{folder}/langgraph.db") as saver:
        graph = builder.compile(checkpointer=saver)
        waiting = await graph.ainvoke({"question": question}, config)
        asked = waiting["__interrupt__"][0].value
        state = await graph.ainvoke(Command(resume=world.approves(asked)), config)
    return {"answer": state["answer"], "is_approved": state["is_approved"]}
