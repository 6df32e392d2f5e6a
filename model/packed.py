"""A network made ready to run: its weights packed for the processor, its passes without padding.

The same mathematics as `network.Transformer`, for inference only. Norm weights are folded into the
products that follow them, products that share an input are one, and rows of any number of texts go
through them together. Attention, whose shape differs, goes text by text over a buffer that holds
the keys of the whole text. No row's numbers depend on what else is in the pass: products do not by
their nature (see `products`), additions and multiplications of single elements do not, and what
might (exponentials and sums, whose last bit can depend on where an element falls in a vector or in
a thread's share) is taken over each text's own shape.

Letters: N rows of all texts, T positions of one text, P positions of its past, D width, F width
inside the SwiGLU, H query heads, K key/value heads, G = H / K, d head width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from agentloop.model.keys import Keys
from agentloop.model.network import Attention, Block, RMSNorm, Transformer, rotary_table
from agentloop.model.products import (
    DenseProduct,
    IntegerProduct,
    ListeningProduct,
    MakeProduct,
    Precision,
    Product,
    native_precision,
)

ORDINARY_TEXT = (
    "Find a table for two at Nopa in San Francisco on 7 March, 19:30. "
    '{"name": "x", "city": "Paris"} 1. It is in the list, and the answer is no.'
)
"""Makes a sample for `PackedNetwork`, with some masks behind it."""
_EVEN_BLOCKS = 0.5
_EVEN_HEAD = 0.3
"""Exponents of smoothing: how much of an input's loudness goes into the weights."""


@dataclass(frozen=True)
class Span:
    """The rows of one text in a pass.

    Attributes:
        start: Its first row among N.
        stop: The row after its last.
        keys: What it sees; its own keys are written there, `length` is left alone.
        first: Place in the text of its first row; it sees all places before.
        is_causal: Whether a row sees no later row of the span; otherwise it sees all.
    """

    start: int
    stop: int
    keys: Keys
    first: int
    is_causal: bool = False


