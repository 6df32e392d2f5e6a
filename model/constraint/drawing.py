"""Small automata as drawings, in Mermaid or DOT: states, and the characters that lead between them.

Equal states are drawn once, UTF-8 is read back to characters, and what has no choice is one arrow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from agentloop.errors import ConstraintError
from agentloop.model.constraint.character_wording import characters
from agentloop.model.constraint.characters import Ranges
from agentloop.model.constraint.constraint import Constraint
from agentloop.model.constraint.dfa import Dfa
from agentloop.model.constraint.options import DEFAULT_OPTIONS, CompileOptions

Form = Literal["mermaid", "dot"]
MAX_DRAWN = 60
"""States that are drawn at most unless the caller says otherwise."""
_MAX_READ = 20_000
_INVISIBLE = {"\n": "⏎", "\t": "⇥", "\r": "␍", " ": "␣"}


@dataclass(frozen=True)
class Arrow:
    """A way from one state to another.

    Attributes:
        source: The state it leaves.
        target: The state it leads to.
        steps: The code points of each character on the way, as ranges.
    """

    source: int
    target: int
    steps: tuple[Ranges, ...]

    @property
    def label(self) -> str:
        """The characters as a person reads them."""
        text = literal(self.steps)
        if text is None:
            return " or ".join(characters(self.steps[0]))
        return "".join(_INVISIBLE.get(char, char if char.isprintable() else "�") for char in text)


@dataclass(frozen=True)
class Sketch:
    """An automaton over characters, as it is drawn; state 0 is the start.

    Attributes:
        num_states: Number of states.
        accepting: The states in which a text may end.
        arrows: The ways between them.
    """

    num_states: int
    accepting: frozenset[int]
    arrows: tuple[Arrow, ...]


def literal(steps: tuple[Ranges, ...]) -> str | None:
    """The text of an arrow that reads one text only."""
    if any(len(ranges) != 1 or ranges[0][0] != ranges[0][1] for ranges in steps):
        return None
    return "".join(chr(ranges[0][0]) for ranges in steps)


def draw(
    constraint: Constraint | Dfa,
    form: Form = "mermaid",
    *,
    max_states: int = MAX_DRAWN,
    options: CompileOptions = DEFAULT_OPTIONS,
) -> str:
    """The automaton of a small constraint as a drawing.

    Args:
        constraint: What to draw.
        form: `"mermaid"`, which Markdown viewers render, or `"dot"` for Graphviz.
        max_states: States to draw at most.
        options: As the constraint is compiled with.

    Raises:
        ConstraintError: It has more states than are worth drawing, or cannot be compiled.

    Example:
        >>> from agentloop.model.constraint import Choice
        >>> print(draw(Choice(["yes", "no"])), end="")
        flowchart LR
            s0((" "))
            s1(((" ")))
            s0 -->|"no"| s1
            s0 -->|"yes"| s1
    """
    if form not in get_args(Form):
        raise ConstraintError(f"form must be one of {get_args(Form)}, got {form!r}")
    dfa = constraint if isinstance(constraint, Dfa) else constraint.automaton(options)
    found = sketch(dfa)
    if found.num_states > max_states:
        raise ConstraintError(
            f"the automaton has {found.num_states:,} states to draw, more than max_states ="
            f" {max_states:,}; draw a part of the constraint, or raise max_states"
        )
    return _mermaid(found) if form == "mermaid" else _dot(found)


def sketch(dfa: Dfa) -> Sketch:
    """An automaton over bytes as one over characters, small enough to look at.

    Raises:
        ConstraintError: It is far too large.
    """
    if dfa.num_states > _MAX_READ:
        raise ConstraintError(
            f"the automaton has {dfa.num_states:,} states, more than the {_MAX_READ:,} that are"
            " looked at for a drawing; draw a part of the constraint"
        )
    arcs, accepting = _minimal(dfa)
    reader = _CharacterReader(arcs)
    arrows: dict[int, list[tuple[Ranges, int]]] = {}
    todo = [0]
    while todo:
        state = todo.pop()
        if state not in arrows:
            arrows[state] = reader.arrows(state)
            todo += [target for _, target in arrows[state]]
    return _contracted(arrows, accepting)


Arcs = list[dict[int, int]]


def _minimal(dfa: Dfa) -> tuple[Arcs, set[int]]:
    """The arcs and last states of the smallest automaton of the same texts; 0 is its start.

    Source: Moore, Gedanken-experiments on sequential machines, 1956.
    """
    offsets: list[int] = dfa.offsets.tolist()
    arc_bytes: list[int] = dfa.arc_bytes.tolist()
    targets: list[int] = dfa.arc_targets.tolist()
    live = _live(dfa, offsets, targets)
    arcs: Arcs = [
        {
            arc_bytes[i]: targets[i]
            for i in range(offsets[state], offsets[state + 1])
            if targets[i] in live
        }
        for state in range(dfa.num_states)
    ]
    colours = [int(accepting) for accepting in dfa.accepting]
    num_colours = 0
    while len(set(colours)) > num_colours:
        num_colours = len(set(colours))
        known: dict[object, int] = {}
        colours = [
            known.setdefault(
                (colours[state], frozenset((b, colours[t]) for b, t in arcs[state].items())),
                len(known),
            )
            for state in range(dfa.num_states)
        ]
    number: dict[int, int] = {}
    first: list[int] = []
    for state, colour in enumerate(colours):
        if colour not in number:
            number[colour] = len(first)
            first.append(state)
    merged = [{b: number[colours[t]] for b, t in arcs[state].items()} for state in first]
    return merged, {number[colours[s]] for s in range(dfa.num_states) if dfa.accepting[s]}


def _live(dfa: Dfa, offsets: list[int], targets: list[int]) -> set[int]:
    before: dict[int, list[int]] = {}
    for state in range(dfa.num_states):
        for i in range(offsets[state], offsets[state + 1]):
            before.setdefault(targets[i], []).append(state)
    live = {state for state in range(dfa.num_states) if dfa.accepting[state]}
    todo = list(live)
    while todo:
        for state in before.get(todo.pop(), ()):
            if state not in live:
                live.add(state)
                todo.append(state)
    return live


class _CharacterReader:
    """Reads the UTF-8 of an automaton back to code points."""

    def __init__(self, arcs: Arcs) -> None:
        self.arcs = arcs
        self._tails: dict[tuple[int, int], list[tuple[int, int, int]]] = {}

    def arrows(self, state: int) -> list[tuple[Ranges, int]]:
        """The code points that lead from a state at the start of a character, by target."""
        spans: list[tuple[int, int, int]] = []
        for byte, target in sorted(self.arcs[state].items()):
            num_more = 0 if byte < 0x80 else 1 if byte < 0xE0 else 2 if byte < 0xF0 else 3
            base = byte if byte < 0x80 else (byte & (0x3F >> num_more)) << 6 * num_more
            spans += [(base + lo, base + hi, t) for lo, hi, t in self._tail(target, num_more)]
        by_target: dict[int, list[tuple[int, int]]] = {}
        for lo, hi, target in _joined(spans):
            by_target.setdefault(target, []).append((lo, hi))
        return [(tuple(ranges), target) for target, ranges in by_target.items()]

    def _tail(self, state: int, num_bytes: int) -> list[tuple[int, int, int]]:
        """What continuation bytes from a state add to a code point, with the state after them."""
        if num_bytes == 0:
            return [(0, 0, state)]
        key = (state, num_bytes)
        if key not in self._tails:
            size = 64 ** (num_bytes - 1)
            spans: list[tuple[int, int, int]] = []
            for byte, target in sorted(self.arcs[state].items()):
                base = (byte & 0x3F) * size
                inner = self._tail(target, num_bytes - 1)
                spans += [(base + lo, base + hi, t) for lo, hi, t in inner]
            self._tails[key] = _joined(spans)
        return self._tails[key]


def _joined(spans: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Ascending spans with neighbours of one target made one."""
    found: list[tuple[int, int, int]] = []
    for lo, hi, target in spans:
        if found and found[-1][2] == target and found[-1][1] + 1 == lo:
            found[-1] = (found[-1][0], hi, target)
        else:
            found.append((lo, hi, target))
    return found


