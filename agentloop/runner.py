"""One run of a flow: walks the steps, forks and joins branches, commits patches.

Straight stretches run in one task; only parallel branches get tasks of their own, in groups that
leave none behind. Every node patch passes through `Run.commit` and every call inside a node
through `Run.call`: a recorder has nowhere else to look.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from time import perf_counter
from typing import Any, NoReturn, TypeVar, cast

from agentloop.context import RETRY, Call, Here, here, key
from agentloop.drafts import close_draft, shorten
from agentloop.errors import GraphError, LimitError
from agentloop.events import Event, EventLog
from agentloop.flow import Arc, BothOp, EachOp, Flow, Leaf, SubOp, Table
from agentloop.journal import Journal
from agentloop.state import StateSpec

T = TypeVar("T")
Patch = dict[str, Any]


class Suspended(BaseException):
    """A node waits for an answer: it ends without a patch, and the run goes on without it.

    Not an `Exception`, so that a node that handles its errors does not handle this.
    """


class Run:
    """What all branches of one run share.

    Attributes:
        name: The run's name.
        log: Its events.
        model: The model that `llm` calls, if one was given.
        journal: Where the run is recorded, if it is.
        answers: Answers that no question has taken yet, by path.
        waiting: Questions without an answer, by path.
        timings: Per node name, how often it ran and the seconds it took in all.
        num_steps: Nodes started so far.
    """

    __slots__ = (
        "_gate",
        "_max_steps",
        "_started",
        "answers",
        "journal",
        "log",
        "model",
        "name",
        "num_steps",
        "timings",
        "waiting",
    )

    def __init__(
        self,
        name: str,
        log: EventLog,
        model: Any = None,
        max_steps: int | None = None,
        concurrency: int | None = None,
        journal: Journal | None = None,
        answers: Mapping[str, Any] | None = None,
    ) -> None:
        self.name = name
        self.journal = journal
        self.answers = dict(answers or {})
        self.waiting: dict[str, Any] = {}
        self.log = log
        self.model = model
        self.timings: dict[str, list[float]] = {}
        self.num_steps = 0
        self._max_steps = max_steps
        self._gate = asyncio.Semaphore(concurrency) if concurrency is not None else None
        self._started = perf_counter()

    def emit(self, path: str, kind: str, data: object) -> None:
        """Add an event."""
        self.log.append(Event(self.name, path, kind, data, perf_counter() - self._started))

    def commit(self, path: str, patch: Patch, choice: object, started: float, leaf: Leaf) -> None:
        """Take the patch of a node that is through. The one place where patches pass."""
        now = perf_counter()
        timing = self.timings.get(leaf.name)
        if timing is None:
            timing = self.timings[leaf.name] = [0, 0.0]
        timing[0] += 1
        timing[1] += now - started
        if self.journal is not None:
            self.journal.record_patch(path, patch, choice)
        self.log.append(Event(self.name, path, "node.end", patch, now - self._started))

    async def call(self, place: Here, path: str, call: Call[T]) -> T:
        """Make a call inside a node, or give what it gave. The one place where calls pass."""
        journal = self.journal
        if journal is not None:
            recorded = journal.result(path, call)
            if recorded is not None:
                self.emit(path, "call.replay", recorded[0])
                return cast(T, recorded[0])
            if call.effect != "none":
                if call.effect == "once" and journal.has_intent(path):
                    answer = await self._interrupted(place, path, call)
                    if answer is not None:
                        return cast(T, answer[0])
                await journal.record_intent(path)
        result = await self._make(path, call)
        if journal is not None:
            journal.record_result(path, call, result)
            if call.effect != "none":
                await journal.flush()
        return result

    async def _make(self, path: str, call: Call[T]) -> T:
        self.emit(
            path, "call.start", {"kind": call.kind, "name": call.name, "request": call.request}
        )
        outer = key.set(f"{self.name}/{path}")
        try:
            result = await call.make()
        except BaseException as error:
            self.emit(path, "call.error", error)
            raise
        finally:
            key.reset(outer)
        self.emit(path, "call.end", result)
        return result

    async def ask(self, place: Here, path: str, call: Call[T]) -> T:
        """The answer to a question, or the end of the node until there is one.

        Raises:
            GraphError: The run has no store to keep the question in, or the answer is of another
                type.
            Suspended: There is no answer yet.
        """
        journal = self.journal
        if journal is None:
            raise GraphError(
                f"ask() at {path} needs a store to wait in: g.run(..., run='name', store='runs.db')"
            )
        recorded = journal.result(path, call)
        if recorded is not None:
            return cast(T, recorded[0])
        if path in self.answers:
            answer = call.decode(self.answers[path])
            del self.answers[path]
            journal.record_result(path, call, answer)
            self.emit(path, "answer", answer)
            return cast(T, answer)
        question = cast(dict[str, Any], call.request)["question"]
        journal.record_ask(path, question)
        await self._suspend(place, path, question)

    async def _suspend(self, place: Here, path: str, question: object) -> NoReturn:
        self.waiting[path] = question
        self.emit(path, "ask", question)
        await place.quiet()
        raise Suspended

    async def _interrupted(self, place: Here, path: str, call: Call[Any]) -> tuple[Any] | None:
        """What an effect gave that may or may not have happened: somebody has to say.

        Returns:
            The result in a tuple; `None` if it is to be run after all.
        """
        assert self.journal is not None
        if path in self.answers:
            given = self.answers.pop(path)
            if given is RETRY:
                return None
            answer = call.decode(given)
            self.journal.record_result(path, call, answer)
            return (answer,)
        question = {
            "interrupted": call.name,
            "request": call.request,
            "answer": "its result if it happened, agentloop.RETRY if it did not",
        }
        place.finish()
        try:
            await self._suspend(place, path, question)
        finally:
            place.begin()

    def unasked(self) -> GraphError | None:
        """The error if answers were given that nothing asked for."""
        if not self.answers:
            return None
        waiting = ", ".join(self.waiting) or "nothing"
        return GraphError(
            f"run {self.name!r} was given answers to {', '.join(self.answers)}, but it waits for "
            f"{waiting}; use the paths in result.waiting"
        )

    def admit(self, path: str) -> None:
        """Count a node that is about to run.

        Raises:
            LimitError: It would be one more than the run may take.
        """
        self.num_steps += 1
        if self._max_steps is not None and self.num_steps > self._max_steps:
            raise LimitError(
                f"run {self.name!r} reached its limit of {self._max_steps} steps before {path}; "
                "raise max_steps, or bound its loops with g.route(..., limit=n, then=...)"
            )

    async def leaf(
        self, leaf: Leaf, spec: StateSpec[Any], values: Patch, path: str, *arguments: object
    ) -> tuple[Patch, object]:
        """Run a node: its patch and what it returned."""
        self.admit(path)
        if self.journal is not None:
            done = self.journal.patch(path, spec)
            if done is not None:
                self.emit(path, "node.replay", done[0])
                return done
        if self._gate is None and not leaf.num_retries:
            return await self._attempt(leaf, spec, values, Here(self, path), arguments)
        for attempt in range(1, leaf.num_retries + 2):
            place = Here(self, path, attempt)
            try:
                if self._gate is None:
                    return await self._attempt(leaf, spec, values, place, arguments)
                async with self._gate:
                    return await self._attempt(leaf, spec, values, place, arguments)
            except Exception as error:
                if attempt > leaf.num_retries:
                    raise
                self.emit(path, "node.retry", error)
        raise AssertionError("the last attempt returns or raises")

    async def _attempt(
        self,
        leaf: Leaf,
        spec: StateSpec[Any],
        values: Patch,
        place: Here,
        arguments: tuple[object, ...],
    ) -> tuple[Patch, object]:
        started = perf_counter()
        path = place.path
        self.log.append(Event(self.name, path, "node.start", None, started - self._started))
        draft = spec.draft(values, leaf.name)
        here.set(place)
        try:
            if leaf.is_async and leaf.timeout_s is None:
                choice = await leaf.call(draft, *arguments)
            else:
                choice = await _call(leaf, draft, arguments)
        except Suspended:
            close_draft(draft)
            raise
        except BaseException as error:
            close_draft(draft)
            if isinstance(error, Exception):
                error.add_note(f"in node {leaf.name!r} at {path!r} of run {self.name!r}")
            self.emit(path, "node.error", error)
            raise
        patch = close_draft(draft)
        self.commit(path, patch, choice, started, leaf)
        return patch, choice


async def _call(leaf: Leaf, draft: object, arguments: tuple[object, ...]) -> object:
    """Call a node that has a time limit or is not a coroutine function (then in a thread)."""
    limit = asyncio.timeout(leaf.timeout_s)
    try:
        async with limit:
            if leaf.is_async:
                return await leaf.call(draft, *arguments)
            result: Any = await asyncio.to_thread(leaf.call, draft, *arguments)
            return await result if inspect.isawaitable(result) else result
    except TimeoutError as error:
        if limit.expired():
            raise TimeoutError(
                f"node {leaf.name!r} took longer than its timeout of {leaf.timeout_s} s"
            ) from error
        raise


class Branch:
    """One line of execution: what it sees, what it has written, and where it has been."""

    __slots__ = ("_is_root", "_rounds", "_visits", "patch", "prefix", "spec", "values")

    def __init__(
        self, spec: StateSpec[Any], values: Patch, prefix: str = "", is_root: bool = False
    ) -> None:
        self.spec = spec
        self.values = values
        self.prefix = prefix
        self.patch: Patch = {}
        self._is_root = is_root
        self._visits: dict[str, int] = {}
        self._rounds: dict[int, int] = {}

    def apply(self, patch: Patch) -> None:
        """Make a patch part of what the branch sees and has written."""
        if patch:
            self.spec.apply(self.values, patch)
            if not self._is_root:
                self.patch = self.spec.compose(self.patch, patch) if self.patch else patch

    def visit(self, name: str) -> str:
        """The path of a step that is about to run here."""
        count = self._visits.get(name, 0) + 1
        self._visits[name] = count
        return f"{self.prefix}{name}" if count == 1 else f"{self.prefix}{name}#{count}"

    def round(self, step: int) -> int:
        """Count a visit of a routing node since its loop was entered."""
        count = self._rounds[step] = self._rounds.get(step, 0) + 1
        return count

    def reset(self, steps: tuple[int, ...]) -> None:
        """Start counting anew: their loop is being entered."""
        for step in steps:
            self._rounds.pop(step, None)


async def walk(run: Run, flow: Flow, branch: Branch) -> None:
    """Walk a flow from its first step to its end."""
    index = flow.first
    ops, exits, spec = flow.ops, flow.exits, flow.spec
    while index >= 0:
        op = ops[index]
        path = branch.visit(op.name)
        choice: object = None
        if type(op) is Leaf:
            patch, choice = await run.leaf(op, spec, branch.values, path)
            branch.apply(patch)
        elif isinstance(op, EachOp):
            await _each(run, op, branch, path)
        elif isinstance(op, BothOp):
            await _both(run, op, branch, path)
        elif isinstance(op, SubOp):
            await _sub(run, op, branch, path)
        exit_ = exits[index]
        if type(exit_) is Arc:
            arc = exit_
            if choice is not None:
                _refuse_choice(op.name, choice)
        else:
            assert isinstance(exit_, Table)
            arc = _choose(run, branch, path, index, exit_, choice)
        if arc.resets:
            branch.reset(arc.resets)
        index = arc.target


def _refuse_choice(name: str, choice: object) -> None:
    raise GraphError(
        f"node {name!r} returned {shorten(choice)}, but nothing routes on it; assign results to "
        f"the state, or return a Literal and add g.route({name}, ...)"
    )


def _choose(run: Run, branch: Branch, path: str, step: int, table: Table, choice: object) -> Arc:
    """The arc that a routing node's answer and its limit give."""
    arc = table.arcs.get(choice) if isinstance(choice, str) else None
    if arc is None:
        targets = ", ".join(table.arcs)
        raise GraphError(
            f"node {table.node!r} returned {shorten(choice)}, which is none of its targets; "
            f"return one of {targets}"
        )
    if table.limit is not None:
        num_rounds = branch.round(step)
        if num_rounds >= table.limit and choice in table.stays:
            if table.then is None:
                raise LimitError(
                    f"node {table.node!r} asked for {choice} after {num_rounds} visits, its limit; "
                    f"raise the limit or give the loop a way out: "
                    f"g.route({table.node}, ..., limit={table.limit}, then=...)"
                )
            arc = table.then
            run.emit(path, "limit", {"asked": choice, "then": arc.name})
    run.emit(path, "route", arc.name)
    return arc


