"""What `watch` draws: the canvas with its marks, and the course of P(valid)."""

from __future__ import annotations

import io

from rich.console import Console

from agentloop.cli_watch import MASK, CanvasView
from agentloop.model.generation import Draft


def drawn(view: CanvasView, draft: Draft) -> tuple[str, str]:
    """A frame as plain text and with its colours."""
    frame = view.frame(draft)
    plain, coloured = io.StringIO(), io.StringIO()
    Console(file=plain, width=60).print(frame)
    Console(file=coloured, width=60, force_terminal=True, color_system="standard").print(frame)
    return plain.getvalue(), coloured.getvalue()


def test_a_canvas_is_drawn_step_by_step() -> None:
    """Masked slots, slots that are new in this step, old ones, and revised ones."""
    view = CanvasView("A colour?")
    first = Draft(1, ("", "", "!"), ("masked", "masked", "committed"), 1e-6, False)
    plain, coloured = drawn(view, first)
    assert "A colour?" in plain
    assert f"{MASK}{MASK}!" in plain
    assert "\x1b[30;42m!" in coloured
    assert "step 1" in plain
    assert "1/3 slots" in plain
    second = Draft(2, ("blue", " ", "?"), ("committed", "fixed", "revised"), 1.0, True)
    plain, coloured = drawn(view, second)
    assert "blue ?" in plain
    assert "\x1b[30;42mblue" in coloured
    assert "\x1b[30;43m?" in coloured
    assert "▅█" in plain
    third = Draft(3, ("blue", " ", "?"), ("committed", "fixed", "committed"), 1.0, True)
    assert "\x1b[30;42mblue" not in drawn(view, third)[1]


def test_text_that_looks_like_markup_is_drawn_as_it_is() -> None:
    """A canvas may hold brackets."""
    draft = Draft(1, ("[bold]", "x"), ("committed", "committed"), 0.5, True)
    plain, _ = drawn(CanvasView("[red]?"), draft)
    assert "[bold]x" in plain
    assert "[red]?" in plain
