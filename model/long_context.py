"""Contexts longer than a model was trained on, by stretching its rotary frequencies."""

from __future__ import annotations

from dataclasses import replace

from agentloop.errors import ModelError
from agentloop.model.config import ModelConfig


def stretched(config: ModelConfig, context: int) -> ModelConfig:
    """A configuration for a longer context, with a larger base of the rotary frequencies.

    The lowest frequency turns as far over the new context as it did over the old one, and the
    highest stays, so that near positions look as they did. Source: "NTK-aware scaled RoPE", bloc97
    2023; eq. 16 of Peng et al. 2023 (YaRN). A context within the trained one changes no frequency.

    Args:
        config: The model as it was trained.
        context: Tokens of the longest context, prompt and answer together.

    Raises:
        ModelError: `context` is not positive.

    Example:
        >>> config = ModelConfig(32, 8, 1, 1, 1, 8, 8, max_position_embeddings=100)
        >>> stretched(config, 50).rope_theta, round(stretched(config, 200).rope_theta)
        (10000.0, 25198)
    """
    if context < 1:
        raise ModelError(f"context is {context!r}, expected at least 1 token")
    factor = max(1.0, context / config.max_position_embeddings)
    theta = config.rope_theta * factor ** (config.head_dim / (config.head_dim - 2))
    return replace(config, rope_theta=theta, max_position_embeddings=context)
