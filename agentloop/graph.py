"""The graph of an agent: building, checking, drawing and running it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack, cast

from pydantic import BaseModel

from agentloop.blocking import run_blocking
from agentloop.definition import Definition, LimitDefinition, RouteDefinition
from agentloop.drawing import as_mermaid, as_networkx
from agentloop.errors import GraphBuildError
from agentloop.flow import Flow, compile_flow
from agentloop.many import MapResult, Report, execute_all, reporting
from agentloop.rules import check_rules
from agentloop.run_view import RunView, view_result
from agentloop.runs import (
    MapOptions,
    Options,
    RunOptions,
    RunResult,
    execute_checked,
    make_options,
)
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
from agentloop.stream import EventStream
from agentloop.svg import as_svg

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

    def limit(
        self,
        *,
        steps: int | None = None,
        calls: int | None = None,
        tokens: int | None = None,
        cost: float | None = None,
        seconds: float | None = None,
        then: Target[S] | None = None,
    ) -> Graph[S]:
        """Bound what a run of the graph may take, and say where it goes then.

        At a limit, what is running is cancelled; what was committed stays. The step named by
        `then` and those after it run without these limits. Limits given to `run` lead there too.
        They bound runs of this graph; as a step of another graph it is bounded by that one's.

        Args:
            steps: Nodes that may begin.
            calls: Calls (`llm`, tools, steps) that may begin.
            tokens: Tokens of model calls; no call begins once they are reached.
            cost: Of models and tools, in their unit; likewise.
            seconds: Seconds that a run may take.
            then: Where to go, `END` to end there; without it the run fails with `LimitError`.

        Returns:
            The graph itself.

        Raises:
            GraphBuildError: A limit is not positive, or `then` is `START`.
        """
        given = {"steps": steps, "calls": calls, "tokens": tokens, "cost": cost, "seconds": seconds}
        for name, value in given.items():
            if value is not None and not value > 0:
                raise GraphBuildError(f"g.limit({name}={value}): use more than 0, or None")
        way_out = self._add(then) if then is not None else None
        if way_out == "START":
            raise GraphBuildError("g.limit(..., then=START): a limit leads out, not to the start")
        self._definition.limits = LimitDefinition(steps, calls, tokens, cost, seconds, way_out)
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

    def mermaid(self, result: RunResult[S] | RunView | None = None) -> str:
        """The graph as a Mermaid flowchart; with a result, how often each step ran and how long."""
        return as_mermaid(self._definition, _view(result))

    def svg(self, result: RunResult[S] | RunView | None = None) -> str:
        """The graph as a picture in SVG that needs nothing else; a result is drawn over it."""
        return as_svg(self._definition, _view(result))

    def report(self, result: RunResult[S] | RunView) -> str:
        """A run as one HTML page that needs nothing else: timeline, writes, calls, drafts."""
        from agentloop.report import report_page  # few programs make pages

        view = _view(result)
        assert view is not None
        return report_page(view, self)

    async def run(
        self, state: S | None = None, *, run: str | None = None, **options: Unpack[RunOptions]
    ) -> RunResult[S]:
        """Run the graph once, or go on with a recorded run.

        Args:
            state: What it starts with; not changed. Left out to go on with a recorded run.
            run: The run's name, in events and errors, and in the store.
            options: The store, the model, limits and more: see `agentloop.runs.RunOptions`.

        Raises:
            GraphBuildError: The graph breaks a rule.
            JournalError: The store has no such run, has it with another graph or state, or another
                process is writing it.
            GraphError: A limit, a conflict of parallel writes, a wrong-typed write.
            Exception: Whatever a node raises, with a note that says where.
        """
        check = options.get("check", True)
        return await execute_checked(self.flow, state, self._options(options), run, check)

    def _options(self, given: RunOptions) -> Options:
        fingerprint = self.fingerprint if given.get("store") is not None else ""
        return make_options(given, self._definition.limits, fingerprint)

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
        keep: bool = True,
        progress: bool | Report = False,
        on_result: Callable[[int, RunResult[S]], object] | None = None,
        **options: Unpack[MapOptions],
    ) -> MapResult[S]:
        """Run the graph on many states, `concurrency` at once; their model calls share batches.

        Args:
            states: What the runs start with; drawn as runs begin.
            concurrency: Runs that are going on at once.
            run: What the runs are named after: `run-0`, `run-1`, ... With a store, a map that was
                stopped goes on where it was: what is recorded does not run again.
            keep: Whether to keep the results; if not, memory does not grow with the states.
            progress: Show a bar on the terminal, or a function that is told of it.
            on_result: Called with each number and result as the runs end.
            options: What every run takes: see `agentloop.runs.MapOptions`.

        Returns:
            The results in the order of the states, with sums and a table. They hold no events.

        Raises:
            Exception: With `check`, the first failure, after which the other runs are cancelled;
                with `check=False`, failures are in the results.
        """
        check = options.get("check", True)
        with reporting(progress) as report:
            return await execute_all(
                self.flow,
                states,
                replace(self._options(cast(RunOptions, options)), is_kept=False),
                concurrency=concurrency,
                name=run,
                check=check,
                is_kept=keep,
                on_result=on_result,
                report=report,
            )

    def stream(
        self, state: S | None = None, *, run: str | None = None, **options: Unpack[RunOptions]
    ) -> EventStream[S]:
        """Run the graph and read its events as they happen: `async for event in g.stream(...)`.

        Takes what `run` takes. The stream ends with the run, and raises what the run raises.
        """
        return EventStream(self.flow, state, self._options(options), run)


def _view(result: RunResult[Any] | RunView | None) -> RunView | None:
    return view_result(result) if isinstance(result, RunResult) else result
