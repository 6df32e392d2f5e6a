"""What all tests share: hypothesis without clocks, and the default model, loaded once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from agentloop.model.lm import DiffusionLM

settings.register_profile("agentloop", deadline=None)
settings.load_profile("agentloop")


@pytest.fixture(scope="session")
def default_lm() -> Iterator[DiffusionLM]:
    """The default model with its shipped weights; tests that use it are marked `weights`."""
    from agentloop.model.lm import DiffusionLM

    with DiffusionLM.load("default") as model:
        yield model
