"""How likely an answer is when it is read from left to right: a second opinion on a canvas.

A canvas commits positions together; reading the finished text causally, each token after all that
precede it, shows where they do not fit each other. One pass, over the answer's tokens alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from agentloop.model.keys import Keys
from agentloop.model.packed import PackedNetwork


@torch.inference_mode()
def log_p_left_to_right(
    network: PackedNetwork, keys: Keys, anchor: int, tokens: Sequence[int]
) -> list[float]:
    """Log-probability (n,) of each of some tokens, given the prompt and those before it.

    Args:
        network: The weights that read.
        keys: Keys of all prompt tokens but the last.
        anchor: The last prompt token.
        tokens: What is scored, its end of text included where it has one.
    """
    if not tokens:
        return []
    own = keys.copied(0, keys.length, room=len(tokens))
    scores = network.logits(network.read([anchor, *tokens[:-1]], own))
    if network.config.mask_id is not None:
        scores[:, network.config.mask_id] = float("-inf")
    wanted = torch.tensor(tokens, device=scores.device)[:, None]
    log_p = torch.log_softmax(scores, dim=-1).gather(1, wanted)[:, 0]
    return [float(value) for value in log_p.cpu()]
