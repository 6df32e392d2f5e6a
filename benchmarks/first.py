"""Milliseconds per refinement step and its parts; whole tool calls beside left-to-right decoding.

    python -m benchmarks.first            # prints the tables of benchmarks/first.md

Both ways use the same weights, the same prompt keys from the cache and the same constraint, in
turn, in one process. Medians; the ratio is what to read on a shared machine.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial

import torch
from rich.console import Console
from rich.table import Table

from agentloop.model.constraint import ToolCalls
from agentloop.model.engine import Job
from agentloop.model.left_to_right import decode_left_to_right
from agentloop.model.lm import DiffusionLM
from agentloop.model.network import PackedRow
from agentloop.model.prompts import Message, ToolSpec, tool_messages
from agentloop.model.sampler import EFFORTS, CanvasRow, Effort

CONSOLE = Console(width=100)


def tool(name: str, about: str, required: str, **properties: dict[str, object]) -> ToolSpec:
    """A tool whose first properties, named in `required`, must be given."""
    schema = {
        "type": "object",
        "properties": properties,
        "required": required.split(),
        "additionalProperties": False,
    }
    return {"name": name, "description": about, "parameters": schema}


TEXT: dict[str, object] = {"type": "string", "minLength": 1}
COUNT: dict[str, object] = {"type": "integer", "minimum": 1, "maximum": 20}
TOOLS: list[ToolSpec] = [
    tool("FindBus", "Search for buses", "origin destination date",
         origin=TEXT, destination=TEXT, date=TEXT, travelers=COUNT),
    tool("BookTable", "Reserve a table at a restaurant", "restaurant city time",
         restaurant=TEXT, city=TEXT, time=TEXT, guests=COUNT),
    tool("SendMoney", "Send money to a contact", "contact amount",
         contact=TEXT, amount={"type": "integer", "minimum": 1, "maximum": 5000},
         account={"enum": ["checking", "savings"]}),
    tool("PlaySong", "Play a song on a speaker", "title",
         title=TEXT, artist=TEXT, room={"enum": ["kitchen", "bedroom", "living room"]}),
]  # fmt: skip
REQUESTS = (
    "I need a bus from Fresno to San Jose on the 4th of March for two people.",
    "Book a table for four at Nopa in San Francisco at half past six.",
    "Please send 250 dollars to Maria from my savings account.",
    "Play Yellow by Coldplay in the kitchen.",
    "Find me a bus that leaves Los Angeles for Las Vegas on March 9th.",
    "Can you get us a table at The Slanted Door in San Francisco at 19:00? We are two.",
    "Transfer 40 dollars to John Smith.",
    "Put on Bohemian Rhapsody in the bedroom.",
)


def median_ms(action: Callable[[], object], repeat: int) -> float:
    """Median of some runs, after one to warm up."""
    action()
    times: list[float] = []
    for _ in range(repeat):
        began = time.perf_counter()
        action()
        times.append((time.perf_counter() - began) * 1000)
    return statistics.median(times)


def prompts(lm: DiffusionLM) -> list[list[int]]:
    """Token ids of every request with the tools."""
    asked: list[list[Message]] = [
        tool_messages(TOOLS, [{"role": "user", "content": request}]) for request in REQUESTS
    ]
    return [lm.prompt_ids(messages) for messages in asked]


def step_parts(lm: DiffusionLM, length: int, rows: int, repeat: int) -> tuple[float, float, float]:
    """Milliseconds of network, head and constraint for one step over `rows` canvases."""
    prompt = prompts(lm)[0]
    keys = lm.engine.cache.read(prompt[:-1]).keys
    compiled = lm.compile(ToolCalls(TOOLS, min=1))
    writer, size = lm.engine.writer, length + 1
    ids = torch.tensor([prompt[-1], *[lm.engine.mask_id] * length] * rows)
    places = torch.arange(keys.length, keys.length + size).repeat(rows)
    packed = [PackedRow(r * size, (r + 1) * size, keys) for r in range(rows)]
    with torch.inference_mode():
        hidden = writer.refine_packed(writer.embed_tokens(ids), places, packed)
        logits = writer.logits(hidden[:length])

        def network() -> object:
            return writer.refine_packed(writer.embed_tokens(ids), places, packed)

        def head() -> object:
            return [writer.logits(hidden[row.start : row.stop - 1]) for row in packed]

        def constrain() -> object:
            for _ in range(rows):
                CanvasRow(compiled, EFFORTS["medium"], length, seed=0).advance(logits)
            return None

        return median_ms(network, repeat), median_ms(head, repeat), median_ms(constrain, repeat)


def show_steps(lm: DiffusionLM, repeat: int) -> None:
    """The table of a step's parts."""
    table = Table(title="one refinement step, milliseconds")
    for column in ("canvas", "rows", "network", "head", "constraint", "sum", "constraint share"):
        table.add_column(column, justify="right")
    for length, rows in ((32, 1), (64, 1), (64, 8)):
        parts = step_parts(lm, length, rows, repeat)
        total = sum(parts)
        cells = [f"{part:.1f}" for part in (*parts, total)]
        table.add_row(str(length), str(rows), *cells, f"{parts[2] / total:.0%}")
    CONSOLE.print(table)


