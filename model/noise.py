"""The masking process: which slots of a clean canvas are hidden or spoiled for one training row.

A row is shown as several noisy canvases at once. Their kinds cover the states that sampling passes
through: nothing committed, a committed beginning (twice, early and late), and a random half. Slots
far behind the last committed one weigh less: what they hold depends on lengths nobody knows yet,
and the sampler commits near the beginning first. A few visible tokens are replaced by wrong ones
and supervised, which teaches revision. Source of the uniform cross-entropy over masks: Sahoo et
al. 2024 (MDLM).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]
Bools = NDArray[np.bool_]

KINDS = ("all", "prefix", "prefix", "half")  # one canvas each
TAIL_WEIGHTED = 8  # slots after the first end of text that still count a little
TAIL_WEIGHT = 0.1
NEAR = 8  # slots behind the beginning that count fully; each further NEAR count half as much
FAR_WEIGHT = 0.25  # and never less than this


@dataclass(frozen=True)
class NoisyCanvases:
    """What the network sees and what it should say; n = len(KINDS) canvases of L slots.

    Attributes:
        tokens: (n, L) ids with mask ids at hidden slots.
        weights: (n, L) weight of each slot's cross-entropy, 0 where it is not supervised.
    """

    tokens: Ints
    weights: Floats


def add_noise(
    clean: Ints,
    length: int,
    structure: Bools,
    *,
    mask_id: int,
    vocab_size: int,
    rng: np.random.Generator,
    p_corrupt: float = 0.06,
    p_skeleton: float = 0.3,
) -> NoisyCanvases:
    """Noisy canvases of one answer.

    Args:
        clean: (L,) the answer, its end of text, and end of text up to the canvas's length.
        length: Tokens of the answer, without its end of text.
        structure: (L,) slots whose token is JSON structure, visible in `p_skeleton` of the rows.
        mask_id: Id of [MASK].
        vocab_size: V; corrupted slots get an id drawn below it.
        rng: Source of all randomness.
        p_corrupt: Chance that a visible token of the answer is replaced.
        p_skeleton: Chance that the structure of the second canvas is visible.
    """
    L = len(clean)
    hidden = np.ones((len(KINDS), L), np.bool_)
    middle = length // 2
    starts = (0, int(rng.integers(0, middle + 1)), int(rng.integers(middle, length + 1)))
    for canvas, start in enumerate(starts):
        hidden[canvas, :start] = False
    for canvas in (1, 2):
        hidden[canvas] &= rng.random(L) >= rng.choice([0.0, 0.15])  # islands further right
    if rng.random() < p_skeleton:
        hidden[1] &= ~structure
    hidden[3] = rng.random(L) < rng.uniform(0.2, 0.8)

    slot_weight = np.zeros(L, np.float32)
    slot_weight[: length + 1] = 1.0
    slot_weight[length + 1 : length + 1 + TAIL_WEIGHTED] = TAIL_WEIGHT
    weights = np.where(hidden, slot_weight, 0.0).astype(np.float32)
    for canvas, start in enumerate(starts):
        weights[canvas] *= _by_distance(L, start)

    tokens = np.where(hidden, mask_id, clean[None])
    visible = ~hidden & (np.arange(L) < length)
    corrupt = visible & (rng.random(hidden.shape) < p_corrupt)
    tokens = np.where(corrupt, _wrong_tokens(clean, length, vocab_size, hidden.shape, rng), tokens)
    kept = visible & ~corrupt & (rng.random(hidden.shape) < p_corrupt)
    weights[corrupt | kept] = 1.0  # equally many right ones: a token is no hint that it is wrong
    return NoisyCanvases(tokens, weights)


def _by_distance(length: int, start: int) -> Floats:
    """Weight (L,) of slots by their distance behind `start`."""
    beyond = np.maximum(np.arange(length) - start - NEAR, 0)
    return np.maximum(0.5 ** (beyond / NEAR), FAR_WEIGHT).astype(np.float32)


def _wrong_tokens(
    clean: Ints, length: int, vocab_size: int, shape: tuple[int, ...], rng: np.random.Generator
) -> Ints:
    """Replacements: half random ids, half other tokens of the same answer (a likelier mistake)."""
    anywhere = rng.integers(17, vocab_size, shape)  # ids below are control tokens
    own = clean[rng.integers(0, max(length, 1), shape)]
    return np.where(rng.random(shape) < 0.5, anywhere, own)
