"""Compiled automata on disk, so that a constraint is compiled once and not once a process.

Files are named by a digest of their key and hold plain integer arrays with a digest of key and
content, which is checked as they are read. Nothing in a file is executed. A file that cannot be
used is as good as none. A file is finished under a name of its own before it is put in its place,
so readers and other writers, of this process or another, see whole files only.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import time
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from platformdirs import user_cache_path
from safetensors import SafetensorError, safe_open
from safetensors.numpy import (
    save_file,  # pyright: ignore[reportUnknownVariableType] -- bare PathLike in the stubs
)

from agentloop.model.constraint.token_automaton import TokenAutomaton

Ints = NDArray[np.int32]
_FORMAT = "2"  # raise it when the arrays, or what compilation makes of a constraint, change
_ABANDONED_S = 3600.0
"""Age from which a file that was never finished is taken to be left behind by a killed writer."""
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
            opened: Any = safe_open(path, "np")  # without types in the stubs
            with opened as file:
                arrays: dict[str, Ints] = {
                    f.name: file.get_tensor(f.name) for f in fields(TokenAutomaton)
                }
                metadata: dict[str, str] | None = file.metadata()
            if not metadata or metadata.get("digest") != _digest(key, arrays):
                return None
            os.utime(path)
        except (OSError, KeyError, ValueError, SafetensorError):
            return None
        automaton = TokenAutomaton(**arrays)
        return automaton if is_consistent(automaton) else None

    def save(self, key: str, automaton: TokenAutomaton) -> bool:
        """Store an automaton; False if the folder cannot be written."""
        arrays = {f.name: getattr(automaton, f.name) for f in fields(TokenAutomaton)}
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=self.folder, suffix=".part")
            os.close(handle)
            try:
                save_file(arrays, name, metadata={"digest": _digest(key, arrays)})
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
        for path in self.folder.glob("*.part"):
            with contextlib.suppress(FileNotFoundError):
                if time.time() - path.stat().st_mtime > _ABANDONED_S:
                    path.unlink(missing_ok=True)
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


def _digest(key: str, arrays: dict[str, Ints]) -> str:
    """A digest of what a file says, so that no damage goes unnoticed."""
    digest = hashlib.sha256(key.encode())
    for name, array in arrays.items():
        digest.update(f"{name}:{array.dtype}:{array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


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
