"""Parses files in a process of its own, within limits of time and memory."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import IO, Self

from agentloop.errors import RetrievalError
from agentloop.retrieval.document import ParsedDocument
from agentloop.retrieval.loaders import Limits

_START_S = 120.0  # longest wait for the process to say that it is ready


class Parser:
    """Runs `parser_worker`, anew after every death; for one thread at a time.

    Attributes:
        limits: What one file may cost.
        process: The process at work, None before the first file and after a failure.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.process: subprocess.Popen[bytes] | None = None
        self._answers: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._pump: threading.Thread | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def parse(self, path: Path) -> ParsedDocument:
        """Read one file. Whatever happens to the process becomes the file's status."""
        process = self._running()
        request = {"path": str(path.absolute()), "limits": asdict(self.limits)}
        try:
            assert process.stdin is not None
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
            answer = self._answers.get(timeout=self.limits.timeout_s)
        except queue.Empty:
            self.close()
            return ParsedDocument(
                "failed", f"parsing took longer than {self.limits.timeout_s:g} s: raise timeout_s"
            )
        except BrokenPipeError:
            answer = b""
        if not answer:
            code = process.wait()
            self.close()
            return ParsedDocument("failed", f"the parser died of it (exit status {code})")
        return ParsedDocument.from_json(json.loads(answer))

    def close(self) -> None:
        """End the process."""
        process, self.process = self.process, None
        if process is None:
            return
        process.kill()
        process.wait()
        if self._pump is not None:
            self._pump.join()  # the pipe ended with the process
        for pipe in (process.stdin, process.stdout):
            with suppress(BrokenPipeError):  # the last request was never read
                if pipe is not None:
                    pipe.close()

    def _running(self) -> subprocess.Popen[bytes]:
        if self.process is not None and self.process.poll() is None:
            return self.process
        self.close()
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "agentloop.retrieval.parser_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        answers: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._pump = threading.Thread(target=_pump, args=(process.stdout, answers), daemon=True)
        self._pump.start()
        self.process, self._answers = process, answers
        if not answers.get(timeout=_START_S):
            self.close()
            raise RetrievalError(
                f"the parsing process did not start: run `{sys.executable} -m "
                "agentloop.retrieval.parser_worker` to see why"
            )
        return process


def _pump(pipe: IO[bytes], answers: queue.SimpleQueue[bytes]) -> None:
    """Move lines from a pipe to a queue, and an empty one at its end."""
    for line in pipe:
        answers.put(line)
    answers.put(b"")
