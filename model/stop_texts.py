"""Free text that ends with the first of some stop texts: a constraint, so nothing is cut short.

A stop text in the answer is its end by construction. No pass is spent on what would follow it, and
no token can reach past it.
"""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Sequence

import numpy as np

from agentloop.model.constraint import Regex
from agentloop.model.constraint.dfa import Dfa
from agentloop.model.constraint.options import DEFAULT_OPTIONS, CompileOptions

ANY_TEXT = Regex(r"[\s\S]*")


class StopText:
    """Any text that holds none of some texts, or holds one at its very end and nowhere else.

    Example:
        >>> constraint = StopText([";"])
        >>> automaton = constraint.automaton()
        >>> [automaton.accepts(text) for text in (b"a", b"a;", b"a;b")]
        [True, True, False]
        >>> constraint.parse("a;")
        'a'
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self.stops = tuple(stops)

    @property
    def key(self) -> str:
        """A digest of the stop texts."""
        content = json.dumps(["StopText", 1, *self.stops])
        return hashlib.sha256(content.encode()).hexdigest()

    def parse(self, text: str) -> str:
        """The text without the stop text at its end."""
        ends = [stop for stop in self.stops if text.endswith(stop)]
        return text[: -len(max(ends, key=len))] if ends else text

    def automaton(self, options: CompileOptions = DEFAULT_OPTIONS) -> Dfa:
        """The automaton of valid UTF-8 beside that of how much of a stop text was just read."""
        plain = ANY_TEXT.automaton(options)
        steps = _matcher([stop.encode() for stop in self.stops])
        known: dict[tuple[int, int], int] = {(0, 0): 0}
        waiting = deque(known)
        accepting, arcs = {0: bool(plain.accepting[0])}, list[tuple[int, int, int]]()
        while waiting:
            pair = waiting.popleft()
            for at in range(*plain.offsets[pair[0] : pair[0] + 2].tolist()):
                byte, onward = int(plain.arc_bytes[at]), int(plain.arc_targets[at])
                matched = steps[pair[1]][byte]
                target = (-1, 0) if matched < 0 else (onward, matched)
                if target not in known:
                    known[target] = len(known)
                    accepting[known[target]] = matched < 0 or bool(plain.accepting[onward])
                    if matched >= 0:
                        waiting.append(target)
                arcs.append((known[pair], byte, known[target]))
        table = np.array(arcs, np.int64)
        ends = np.array([accepting[i] for i in range(len(known))])
        return Dfa.from_arcs(table[:, 0], table[:, 1], table[:, 2], ends)


def _matcher(patterns: Sequence[bytes]) -> list[list[int]]:
    """For each state and byte the next state; -1 where a pattern was read to its end.

    States are the proper beginnings of patterns. Source: Aho & Corasick 1975.
    """
    heads = {b""} | {pattern[:n] for pattern in patterns for n in range(1, len(pattern))}
    states = sorted(heads, key=lambda head: (len(head), head))
    number = {head: i for i, head in enumerate(states)}
    steps: list[list[int]] = []
    for head in states:
        row: list[int] = []
        for byte in range(256):
            read = head + bytes([byte])
            if any(read.endswith(pattern) for pattern in patterns):
                row.append(-1)
                continue
            row.append(next(number[read[n:]] for n in range(len(read) + 1) if read[n:] in number))
        steps.append(row)
    return steps
