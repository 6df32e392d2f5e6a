"""What the emission of values, arrays and objects share: pieces, whitespace and pruning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from agentloop.model.constraint.expression import FALSE
from agentloop.model.constraint.fragment import Builder, Fragment
from agentloop.model.constraint.machine import Asked, Machine, Outcome, Step
from agentloop.model.constraint.options import CompileOptions

State = TypeVar("State")


@dataclass(frozen=True, eq=False)
class Piece:
    """A fragment whose exit i means outcome i."""

    fragment: Fragment
    outcomes: tuple[Outcome, ...]


class ValueEmitter(Protocol):
    """Gives the pieces of values nested in a container."""

    @property
    def options(self) -> CompileOptions:
        """The options of the compilation."""
        ...

    @property
    def machine(self) -> Machine:
        """Where the steps come from."""
        ...

    def count_step(self, state: Asked, num_outcomes: int) -> None:
        """Count one step of exploring a container, by how much there is to work out.

        Raises:
            StateBudgetError: There have been too many since the compilation began.
        """
        ...

    def nested(self, asked: Asked, depth: int) -> Piece | None:
        """The piece of a value inside a container, None if there is none.

        Args:
            asked: What is asked of the value.
            depth: How many more containers may nest where nothing else bounds them.
        """
        ...


@dataclass(frozen=True, eq=False)
class Edge(Generic[State]):
    """A way on from a state: read a value, and be in the state its outcome leads to."""

    piece: Piece
    targets: tuple[State | None, ...]


def after_step(step: Step, piece: Piece) -> tuple[Asked | None, ...]:
    """The state that each outcome of a piece leads to, None where that is the end of hope."""
    states = [step.finish(outcome) for outcome in piece.outcomes]
    return tuple(None if state.must == FALSE else state for state in states)


def live_states(
    moves: Mapping[State, Sequence[State]], endings: Mapping[State, Outcome | None]
) -> set[State]:
    """The states from which one that may end is reachable."""
    before: dict[State, list[State]] = {}
    for state, targets in moves.items():
        for target in targets:
            before.setdefault(target, []).append(state)
    live = {state for state, outcome in endings.items() if outcome is not None}
    stack = list(live)
    while stack:
        for state in before.get(stack.pop(), ()):
            if state not in live:
                live.add(state)
                stack.append(state)
    return live


def place(builder: Builder, fragment: Fragment, start: int, exits: Sequence[int | None]) -> bool:
    """Copy a fragment in, closing the exits that lead nowhere; False if nothing is left of it."""
    dropped = {label for label, target in enumerate(exits) if target is None}
    trimmed = fragment.without(dropped) if dropped else fragment
    if trimmed is None:
        return False
    builder.place(trimmed, start, [0 if target is None else target for target in exits])
    return True


def gap(
    builder: Builder, options: CompileOptions, source: int, spaced: bytes, *, breaks: bool = True
) -> int:
    """The state after the whitespace that may follow `source`.

    Args:
        builder: Where the states are made.
        options: They name the profile.
        source: Where the whitespace may begin.
        spaced: What the profile "spaced" writes here.
        breaks: Whether a line may be broken here.
    """
    if options.whitespace == "compact":
        return source
    if options.whitespace == "spaced":
        if not spaced:
            return source
        after = builder.state()
        builder.word(source, spaced, after)
        return after
    after = builder.state()
    builder.end(source, after)
    blank = builder.state()
    builder.arc(source, 0x20, blank)
    builder.end(blank, after)
    if breaks:
        line = builder.state()
        builder.arc(source, 0x0A, line)
        builder.end(line, after)
        _repeat(builder, 0x20, options.max_indent, line, after)
        _repeat(builder, 0x09, options.max_indent // 4, line, after)
    return after


def _repeat(builder: Builder, byte: int, most: int, source: int, after: int) -> None:
    for _ in range(most):
        following = builder.state()
        builder.arc(source, byte, following)
        builder.end(following, after)
        source = following


def close(
    builder: Builder,
    options: CompileOptions,
    source: int,
    bracket: int,
    target: int,
    shared: dict[int, int],
) -> None:
    """Let a container end after the whitespace that may follow `source`.

    Args:
        builder: Where the states are made.
        options: They name the profile.
        source: Where the last part has just ended.
        bracket: The byte that closes the container.
        target: Where that leads.
        shared: The states made for the same container before, by target.
    """
    if options.whitespace != "tolerant":
        builder.arc(source, bracket, target)
        return
    if target not in shared:
        shared[target] = builder.state()
        builder.arc(gap(builder, options, shared[target], b""), bracket, target)
    builder.end(source, shared[target])