def show_calls(lm: DiffusionLM, repeat: int) -> None:
    """Whole calls at every effort, beside left to right."""
    compiled = lm.compile(ToolCalls(TOOLS, min=1))
    asked = prompts(lm)
    keys = [lm.engine.cache.read(prompt[:-1]).keys for prompt in asked]

    def left_to_right() -> tuple[int, int]:
        done = [
            decode_left_to_right(lm.engine.writer, prompt, key, compiled, 64)
            for prompt, key in zip(asked, keys, strict=True)
        ]
        return sum(d.num_steps for d in done), sum(len(d.tokens) for d in done)

    def refined(effort: Effort, together: bool) -> tuple[int, int]:
        jobs = [
            Job(prompt, lambda _: None, CanvasRow(compiled, EFFORTS[effort], 64, 0), Future())
            for prompt in asked
        ]
        for group in [jobs] if together else [[job] for job in jobs]:
            lm.engine.submit(group)
            for job in group:
                job.future.result()
        return sum(j.num_steps for j in jobs), sum(len(j.written) for j in jobs)

    ways: dict[str, Callable[[], tuple[int, int]]] = {"left to right": left_to_right}
    for effort in EFFORTS:
        ways[f"canvas, {effort}"] = partial(refined, effort, False)
    ways["canvas, medium, all at once"] = partial(refined, "medium", True)
    times: dict[str, list[float]] = {name: [] for name in ways}
    results: dict[str, tuple[int, int]] = {}
    for turn in range(repeat + 1):
        for name, way in ways.items():  # in turn, so that all see the same machine
            began = time.perf_counter()
            results[name] = way()
            if turn:
                times[name].append(time.perf_counter() - began)
    show_times(times, results, len(asked), len(asked[0]))


def show_times(
    times: dict[str, list[float]],
    results: dict[str, tuple[int, int]],
    count: int,
    prompt_length: int,
) -> None:
    """The table of whole calls."""
    baseline = statistics.median(times["left to right"])
    table = Table(title=f"{count} tool calls over cached prompts of {prompt_length} tokens")
    for column in ("", "passes/call", "tokens/call", "ms/call", "tokens/s", "times faster"):
        table.add_column(column, justify="right")
    for name, taken in times.items():
        seconds = statistics.median(taken)
        steps, tokens = results[name]
        table.add_row(
            name,
            f"{steps / count:.1f}",
            f"{tokens / count:.1f}",
            f"{seconds / count * 1000:.0f}",
            f"{tokens / seconds:.0f}",
            f"{baseline / seconds:.2f}",
        )
    CONSOLE.print(table)


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    lm = DiffusionLM.load("default", report=CONSOLE.print)
    CONSOLE.print(f"{torch.get_num_threads()} threads, {lm.engine.writer.dtype}")
    show_steps(lm, options.repeat * 3)
    show_calls(lm, options.repeat)


if __name__ == "__main__":
    main()
