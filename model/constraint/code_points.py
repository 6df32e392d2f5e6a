"""Sets of code points: the classes of regular expressions and Unicode's general categories."""

from __future__ import annotations

import unicodedata
from functools import lru_cache
from typing import Literal

from agentloop.model.constraint.characters import NUM_CODE_POINTS, Ranges

DIGITS: Ranges = ((0x30, 0x39),)
WORD: Ranges = ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A))
SPACE: Ranges = (
    (0x09, 0x0D),
    (0x20, 0x20),
    (0xA0, 0xA0),
    (0x1680, 0x1680),
    (0x2000, 0x200A),
    (0x2028, 0x2029),
    (0x202F, 0x202F),
    (0x205F, 0x205F),
    (0x3000, 0x3000),
    (0xFEFF, 0xFEFF),
)
NEWLINES: Ranges = ((0x0A, 0x0A), (0x0D, 0x0D), (0x2028, 0x2029))
CONTROL = {"t": 0x09, "n": 0x0A, "v": 0x0B, "f": 0x0C, "r": 0x0D}
CLASSES = {"d": DIGITS, "w": WORD, "s": SPACE}
# Engines differ in what these classes hold beyond ASCII: what all of them hold, and what any may.
NARROW = {"d": DIGITS, "w": WORD, "s": SPACE[:-1]}
_LAST = NUM_CODE_POINTS - 1
WIDE = {
    "d": (*DIGITS, (0x660, _LAST)),
    "w": (*WORD, (0x80, _LAST)),
    "s": ((0x09, 0x0D), (0x1C, 0x20), (0x85, 0x85), *SPACE[2:]),
}
Reading = Literal["exact", "narrow", "wide"]
"""Classes as in ECMA-262, as all engines read them, or as any of them may."""
OPPOSITE: dict[Reading, Reading] = {"exact": "exact", "narrow": "wide", "wide": "narrow"}


def union(*sets: Ranges) -> Ranges:
    """The ranges of all sets together, ascending, disjoint and not touching."""
    merged: list[tuple[int, int]] = []
    for lo, hi in sorted(r for ranges in sets for r in ranges):
        if merged and lo <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(hi, merged[-1][1]))
        else:
            merged.append((lo, hi))
    return tuple(merged)


def inverse(ranges: Ranges) -> Ranges:
    """Every other code point."""
    gaps: list[tuple[int, int]] = []
    start = 0
    for lo, hi in ranges:
        if lo > start:
            gaps.append((start, lo - 1))
        start = hi + 1
    if start < NUM_CODE_POINTS:
        gaps.append((start, NUM_CODE_POINTS - 1))
    return tuple(gaps)


GENERAL_CATEGORIES = {
    "Letter": "L", "Cased_Letter": "LC", "Uppercase_Letter": "Lu", "Lowercase_Letter": "Ll",
    "Titlecase_Letter": "Lt", "Modifier_Letter": "Lm", "Other_Letter": "Lo", "Mark": "M",
    "Combining_Mark": "M", "Nonspacing_Mark": "Mn", "Spacing_Mark": "Mc", "Enclosing_Mark": "Me",
    "Number": "N", "Decimal_Number": "Nd", "digit": "Nd", "Letter_Number": "Nl",
    "Other_Number": "No", "Punctuation": "P", "punct": "P", "Connector_Punctuation": "Pc",
    "Dash_Punctuation": "Pd", "Open_Punctuation": "Ps", "Close_Punctuation": "Pe",
    "Initial_Punctuation": "Pi", "Final_Punctuation": "Pf", "Other_Punctuation": "Po",
    "Symbol": "S", "Math_Symbol": "Sm", "Currency_Symbol": "Sc", "Modifier_Symbol": "Sk",
    "Other_Symbol": "So", "Separator": "Z", "Space_Separator": "Zs", "Line_Separator": "Zl",
    "Paragraph_Separator": "Zp", "Other": "C", "Control": "Cc", "cntrl": "Cc", "Format": "Cf",
    "Surrogate": "Cs", "Private_Use": "Co", "Unassigned": "Cn",
}  # fmt: skip


@lru_cache(maxsize=1)
def _category_runs() -> dict[str, Ranges]:
    runs: dict[str, list[tuple[int, int]]] = {}
    start, current = 0, unicodedata.category("\0")
    for point in range(1, NUM_CODE_POINTS + 1):
        found = unicodedata.category(chr(point)) if point < NUM_CODE_POINTS else ""
        if found != current:
            runs.setdefault(current, []).append((start, point - 1))
            start, current = point, found
    return {name: tuple(ranges) for name, ranges in runs.items()}


@lru_cache(maxsize=64)
def category(name: str) -> Ranges | None:
    """The code points of a Unicode general category by short or long name; None if unknown."""
    short = GENERAL_CATEGORIES.get(name, name)
    wanted = {"LC": ("Lu", "Ll", "Lt")}.get(short)
    runs = _category_runs()
    found = [runs[key] for key in runs if key in (wanted or ()) or key.startswith(short)]
    return union(*found) if found and short else None
