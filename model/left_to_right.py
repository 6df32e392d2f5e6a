"""The same weights, one token at a time: the baseline that the canvas is measured against.

Greedy decoding under the same exact constraint, with the prompt's keys cached and every written
token's keys kept. Each token is the most probable one from which the text can still end within the
budget.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from agentloop.model.constraint.compiled import CompiledConstraint
from agentloop.model.constraint.inference import infer
from agentloop.model.keys import Keys
from agentloop.model.packed import PackedNetwork


@dataclass(frozen=True)
class LeftToRight:
    """What was written, and the passes it took."""

    tokens: list[int]
    num_steps: int


@torch.inference_mode()
def decode_left_to_right(
    network: PackedNetwork,
    prompt: Sequence[int],
    keys: Keys,
    compiled: CompiledConstraint,
    max_tokens: int,
) -> LeftToRight:
    """Greedy constrained text.

    Args:
        network: The weights that write.
        prompt: Ids of the whole prompt.
        keys: Keys of all prompt tokens but the last.
        compiled: What the text must satisfy.
        max_tokens: Tokens at most, the end of text included.

    Raises:
        CanvasTooSmallError: The shortest text is longer than `max_tokens`.
    """
    compiled.check_fits(max_tokens)
    own = keys.copied(0, keys.length, room=max_tokens)
    written: list[int] = []
    state = 0
    token = prompt[-1]
    for step in range(max_tokens):
        scores = network.logits(network.read([token], own))
        if network.config.mask_id is not None:
            scores[:, network.config.mask_id] = float("-inf")
        posterior = infer(
            compiled,
            scores,
            np.array([-1]),
            path="tokens",
            weighting="product",
            start=state,
            room_after=max_tokens - step - 1,
        )
        token = int(posterior.tokens[0])
        state = int(posterior.states[1])
        if posterior.end == 0:
            return LeftToRight(written, step + 1)
        written.append(token)
    return LeftToRight(written, max_tokens)
