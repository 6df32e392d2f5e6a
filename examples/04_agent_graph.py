"""An agent as a graph: plan, look in parallel, answer with quotes, verify, look again if need be.

Run it with `python examples/04_agent_graph.py ["QUESTION"]`.

Nodes are plain functions on a typed state. The model is given to the run, not to the nodes.
"""

import asyncio
import sys
import tempfile
from pathlib import Path
from typing import Literal

from pydantic import BaseModel

from agentloop import END, START, Graph, Log, Sum, each, llm
from agentloop.demo import DOCUMENTS
from agentloop.model.constraint import Choice, List, Quote
from agentloop.model.lm import DiffusionLM
from agentloop.rag import answer
from agentloop.retrieval import Index

QUESTION = "What is the capital of New Zealand, and who was it named after?"


class State(BaseModel):
    """What the agent knows."""

    question: str
    queries: tuple[str, ...] = ()
    paths: Log[str] = []  # append-only, so parallel nodes may all write to it
    num_read: int = 2
    text: str | None = None
    quotes: tuple[str, ...] = ()
    num_rounds: Sum[int] = 0


def agent(index: Index) -> Graph[State]:
    """The graph over an index."""

    async def plan(s: State) -> None:
        wording = List(Quote([s.question], max_units=4), min=1, max=3)  # words of the question only
        s.queries = tuple(await llm(wording, "Name the search terms in this question.", s.question))

    async def look(s: State, query: str) -> None:
        s.paths += [hit.path for hit in await index.asearch(query, top_k=s.num_read)]

    async def read(s: State) -> None:
        found = await answer(index, None, s.question, paths=s.paths, top_k=s.num_read)
        s.text = found.text
        s.quotes = tuple(f"{c.place}: {c.quote}" for c in found.citations)
        s.num_rounds += 1

    async def verify(s: State) -> Literal["widen", "END"]:
        if s.text is None:
            return "widen"
        question = f"{s.quotes[0]}\n\n{s.question}\nIs the answer {s.text!r}?"
        return "END" if await llm(Choice(["yes", "no"]), question) == "yes" else "widen"

    async def widen(s: State) -> None:
        s.num_read += 1

    graph = Graph(State)
    graph.chain(START, plan, each(look, over="queries"), read, verify)
    graph.route(verify, widen, END, limit=2, then=END)
    graph.chain(widen, read)
    return graph


async def main(question: str) -> None:
    """Run the agent, printing what happens."""
    with (
        tempfile.TemporaryDirectory() as place,
        Index.open(Path(place) / "index", embedder=None) as index,
        DiffusionLM.load("default") as lm,
    ):
        index.sync(DOCUMENTS)
        graph = agent(index)
        print(graph.mermaid())
        async for event in (stream := graph.stream(State(question=question), model=lm)):
            if event.kind in ("node.end", "route"):
                print(f"{event.at_s:7.2f} s  {event.path}  {event.data}")
        state = (await stream.result()).state
    print(f"\n{state.question}\n  {state.text or 'not in the documents'}")
    for quote in state.quotes:
        print(f"  {quote}")
    print(f"  searched for {', '.join(map(repr, state.queries))}; read {state.num_rounds} times")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else QUESTION))
