"""Matrix products with weights that are packed once, for inference.

Two kinds, one interface: dense, in the weights' own dtype; and 8-bit, where weights have a scale
per output and activations one per row. Sums of 8-bit products are whole numbers, so their order
does not matter: a row's result is the same bit for bit whatever else is multiplied with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol, cast, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from agentloop.errors import ModelError

Precision = Literal["int8", "bfloat16", "float32"]

MIN_ROWS = 4
"""Float32 products of fewer rows take another way through the sum; checked at 1 to 300 rows."""
_LEVELS = 127
_ZERO = 128
"""The code of 0: the processor multiplies unsigned activations with signed weights."""


class Product(Protocol):
    """x @ weight.T + bias, each row of x scaled first.

    Attributes:
        shape: Outputs and inputs.
        num_bytes: Of the weights.
    """

    shape: tuple[int, int]
    num_bytes: int

    def __call__(self, x: Tensor, factor: Tensor | None = None) -> Tensor:
        """Float32 or the weights' dtype (N, out) of float32 rows (N, in).

        Args:
            x: The rows; not changed.
            factor: (N, 1) that each row is multiplied with; None is 1.
        """
        ...


MakeProduct = Callable[[Tensor, Tensor | None], Product]
"""Makes a weight (out, in) and bias (out,) ready to multiply with."""


class DenseProduct:
    """A product in the weights' dtype, over at least MIN_ROWS rows where fewer sum differently."""

    def __init__(self, weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> None:
        self.shape = (weight.shape[0], weight.shape[1])
        self.num_bytes = weight.numel() * dtype.itemsize
        self._weight = weight.to(dtype)
        self._bias = None if bias is None else bias.to(dtype)
        self._dtype = dtype
        self._min_rows = MIN_ROWS if dtype == torch.float32 else 1
        self._is_packed = _packs(self._weight)
        if self._is_packed:
            self._weight = torch.ops.mkldnn._reorder_linear_weight(self._weight.contiguous(), 64)

    def __call__(self, x: Tensor, factor: Tensor | None = None) -> Tensor:
        """As `Product`."""
        scaled = (x if factor is None else x * factor).to(self._dtype)
        if len(x) < self._min_rows:
            scaled = F.pad(scaled, (0, 0, 0, self._min_rows - len(x)))
        if self._is_packed:
            out: Tensor = torch.ops.mkldnn._linear_pointwise(
                scaled, self._weight, self._bias, "none", [], ""
            )
        else:
            out = F.linear(scaled, self._weight, self._bias)
        return out[: len(x)]


class IntegerProduct:
    """A product of 8-bit codes.

    Args:
        weight: (out, in); each output gets a scale.
        bias: (out,).
        smoothing: (in,) that activations are multiplied with, and weights divided by, ahead of
            rounding: it moves the range of loud inputs into the weights.
    """

    def __init__(
        self, weight: Tensor, bias: Tensor | None, smoothing: Tensor | None = None
    ) -> None:
        self.shape = (weight.shape[0], weight.shape[1])
        self.num_bytes = weight.numel()
        weight = weight.float()
        if smoothing is not None:
            weight = weight / smoothing
        scale = weight.abs().amax(1).clamp_min(1e-30) / _LEVELS
        codes = (weight / scale[:, None]).round().to(torch.int8)
        self._packed = torch.ops.onednn.qlinear_prepack(codes, [64, weight.shape[1]])
        self._scale = scale
        self._zeros = torch.zeros(len(scale), dtype=torch.int64)
        self._smoothing = smoothing
        self._bias = None if bias is None else bias.float()

    def __call__(self, x: Tensor, factor: Tensor | None = None) -> Tensor:
        """As `Product`, in float32."""
        if self._smoothing is not None:
            x = x * self._smoothing
        range_ = x.abs().amax(-1, keepdim=True).clamp_min_(1e-30)
        codes = (x * (_LEVELS / range_)).add_(_ZERO + 0.5).to(torch.int32).to(torch.uint8)
        out: Tensor = torch.ops.onednn.qlinear_pointwise(
            codes, 1.0, _ZERO, self._packed, self._scale, self._zeros, None, 1.0, 0,
            torch.float32, "none", [], "",
        )  # fmt: skip
        out.mul_((range_ if factor is None else range_ * factor) / _LEVELS)
        return out if self._bias is None else out.add_(self._bias)


class ListeningProduct:
    """A float32 product that notes how loud each of its inputs was."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.shape = (weight.shape[0], weight.shape[1])
        self.num_bytes = 4 * weight.numel()
        self.weight = weight.float()
        self._bias = None if bias is None else bias.float()
        self.loudness = torch.zeros(weight.shape[1], device=weight.device)

    def __call__(self, x: Tensor, factor: Tensor | None = None) -> Tensor:
        """As `Product`, in float32."""
        scaled = x if factor is None else x * factor
        self.loudness = scaled.square().mean(0).sqrt()
        return F.linear(scaled, self.weight, self._bias)

    def smoothing(self, exponent: float) -> Tensor:
        """What evens out inputs (in,), of mean 1.

        Source: Xiao et al. 2022 (SmoothQuant), eq. 4, with the root mean square for the maximum of
        activations.
        """
        largest = self.weight.abs().amax(0).clamp_min(1e-5)
        evened = largest ** (1 - exponent) / self.loudness.clamp_min(1e-5) ** exponent
        return evened / evened.mean()


def precision_of(dtype: torch.dtype) -> Precision:
    """The precision that a dtype stands for.

    Raises:
        ModelError: It stands for none, or this processor has no instructions for 8-bit products.
    """
    name = str(dtype).removeprefix("torch.")
    known = get_args(Precision)
    if name not in known:
        raise ModelError(
            f"dtype is {dtype}, expected one of {', '.join(f'torch.{k}' for k in known)}"
        )
    if name == "int8" and not has_integer_products():
        raise ModelError(
            "dtype is torch.int8, but this processor or build of torch has no fast 8-bit products; "
            "leave dtype out to get the fastest that it has"
        )
    return cast(Precision, name)


def native_precision() -> Precision:
    """The fastest of the precisions that this processor has instructions for."""
    if has_integer_products():
        return "int8"
    return "bfloat16" if has_bfloat16_products() else "float32"


def has_bfloat16_products() -> bool:
    """Whether this processor has instructions for products in bfloat16."""
    checks = ("_is_avx512_bf16_supported", "_is_amx_tile_supported", "_is_arm_bf16_supported")
    known = [getattr(torch.cpu, name, None) for name in checks]
    return any(check is not None and check() for check in known)


def has_integer_products() -> bool:
    """Whether this build of torch and this processor multiply 8-bit codes fast."""
    has_instructions = getattr(torch.cpu, "_is_vnni_supported", None)
    return (
        has_instructions is not None
        and bool(has_instructions())
        and "onednn" in torch.backends.quantized.supported_engines
        and hasattr(torch.ops.onednn, "qlinear_prepack")
    )


def _packs(weight: Tensor) -> bool:
    if weight.device.type != "cpu" or not torch.backends.mkldnn.enabled:
        return False
    is_supported = torch.ops.mkldnn._is_mkldnn_bf16_supported
    return weight.dtype == torch.float32 or (
        weight.dtype == torch.bfloat16 and bool(is_supported())
    )