class PackedNetwork:
    """A network ready to run; safe to use from several threads on different keys.

    Args:
        network: The weights; not kept, but for its embedding.
        precision: Of products; by default the processor's own for a network in a 16-bit dtype, and
            float32 for one in float32.
        sample: Ids of an ordinary text with a few masks in it. In 8-bit products, inputs that are
            loud on it get finer weights instead of drowning the others.
    """

    def __init__(
        self,
        network: Transformer,
        precision: Precision | None = None,
        sample: Sequence[int] = (),
    ) -> None:
        self.config = network.config
        self.precision: Precision = precision or _precision_for(network)
        self.dtype = torch.float32 if self.precision == "float32" else torch.bfloat16
        self._eps = network.norm.eps
        self._embedding = network.embed_tokens.weight.detach()
        self.device = self._embedding.device
        every = torch.arange(self.config.max_position_embeddings, device=self.device)
        cos, sin = rotary_table(self.config, every)
        half = self.config.head_dim // 2
        self._cos = cos[:, None]  # (positions, 1, d)
        self._sin = torch.cat([-sin[:, :half], sin[:, half:]], dim=-1)[:, None]
        with torch.inference_mode():
            self._pack(network, sample)

    def _pack(self, network: Transformer, sample: Sequence[int]) -> None:
        dtype = self.dtype
        if self.precision != "int8":
            self._fill(network, lambda weight, bias: DenseProduct(weight, bias, dtype))
            return
        listening: list[ListeningProduct] = []

        def listen(weight: Tensor, bias: Tensor | None) -> Product:
            listening.append(ListeningProduct(weight, bias))
            return listening[-1]

        self._fill(network, listen)
        if sample:
            keys = self.new_keys(len(sample))
            self.logits(self.run(sample, [Span(0, len(sample), keys, 0)]))
        exponents = [_EVEN_BLOCKS] * (len(listening) - 1) + [_EVEN_HEAD]
        smoothings = iter(
            [
                heard.smoothing(exponent) if sample else None
                for heard, exponent in zip(listening, exponents, strict=True)
            ]
        )
        self._fill(network, lambda weight, bias: IntegerProduct(weight, bias, next(smoothings)))

    def _fill(self, network: Transformer, make: MakeProduct) -> None:
        self._layers = [PackedBlock(layer, make) for layer in network.layers]
        head = self._embedding if network.lm_head is None else network.lm_head.weight
        self._head = _behind_norm([head], [], network.norm, make)

    def new_keys(self, capacity: int) -> Keys:
        """An empty buffer for `capacity` positions."""
        return Keys.empty(self.config, capacity, self.dtype, self.device)

    def num_key_bytes(self, length: int) -> int:
        """Memory of the keys and values of a text."""
        c = self.config
        return 2 * c.num_layers * c.num_kv_heads * length * c.head_dim * self.dtype.itemsize

    @property
    def products(self) -> list[Product]:
        """Those of all blocks, in the order of a pass."""
        return [product for layer in self._layers for product in layer.products]

    @torch.inference_mode()
    def multiply_alone(self, inputs: Sequence[Tensor]) -> None:
        """All products of the blocks and nothing else: the least that a pass can take.

        Args:
            inputs: Rows (N, in) for every product.
        """
        for product, rows in zip(self.products, inputs, strict=True):
            product(rows)

    @torch.inference_mode()
    def run(self, ids: Sequence[int], spans: Sequence[Span]) -> Tensor:
        """One pass.

        Args:
            ids: N token ids, the spans' one after another.
            spans: Where each text lies, and its past.

        Returns:
            The stream (N, D) in float32 behind the last block, ahead of the final norm.
        """
        x = self._embedding[torch.tensor(ids, device=self.device)].float()
        places = torch.tensor(
            [place for s in spans for place in range(s.first, s.first + s.stop - s.start)],
            device=self.device,
        )
        table = self._cos[places], self._sin[places]
        masks = [_causal(s.stop - s.start, self.device) if s.is_causal else None for s in spans]
        for number, layer in enumerate(self._layers):
            layer.run(x, table, spans, masks, number)
        return x

    @torch.inference_mode()
    def logits(self, stream: Tensor) -> Tensor:
        """Float32 scores (n, V) of some rows of what `run` gives."""
        return self._head(stream, _norm_factor(stream, self._eps)).float()

    @torch.inference_mode()
    def read(self, ids: Sequence[int], keys: Keys) -> Tensor:
        """Read tokens causally behind a text and take them into it; gives their stream (n, D)."""
        stream = self.run(ids, [Span(0, len(ids), keys, keys.length, is_causal=True)])
        keys.length += len(ids)
        return stream


