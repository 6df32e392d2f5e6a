"""How likely an answer is when it is read from left to right: a second opinion on a canvas.

A canvas commits positions together; reading the finished text causally, each token after all that
precede it, shows where they do not fit each other. One pass, over the answer's tokens alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from agentloop.model.network import PromptKeys, Transformer


@torch.inference_mode()
def log_p_left_to_right(
    network: Transformer, keys: PromptKeys, anchor: int, tokens: Sequence[int]
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
    device = network.embed_tokens.weight.device
    read = torch.tensor([[anchor, *tokens[:-1]]], device=device)
    hidden, _ = network.read(read, keys if keys.length else None)
    scores = network.logits(hidden[0])
    if network.config.mask_id is not None:
        scores[:, network.config.mask_id] = float("-inf")
    wanted = torch.tensor(tokens, device=device)[:, None]
    log_p = torch.log_softmax(scores, dim=-1).gather(1, wanted)[:, 0]
    return [float(value) for value in log_p.cpu()]
