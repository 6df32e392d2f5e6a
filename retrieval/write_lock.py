"""The right to write an index, held by one thread of one process, given up when the process dies.

It is an exclusive transaction on an empty SQLite file: SQLite's own locks work alike on every
system and between threads as between processes, and leave nothing to clean up after a kill.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from agentloop.errors import RetrievalError


@contextmanager
def write_lock(path: Path, wait_s: float) -> Generator[None]:
    """Hold the lock for the length of a `with` block.

    Args:
        path: The lock's file, made where it is missing.
        wait_s: How long to wait for another holder, in seconds.

    Raises:
        RetrievalError: Another thread or process holds it for longer.
    """
    connection = sqlite3.connect(
        path, timeout=wait_s, isolation_level=None, check_same_thread=False
    )
    try:
        try:
            connection.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                raise
            raise RetrievalError(
                f"another process or thread is writing the index {path.parent} and did not finish "
                f"within {wait_s:g} s; searching goes on meanwhile. Try again later, or give a "
                "longer wait_s"
            ) from error
        yield
    finally:
        connection.close()
