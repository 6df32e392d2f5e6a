"""The JSON-Schema-Test-Suite as it lies in tests/data (MIT, Copyright (c) 2012 Julian Berman)."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SUITE = Path(__file__).resolve().parents[2] / "data" / "json_schema_suite"


def groups(name: str, every: int = 1) -> Iterator[dict[str, Any]]:
    """Every n-th group of tests of a file of the suite."""
    lines = gzip.decompress((SUITE / f"{name}.jsonl.gz").read_bytes()).splitlines()
    return map(json.loads, lines[::every])
