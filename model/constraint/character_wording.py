"""Characters and texts in words: which characters may stand at a place of a text.

For messages only; nothing is decided here.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Sequence

import numpy as np

from agentloop.model.constraint.characters import NUM_CODE_POINTS, CharDfa, Ranges

MAX_LISTED = 8
"""Most alternatives that are listed one by one."""
SHOWN_LENGTH = 60
"""Characters of a text or pattern that are shown."""
_CLASSES: tuple[tuple[str, Ranges], ...] = (
    ("a letter or digit", ((0x30, 0x39), (0x41, 0x5A), (0x61, 0x7A))),
    ("a letter", ((0x41, 0x5A), (0x61, 0x7A))),
    ("a digit", ((0x30, 0x39),)),
    ("a capital letter", ((0x41, 0x5A),)),
    ("a small letter", ((0x61, 0x7A),)),
)


def listed(texts: Iterable[str]) -> tuple[str, ...]:
    """Some texts as JSON, the first few of many.

    Example:
        >>> listed(["b", "a"])
        ('"a"', '"b"')
    """
    found = sorted(texts)
    shown = tuple(quoted(text) for text in found[:MAX_LISTED])
    more = len(found) - len(shown)
    return (*shown, f"{more:,} more") if more else shown


def quoted(text: str) -> str:
    """A text as JSON, shortened."""
    cut = text if len(text) <= SHOWN_LENGTH else text[: SHOWN_LENGTH - 1] + "…"
    return json.dumps(cut, ensure_ascii=False)


def live_prefix(dfa: CharDfa, text: str) -> tuple[int, int]:
    """How many characters some accepted text begins with, and the state after them.

    An automaton of no text at all gives 0 characters and its start.
    """
    live: list[bool] = dfa.live.tolist()
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    columns: list[int] = (np.searchsorted(dfa.cuts, points, side="right") - 1).tolist()
    state = 0
    for length, column in enumerate(columns):
        target = int(dfa.table[state, column])
        if not live[target]:
            return length, state
        state = target
    return len(text), state


def next_characters(dfa: CharDfa, state: int) -> tuple[str, ...]:
    """What may stand next in a state, as phrases; a run of forced characters is one literal."""
    ranges = _ranges_after(dfa, state)
    phrases = ["the end of the text"] if dfa.labels[state] >= 0 else []
    if not phrases and _size(ranges) == 1:
        return (quoted(_forced(dfa, state)),)
    return (*characters(ranges), *phrases)


def _ranges_after(dfa: CharDfa, state: int) -> list[tuple[int, int]]:
    """The code points that lead on from a state."""
    starts: list[int] = dfa.cuts.tolist()
    ends = [*starts[1:], NUM_CODE_POINTS]
    targets: list[int] = dfa.table[state].tolist()
    found: list[tuple[int, int]] = []
    for start, end, target in zip(starts, ends, targets, strict=True):
        if not dfa.live[target]:
            continue
        if found and found[-1][1] == start - 1:
            found[-1] = (found[-1][0], end - 1)
        else:
            found.append((start, end - 1))
    return found


def _size(ranges: Sequence[tuple[int, int]]) -> int:
    return sum(hi - lo + 1 for lo, hi in ranges)


def _forced(dfa: CharDfa, state: int) -> str:
    """The characters that must follow a state, as long as there is one choice."""
    text = ""
    while len(text) < SHOWN_LENGTH and dfa.labels[state] < 0:
        ranges = _ranges_after(dfa, state)
        if _size(ranges) != 1:
            break
        text += chr(ranges[0][0])
        column = int(np.searchsorted(dfa.cuts, ranges[0][0], side="right")) - 1
        state = int(dfa.table[state, column])
    return text


def characters(ranges: Sequence[tuple[int, int]]) -> tuple[str, ...]:
    """A set of code points as phrases.

    Example:
        >>> characters([(0x30, 0x39), (0x5F, 0x5F)])
        ('a digit', '"_"')
    """
    left = _with_surrogates(ranges)
    size = _size(left)
    if size == NUM_CODE_POINTS:
        return ("any character",)
    if NUM_CODE_POINTS - size <= MAX_LISTED:
        gone = [quoted(chr(point)) for point in _complement(left)]
        return (f"any character but {', '.join(gone)}",)
    phrases: list[str] = []
    for name, members in _CLASSES:
        if all(any(lo <= a and b <= hi for lo, hi in left) for a, b in members):
            phrases.append(name)
            left = _without(left, members)
    size = _size(left)
    if 0 < size <= MAX_LISTED:
        phrases += [quoted(chr(point)) for lo, hi in left for point in range(lo, hi + 1)]
    elif size:
        some = "".join(chr(lo) for lo, _ in left[:MAX_LISTED] if chr(lo).isprintable())
        phrases.append(
            f"one of {size:,} other characters"
            if phrases
            else f"one of {size:,} characters{f' such as {quoted(some)}' if some else ''}"
        )
    return tuple(phrases)


def _with_surrogates(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same, with the surrogates, which no text has, where they would be a gap of their own."""
    found = list(ranges)
    for i, (before, after) in enumerate(itertools.pairwise(ranges)):
        if before[1] == 0xD7FF and after[0] == 0xE000:
            found[i : i + 2] = [(before[0], after[1])]
            break
    return found


def _complement(ranges: Sequence[tuple[int, int]]) -> list[int]:
    edges = [-1, *(point for lo, hi in ranges for point in (lo, hi)), NUM_CODE_POINTS]
    pairs = zip(edges[::2], edges[1::2], strict=True)
    return [point for before, after in pairs for point in range(before + 1, after)]


def _without(ranges: Sequence[tuple[int, int]], members: Ranges) -> list[tuple[int, int]]:
    found = list(ranges)
    for a, b in members:
        found = [
            part
            for lo, hi in found
            for part in ((lo, min(hi, a - 1)), (max(lo, b + 1), hi))
            if part[0] <= part[1]
        ]
    return found
