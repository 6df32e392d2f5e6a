"""Packed products: right, and the same for a row whatever else is multiplied."""

import numpy as np
import pytest
import torch

from agentloop.errors import ModelError
from agentloop.model.products import (
    DenseProduct,
    IntegerProduct,
    ListeningProduct,
    Product,
    has_integer_products,
    precision_of,
)
from agentloop.model.tensors import random_normal

needs_integers = pytest.mark.skipif(
    not has_integer_products(), reason="no instructions for 8-bit products"
)
KINDS = [
    "float32",
    "bfloat16",
    pytest.param("int8", marks=needs_integers),
    pytest.param("smoothed", marks=needs_integers),
]


def made(kind: str, weight: torch.Tensor, bias: torch.Tensor | None) -> Product:
    if kind == "int8":
        return IntegerProduct(weight, bias)
    if kind == "smoothed":
        return IntegerProduct(weight, bias, torch.rand(weight.shape[1]) + 0.5)
    return DenseProduct(weight, bias, getattr(torch, kind))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("has_bias", [False, True])
def test_products_are_right(kind: str, has_bias: bool) -> None:
    """Within the precision, a product is x times the factor times the weight, plus the bias."""
    weight, x = random_normal((40, 64), 1), random_normal((7, 64), 2)
    bias = random_normal((40,), 3) if has_bias else None
    factor = torch.linspace(0.1, 3, 7)[:, None]
    expected = (x * factor) @ weight.T + (0 if bias is None else bias)
    got = made(kind, weight, bias)(x.clone(), factor)
    tolerance = {"float32": 1e-5, "bfloat16": 0.02}.get(kind, 0.02)
    assert (got - expected).abs().max() < tolerance * expected.abs().max()


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_does_not_depend_on_its_company(kind: str) -> None:
    """Every row alone equals the same row among 1 to 200 others, bit for bit."""
    weight, x = random_normal((192, 64), 1), random_normal((201, 64), 2)
    product = made(kind, weight, None)
    whole = product(x)
    for start, stop in ((0, 1), (5, 6), (3, 17), (100, 165), (0, 200)):
        assert torch.equal(product(x[start:stop]), whole[start:stop])


@needs_integers
def test_smoothing_saves_quiet_inputs_from_a_loud_one() -> None:
    """With one input a hundred times louder than the rest, the error falls several times."""
    weight, x = random_normal((64, 128), 1), random_normal((50, 128), 2)
    x[:, 7] *= 100
    weight[:, 7] /= 100
    listening = ListeningProduct(weight, None)
    expected = listening(x)
    plain = (IntegerProduct(weight, None)(x) - expected).square().mean()
    evened = (IntegerProduct(weight, None, listening.smoothing(0.5))(x) - expected).square().mean()
    assert evened < plain / 10


def test_dtypes_stand_for_precisions() -> None:
    """A dtype without products of its own is refused with those that have some."""
    assert precision_of(torch.float32) == "float32"
    with pytest.raises(ModelError, match=r"torch.float16, expected one of torch.int8, torch.bfl"):
        precision_of(torch.float16)


def test_a_zero_row_gives_the_bias() -> None:
    """Rows of zeros have no range; they come out as the bias, not as NaN."""
    if has_integer_products():
        got = IntegerProduct(random_normal((8, 16), 1), torch.ones(8))(torch.zeros(3, 16))
        assert np.array_equal(got.numpy(), np.ones((3, 8)))
