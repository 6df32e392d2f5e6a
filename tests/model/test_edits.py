"""Edits: what is fixed stays, as much as possible is kept, contradictions change nothing.

The reference enumerates every text of small languages.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from agentloop.errors import ContradictionError, ModelError
from agentloop.model.constraint import Regex
from agentloop.model.constraint.compiled import CompiledConstraint, compile_constraint
from agentloop.model.constraint.vocabulary import Vocabulary
from agentloop.model.edits import CanvasText, pinned, reconciled, replaced, unpinned

WORDS = Vocabulary([b"a", b"b", b"c", b"ab", b""], [4])
EOS = 4
MASKED = -1
Ints = NDArray[np.int64]
LANGUAGES = ["[ab]*c", "a(bc)*", "(ab|c){2,3}", "[abc]*", "a{0,3}|b+c"]


def accepted(compiled: CompiledConstraint, length: int) -> list[tuple[int, ...]]:
    """Every finished canvas, by trying all sequences of tokens."""
    automaton = compiled.automaton
    found: list[tuple[int, ...]] = []
    for size in range(length):
        for text in itertools.product(range(4), repeat=size):
            state = 0
            for token in text:
                state = automaton.follow(state, int(automaton.token_class[token]))
                if state < 0:
                    break
            if state >= 0 and automaton.follow(state, automaton.eos_class) == automaton.done:
                found.append((*text, *[EOS] * (length - size)))
    return found


def matches(canvas: Ints, text: tuple[int, ...]) -> bool:
    """Whether a finished canvas holds all that stands on another."""
    return all(c in (MASKED, t) for c, t in zip(canvas.tolist(), text, strict=True))


@st.composite
def canvases(draw: st.DrawFn) -> tuple[str, CanvasText]:
    """A language and a canvas on which some tokens are fixed and some are committed."""
    length = draw(st.integers(1, 5))
    tokens = draw(st.lists(st.integers(-1, 3), min_size=length, max_size=length))
    is_fixed = draw(st.lists(st.booleans(), min_size=length, max_size=length))
    canvas = np.array(tokens, np.int64)
    return draw(st.sampled_from(LANGUAGES)), CanvasText(canvas, np.where(is_fixed, canvas, MASKED))


@settings(max_examples=300, deadline=None)
@given(canvases())
def test_the_most_is_kept_that_an_accepted_text_can_hold(case: tuple[str, CanvasText]) -> None:
    """Fixed tokens stay; the number of kept ones equals the best over all accepted texts."""
    pattern, text = case
    compiled = compile_constraint(Regex(pattern), WORDS)
    texts = [t for t in accepted(compiled, len(text.tokens)) if matches(text.fixed, t)]
    if not texts:
        with pytest.raises(ContradictionError):
            reconciled(compiled, text, 0, 0)
        return
    kept = reconciled(compiled, text, 0, 0)
    assert (kept.fixed == text.fixed).all()
    assert any(matches(kept.tokens, t) for t in texts)
    assert all(k in (MASKED, EOS, t) for k, t in zip(kept.tokens, text.tokens, strict=True))
    stands = text.tokens != MASKED
    best = max(sum(int(text.tokens[i]) == t[i] for i in np.flatnonzero(stands)) for t in texts)
    assert int((kept.tokens == text.tokens)[stands].sum()) == best


@settings(max_examples=200, deadline=None)
@given(canvases(), st.data())
def test_replacing_moves_what_follows(case: tuple[str, CanvasText], data: st.DataObject) -> None:
    """The new tokens stand fixed at the span, earlier ones stay, later ones move along."""
    _, text = case
    length = len(text.tokens)
    start = data.draw(st.integers(0, length))
    stop = data.draw(st.integers(start, length))
    ids = data.draw(st.lists(st.integers(0, 3), max_size=4))
    whole = [*text.tokens[:start], *ids, *text.tokens[stop:]]
    fixed = [*text.fixed[:start], *ids, *text.fixed[stop:]]
    if any(token != MASKED for token in fixed[length:]):
        with pytest.raises(ModelError, match="pushes fixed text off the canvas"):
            replaced(start, stop, ids)(text)
        return
    changed = replaced(start, stop, ids)(text)
    padding = [MASKED] * max(0, length - len(whole))
    assert changed.tokens.tolist() == [*whole, *padding][:length]
    assert changed.fixed.tolist() == [*fixed, *padding][:length]


def test_pinning_and_unpinning() -> None:
    """A pin fixes what is named even where it was masked again; unpinning leaves the token."""
    text = CanvasText(np.array([0, -1, 2]), np.array([-1, -1, 2]))
    held = pinned(0, [0, 1])(text)
    assert (held.tokens.tolist(), held.fixed.tolist()) == ([0, 1, 2], [0, 1, 2])
    free = unpinned(1, 3)(held)
    assert (free.tokens.tolist(), free.fixed.tolist()) == ([0, 1, 2], [0, -1, -1])
    assert text.tokens.tolist() == [0, -1, 2]


def test_an_ending_is_kept_where_it_fits() -> None:
    """The end of text moves with the text; the slots after it are ends too."""
    compiled = compile_constraint(Regex("[abc]*"), WORDS)
    text = CanvasText(np.array([0, 1, EOS, EOS, EOS]), np.full(5, MASKED))
    longer = reconciled(compiled, replaced(1, 1, [2])(text), 0, 0)
    assert longer.tokens.tolist() == [0, 2, 1, EOS, EOS]
    shorter = reconciled(compiled, replaced(0, 2, [2])(text), 0, 0)
    assert shorter.tokens.tolist() == [2, EOS, EOS, EOS, EOS]
