"""Compiled automata on disk, so that a constraint is compiled once and not once a process.

Files are named by a digest of their key, hold plain integer arrays and are checked as they are
read. Nothing in a file is executed. A file that cannot be used is as good as none.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from platformdirs import user_cache_path
from safetensors import SafetensorError
from safetensors.numpy import (  # bare PathLike in the stubs
    load_file,  # pyright: ignore[reportUnknownVariableType]
    save_file,  # pyright: ignore[reportUnknownVariableType]
)

from agentloop.model.constraint.token_automaton import TokenAutomaton

_FORMAT = "1"  # raise it when the arrays, or what compilation makes of a constraint, change
_OFFSETS = {
    "class_offsets": "class_tokens",
    "pair_offsets": "pair_target",
    "set_offsets": "set_classes",
}


def default_folder() -> Path:
    """Where the current user's compiled constraints lie."""
    return user_cache_path("agentloop") / "constraints"


@dataclass(frozen=True)
class ConstraintStore:
    """A folder of compiled automata.

    Attributes:
        folder: Made when first written to.
        max_bytes: Size beyond which the files not used for longest are removed.
    """

    folder: Path
    max_bytes: int = 512 << 20

    def load(self, key: str) -> TokenAutomaton | None:
        """The automaton stored under a key; None if there is none that can be used."""
        path = self._path(key)
        try:
            arrays = load_file(path)
            automaton = TokenAutomaton(**{f.name: arrays[f.name] for f in fields(TokenAutomaton)})
            os.utime(path)
        except (OSError, KeyError, ValueError, SafetensorError):
            return None
        return automaton if is_consistent(automaton) else None

    def save(self, key: str, automaton: TokenAutomaton) -> bool:
        """Store an automaton; False if the folder cannot be written."""
        arrays = {f.name: getattr(automaton, f.name) for f in fields(TokenAutomaton)}
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=self.folder, suffix=".part")
            os.close(handle)
            try:
                save_file(arrays, name)
                Path(name).replace(self._path(key))
            finally:
                Path(name).unlink(missing_ok=True)
            self._evict()
        except (OSError, SafetensorError):
            return False
        return True

    def _path(self, key: str) -> Path:
        digest = hashlib.sha256(f"{_FORMAT}:{key}".encode()).hexdigest()
        return self.folder / f"{digest}.safetensors"

    def _evict(self) -> None:
        """Remove the files not used for longest; another process may do the same meanwhile."""
        found: list[tuple[float, int, Path]] = []
        for path in self.folder.glob("*.safetensors"):
            with contextlib.suppress(FileNotFoundError):
                status = path.stat()
                found.append((status.st_mtime, status.st_size, path))
        excess = sum(size for _, size, _ in found) - self.max_bytes
        for _, size, path in sorted(found):
            if excess <= 0:
                return
            path.unlink(missing_ok=True)
            excess -= size


def is_consistent(automaton: TokenAutomaton) -> bool:
    """Whether the arrays fit each other, so that no index read from them leads outside."""
    arrays = {f.name: getattr(automaton, f.name) for f in fields(TokenAutomaton)}
    if any(a.dtype != np.int32 or a.ndim != 1 for a in arrays.values()):
        return False
    for offsets, values in _OFFSETS.items():
        at, end = arrays[offsets], len(arrays[values])
        if len(at) < 2 or at[0] != 0 or at[-1] != end or (np.diff(at) <= 0).any():
            return False
    num_states, num_classes = len(automaton.distance), len(automaton.class_offsets) - 1
    return (
        len(automaton.pair_offsets) == num_states + 1
        and len(automaton.byte_state) == num_states
        and len(automaton.pair_source) == len(automaton.pair_set) == len(automaton.pair_target)
        and _within(automaton.token_class, -1, num_classes)
        and _within(automaton.class_tokens, 0, len(automaton.token_class))
        and _within(automaton.pair_source, 0, num_states)
        and _within(automaton.pair_target, 0, num_states)
        and _within(automaton.pair_set, 0, len(automaton.set_offsets) - 1)
        and _within(automaton.set_classes, 0, num_classes + 1)
    )


def _within(values: NDArray[np.int32], lo: int, hi: int) -> bool:
    return len(values) == 0 or (int(values.min()) >= lo and int(values.max()) < hi)
