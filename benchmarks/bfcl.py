"""BFCL multi-turn: 800 conversations' gold calls through journaled tools, with a crash after each.

    make suites

The world of a conversation (a file system, a trading desk, a car) stays outside the run, as real
ones do. Every call is a tool with `effect="once"` in a run recorded in SQLite. After every call the
run is killed and resumed from its record. The suite's own checker then compares the world after
every turn, and what the calls returned, with the gold ones that it executes itself. An effect that
ran twice, was lost, or came back with another result fails.

What it does not cover: no model chooses the calls, so this says nothing of a model's accuracy.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import copy
import importlib
import inspect
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

from pydantic import BaseModel

from agentloop.bodies import JsonBody
from agentloop.errors import ToolError
from agentloop.graph import Graph
from agentloop.json_data import as_array, as_object
from agentloop.reducers import Log
from agentloop.sqlite_store import SQLiteStore
from agentloop.steps import END, START
from agentloop.stores import MemoryStore, Store
from agentloop.tools import Tool

CATEGORIES = ("base", "long_context", "miss_func", "miss_param")
CHECKER = "bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker"
CONFIG = "bfcl_eval.constants.executable_backend_config"
WIDER = {("close_ticket", "ticket_id")}  # said to be an integer, but gold calls pass a text
TYPES = {"dict": "object", "float": "number", "tuple": "array"}


class Step(NamedTuple):
    """One gold call."""

    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A conversation: how its world begins, and the gold calls of each turn as they are written."""

    entry: dict[str, Any]
    turns: list[list[str]]

    @property
    def name(self) -> str:
        """Its id in the suite."""
        return str(self.entry["id"])


def load(data: Path, category: str) -> Iterator[Case]:
    """The conversations of a category."""
    name = f"BFCL_v4_multi_turn_{category}.json"
    answers = {a["id"]: a["ground_truth"] for a in _lines(data / "possible_answer" / name)}
    for entry in _lines(data / name):
        yield Case(entry, answers[entry["id"]])


@lru_cache(maxsize=32)
def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@dataclass
class World:
    """The objects that a conversation acts on, their tools, and how often anything ran."""

    instances: dict[str, Any]
    tools: dict[str, Tool[..., Any]]
    methods: dict[str, Callable[..., Any]]
    num_executed: int = 0
    after_turn: dict[int, dict[str, Any]] = field(default_factory=lambda: {})

    def step(self, text: str) -> Step:
        """A gold call as a name and JSON arguments."""
        parsed = ast.parse(text, mode="eval").body
        assert isinstance(parsed, ast.Call)
        assert isinstance(parsed.func, ast.Name)
        args = [ast.literal_eval(node) for node in parsed.args]
        kwargs = {str(word.arg): ast.literal_eval(word.value) for word in parsed.keywords}
        bound = inspect.signature(self.methods[parsed.func.id]).bind(*args, **kwargs)
        return Step(parsed.func.id, json.loads(json.dumps(dict(bound.arguments))))


def call_of(world: World, method: Callable[..., Any]) -> Callable[[dict[str, Any]], Any]:
    """A method of the world as a tool's call, with the suite's form of a result."""

    async def call(arguments: dict[str, Any]) -> str:
        world.num_executed += 1
        try:
            result = method(**arguments)
        except Exception as error:  # the suite's executor tells errors as results
            return f"Error during execution: {error}"
        if isinstance(result, dict):
            try:
                return json.dumps(result)
            except TypeError:
                return str(cast(object, result))
        return str(result)

    return call


