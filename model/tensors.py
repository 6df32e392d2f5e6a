"""Typed faces of a few library functions whose own types are partly unknown.

They add nothing; they keep the rest of the package free of unknown types.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
import safetensors
import safetensors.torch as stored
import torch
from numpy.typing import NDArray
from torch import Tensor


def from_array(array: NDArray[Any]) -> Tensor:
    """A tensor over the array's own memory."""
    return cast(Tensor, cast(Any, torch).from_numpy(array))


def random_normal(shape: tuple[int, ...], seed: int, std: float = 1.0) -> Tensor:
    """Float32 normal numbers, the same for the same seed on any machine."""
    draws = np.random.default_rng(seed).normal(scale=std, size=shape)
    return from_array(draws.astype(np.float32))


def load_tensors(path: Path) -> dict[str, Tensor]:
    """All tensors of a safetensors file."""
    return cast(dict[str, Tensor], cast(Any, stored).load_file(path))


def tensors_of(path: Path) -> Iterator[tuple[str, Tensor]]:
    """The tensors of a safetensors file, one at a time."""
    with cast(Any, safetensors).safe_open(path, framework="pt") as opened:
        for name in opened.keys():  # noqa: SIM118 - it is no mapping
            yield name, opened.get_tensor(name)


def save_tensors(
    tensors: Mapping[str, Tensor], path: Path, about: Mapping[str, str] | None = None
) -> None:
    """Write a safetensors file with metadata."""
    cast(Any, stored).save_file(dict(tensors), path, dict(about) if about else None)


def metadata_of(path: Path) -> dict[str, str]:
    """The metadata of a safetensors file, empty if it has none."""
    with cast(Any, safetensors).safe_open(path, framework="pt") as opened:
        return dict(opened.metadata() or {})
