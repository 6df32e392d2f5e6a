"""A graph as a picture in SVG, drawn without any program beside this one.

Steps stand in rows by their distance from the start; arrows that lead back run along the right.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from agentloop.definition import Definition
from agentloop.drawing import kind_of, label_of, took_of
from agentloop.run_view import RunView

_ROW = 78
_BOX = 40
_GAP = 28
_MARGIN = 16
_LETTER = 7.3  # width of a letter on average, in pixels at 13 pixels of height
_MAX_LETTERS = 46
_STYLE = """
.graph { font: 13px system-ui, sans-serif; --ink: #1d2430; --line: #7a8699; --fill: #f3f5f9;
  --ran: #e3f1e6; --edge: #44a05a; --paper: #fff; }
@media (prefers-color-scheme: dark) { .graph { --ink: #e6e9ef; --line: #8b97aa; --fill: #232a36;
  --ran: #1e3a28; --edge: #5cbf74; --paper: #161b24; } }
.graph rect { fill: var(--fill); stroke: var(--line); }
.graph .ran rect { fill: var(--ran); stroke: var(--edge); }
.graph text { fill: var(--ink); text-anchor: middle; }
.graph .small { font-size: 11px; opacity: .75; }
.graph .label { font-size: 11px; text-anchor: start; paint-order: stroke; stroke: var(--paper);
  stroke-width: 4px; }
.graph path { fill: none; stroke: var(--line); stroke-width: 1.4; }
.graph .route { stroke-dasharray: 5 4; }
.graph marker path { fill: var(--line); stroke: none; }
"""


@dataclass(frozen=True, slots=True)
class _Box:
    x: float  # of the middle
    y: float  # of the top
    width: float


def as_svg(definition: Definition, run: RunView | None = None, *, title: str = "") -> str:
    """The graph as an SVG element.

    Args:
        definition: The graph.
        run: A run to draw over it: how often each step ran and how long.
        title: What the picture is called for those who do not see it.
    """
    labels = {"START": "START", "END": "END"}
    labels |= {name: _cut(label_of(name, step)) for name, step in definition.steps.items()}
    took = {name: took_of(name, run) for name in definition.steps}
    rows = _rows(definition)
    boxes = _placed(rows, {n: max(len(labels[n]), len(took.get(n, ""))) for n in labels})
    inside = max(box.x + box.width / 2 for box in boxes.values())
    arrows, num_back = _arrows(definition, boxes, inside)
    width = inside + _MARGIN + num_back * 14 + (90 if num_back else 0)
    height = len(rows) * _ROW - (_ROW - _BOX) + 2 * _MARGIN
    name = escape(title or f"graph {definition.name}")
    drawn = [_box(definition, n, labels[n], took.get(n, ""), box) for n, box in boxes.items()]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="graph" role="img" aria-label="{name}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}">\n'
        f"<title>{name}</title><style>{_STYLE}</style>\n"
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0 0 8 4 0 8z"/></marker></defs>\n'
        + "\n".join([*arrows, *drawn])
        + "\n</svg>\n"
    )


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_LETTERS else f"{text[: _MAX_LETTERS - 1]}…"


def _rows(definition: Definition) -> list[list[str]]:
    """The steps by the length of the longest way to them that does not turn back."""
    following = definition.successors()
    back = _back_edges(following)
    depth = dict.fromkeys(following, 0)
    for _ in following:  # at most so many rounds until nothing moves
        for source, targets in following.items():
            for target in targets:
                if (source, target) not in back:
                    depth[target] = max(depth[target], depth[source] + 1)
    depth["END"] = max(depth.values()) if len(depth) > 1 else 1
    if any(depth[name] == depth["END"] for name in following if name != "END"):
        depth["END"] += 1
    rows: list[list[str]] = [[] for _ in range(depth["END"] + 1)]
    for name in following:
        rows[depth[name]].append(name)
    return [row for row in rows if row]


def _back_edges(following: dict[str, list[str]]) -> set[tuple[str, str]]:
    """The arrows that lead to a step on the way to their own start."""
    found: set[tuple[str, str]] = set()
    seen: set[str] = set()
    way: list[str] = []
    stack: list[tuple[str, bool]] = [(name, False) for name in reversed(following)]
    while stack:
        name, is_over = stack.pop()
        if is_over:
            way.pop()
            continue
        if name in seen:
            continue
        seen.add(name)
        way.append(name)
        stack.append((name, True))
        for target in reversed(following[name]):
            if target in way:
                found.add((name, target))
            elif target not in seen:
                stack.append((target, False))
    return found


def _placed(rows: list[list[str]], letters: dict[str, int]) -> dict[str, _Box]:
    widths = {name: 26 + _LETTER * num for name, num in letters.items()}
    row_widths = [sum(widths[n] for n in row) + _GAP * (len(row) - 1) for row in rows]
    middle = max(row_widths) / 2 + _MARGIN
    boxes: dict[str, _Box] = {}
    for number, row in enumerate(rows):
        x = middle - row_widths[number] / 2
        for name in row:
            boxes[name] = _Box(x + widths[name] / 2, _MARGIN + number * _ROW, widths[name])
            x += widths[name] + _GAP
    return boxes


def _arrows(definition: Definition, boxes: dict[str, _Box], inside: float) -> tuple[list[str], int]:
    """The arrows, and how many of them run along the right."""
    drawn: list[str] = []
    num_back = 0
    for source, target, label in definition.arrows():
        a, b = boxes[source], boxes[target]
        kind = ' class="route"' if source in definition.routes or label else ""
        is_far = b.y - a.y > _ROW and abs(a.x - b.x) < (a.width + b.width) / 2
        if b.y > a.y and not is_far:
            top, end = a.y + _BOX, b.y - 1
            bend = (end - top) / 2
            line = f"M{a.x:.0f} {top:.0f}C{a.x:.0f} {top + bend:.0f} {b.x:.0f} {end - bend:.0f} "
            line += f"{b.x:.0f} {end:.0f}"
            place = (a.x + b.x) / 2 + 6, (top + end) / 2 + 4
        else:
            num_back += 1
            side = inside + 14 * num_back
            start, end = a.y + _BOX / 2 + 5, b.y + _BOX / 2 - 5
            line = f"M{a.x + a.width / 2:.0f} {start:.0f}H{side - 8:.0f}Q{side:.0f} {start:.0f} "
            turn = 8 if end > start else -8
            line += f"{side:.0f} {start + turn:.0f}V{end - turn:.0f}Q{side:.0f} {end:.0f} "
            line += f"{side - 8:.0f} {end:.0f}H{b.x + b.width / 2 + 2:.0f}"
            place = side + 5, (start + end) / 2 + 4
        drawn.append(f'<path{kind} marker-end="url(#arrow)" d="{line}"/>')
        if label:
            text = escape(_cut(label))
            drawn.append(f'<text class="label" x="{place[0]:.0f}" y="{place[1]:.0f}">{text}</text>')
    return drawn, num_back


def _box(definition: Definition, name: str, label: str, took: str, box: _Box) -> str:
    left = box.x - box.width / 2
    kind = kind_of(definition.steps[name]) if name in definition.steps else "end"
    radius = {"end": 20, "node": 7}.get(kind, 2)
    second = ""
    if kind in ("each", "both", "graph"):  # a stack of sheets
        second = (
            f'<rect x="{left + 4:.1f}" y="{box.y - 4:.0f}" width="{box.width:.1f}" '
            f'height="{_BOX}" rx="{radius}"/>'
        )
    lines = [(label, "", 17 if took else 25)] + ([(took, ' class="small"', 32)] if took else [])
    texts = "".join(
        f'<text{style} x="{box.x:.1f}" y="{box.y + down:.0f}">{escape(text)}</text>'
        for text, style, down in lines
    )
    return (
        f'<g class="{kind}{" ran" if took else ""}">{second}<rect x="{left:.1f}" y="{box.y:.0f}" '
        f'width="{box.width:.1f}" height="{_BOX}" rx="{radius}"/>{texts}</g>'
    )
