"""The process that parses: `python -m agentloop.retrieval.parser_worker`, one JSON line per file.

A file that makes a parser crash, loop or swallow memory ends this process, not the sync; the parent
starts another for the next file.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any, BinaryIO

from agentloop.retrieval.document import ParsedDocument
from agentloop.retrieval.loaders import Limits, load


def limit_memory(max_memory_bytes: int) -> None:
    """Bound this process's address space; does nothing where the system cannot."""
    if sys.platform == "win32":
        return
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    if hard != resource.RLIM_INFINITY:
        max_memory_bytes = min(max_memory_bytes, hard)
    resource.setrlimit(resource.RLIMIT_AS, (max_memory_bytes, hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def parse(request: dict[str, Any]) -> ParsedDocument:
    """Load the file that a request names; no exception leaves."""
    try:
        return load(Path(request["path"]), Limits(**request["limits"]))
    except MemoryError:
        limit = request["limits"]["max_memory_bytes"]
        return ParsedDocument("failed", f"parsing needs more than {limit:,} bytes of memory")
    except RecursionError:
        return ParsedDocument("failed", "the file is nested too deeply to be parsed")
    except Exception as error:  # a parser's bug in one file must not stop the others
        return ParsedDocument("failed", f"{type(error).__name__}: {error}"[:500])


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Say "ready" on a line, then answer every line of `requests` with one, until it ends."""
    answers.write(b"ready\n")
    answers.flush()
    for line in requests:
        request = json.loads(line)
        limit_memory(request["limits"]["max_memory_bytes"])
        answers.write(json.dumps(parse(request).to_json()).encode() + b"\n")
        answers.flush()


def main() -> None:
    """Serve standard input; whatever a library prints goes to standard error."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    serve(sys.stdin.buffer, answers)


if __name__ == "__main__":
    main()
