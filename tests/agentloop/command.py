"""What tests of the command share: what a run of it did."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Ran:
    """What a run of the command did."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output, which is JSON and nothing else."""
        return json.loads(self.out)


Run = Callable[..., Ran]