async def run_all(work: Callable[[int], Awaitable[None]], num: int, limit: int | None) -> None:
    """Do numbered pieces of work at the same time, no more than `limit` at once.

    The first failure cancels the others and is raised; nothing is left running.
    """
    first: BaseException
    try:
        async with asyncio.TaskGroup() as group:
            if limit is None or limit >= num:
                for index in range(num):
                    group.create_task(_run_one(work, index))
            else:
                numbers = iter(range(num))
                for _ in range(limit):
                    group.create_task(_run_next(work, numbers))
        return
    except BaseExceptionGroup as failed:
        first, *others = failed.exceptions
        for other in others:
            first.add_note(f"another branch failed as well: {type(other).__name__}: {other}")
    raise first  # outside the handler, so that its own cause and context stay as they were


async def _join(
    branch: Branch,
    path: str,
    work: Callable[[int], Awaitable[None]],
    num: int,
    limit: int | None,
    patches: Callable[[], list[tuple[str, Patch]]],
) -> None:
    """Run branches and apply what they wrote; after a failure, what was committed of it."""
    num_suspended = 0

    async def whole(index: int) -> None:
        nonlocal num_suspended
        try:
            await work(index)
        except Suspended:
            num_suspended += 1

    try:
        await run_all(whole, num, limit)
        if num_suspended:
            raise Suspended
    except BaseException:
        branch.apply(branch.spec.join(patches(), path, is_strict=False))
        raise
    branch.apply(branch.spec.join(patches(), path))


