"""Parses files in a process of its own, within limits of time and memory."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Iterable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import IO, Self, TypeVar

from agentloop.errors import RetrievalError
from agentloop.retrieval.document import ParsedDocument
from agentloop.retrieval.loaders import Limits

_AHEAD = 4  # parsed documents that may wait
_START_S = 120.0  # longest wait for the process to say that it is ready


Key = TypeVar("Key")


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


def parse_ahead(
    parser: Parser, files: Iterable[tuple[Key, Path]]
) -> Generator[tuple[Key, int, ParsedDocument]]:
    """Documents in order, each with its key and the time it was read, in ns since the epoch.

    The next few files are parsed while the caller works on the one before. Close the generator
    where it is not run to its end.

    Args:
        parser: Used by no one else meanwhile.
        files: Key and path of each file.
    """
    ready: queue.Queue[tuple[Key, int, ParsedDocument] | BaseException | None] = queue.Queue(_AHEAD)
    stop = threading.Event()

    def work() -> None:
        try:
            for key, path in files:
                if stop.is_set():
                    break
                read_ns = time.time_ns()
                ready.put((key, read_ns, parser.parse(path)))
            ready.put(None)
        except BaseException as error:  # raised again where it is waited for
            ready.put(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        while (item := ready.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        stop.set()
        parser.close()  # ends a parse that nobody waits for any more
        while thread.is_alive():
            with suppress(queue.Empty):
                ready.get(timeout=0.05)


def _pump(pipe: IO[bytes], answers: queue.SimpleQueue[bytes]) -> None:
    """Move lines from a pipe to a queue, and an empty one at its end."""
    for line in pipe:
        answers.put(line)
    answers.put(b"")