def make_world(data: Path, case: Case) -> World:
    """The objects of a conversation as they begin, and a tool for each of their methods."""
    config = importlib.import_module(CONFIG)
    world = World({}, {}, {})
    for class_name in case.entry["involved_classes"]:
        module = importlib.import_module(config.CLASS_FILE_PATH_MAPPING[class_name])
        instance = getattr(module, class_name)()
        if class_name not in config.STATELESS_CLASSES:
            scenario = copy.deepcopy(case.entry["initial_config"].get(class_name, {}))
            instance._load_scenario(scenario, long_context="long_context" in case.name)
        world.instances[class_name] = instance
        docs = data / "multi_turn_func_doc" / config.MULTI_TURN_FUNC_DOC_FILE_MAPPING[class_name]
        for doc in _lines(docs):
            name, method = doc["name"], getattr(instance, doc["name"])
            world.methods[name] = method
            if not any(text.startswith(f"{name}(") for turn in case.turns for text in turn):
                continue
            schema = json_schema(doc["parameters"])
            for parameter in WIDER & {(name, key) for key in schema["properties"]}:
                del schema["properties"][parameter[1]]["type"]
            body = JsonBody(name, call_of(world, method), {"type": "string"})
            world.tools[name] = Tool(name, doc["description"], schema, body=body, effect="once")
    return world


def json_schema(node: Any) -> Any:
    """The suite's notation of a schema as JSON Schema, closed to unknown arguments."""
    items, entries = as_array(node), as_object(node)
    if items is not None:
        return [json_schema(item) for item in items]
    if entries is None:
        return node
    made = {key: json_schema(value) for key, value in entries.items()}
    if isinstance(made.get("type"), str):
        made["type"] = TYPES.get(made["type"], made["type"])
        if made["type"] == "object" and "properties" in made:
            made["additionalProperties"] = False
    return made


class Crash(BaseException):
    """The process ends here."""


class State(BaseModel):
    """How far a conversation has come."""

    turn: int = 0
    results: Log[str] = []
    num_of_turn: Log[int] = []


def conversation(world: World, turns: Sequence[Sequence[Step]], crash: Callable[[], None]) -> Any:
    """A graph that makes the calls of one turn after the other."""

    async def act(s: State) -> Literal["act", "END"]:
        for step in turns[s.turn]:
            result = await world.tools[step.name].call(step.arguments)
            crash()
            s.results.append(result)
            s.num_of_turn.append(s.turn)
        world.after_turn[s.turn] = copy.deepcopy(world.instances)
        s.turn += 1
        return "END" if s.turn == len(turns) else "act"

    graph = Graph(State).chain(START, act)
    return graph.route(act, act, END, limit=len(turns), then=END)


async def run_case(
    world: World, turns: Sequence[Sequence[Step]], stores: Callable[[], Store], *, has_crashes: bool
) -> tuple[State, int]:
    """Run a conversation to its end, killing it after each call that was really made.

    Returns:
        The state at the end, and how many crashes there were.
    """
    num_crashes = num_known = 0

    def crash() -> None:
        nonlocal num_crashes, num_known
        if has_crashes and world.num_executed > num_known:
            num_known = world.num_executed
            num_crashes += 1
            raise Crash

    graph = conversation(world, turns, crash)
    while True:
        try:
            result = await graph.run(State(), run="conversation", store=stores())
            return result.state, num_crashes
        except Crash:
            continue


def verdict(case: Case, world: World, state: State) -> dict[str, Any]:
    """What the suite's checker says of a world and of what its calls returned."""
    checker: Any = importlib.import_module(CHECKER)
    utilities = importlib.import_module(checker.execute_multi_turn_func_call.__module__)
    by_turn: dict[int, list[str]] = {turn: [] for turn in range(len(case.turns))}
    for turn, result in zip(state.num_of_turn, state.results, strict=True):
        by_turn[turn].append(result)
    called = [turn for turn, results in by_turn.items() if results]
    ours = iter(called)
    execute = checker.execute_multi_turn_func_call

    def executed(func_call_list: list[str], **options: Any) -> Any:
        if options["model_name"].endswith("_ground_truth"):
            return execute(func_call_list=func_call_list, **options)
        turn = next(ours)
        return by_turn[turn], world.after_turn[turn]

    checker.execute_multi_turn_func_call = executed
    try:
        answers = [[case.turns[turn]] if turn in called else [] for turn in by_turn]
        found: dict[str, Any] = checker.multi_turn_checker(
            answers, case.turns, case.entry, "multi_turn", "agentloop"
        )
        return found
    finally:
        checker.execute_multi_turn_func_call = execute
        for name in [name for name in vars(utilities) if name.endswith("_instance")]:
            delattr(utilities, name)  # or the next check of this conversation would go on with it


