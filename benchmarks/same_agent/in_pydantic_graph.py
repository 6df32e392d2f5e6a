"""The agent in pydantic-graph: it cannot be resumed, so whoever is asked has to be there."""

# It runs in the environment of `make agents`; elsewhere its library is not installed.
# mypy: disable-error-code="import-not-found, misc, untyped-decorator, no-any-return"
# pyright: basic, reportMissingImports=false

from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic_graph import GraphBuilder, StepContext, TypeExpression, reduce_list_extend

from benchmarks.same_agent import world


# agent
@dataclass
class State:
    question: str
    passages: list[str] = field(default_factory=list)
    answer: str = ""
    num_written: int = 0


builder = GraphBuilder(state_type=State, output_type=bool)


@builder.step
async def plan(context: StepContext[State, None, None]) -> list[str]:
    return list(await world.plan(context.state.question))


@builder.step
async def look(context: StepContext[State, None, str]) -> list[str]:
    return await world.search(context.inputs)


collect = builder.join(reduce_list_extend, initial_factory=list[str])


@builder.step
async def keep(context: StepContext[State, None, list[str]]) -> None:
    context.state.passages = context.inputs


@builder.step
async def write(context: StepContext[State, None, object]) -> None:
    state = context.state
    state.answer = await world.answer(state.question, state.passages)
    state.num_written += 1


@builder.step
async def verify(context: StepContext[State, None, None]) -> Literal["approve", "write"]:
    state = context.state
    is_over = await world.is_good(state.answer) or state.num_written >= 3
    return "approve" if is_over else "write"


@builder.step
async def approve(context: StepContext[State, None, object]) -> bool:
    return world.approves(context.state.answer)


builder.add(
    builder.edge_from(builder.start_node).to(plan),
    builder.edge_from(plan).map().to(look),
    builder.edge_from(look).to(collect),
    builder.edge_from(collect).to(keep),
    builder.edge_from(keep).to(write),
    builder.edge_from(write).to(verify),
    builder.edge_from(verify).to(
        builder.decision()
        .branch(builder.match(TypeExpression[Literal["approve"]]).to(approve))
        .branch(builder.match(TypeExpression[Literal["write"]]).to(write))
    ),
    builder.edge_from(approve).to(builder.end_node),
)
graph = builder.build()
# end


async def main(question: str, folder: str) -> dict[str, Any]:
    """Run it in one go; nothing is kept in the folder."""
    state = State(question)
    is_approved = await graph.run(state=state)
    return {"answer": state.answer, "is_approved": is_approved}
