"""Reading order of a page's text boxes, for the pages whose drawing order is not it.

Most files draw text in the order it is read, and then nothing is changed here. Two kinds do not:
two columns of prose drawn line by line across both, and tables drawn column by column. They are
told apart by how much of its column a box fills: prose fills it, a table's cell does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median

_FILL_OF_PROSE = 0.5  # share of the column's pitch that a line of prose covers on average
_MIN_ROWS = 3  # rows that must show a pattern before it is believed


@dataclass(frozen=True, slots=True)
class Box:
    """A run of text on one line, in PDF points, y upward."""

    left: float
    bottom: float
    right: float
    top: float

    @property
    def middle(self) -> float:
        """Vertical centre."""
        return (self.bottom + self.top) / 2


Rows = list[list[int]]  # box numbers; rows from the top, boxes from the left


def reading_order(boxes: Sequence[Box]) -> Rows | None:
    """Lines of the page as lists of box numbers, or None where the drawing order is right.

    Args:
        boxes: In drawing order.
    """
    rows = _rows(boxes)
    return _prose_columns(boxes, rows) or _table_rows(boxes, rows)


def _rows(boxes: Sequence[Box]) -> Rows:
    """Boxes whose centres lie within half a line height share a row."""
    rows: Rows = []
    for at in sorted(range(len(boxes)), key=lambda i: -boxes[i].middle):
        box = boxes[at]
        if rows:
            above = boxes[rows[-1][0]]
            height = min(box.top - box.bottom, above.top - above.bottom)
            if above.middle - box.middle < max(0.5 * height, 1.0):
                rows[-1].append(at)
                continue
        rows.append([at])
    for row in rows:
        row.sort(key=lambda i: boxes[i].left)
    return rows


def _prose_columns(boxes: Sequence[Box], rows: Rows) -> Rows | None:
    """Left column, then right column, where lines were drawn across both."""
    pairs = [row for row in rows if len(row) == 2 and row[1] == row[0] + 1]
    if len(pairs) < _MIN_ROWS:
        return None
    gutter = median((boxes[a].right + boxes[b].left) / 2 for a, b in pairs)
    gutter = _settle(boxes, pairs, gutter)
    pairs = [row for row in pairs if boxes[row[0]].right <= gutter <= boxes[row[1]].left]
    if len(pairs) < _MIN_ROWS:
        return None
    pitch = min(boxes[b].left for _, b in pairs) - min(boxes[a].left for a, _ in pairs)
    if any(
        fmean(boxes[pair[side]].right - boxes[pair[side]].left for pair in pairs)
        < _FILL_OF_PROSE * pitch
        for side in (0, 1)
    ):
        return None
    crossing = [any(boxes[i].left < gutter < boxes[i].right for i in row) for row in rows]
    first, last = rows.index(pairs[0]), rows.index(pairs[-1])
    while first > 0 and not crossing[first - 1]:
        first -= 1
    while last + 1 < len(rows) and not crossing[last + 1]:
        last += 1
    band = rows[first : last + 1]
    left = [[i for i in row if boxes[i].right <= gutter] for row in band]
    right = [[i for i in row if boxes[i].right > gutter] for row in band]
    return [row for row in rows[:first] + left + right + rows[last + 1 :] if row]


def _settle(boxes: Sequence[Box], pairs: Rows, gutter: float) -> float:
    """The middle of the widest gap common to most pairs, near a first guess."""
    lefts = sorted(boxes[a].right for a, _ in pairs)
    rights = sorted(boxes[b].left for _, b in pairs)
    low, high = lefts[int(0.9 * (len(lefts) - 1))], rights[int(0.1 * (len(rights) - 1))]
    return (low + high) / 2 if low < high else gutter


def _table_rows(boxes: Sequence[Box], rows: Rows) -> Rows | None:
    """Rows of cells read across, where the cells were drawn down the columns."""
    torn = [
        at
        for at, row in enumerate(rows)
        if len(row) >= 2 and all(abs(b - a) > 1 for a, b in pairwise(row))
    ]
    if len(torn) < _MIN_ROWS - 1 or torn[-1] - torn[0] + 1 != len(torn):
        return None
    cells = [boxes[i] for at in torn for i in rows[at]]
    columns = max(len(rows[at]) for at in torn)
    pitch = (max(c.right for c in cells) - min(c.left for c in cells)) / columns
    if fmean(c.right - c.left for c in cells) >= _FILL_OF_PROSE * pitch:
        return None
    inside = {i for at in torn for i in rows[at]}
    order: Rows = []
    done = False
    for row in _drawn_rows(boxes):
        if inside.isdisjoint(row):
            order.append(row)
        elif not done:
            order.extend(rows[at] for at in torn)
            done = True
    return order


def _drawn_rows(boxes: Sequence[Box]) -> Rows:
    """Consecutive boxes of one line, in drawing order."""
    rows: Rows = []
    for at, box in enumerate(boxes):
        if rows and abs(boxes[rows[-1][-1]].middle - box.middle) < 0.5 * (box.top - box.bottom):
            rows[-1].append(at)
        else:
            rows.append([at])
    return rows