class PackedBlock:
    """One block of a packed network."""

    def __init__(self, block: Block, make: MakeProduct) -> None:
        attention = block.self_attn
        c = self.config = attention.config
        projections = (attention.q_proj, attention.k_proj, attention.v_proj)
        self._eps = c.rms_norm_eps
        self._norms = _head_norms(attention)
        scale = c.head_dim**-0.5
        scales = [1.0 if self._norms else scale, 1.0, 1.0]
        weights = [p.weight * s for p, s in zip(projections, scales, strict=True)]
        has_bias = c.qkv_bias
        biases = [p.bias * s for p, s in zip(projections, scales, strict=True) if has_bias]
        self._qkv = _behind_norm(weights, biases, block.input_layernorm, make)
        self._out = make(attention.o_proj.weight, None)
        mlp = block.mlp
        self._gate_up = _behind_norm(
            [mlp.gate_proj.weight, mlp.up_proj.weight],
            [],
            block.post_attention_layernorm,
            make,
        )
        self._down = make(mlp.down_proj.weight, None)

    @property
    def products(self) -> list[Product]:
        """In the order of a pass."""
        return [self._qkv, self._out, self._gate_up, self._down]

    def run(
        self,
        x: Tensor,
        table: tuple[Tensor, Tensor],
        spans: Sequence[Span],
        masks: Sequence[Tensor | None],
        number: int,
    ) -> None:
        """Add this block's work to the stream x (N, D), in place.

        Args:
            x: The stream.
            table: Cosines and signed sines (N, 1, d).
            spans: As in `PackedNetwork.run`.
            masks: Per span (T, T) to add to scores among its own rows, or None.
            number: Which layer of the keys is this block's.
        """
        c = self.config
        qkv = self._qkv(x, _norm_factor(x, self._eps)).float()
        heads = qkv.view(len(x), -1, c.head_dim)  # (N, H + 2 K, d)
        rotated = self._rotated(heads[:, : c.num_heads + c.num_kv_heads], table)
        mixed = torch.empty(len(x), c.num_heads, c.head_dim, device=x.device)
        for span, mask in zip(spans, masks, strict=True):
            rows = slice(span.start, span.stop)
            stop = span.first + span.stop - span.start
            k, v = span.keys.keys[number], span.keys.values[number]
            k[:, span.first : stop] = rotated[rows, c.num_heads :].transpose(0, 1)
            v[:, span.first : stop] = heads[rows, c.num_heads + c.num_kv_heads :].transpose(0, 1)
            mixed[rows] = _attended(rotated[rows, : c.num_heads], k[:, :stop], v[:, :stop], mask)
        x.add_(self._out(mixed.view(len(x), -1)))
        gate_up = self._gate_up(x, _norm_factor(x, self._eps)).float()
        gate, up = gate_up.chunk(2, dim=-1)
        for span in spans:
            F.silu(gate[span.start : span.stop], inplace=True)
        x.add_(self._down(gate.mul_(up)))

    def _rotated(self, heads: Tensor, table: tuple[Tensor, Tensor]) -> Tensor:
        """Queries and keys (N, H + K, d), normalised where the model does, scaled and rotated."""
        if self._norms is not None:
            weight, eps = self._norms
            heads = heads * _norm_factor(heads, eps) * weight
        turned = heads.roll(self.config.head_dim // 2, dims=-1).mul_(table[1])
        return turned.add_(heads * table[0])


def _attended(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """Softmax-weighted values (T, H, d) of q (T, H, d) over k and v (K, P + T, d).

    The G queries that share a key are rows of one product, so keys are never copied.
    """
    T, H, d = q.shape
    K, seen, _ = k.shape
    grouped = q.view(T, K, H // K, d).permute(1, 2, 0, 3)  # (K, G, T, d)
    flat = torch.empty(K, H // K, T, d, dtype=k.dtype, device=k.device).copy_(grouped)
    scores = torch.bmm(flat.view(K, -1, d), k.transpose(1, 2)).float()  # (K, G T, P + T)
    if mask is not None:
        scores.view(K, -1, T, seen)[..., seen - T :].add_(mask)
    out = torch.bmm(scores.softmax(-1).to(v.dtype), v)
    return out.view(K, H // K, T, d).permute(2, 0, 1, 3).reshape(T, H, d)


def _norm_factor(x: Tensor, eps: float) -> Tensor:
    """1 / rms (..., 1) of the last dimension."""
    return x.square().mean(-1, keepdim=True).add_(eps).rsqrt_()


def _behind_norm(
    weights: Sequence[Tensor],
    biases: Sequence[Tensor],
    norm: RMSNorm,
    make: MakeProduct,
) -> Product:
    """Products of one normalised input as one, the norm's weight folded in."""
    gain = norm.weight.detach().float()
    weight = torch.cat([w.detach().float() for w in weights]) * gain
    return make(weight, torch.cat([b.detach() for b in biases]) if biases else None)


def _head_norms(attention: Attention) -> tuple[Tensor, float] | None:
    """Weights (H + K, d) of the norms over each head's width, the queries' scale in them."""
    q, k = attention.q_norm, attention.k_norm
    if q is None or k is None:
        return None
    c = attention.config
    scaled = q.weight.detach().float() * c.head_dim**-0.5
    rows = [scaled.expand(c.num_heads, -1), k.weight.detach().float().expand(c.num_kv_heads, -1)]
    return torch.cat(rows), q.eps


def _causal(length: int, device: torch.device) -> Tensor | None:
    if length == 1:
        return None
    return torch.full((length, length), float("-inf"), device=device).triu_(1)


def _precision_for(network: Transformer) -> Precision:
    if network.dtype == torch.float32:
        return "float32"
    return native_precision() if network.embed_tokens.weight.device.type == "cpu" else "bfloat16"
