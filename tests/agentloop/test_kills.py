"""Random graphs killed at every row and resumed in a new process equal their interpreter.

`make kills` runs this on hundreds of programs, `make test` on a few, at some of their rows.
"""

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings

from tests.agentloop.programs import Program, check_effects, outcome, programs

NUM_PROGRAMS = int(os.environ.get("KILLED_PROGRAMS", "3"))
MAX_ROWS = int(os.environ.get("KILLED_ROWS", "4"))
ROOT = Path(__file__).resolve().parents[2]


class Server:
    """The process that runs jobs in processes of their own."""

    def __init__(self, folder: Path) -> None:
        command = [sys.executable, "-m", "tests.agentloop.program_server"]
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.folder = folder
        self.num_jobs = 0
        self.num_kills = 0

    def do(self, program: Program, seed: int, **job: Any) -> dict[str, Any]:
        """Run a job and wait for it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        whole = {"path": None, "rows": None, "kill_at": None, "is_new": False, **job}
        whole |= {"program": program, "seed": seed, "effects": str(self.folder / "effects")}
        self._process.stdin.write(json.dumps(whole) + "\n")
        self._process.stdin.flush()
        found: dict[str, Any] = json.loads(self._process.stdout.readline())
        self.num_jobs += 1
        self.num_kills += found["signal"] == signal.SIGKILL
        assert not found["error"].startswith("broken"), found["error"]
        return found

    def effects(self) -> list[tuple[str, str, str]]:
        """What all processes did since the last look."""
        path = self.folder / "effects"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        parts = (line.split("\t") for line in lines)
        return [(kind, key, text) for kind, key, text in parts]

    def close(self) -> None:
        self._process.communicate()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Files lie in memory where that is possible: a killed process loses no write either way."""
    shared = Path("/dev/shm")
    folder = tmp_path_factory.mktemp("kills")
    if os.access(shared, os.W_OK):
        folder = shared / f"agentloop-kills-{os.getpid()}"
        folder.mkdir()
    found = Server(folder)
    yield found
    found.close()
    print(f"{found.num_jobs:,} processes, {found.num_kills:,} of them killed")
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()


@settings(max_examples=NUM_PROGRAMS, deadline=None, database=None, phases=[Phase.generate])
@given(programs(is_recorded=True))
def test_a_process_killed_at_any_row_is_continued_by_another(
    server: Server, program: Program
) -> None:
    """On both stores, under any schedule: the same end, and no effect happens twice."""
    expected = outcome(program)
    seeds = random.Random(json.dumps(program))
    whole = server.do(program, seeds.randrange(1000), path=None, is_new=True)
    assert whole["left"] == expected, whole["error"]
    check_effects(server.effects())
    places = range(1, len(whole["rows"]) + 1)
    for num_rows in sorted(seeds.sample(places, min(MAX_ROWS, len(places)))):
        rows = whole["rows"][:num_rows]
        resumed = server.do(program, seeds.randrange(1000), rows=rows)
        assert resumed["left"] == expected, resumed["error"]
        assert resumed["rows"][:num_rows] == rows
        begun = {f"r/{path}" for path, kind, _ in rows if kind == "intent"}
        done = server.effects()
        assert not begun.intersection(key for kind, key, _ in done if kind == "send")
        check_effects(done)
        path = server.folder / f"{server.num_jobs}.db"
        server.do(program, seeds.randrange(1000), path=str(path), kill_at=num_rows, is_new=True)
        again = server.do(program, seeds.randrange(1000), path=str(path))
        assert again["left"] == expected, again["error"]
        check_effects(server.effects())
        for file in server.folder.glob(f"{path.name}*"):
            file.unlink()


def test_the_kills_happened(server: Server) -> None:
    """The suite above is none if nothing was killed."""
    assert server.num_kills > NUM_PROGRAMS
