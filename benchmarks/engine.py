"""The engine's speed: passes and their bounds, calls beside left to right and other engines.

    python -m benchmarks.engine                    # all that needs nothing else; writes engine.svg
    python -m benchmarks.engine --only calls lengths --repeat 5 --json engine.json
    python -m benchmarks.engine --clock processor  # on a machine that others use too
    python -m benchmarks.engine --llama base.gguf  # beside llama.cpp; needs make rivals

Every group is measured in turn in one process (llama.cpp in one of its own, asked in turn as well).
Medians. The clock is the wall's, or the processor time that the process spent.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from agentloop.cli_bench import show
from agentloop.model.base_weights import base_folder
from agentloop.model.lm import DiffusionLM
from agentloop.model.speed import MAX_TOKENS, Numbers, Speed, machine

CONSOLE = Console(width=110)
HERE = Path(__file__).parent
GROUPS = (
    "ceilings", "passes", "decision", "calls", "rivals", "lengths", "together", "queued",
    "shared_prefix",
)  # fmt: skip
CALL_TOKENS = 36
"""Tokens that each rival writes for a call: what left to right takes under the constraint."""


class Llama:
    """llama.cpp in a process of its own."""

    def __init__(self, python: str, model: Path, threads: int) -> None:
        self._process = subprocess.Popen(
            [python, str(HERE / "llama_worker.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._ask({"model": str(model), "threads": threads})

    def call(self, prompt: str, grammar: str) -> dict[str, Any]:
        """One completion of CALL_TOKENS tokens under a grammar."""
        return self._ask(
            {
                "prompt": prompt,
                "grammar": grammar,
                "n_predict": CALL_TOKENS,
                "temperature": 0,
                "cache_prompt": True,
            }
        )

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        while line := self._process.stdout.readline():
            if line.startswith("{"):
                reply: dict[str, Any] = json.loads(line)
                return reply
        raise SystemExit("llama.cpp ended; run benchmarks/llama_worker.py by hand to see why")

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)


GRAMMAR = r"""
root ::= "[{\"name\":\"" name "\",\"arguments\":{" pair ("," pair){1,3} "}}]"
name ::= "FindBus" | "BookTable" | "SendMoney" | "PlaySong" | "SetLight" | "FindFilm" | "CallTaxi"
pair ::= string ":" (string | number)
string ::= "\"" [a-zA-Z0-9 ,.:'-]{1,40} "\""
number ::= [1-9] [0-9]{0,3}
"""


def rivals(speed: Speed, llama: Llama | None) -> dict[str, Numbers]:
    """A call by transformers' generate over a cached prompt, and by llama.cpp under a grammar."""
    from transformers import AutoModelForCausalLM, DynamicCache

    loader: Any = AutoModelForCausalLM
    base: Any = loader.from_pretrained(base_folder(), dtype=torch.bfloat16)
    ids = speed.lm.prompt_ids(speed.asked()[0])
    prompt = torch.tensor([ids])
    text = speed.lm.tokenizer.decode(ids, skip_special_tokens=False)
    seconds: list[float] = []
    is_wall = speed.clock is time.perf_counter

    def generate() -> None:
        cache = DynamicCache()
        with torch.inference_mode():
            base(prompt[:, :-1], past_key_values=cache)
            began = speed.clock()
            base.generate(
                prompt,
                past_key_values=cache,
                do_sample=False,
                min_new_tokens=CALL_TOKENS,
                max_new_tokens=CALL_TOKENS,
                pad_token_id=2,
            )
            seconds.append(speed.clock() - began)

    found: dict[str, Numbers] = {}
    llama_seconds: list[float] = []
    for turn in range(speed.repeat + 1):
        generate()
        if llama is not None:
            reply = llama.call(text, GRAMMAR)
            per_token = reply["wall_s" if is_wall else "processor_s"] / reply["tokens"]
            llama_seconds.append(per_token * CALL_TOKENS)
        if not turn:
            seconds.clear()
            llama_seconds.clear()
    for name, taken in (("transformers", seconds), ("llama.cpp", llama_seconds)):
        if taken:
            ms = sorted(taken)[len(taken) // 2] * 1000
            found[name] = {"ms_per_call": ms, "tokens_per_s": CALL_TOKENS / ms * 1000}
    return found


def plot(lengths: dict[str, Numbers], path: Path) -> None:
    """Draw latency over the length of the answer."""
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot

    pyplot_: Any = pyplot
    figure, axes = pyplot_.subplots(figsize=(6, 3.5))
    x = [int(length) for length in lengths]
    for name, label in (("left_to_right_ms", "left to right"), ("refined_ms", "canvas, 4 passes")):
        axes.plot(x, [numbers[name] for numbers in lengths.values()], marker="o", label=label)
    axes.set(xlabel="tokens of the answer", ylabel="milliseconds", ylim=0, xlim=0)
    axes.legend()
    figure.tight_layout()
    figure.savefig(path)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=GROUPS, default=list(GROUPS))
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--threads", type=int, help="threads of torch and of llama.cpp")
    parser.add_argument("--clock", choices=["wall", "processor"], default="wall")
    parser.add_argument("--llama", type=Path, help="a GGUF file of the base, for llama.cpp")
    parser.add_argument("--llama-python", default=".venv-compare/bin/python")
    parser.add_argument("--plot", type=Path, default=HERE / "engine.svg")
    parser.add_argument("--json", type=Path, help="where to write all numbers")
    return parser.parse_args()


def main() -> None:
    """Measure and print."""
    options = arguments()
    if options.threads:
        torch.set_num_threads(options.threads)
    clock: Callable[[], float] = time.perf_counter if options.clock == "wall" else time.process_time
    lm = DiffusionLM.load("default", report=CONSOLE.print)
    speed = Speed(lm, options.repeat, clock)
    found: dict[str, Any] = {"machine": machine(lm.engine.writer) | {"clock": options.clock}}
    CONSOLE.print(found["machine"])
    CONSOLE.print(f"{MAX_TOKENS} slots, {len(lm.prompt_ids(speed.asked()[0]))} tokens of prompt")
    for name in options.only:
        if name == "rivals":
            llama = None
            if options.llama:
                llama = Llama(options.llama_python, options.llama, torch.get_num_threads())
            found[name] = rivals(speed, llama)
            if llama is not None:
                llama.close()
        else:
            found[name] = getattr(speed, name)()
        show(name, found[name], CONSOLE)
        if options.json:
            options.json.write_text(json.dumps(found, indent=1), encoding="utf-8")
    if "lengths" in found:
        plot(found["lengths"], options.plot)


if __name__ == "__main__":
    main()
