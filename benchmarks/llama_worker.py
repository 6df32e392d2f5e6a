"""Answers completions with llama.cpp, one JSON request a line; a process of its own.

Runs under the Python of .venv-compare, which has xllamacpp (llama.cpp with prebuilt wheels). The
first line says what to load; each further line is a completion. Replies are one JSON line each,
with the seconds by the wall's clock and of this process.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from typing import Any


def main() -> None:
    """Serve until the input ends."""
    about = json.loads(sys.stdin.readline())
    xllamacpp: Any = importlib.import_module("xllamacpp")  # in .venv-compare only
    params: Any = xllamacpp.CommonParams()
    params.model.path = about["model"]
    params.n_ctx, params.n_parallel = 2048, 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = about["threads"]
    server: Any = xllamacpp.Server(params)
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        wall, processor = time.perf_counter(), time.process_time()
        answer = server.handle_completions(json.loads(line))
        reply = {
            "text": answer["choices"][0]["text"],
            "tokens": answer["usage"]["completion_tokens"],
            "cached": answer["usage"]["prompt_tokens_details"]["cached_tokens"],
            "wall_s": time.perf_counter() - wall,
            "processor_s": time.process_time() - processor,
        }
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    main()
