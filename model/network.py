"""The transformer: pre-RMSNorm, rotary positions, grouped-query attention, SwiGLU.

One block with switches serves SmolLM2/Llama, Qwen2 and Qwen3 weights. It runs in two ways that
share all code but the mask: *causal* over a prompt, which yields keys and values to keep, and
*bidirectional* over canvases that see those keys and values and themselves.

Letters: B prompts, n canvases per prompt, T positions per sequence, P prompt positions, D width,
H query heads, K key/value heads, G = H / K queries that share a key, d head width, V vocabulary.

What this file does not know: tokens' meaning, noise, sampling, files.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from agentloop.model.config import ModelConfig


@dataclass
class PromptKeys:
    """Keys and values of B prompts in every layer, as later positions see them.

    Attributes:
        keys: Per layer (B, K, P, d), rotated.
        values: Per layer (B, K, P, d).
        bias: (B, P) added to the scores: 0 for a real position, minus infinity for padding; None if
            no prompt is padded.
    """

    keys: list[Tensor]
    values: list[Tensor]
    bias: Tensor | None = None

    @property
    def length(self) -> int:
        """P, positions held."""
        return self.keys[0].shape[2] if self.keys else 0

    def extended(self, more: PromptKeys) -> PromptKeys:
        """These positions followed by those of `more`, copied."""
        return PromptKeys(
            [torch.cat(pair, dim=2) for pair in zip(self.keys, more.keys, strict=True)],
            [torch.cat(pair, dim=2) for pair in zip(self.values, more.values, strict=True)],
        )


class RMSNorm(nn.Module):
    """x / rms(x) * weight with the statistics in float32. Source: Zhang & Sennrich 2019, eq. 4."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Same shape and dtype as `x`."""
        x32 = x.float()
        scale = torch.rsqrt(x32.square().mean(-1, keepdim=True) + self.eps)
        return (x32 * scale).to(x.dtype) * self.weight


