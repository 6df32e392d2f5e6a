"""The graph of an agent: building, checking, drawing and running it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import pairwise
from os import PathLike
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack

from pydantic import BaseModel

from agentloop.definition import Definition, RouteDefinition
from agentloop.drawing import as_mermaid, as_networkx
from agentloop.errors import GraphBuildError
from agentloop.events import Event
from agentloop.flow import Flow, compile_flow
from agentloop.model_calls import Model
from agentloop.rules import check_rules
from agentloop.runs import (
    EventStream,
    Options,
    RunOptions,
    RunResult,
    execute_all,
    execute_checked,
    run_blocking,
)
from agentloop.sqlite_store import sqlite_store
from agentloop.state import state_spec
from agentloop.steps import (
    END,
    START,
    BothStep,
    EachStep,
    End,
    Node,
    NodeStep,
    Step,
    SubGraph,
    Target,
    checked_name,
    step_name,
)
from agentloop.stores import Store

if TYPE_CHECKING:
    from networkx import DiGraph  # type: ignore[import-untyped]  # as in agentloop.drawing

S = TypeVar("S", bound=BaseModel)


class Graph(SubGraph, Generic[S]):
    """Steps on a typed state, and what follows each.

    Example:
        >>> class Count(BaseModel):
        ...     number: int = 0
        >>> def double(s: Count) -> None:
        ...     s.number *= 2
        >>> g = Graph(Count).chain(START, double, END)
        >>> g.run_sync(Count(number=21)).state
        Count(number=42)

    Args:
        state: The pydantic class that the nodes work on.
        name: What the graph is called as a step of another, by default the state's name.

    Raises:
        GraphBuildError: The class cannot be a state, for example because it has a field whose
            value could be changed in place.
    """

    def __init__(self, state: type[S], *, name: str | None = None) -> None:
        named = re.sub(r"\W+", "_", getattr(state, "__name__", "graph"))
        self.name = checked_name(name) if name is not None else named
        self.state = state
        self._definition = Definition(self.name, state_spec(state))
        self._flow: Flow | None = None  # made anew after a change, also of a graph inside
        self._inner: list[tuple[SubGraph, Flow]] = []
        self._fingerprint: str | None = None

    def chain(self, *steps: Step[S] | End) -> Graph[S]:
        """Let steps follow each other; the first may be `START`, the last `END`.

        A step is a function `async def node(s: S)` (a plain `def` runs in a thread), `node(...)`,
        `each(...)`, `both(...)`, or another graph.

        Returns:
            The graph itself.

        Raises:
            GraphBuildError: A step already leads elsewhere, or `START` or `END` stands inside.
        """
        if len(steps) < 2:
            raise GraphBuildError("chain() joins steps; give it two or more")
        names = [self._add(step) for step in steps]
        if "START" in names[1:] or "END" in names[:-1]:
            raise GraphBuildError(
                f"chain({', '.join(names)}): START can only be first and END only last"
            )
        for source, target in pairwise(names):
            self._connect(source, target)
        return self

    def route(
        self,
        node: Callable[[S], object] | Node[S],
        *targets: Target[S],
        limit: int | None = None,
        then: Target[S] | None = None,
    ) -> Graph[S]:
        """Let a node choose what follows by the name it returns.

        Args:
            node: A function whose return annotation is a `Literal` of exactly the targets' names.
            targets: The steps it may choose from; `END` is called `"END"`.
            limit: How often the node may run each time its loop is entered. At its last visit an
                answer that would stay in the loop is not followed.
            then: Where to go instead; without it the run fails with `LimitError`.

        Returns:
            The graph itself.

        Raises:
            GraphBuildError: Something already follows the node, or the limit is below one.
        """
        source = self._add(node)
        names = tuple(self._add(target) for target in targets)
        way_out = self._add(then) if then is not None else None
        routing = self._definition.routes.get(source)
        follows = self._definition.edges.get(source) or (routing and ", ".join(routing.targets))
        if follows:
            raise GraphBuildError(
                f"{source} already leads to {follows}; name all targets in one g.route({source}, "
                "...) and leave it out of the start of a chain"
            )
        if not names or "START" in names or way_out == "START":
            raise GraphBuildError(f"g.route({source}, ...) needs targets, and START is none")
        if limit is not None and limit < 1:
            raise GraphBuildError(f"g.route({source}, ..., limit={limit}): use 1 or more")
        if then is not None and limit is None:
            raise GraphBuildError(
                f"g.route({source}, ..., then={way_out}) has no limit after which to go there; "
                "add limit=n"
            )
        self._definition.routes[source] = RouteDefinition(names, limit, way_out)
        self._flow = None
        return self

    def _add(self, step: Step[S] | End) -> str:
        """The name of a step, which becomes part of the graph if it is not yet."""
        if step is START or step is END:
            return step_name(step)
        name = step_name(step)
        if step is self:
            raise GraphBuildError(f"graph {name} cannot be a step of itself; use a route to loop")
        steps = self._definition.steps
        known = steps.get(name)
        if known is None:
            if not (callable(step) or isinstance(step, SubGraph | NodeStep | EachStep | BothStep)):
                raise GraphBuildError(
                    f"{step!r} is not a step; give a function, node(), each(), both() or a Graph"
                )
            if name in ("<lambda>", "START", "END"):
                raise GraphBuildError(f"a step needs a name of its own, not {name}; use name=...")
            steps[name] = step
            self._flow = None
        elif known is not step and known != step and getattr(known, "call", None) is not step:
            raise GraphBuildError(
                f"two different steps are called {name}; call one node({name}, name=...)"
            )
        return name

    def _connect(self, source: str, target: str) -> None:
        edges, route = self._definition.edges, self._definition.routes.get(source)
        if edges.get(source, target) != target or route is not None:
            other = edges.get(source) or ", ".join(route.targets if route is not None else ())
            raise GraphBuildError(
                f"{source} already leads to {other}, so it cannot lead to {target} as well; "
                f"for parallel branches use both({other}, {target}), for a choice "
                f"g.route({source}, ...), for a second use of the function node(..., name=...)"
            )
        edges[source] = target
        self._flow = None

    def check(self) -> None:
        """Check the rules of a graph; running it does so as well.

        Raises:
            GraphBuildError: Naming the rule, the step and the call that fixes it: something
                dangling, unreachable, endless or unbounded, or a route that does not match the
                `Literal` its node returns.
        """
        _ = self.flow

    @property
    def flow(self) -> Flow:
        """The graph checked and made ready to run."""
        if self._flow is None or any(graph.flow is not flow for graph, flow in self._inner):
            check_rules(self._definition)
            self._flow = compile_flow(self._definition)
            self._inner = [(graph, graph.flow) for graph in self._definition.graphs()]
            self._fingerprint = None
        return self._flow

    @property
    def fingerprint(self) -> str:
        """A hash of what recorded runs depend on: state, steps, edges and routes, not code."""
        _ = self.flow
        if self._fingerprint is None:
            self._fingerprint = self._definition.fingerprint()
        return self._fingerprint

    @property
    def nx(self) -> DiGraph[str]:
        """The graph as a networkx directed graph, a copy. See `agentloop.drawing.as_networkx`."""
        return as_networkx(self._definition)

    def mermaid(self, result: RunResult[S] | None = None) -> str:
        """The graph as a Mermaid flowchart; with a result, how often each step ran and how long."""
        return as_mermaid(self._definition, result.events if result is not None else ())

    async def run(
        self,
        state: S | None = None,
        *,
        run: str | None = None,
        store: Store | str | PathLike[str] | None = None,
        answers: Mapping[str, Any] | None = None,
        model: Model | None = None,
        max_steps: int | None = None,
        max_calls: int | None = None,
        timeout_s: float | None = None,
        concurrency: int | None = None,
        on_event: Callable[[Event], object] | None = None,
        check: bool = True,
        migrate: bool = False,
    ) -> RunResult[S]:
        """Run the graph once, or go on with a recorded run.

        Args:
            state: What it starts with; not changed. Left out to go on with a recorded run.
            run: The run's name, in events and errors, and in the store.
            store: Where the run is recorded, a file name for a SQLite file. A run of this name that
                is there already is continued: what is recorded does not run again.
            answers: Answers to the questions a recorded run waits for, by the paths in its result's
                `waiting`.
            model: The model that `llm` calls inside nodes go to.
            max_steps: Nodes that the run may start in all.
            max_calls: Calls (`llm`, tools, steps) that the run may make in all.
            timeout_s: Seconds that the run may take, questions not counted.
            concurrency: Nodes that may be working at once.
            on_event: Called with every event; what it raises is logged and ignored.
            check: Raise what a node raises; if not, it is in the result's `error`, next to a
                state with everything that was committed.
            migrate: Go on with a recorded run although the graph has changed since.

        Raises:
            GraphBuildError: The graph breaks a rule.
            JournalError: The store has no such run, has it with another graph or state, or another
                process is writing it.
            GraphError: A limit, a conflict of parallel writes, a wrong-typed write.
            Exception: Whatever a node raises, with a note that says where.
        """
        options = self._options(
            store=store,
            answers=answers,
            model=model,
            max_steps=max_steps,
            max_calls=max_calls,
            timeout_s=timeout_s,
            concurrency=concurrency,
            on_event=on_event,
            migrate=migrate,
        )
        return await execute_checked(self.flow, state, options, run, check)

    def _options(self, **given: Unpack[RunOptions]) -> Options:
        store = given.get("store")
        return Options(
            model=given.get("model"),
            max_steps=given.get("max_steps"),
            max_calls=given.get("max_calls"),
            timeout_s=given.get("timeout_s"),
            concurrency=given.get("concurrency"),
            on_event=given.get("on_event"),
            store=sqlite_store(store) if isinstance(store, str | PathLike) else store,
            answers=given.get("answers"),
            is_migrating=given.get("migrate", False),
            fingerprint=self.fingerprint if store is not None else "",
        )

    def run_sync(
        self, state: S | None = None, *, run: str | None = None, **options: Unpack[RunOptions]
    ) -> RunResult[S]:
        """`run` for synchronous code, also where an event loop is running (a notebook)."""
        return run_blocking(self.run(state, run=run, **options))

    async def map(
        self,
        states: Iterable[S],
        *,
        concurrency: int = 64,
        run: str | None = None,
        store: Store | str | PathLike[str] | None = None,
        model: Model | None = None,
        max_steps: int | None = None,
        on_event: Callable[[Event], object] | None = None,
        check: bool = True,
    ) -> list[RunResult[S]]:
        """Run the graph on many states, `concurrency` at once; their model calls share batches.

        Args:
            states: What the runs start with; drawn as runs begin.
            concurrency: Runs that are going on at once.
            run: What the runs are named after: `run-0`, `run-1`, ...
            store: Where they are recorded, as in `run`; those recorded already go on.
            model: The model that `llm` calls inside nodes go to.
            max_steps: Nodes that each run may start in all.
            on_event: Called with every event of every run.
            check: Raise the first failure.

        Returns:
            The results in the order of the states. They hold no events; use `on_event`.

        Raises:
            Exception: With `check`, the first failure, after which the other runs are cancelled;
                without, failures are in the results.
        """
        options = self._options(store=store, model=model, max_steps=max_steps, on_event=on_event)
        options = replace(options, is_kept=False)
        return await execute_all(self.flow, states, options, concurrency, run, check)

    def stream(
        self, state: S | None = None, *, run: str | None = None, **options: Unpack[RunOptions]
    ) -> EventStream[S]:
        """Run the graph and read its events as they happen: `async for event in g.stream(...)`.

        Takes what `run` takes. The stream ends with the run, and raises what the run raises.
        """
        return EventStream(self.flow, state, self._options(**options), run)
