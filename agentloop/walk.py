"""Walking a flow: what comes next, where branches fork, and how they join.

Straight stretches run in one task; only parallel branches get tasks of their own, in groups that
leave none behind. There is no barrier: every branch goes at its own pace until its join.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeAlias

from agentloop.drafts import close_draft
from agentloop.errors import GraphError, LimitError
from agentloop.flow import Arc, BothOp, EachOp, Flow, Leaf, SubOp, Table
from agentloop.leaf_calls import check_choice
from agentloop.runner import Patch, Run, Suspended
from agentloop.state import StateSpec

Work: TypeAlias = Callable[[int], Coroutine[Any, Any, None]]


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

    def reset_all(self) -> None:
        """Start counting all loops anew: the run has left them."""
        self._rounds.clear()

    def reset(self, steps: tuple[int, ...]) -> None:
        """Start counting anew: their loop is being entered."""
        for step in steps:
            self._rounds.pop(step, None)


async def walk(run: Run, flow: Flow, branch: Branch, first: int | None = None) -> None:
    """Walk a flow from its first step, or another, to its end."""
    index = flow.first if first is None else first
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
        else:
            assert isinstance(exit_, Table)
            arc = _choose(run, branch, path, index, exit_, choice)
        if arc.resets:
            branch.reset(arc.resets)
        index = arc.target


def _choose(run: Run, branch: Branch, path: str, step: int, table: Table, choice: Any) -> Arc:
    """The arc that a routing node's answer and its limit give."""
    if choice not in table.arcs:  # a node's answer was checked before; a recorded one was not
        check_choice(table.node, table.arcs, choice)
    arc = table.arcs[choice]
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


async def run_all(work: Work, num: int, limit: int | None) -> None:
    """Do numbered pieces of work at the same time, no more than `limit` at once.

    The first failure cancels the others and is raised; nothing is left running.
    """
    first: BaseException
    try:
        async with asyncio.TaskGroup() as group:
            if limit is None or limit >= num:
                for index in range(num):
                    group.create_task(work(index))
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
    work: Work,
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


async def _run_next(work: Work, numbers: Iterator[int]) -> None:
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
            patches[index], _ = await run.leaf(leaf, spec, values, place, items[index])
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
            if recorded is None:
                run.skip(place, error)
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
    children = [
        Branch(spec, branch.values.copy(), f"{path}[{i}]/" if op.is_numbered else f"{path}/")
        for i in range(len(op.branches))
    ]

    async def work(index: int) -> None:
        await walk(run, op.branches[index], children[index])

    def named() -> list[tuple[str, Patch]]:
        return [
            (child.prefix + "-".join(op.name for op in flow.ops), child.patch)
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