def _contracted(arrows: dict[int, list[tuple[Ranges, int]]], accepting: set[int]) -> Sketch:
    """States numbered as they are met, with runs of single characters made one arrow."""
    num_ways: dict[int, int] = {}
    for ways in arrows.values():
        for _, target in ways:
            num_ways[target] = num_ways.get(target, 0) + 1

    def is_passed(state: int) -> bool:
        is_between = state not in accepting and state != 0 and num_ways[state] == 1
        return is_between and len(arrows[state]) == 1 and _is_single(arrows[state][0][0])

    number = {0: 0}
    found: list[Arrow] = []
    todo = [0]
    while todo:
        source = todo.pop(0)
        for ranges, target in arrows[source]:
            steps = [ranges]
            while _is_single(ranges) and is_passed(target):
                steps.append(arrows[target][0][0])
                target = arrows[target][0][1]
            if target not in number:
                number[target] = len(number)
                todo.append(target)
            found.append(Arrow(number[source], number[target], tuple(steps)))
    ends = frozenset(number[state] for state in accepting if state in number)
    return Sketch(len(number), ends, tuple(found))


def _is_single(ranges: Ranges) -> bool:
    return len(ranges) == 1 and ranges[0][0] == ranges[0][1]


_MERMAID = {"#": "#35;", '"': "#quot;", "|": "#124;", "`": "#96;", "<": "#lt;", ">": "#gt;"}


def _mermaid(drawn: Sketch) -> str:
    lines = ["flowchart LR"]
    for state in range(drawn.num_states):
        shape = '((" "))' if state not in drawn.accepting else '(((" ")))'
        lines.append(f"    s{state}{shape}")
    for arrow in drawn.arrows:
        label = "".join(_MERMAID.get(char, char) for char in arrow.label)
        lines.append(f'    s{arrow.source} -->|"{label}"| s{arrow.target}')
    return "\n".join(lines) + "\n"


def _dot(drawn: Sketch) -> str:
    lines = ["digraph constraint {", "    rankdir=LR;", '    node [label="", shape=circle];']
    lines += [f"    s{state} [shape=doublecircle];" for state in sorted(drawn.accepting)]
    lines += ["    start [shape=point];", "    start -> s0;"]
    for arrow in drawn.arrows:
        label = arrow.label.replace("\\", "\\\\").replace('"', '\\"')
        lines.append(f'    s{arrow.source} -> s{arrow.target} [label="{label}"];')
    return "\n".join([*lines, "}"]) + "\n"