async def _run_one(work: Callable[[int], Awaitable[None]], index: int) -> None:
    await work(index)


async def _run_next(work: Callable[[int], Awaitable[None]], numbers: Any) -> None:
    for index in numbers:
        await work(index)


async def _each(run: Run, op: EachOp, branch: Branch, path: str) -> None:
    spec, values = branch.spec, branch.values
    items: list[Any] | tuple[Any, ...] = values[op.over] or ()
    patches: list[Patch | None] = [None] * len(items)
    leaf = op.leaf if op.into is None else None

    async def item_patch(index: int) -> None:
        place = f"{path}[{index}]"
        if leaf is not None:
            patch, choice = await run.leaf(leaf, spec, values, place, items[index])
            if choice is not None:
                _refuse_choice(leaf.name, choice)
            patches[index] = patch
            return
        assert op.into is not None
        own = values.copy()
        draft = spec.draft(own, op.name)
        setattr(draft, op.into, items[index])
        own.update(close_draft(draft))
        child = Branch(spec, own, f"{place}/")
        try:
            await walk(run, op.body, child)
        finally:
            patches[index] = {k: v for k, v in child.patch.items() if k != op.into}

    async def guarded_patch(index: int) -> None:
        place = f"{path}[{index}]"
        recorded = run.journal.skipped(place) if run.journal is not None else None
        try:
            if recorded is not None:
                raise GraphError(recorded)
            await item_patch(index)
        except Exception as error:
            patches[index] = None
            if run.journal is not None and recorded is None:
                run.journal.record_skip(place, error)
            run.emit(place, "each.skip", error)
            if isinstance(op.on_error, Leaf):
                patches[index], _ = await run.leaf(
                    op.on_error, spec, values, f"{place}!", items[index], error
                )

    def named() -> list[tuple[str, Patch]]:
        return [(f"{path}[{i}]", patch) for i, patch in enumerate(patches) if patch]

    work = item_patch if op.on_error == "raise" else guarded_patch
    await _join(branch, path, work, len(items), op.limit, named)


async def _both(run: Run, op: BothOp, branch: Branch, path: str) -> None:
    spec = branch.spec
    children = [Branch(spec, branch.values.copy(), f"{path}/") for _ in op.branches]

    async def work(index: int) -> None:
        await walk(run, op.branches[index], children[index])

    def named() -> list[tuple[str, Patch]]:
        return [
            (f"{path}/{'-'.join(op.name for op in flow.ops)}", child.patch)
            for flow, child in zip(op.branches, children, strict=True)
            if child.patch
        ]

    await _join(branch, path, work, len(children), None, named)


async def _sub(run: Run, op: SubOp, branch: Branch, path: str) -> None:
    states = op.states
    values = branch.values.copy() if states is None else states.enter(branch.values)
    child = Branch(op.flow.spec, values, f"{path}/")
    try:
        await walk(run, op.flow, child)
    finally:
        branch.apply(child.patch if states is None else states.leave(child.patch))
