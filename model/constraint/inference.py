"""Exact inference on one canvas: what the model believes, given that the text must be accepted.

One call per refinement step. It takes the model's logits and the canvas as it stands, and gives a
joint proposal for the whole canvas with the constrained probability of each of its tokens. Which
positions to commit is not decided here: any subset of the proposal may be committed, any position
may be masked again, and the next call succeeds.

Source: forward-backward and sampling over an automaton, Dang & Ermon, arXiv 2607.07026; Viterbi,
Suresh et al. (DINGO), arXiv 2505.23061. The state-local weighting is this project's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from agentloop.errors import CanvasTooSmallError, ConstraintError
from agentloop.model.constraint.allowed import contradiction
from agentloop.model.constraint.beliefs import Beliefs
from agentloop.model.constraint.class_weights import MASKED, ClassWeights
from agentloop.model.constraint.compiled import CompiledConstraint
from agentloop.model.constraint.liveness import Liveness
from agentloop.model.constraint.posterior import CanvasPosterior
from agentloop.model.constraint.proposal import (
    PathScore,
    best_proposal,
    drawn_proposal,
    greedy_proposal,
)
from agentloop.model.constraint.window import open_window

if TYPE_CHECKING:
    import torch

__all__ = ["CanvasPosterior", "PathScore", "Weighting", "infer"]

Floats = NDArray[np.float64]
Weighting = Literal["local", "product"]


def infer(
    compiled: CompiledConstraint,
    logits: torch.Tensor | NDArray[Any],
    tokens: NDArray[np.integer[Any]] | list[int],
    *,
    weighting: Weighting = "local",
    locality: float | Floats = 1.0,
    temperature: float = 0.0,
    path: PathScore = "states",
    generator: np.random.Generator | int | None = None,
    start: int = 0,
    room_after: int = 0,
) -> CanvasPosterior:
    """The posterior over accepted texts on a canvas, and one joint proposal from it.

    Args:
        compiled: The constraint, compiled for the model's vocabulary.
        logits: (L, V) logits, torch on any device or numpy; rows of committed positions are not
            read. Probabilities that underflow count as 1e-300.
        tokens: (L,) token ids of the canvas, -1 where masked.
        weighting: `"product"`, the model's factorised probability of a text given that it is
            accepted; or `"local"`, where each token's probability is divided by that of all
            tokens that could stand in its place in this text so far.
        locality: Exponent of that division under `"local"`, one number or (L,): 0 is the product.
        temperature: 0 proposes the best path; above 0 the logits are divided by it and the
            proposal is one exact draw.
        path: What the best path maximises. `"greedy"`: from left to right, the probability of each
            token that an accepted text may hold there. `"states"`: the summed probability of all
            texts that pass through the same states. `"tokens"`: the probability of the text
            itself. The last two favour short texts while the model is unsure.
        generator: Source of the draw, or a seed for one.
        start: State at the canvas's left edge; that of the text so far where this canvas
            continues another.
        room_after: Tokens that may follow this canvas. Above 0 the text need not end here.

    Raises:
        CanvasTooSmallError: The shortest accepted text is longer than the canvas.
        ContradictionError: The committed tokens lie on no accepted text.
        DecodingError: The logits hold NaN.
        ConstraintError: The shapes do not fit each other or the vocabulary.
    """
    canvas = _checked_tokens(compiled, logits, tokens)
    automaton = compiled.automaton
    needed = int(automaton.distance[start])
    if needed > len(canvas) + room_after:
        raise CanvasTooSmallError(needed, len(canvas) + room_after)
    window = open_window(automaton, canvas, start, room_after)
    if window is None:
        raise contradiction(compiled, canvas, start=start, room_after=room_after)
    rows = slice(window.first, window.last)
    liveness = Liveness(automaton, canvas[rows], window.room)
    if not liveness.at(0)[window.start]:
        raise contradiction(compiled, canvas, start=start, room_after=room_after)
    exponent = np.broadcast_to(locality if weighting == "local" else 0.0, len(canvas))[rows]
    weights = ClassWeights(automaton, logits[rows], canvas[rows], temperature or 1.0, window.first)
    beliefs = Beliefs(weights, liveness, window.start, exponent)
    if temperature > 0:
        generator = np.random.default_rng(generator)
        uniforms = generator.random((3, len(canvas)))[:, rows]
        proposal = drawn_proposal(weights, beliefs.chain, window.start, uniforms)
    elif path == "greedy":
        proposal = greedy_proposal(weights, liveness, window.start)
    else:
        proposal = best_proposal(beliefs.lattice, weights, path)
    return CanvasPosterior(compiled, canvas, window, beliefs, proposal)


def _checked_tokens(
    compiled: CompiledConstraint,
    logits: torch.Tensor | NDArray[Any],
    tokens: NDArray[np.integer[Any]] | list[int],
) -> NDArray[np.int64]:
    canvas = np.array(tokens, np.int64)
    expected = (len(canvas), compiled.vocabulary.size)
    if canvas.ndim != 1 or tuple(logits.shape) != expected:
        raise ConstraintError(
            f"a canvas needs tokens (L,) and logits (L, V) with V = {compiled.vocabulary.size}; "
            f"got tokens {canvas.shape} and logits {tuple(logits.shape)}; give the vocabulary the "
            f"number of logits of the model (Vocabulary.from_tokenizer(..., size=V))"
        )
    outside = np.flatnonzero((canvas < MASKED) | (canvas >= compiled.vocabulary.size))
    if len(outside):
        raise ConstraintError(
            f"canvas position {outside[0]} holds {canvas[outside[0]]}; a token id is below "
            f"{compiled.vocabulary.size}, and {MASKED} is a masked position"
        )
    return canvas