def rotary_table(config: ModelConfig, positions: Tensor) -> tuple[Tensor, Tensor]:
    """Cosines and sines (..., d) in float32 for integer positions (...).

    Source: Su et al. 2021 (RoFormer), in the half-split layout of GPT-NeoX and Llama.
    """
    half = torch.arange(0, config.head_dim, 2, device=positions.device, dtype=torch.float32)
    frequencies = config.rope_theta ** (-half / config.head_dim)
    angles = positions.float().unsqueeze(-1) * frequencies
    return torch.cat([angles.cos()] * 2, -1), torch.cat([angles.sin()] * 2, -1)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate pairs (i, i + d/2) of the last dimension; the table broadcasts over heads."""
    x1, x2 = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-x2, x1], dim=-1) * sin


class Attention(nn.Module):
    """Grouped-query attention of canvases or a prompt over past keys and themselves."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        c = config
        self.config = c
        self.q_proj = nn.Linear(c.hidden_size, c.num_heads * c.head_dim, bias=c.qkv_bias)
        self.k_proj = nn.Linear(c.hidden_size, c.num_kv_heads * c.head_dim, bias=c.qkv_bias)
        self.v_proj = nn.Linear(c.hidden_size, c.num_kv_heads * c.head_dim, bias=c.qkv_bias)
        self.o_proj = nn.Linear(c.num_heads * c.head_dim, c.hidden_size, bias=False)
        self.q_norm = RMSNorm(c.head_dim, c.rms_norm_eps) if c.qk_norm else None
        self.k_norm = RMSNorm(c.head_dim, c.rms_norm_eps) if c.qk_norm else None

    def forward(
        self,
        x: Tensor,
        table: tuple[Tensor, Tensor],
        past: tuple[Tensor, Tensor, Tensor | None] | None,
        own_bias: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Attend.

        Args:
            x: (B, n, T, D).
            table: Cosines and sines, broadcastable to (B, n, T, 1, d).
            past: Keys and values (B, K, P, d) that all n sequences of a row see; bias (B, P).
            own_bias: (T, T) or (B, n, T, T) added to the scores among a sequence's own positions.

        Returns:
            The output (B, n, T, D) and the sequences' own keys and values (B, n, K, T, d).
        """
        q, k, v = self.project(x, table)
        kt = k.transpose(2, 3)  # (B, n, K, T, d)
        vt = v.transpose(2, 3)
        mixed = _mix(q, kt, vt, past, own_bias)
        return self.o_proj(mixed), kt, vt

    def project(self, x: Tensor, table: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Queries (..., H, d), scaled and rotated, keys (..., K, d), rotated, and values."""
        c = self.config
        q = self.q_proj(x).unflatten(-1, (c.num_heads, c.head_dim))
        k = self.k_proj(x).unflatten(-1, (c.num_kv_heads, c.head_dim))
        v = self.v_proj(x).unflatten(-1, (c.num_kv_heads, c.head_dim))
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        return rotate(q, *table) * c.head_dim**-0.5, rotate(k, *table), v


def _mix(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    past: tuple[Tensor, Tensor, Tensor | None] | None,
    own_bias: Tensor | None,
) -> Tensor:
    """Softmax-weighted values (B, n, T, H * d) of q (B, n, T, H, d) over the past and own keys.

    Two batched products, prompt part and own part, under one softmax: keys are never expanded to
    all query heads nor copied per canvas, and the backward pass is two products as well.
    """
    B, n, T, H, d = q.shape
    K = k.shape[2]
    G = H // K
    grouped = q.view(B, n, T, K, G, d).permute(0, 3, 1, 4, 2, 5)  # (B, K, n, G, T, d)
    own_q = grouped.reshape(B * K * n, G * T, d)
    own_k = k.transpose(1, 2).reshape(B * K * n, T, d)
    own_v = v.transpose(1, 2).reshape(B * K * n, T, d)
    own = torch.bmm(own_q, own_k.transpose(1, 2)).view(B, K, n, G, T, T).float()
    if own_bias is not None:
        own = own + (own_bias if own_bias.dim() == 2 else own_bias[:, None, :, None])
    if past is None:
        weights = own.softmax(-1).to(v.dtype)
        out = torch.bmm(weights.view(B * K * n, G * T, T), own_v)
        return out.view(B, K, n, G, T, d).permute(0, 2, 4, 1, 3, 5).reshape(B, n, T, H * d)
    past_k, past_v, past_bias = past
    P = past_k.shape[2]
    flat_q = own_q.view(B * K, n * G * T, d)
    far = torch.bmm(flat_q, past_k.reshape(B * K, P, d).transpose(1, 2))
    far = far.view(B, K, n, G, T, P).float()
    if past_bias is not None:
        far = far + past_bias[:, None, None, None, None]
    weights = torch.cat([far, own], dim=-1).softmax(-1).to(v.dtype)
    far_w, own_w = weights[..., :P], weights[..., P:]
    out = torch.bmm(own_w.reshape(B * K * n, G * T, T), own_v).view(B * K, n * G * T, d)
    out = out + torch.bmm(far_w.reshape(B * K, n * G * T, P), past_v.reshape(B * K, P, d))
    return out.view(B, K, n, G, T, d).permute(0, 2, 4, 1, 3, 5).reshape(B, n, T, H * d)


class SwiGLU(nn.Module):
    """down(silu(gate(x)) * up(x)). Source: Shazeer 2020, eq. 6."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        D, width = config.hidden_size, config.intermediate_size
        self.gate_proj = nn.Linear(D, width, bias=False)
        self.up_proj = nn.Linear(D, width, bias=False)
        self.down_proj = nn.Linear(width, D, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Same shape as `x`."""
        out: Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class Block(nn.Module):
    """Attention and SwiGLU, each behind its norm and added to the stream."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = SwiGLU(config)

    def forward(
        self,
        x: Tensor,
        table: tuple[Tensor, Tensor],
        past: tuple[Tensor, Tensor, Tensor | None] | None,
        own_bias: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """As `Attention.forward`, over the whole block."""
        mixed, k, v = self.self_attn(self.input_layernorm(x), table, past, own_bias)
        x = x + mixed
        return x + self.mlp(self.post_attention_layernorm(x)), k, v


class Transformer(nn.Module):
    """Embedding, blocks, final norm and head; parameter names are those of Hugging Face's Llama."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self._table: tuple[Tensor, Tensor] | None = None
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers: list[Block] = nn.ModuleList(  # type: ignore[assignment]  # iterates as one
            Block(config) for _ in range(config.num_layers)
        )
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.lm_head = (
            None
            if config.tie_word_embeddings
            else nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        )

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of weights and activations."""
        return self.embed_tokens.weight.dtype

    def read(self, tokens: Tensor, past: PromptKeys | None = None) -> tuple[Tensor, PromptKeys]:
        """Read a prompt, or a further piece of one, causally.

        Args:
            tokens: (B, T) ids at positions past.length .. past.length + T - 1.
            past: What was read before; every row unpadded.

        Returns:
            Final hidden states (B, T, D), normalised, and the keys of these T positions alone.
        """
        start = past.length if past else 0
        T = tokens.shape[1]
        positions = torch.arange(start, start + T, device=tokens.device)
        causal = torch.full((T, T), float("-inf"), device=tokens.device).triu(1)
        x = self.embed_tokens(tokens).unsqueeze(1)
        hidden, keys = self._blocks(x, positions[:, None], past, causal)
        return hidden[:, 0], keys

    def refine(
        self,
        embeddings: Tensor,
        positions: Tensor,
        prompt: PromptKeys | None,
        own_bias: Tensor | None = None,
    ) -> Tensor:
        """Run canvases that see their prompt and, both ways, themselves.

        Args:
            embeddings: (B, n, T, D), n canvases over each prompt.
            positions: (B, T) or (T,) positions in the text.
            prompt: Keys of the prompts.
            own_bias: As in `Attention.forward`; None is bidirectional.

        Returns:
            Final hidden states (B, n, T, D), normalised.
        """
        table_at = positions[..., None] if positions.dim() == 1 else positions[:, None, :, None]
        return self._blocks(embeddings, table_at, prompt, own_bias)[0]

    def logits(self, hidden: Tensor) -> Tensor:
        """Float32 scores (..., V) of final hidden states (..., D)."""
        head = self.embed_tokens.weight if self.lm_head is None else self.lm_head.weight
        return F.linear(hidden, head).float()

    def _rotary(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Rows (..., d) of the table for positions (...), in the network's dtype.

        Looked up, not computed: the last bit of a computed cosine depends on its neighbours.
        """
        if self._table is None or (self._table[0].device, self._table[0].dtype) != (
            positions.device,
            self.dtype,
        ):
            every = torch.arange(self.config.max_position_embeddings, device=positions.device)
            cos, sin = rotary_table(self.config, every)
            self._table = (cos.to(self.dtype), sin.to(self.dtype))
        return self._table[0][positions], self._table[1][positions]

    def _blocks(
        self, x: Tensor, positions: Tensor, past: PromptKeys | None, own_bias: Tensor | None
    ) -> tuple[Tensor, PromptKeys]:
        table = self._rotary(positions)
        keys: list[Tensor] = []
        values: list[Tensor] = []
        for index, layer in enumerate(self.layers):
            seen = (past.keys[index], past.values[index], past.bias) if past else None
            x, k, v = layer(x, table, seen, own_bias)
            keys.append(k[:, 0])
            values.append(v[:, 0])
        return self.norm(x), PromptKeys(keys, values)
