"""What a network is made of: sizes, switches and special token ids.

One dataclass covers SmolLM2/Llama, Qwen2, Qwen3 and the diffusion checkpoints made from them. It
knows nothing of tensors or files.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Attention = Literal["prefix_causal", "block_causal", "full"]


@dataclass(frozen=True)
class ModelConfig:
    """Sizes and switches of one decoder-style transformer.

    Attributes:
        vocab_size: V, rows of the embedding.
        hidden_size: D, the width.
        num_layers: Transformer blocks.
        num_heads: H, query heads.
        num_kv_heads: Key and value heads; H is a multiple of it.
        head_dim: Width of one head.
        intermediate_size: Width inside the SwiGLU.
        rope_theta: Base of the rotary frequencies.
        rms_norm_eps: Added to the mean square before the root.
        tie_word_embeddings: The head is the transposed embedding.
        qkv_bias: Query, key and value projections have a bias (Qwen2).
        qk_norm: Queries and keys are normalised per head (Qwen3).
        max_position_embeddings: Longest context in tokens.
        attention: Who sees whom; see `agentloop.model.network`.
        shift: Logits at position i - 1 predict token i, as in an autoregressive base.
        mask_id: Token id of [MASK], or None for a model that was never adapted to diffusion.
        eos_ids: Token ids that end a text; the first is the one that is written.
    """

    vocab_size: int
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    rope_theta: float = 10_000.0
    rms_norm_eps: float = 1e-5
    tie_word_embeddings: bool = True
    qkv_bias: bool = False
    qk_norm: bool = False
    max_position_embeddings: int = 8192
    attention: Attention = "prefix_causal"
    shift: bool = True
    mask_id: int | None = None
    eos_ids: tuple[int, ...] = ()
