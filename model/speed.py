"""How fast a loaded model is on this machine: one pass and its bounds, calls, decisions, batches.

Everything is measured in turn, so that what is compared sees the same machine. Times are those of a
clock that the caller chooses: the wall's, or the processor time of this process, which other
programs on a shared machine disturb less.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from agentloop.model.constraint import Regex, ToolCalls
from agentloop.model.constraint.compiled import CompiledConstraint
from agentloop.model.effort import Effort
from agentloop.model.generation import Generation
from agentloop.model.left_to_right import decode_left_to_right
from agentloop.model.lm import DiffusionLM
from agentloop.model.packed import PackedNetwork, Span
from agentloop.model.prompts import Message, ToolSpec, tool_messages

Clock = Callable[[], float]
Numbers = dict[str, float]


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
ROOM: dict[str, object] = {"enum": ["kitchen", "bedroom", "living room"]}
TOOLS: list[ToolSpec] = [
    tool("FindBus", "Search for buses", "origin destination date",
         origin=TEXT, destination=TEXT, date=TEXT, travelers=COUNT),
    tool("BookTable", "Reserve a table at a restaurant", "restaurant city time",
         restaurant=TEXT, city=TEXT, time=TEXT, guests=COUNT),
    tool("SendMoney", "Send money to a contact", "contact amount",
         contact=TEXT, amount={"type": "integer", "minimum": 1, "maximum": 5000},
         account={"enum": ["checking", "savings"]}),
    tool("PlaySong", "Play a song on a speaker", "title", title=TEXT, artist=TEXT, room=ROOM),
    tool("SetLight", "Dim or brighten the lights of a room", "room percent",
         room=ROOM, percent={"type": "integer", "minimum": 0, "maximum": 100}),
    tool("FindFilm", "Search for films that are shown nearby", "city",
         city=TEXT, genre={"enum": ["comedy", "drama", "horror"]}, date=TEXT),
    tool("CallTaxi", "Order a taxi to an address", "address time", address=TEXT, time=TEXT),
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
MAX_TOKENS = 64


@dataclass(frozen=True)
class Speed:
    """Measures one model.

    Attributes:
        lm: The model.
        repeat: Runs that a median is taken of, after one that is not counted.
        clock: Seconds.
    """

    lm: DiffusionLM
    repeat: int = 3
    clock: Clock = time.perf_counter

    def medians(self, ways: dict[str, Callable[[], object]]) -> Numbers:
        """Median milliseconds of each way, all taken in turn."""
        taken: dict[str, list[float]] = {name: [] for name in ways}
        for turn in range(self.repeat + 1):
            for name, way in ways.items():
                began = self.clock()
                way()
                if turn:
                    taken[name].append((self.clock() - began) * 1000)
        return {name: statistics.median(times) for name, times in taken.items()}

    def asked(self) -> list[list[Message]]:
        """Every request with the tools."""
        return [tool_messages(TOOLS, [{"role": "user", "content": text}]) for text in REQUESTS]

    def passes(self, lengths: Sequence[int] = (1, 9, 33, 65)) -> dict[str, Numbers]:
        """Milliseconds of a pass and of its head, and the least that products alone can take."""
        engine, prompt = self.lm.engine, self.lm.prompt_ids(self.asked()[0])
        writer, past = engine.writer, engine.cache.read(prompt[:-1]).keys
        found: dict[str, Numbers] = {}
        for rows in lengths:
            ids = [prompt[-1], *[engine.mask_id] * (rows - 1)]
            keys = past.copied(0, past.length, rows)
            spans = [Span(0, rows, keys, past.length)]
            stream = writer.run(ids, spans)

            def run(ids: list[int] = ids, spans: list[Span] = spans) -> object:
                return writer.run(ids, spans)

            def head(stream: torch.Tensor = stream) -> object:
                return writer.logits(stream)

            products = _products(writer, rows)
            ways: dict[str, Callable[[], object]] = {
                "pass_ms": run,
                "head_ms": head,
                "products_ms": products,
            }
            found[str(rows)] = self.medians(ways)
        return found

    def ceilings(self, rows: int = 1024) -> Numbers:
        """What this processor reaches with the network's own products: arithmetic and memory."""
        writer = self.lm.engine.writer
        ways = {"many": _products(writer, rows), "one": _products(writer, 1)}
        taken = self.medians(ways)
        num_weights = sum(p.shape[0] * p.shape[1] for p in writer.products)
        num_bytes = sum(p.num_bytes for p in writer.products)
        return {
            "gop_per_row": 2 * num_weights / 1e9,
            "weights_mb": num_bytes / 1e6,
            "gop_per_s": 2 * num_weights * rows / taken["many"] / 1e6,
            "gb_per_s": num_bytes / taken["one"] / 1e6,
        }

    def calls(self, efforts: Sequence[Effort] = ("instant", "low", "medium")) -> dict[str, Numbers]:
        """Tool calls over cached prompts at some efforts, beside the same weights left to right."""
        lm, asked = self.lm, self.asked()
        constraint = ToolCalls(TOOLS, min=1)
        compiled = lm.compile(constraint)
        prompts = [lm.prompt_ids(messages) for messages in asked]
        keys = [lm.engine.cache.read(prompt[:-1]).keys for prompt in prompts]
        steps: dict[str, list[int]] = {}
        tokens: dict[str, list[int]] = {}

        def left_to_right() -> None:
            done = [
                decode_left_to_right(lm.engine.writer, prompt, key, compiled, MAX_TOKENS)
                for prompt, key in zip(prompts, keys, strict=True)
            ]
            steps["left_to_right"] = [each.num_steps for each in done]
            tokens["left_to_right"] = [len(each.tokens) for each in done]

        def refined(effort: Effort) -> None:
            made = [self._call(messages, constraint, effort) for messages in asked]
            steps[effort] = [each.num_steps for each in made]
            tokens[effort] = [each.num_tokens for each in made]

        ways: dict[str, Callable[[], object]] = {"left_to_right": left_to_right}
        for effort in efforts:
            ways[effort] = partial(refined, effort)
        taken = self.medians(ways)
        return {
            name: {
                "ms_per_call": taken[name] / len(asked),
                "passes_per_call": statistics.mean(steps[name]),
                "tokens_per_call": statistics.mean(tokens[name]),
                "tokens_per_s": sum(tokens[name]) / taken[name] * 1000,
                "times_faster": taken["left_to_right"] / taken[name],
            }
            for name in ways
        }

    def _call(self, messages: list[Message], constraint: ToolCalls, effort: Effort) -> Generation:
        return self.lm.generate_sync(
            messages, constraint=constraint, effort=effort, max_tokens=MAX_TOKENS
        )

    def decision(self) -> Numbers:
        """Milliseconds of a typed decision over a cached prompt."""
        options = ["refund", "exchange", "complaint", "other"]
        state: list[Message] = [{"role": "user", "content": " ".join(REQUESTS)}]
        ask = "What does the customer want?"
        return self.medians({"decision_ms": lambda: self.lm.decide_sync(ask, options, state=state)})

    def together(self, count: int = 64, effort: Effort = "instant") -> Numbers:
        """The throughput of calls made at once, against one at a time."""
        asked = self.asked()
        constraint = ToolCalls(TOOLS, min=1)
        several = [asked[i % len(asked)] for i in range(count)]
        tokens: list[int] = []

        async def at_once() -> None:
            calls = [
                self.lm.generate(
                    messages, constraint=constraint, effort=effort, max_tokens=MAX_TOKENS
                )
                for messages in several
            ]
            tokens[:] = [each.num_tokens for each in await asyncio.gather(*calls)]

        ways: dict[str, Callable[[], object]] = {
            "alone": lambda: [self._call(messages, constraint, effort) for messages in asked],
            "at_once": lambda: asyncio.run(at_once()),
        }
        taken = self.medians(ways)
        alone, at_once_ms = taken["alone"] / len(asked), taken["at_once"] / count
        return {
            "num_calls": float(count),
            "alone_ms_per_call": alone,
            "at_once_ms_per_call": at_once_ms,
            "times_throughput": alone / at_once_ms,
            "at_once_tokens_per_s": sum(tokens) / taken["at_once"] * 1000,
        }

    def queued(self, counts: Sequence[int] = (64, 1000)) -> dict[str, Numbers]:
        """Decisions per second with so many asked at once."""
        options = ["yes", "no"]

        async def ask(count: int) -> None:
            asked = [self.lm.decide(f"Is {i} even?", options) for i in range(count)]
            await asyncio.gather(*asked)

        def run(count: int) -> None:
            asyncio.run(ask(count))

        ways: dict[str, Callable[[], object]] = {
            str(count): partial(run, count) for count in counts
        }
        return {
            name: {"decisions_per_s": int(name) / ms * 1000}
            for name, ms in self.medians(ways).items()
        }

    def shared_prefix(self, calls: int = 20, words: int = 560) -> Numbers:
        """An agent's short calls over one long prefix, with the prompt cache and without."""
        prefix = ("Rule: answer what the last line asks. " * words)[: words * 5]
        asked: list[list[Message]] = [
            [{"role": "system", "content": prefix}, {"role": "user", "content": f"Step {i}?"}]
            for i in range(calls)
        ]

        def run(keep: bool) -> None:
            self.lm.engine.cache.clear()
            for messages in asked:
                if not keep:
                    self.lm.engine.cache.clear()
                self.lm.decide_sync("Go on?", ["yes", "no"], state=messages)

        taken = self.medians({"with": lambda: run(True), "without": lambda: run(False)})
        return {
            "prefix_tokens": float(len(self.lm.prompt_ids(prefix))),
            "with_cache_ms": taken["with"],
            "without_cache_ms": taken["without"],
            "share": taken["with"] / taken["without"],
        }

    def lengths(self, lengths: Sequence[int] = (8, 16, 32, 64, 96)) -> dict[str, Numbers]:
        """Milliseconds of answers of some lengths: refined in four passes, and left to right."""
        lm, prompt = self.lm, self.lm.prompt_ids(REQUESTS[0])
        keys = lm.engine.cache.read(prompt[:-1]).keys
        ways: dict[str, Callable[[], object]] = {}
        for length in lengths:
            constraint = Regex(f"( [a-z]{{3,12}}){{{length - 1}}}")
            compiled = lm.compile(constraint)

            def refined(constraint: Regex = constraint, length: int = length) -> object:
                return lm.generate_sync(
                    REQUESTS[0], constraint=constraint, effort="instant", max_tokens=length
                )

            def left_to_right(
                compiled: CompiledConstraint = compiled, length: int = length
            ) -> object:
                return decode_left_to_right(lm.engine.writer, prompt, keys, compiled, length)

            ways[f"{length} refined"] = refined
            ways[f"{length} left_to_right"] = left_to_right
        taken = self.medians(ways)
        return {
            str(length): {
                "refined_ms": taken[f"{length} refined"],
                "left_to_right_ms": taken[f"{length} left_to_right"],
            }
            for length in lengths
        }


def _products(network: PackedNetwork, rows: int) -> Callable[[], object]:
    inputs = {width: torch.ones(rows, width) for _, width in {p.shape for p in network.products}}
    given = [inputs[p.shape[1]] for p in network.products]
    return lambda: network.multiply_alone(given)


def machine(network: PackedNetwork) -> dict[str, str]:
    """What was measured on."""
    return {
        "threads": str(torch.get_num_threads()),
        "precision": network.precision,
        "capability": torch.backends.cpu.get_cpu_capability(),
        "torch": torch.__version__,
    }