def corrupted(turns: list[list[Step]]) -> Iterator[tuple[str, list[list[Step]]]]:
    """Every conversation with one call left out, and with one call's first text changed."""
    for i, turn in enumerate(turns):
        for j, step in enumerate(turn):
            rest = [*turn[:j], *turn[j + 1 :]]
            yield "left out", [*turns[:i], rest, *turns[i + 1 :]]
            key = next((k for k, v in step.arguments.items() if isinstance(v, str)), None)
            if key is not None:
                changed = Step(step.name, {**step.arguments, key: f"{step.arguments[key]}~"})
                yield "changed", [*turns[:i], [*turn[:j], changed, *turn[j + 1 :]], *turns[i + 1 :]]


async def check_gold(data: Path, category: str, totals: Counter[str]) -> None:
    """Run and check every conversation of a category, with a crash after every call."""
    for case in load(data, category):
        world = make_world(data, case)
        turns = [[world.step(text) for text in turn] for turn in case.turns]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "runs.db"
            opened: list[SQLiteStore] = []

            def reopened(path: Path = path, opened: list[SQLiteStore] = opened) -> Store:
                opened.append(SQLiteStore(path))
                return opened[-1]

            state, num_crashes = await run_case(world, turns, reopened, has_crashes=True)
            for store in opened:
                store.close()
        totals["cases"] += 1
        totals["calls"] += sum(map(len, turns))
        totals["executed"] += world.num_executed
        totals["crashes"] += num_crashes
        found = verdict(case, world, state)
        if found["valid"]:
            totals["passed"] += 1
        else:
            print(f"{case.name} failed: {found.get('error_message')}")


def always(store: Store) -> Callable[[], Store]:
    """The same store every time."""
    return lambda: store


async def check_corrupted(data: Path, category: str, every: int, totals: Counter[str]) -> None:
    """Count the corrupted runs that the checker rejects, and those refused before anything ran."""
    number = 0
    for case in load(data, category):
        gold = make_world(data, case)
        turns = [[gold.step(text) for text in turn] for turn in case.turns]
        for kind, wrong in corrupted(turns):
            number += 1
            if number % every:
                continue
            world = make_world(data, case)
            totals[f"{kind}: runs"] += 1
            try:
                state, _ = await run_case(world, wrong, always(MemoryStore()), has_crashes=False)
            except ToolError:
                totals[f"{kind}: refused by its schema"] += 1
                continue
            if not verdict(case, world, state)["valid"]:
                totals[f"{kind}: rejected by the checker"] += 1
        twice = [[step for step in turn for _ in range(2)] for turn in turns]
        world = make_world(data, case)
        state, _ = await run_case(world, twice, always(MemoryStore()), has_crashes=False)
        totals["every call twice: runs"] += 1
        totals["every call twice: rejected by the checker"] += not verdict(case, world, state)[
            "valid"
        ]


async def main(data: Path, categories: Sequence[str], every: int) -> int:
    """Print the counts; the exit code says whether all gold runs passed."""
    gold: Counter[str] = Counter()
    wrong: Counter[str] = Counter()
    started = time.perf_counter()
    for category in categories:
        before = dict(gold)
        await check_gold(data, category, gold)
        num, passed = (gold[key] - before.get(key, 0) for key in ("cases", "passed"))
        print(f"{category}: {passed}/{num} after {time.perf_counter() - started:.0f} s", flush=True)
        if every:
            await check_corrupted(data, category, every, wrong)
    print(f"gold: {dict(gold)}")
    print(f"corrupted: {dict(wrong)}")
    return int(gold["passed"] != gold["cases"] or gold["executed"] != gold["calls"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--categories", nargs="+", default=CATEGORIES, choices=CATEGORIES)
    parser.add_argument("--every", type=int, default=10, help="corrupt every n-th way; 0 for none")
    options = parser.parse_args()
    package = importlib.import_module("bfcl_eval")
    folder = Path(str(package.__file__)).parent / "data"
    sys.exit(asyncio.run(main(folder, options.categories, options.every)))
