"""Compilations are shared, can be given up, keep to budgets and leave the event loop free."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from agentloop.errors import CompileCancelledError, CompileLimitError, ConstraintError
from agentloop.model.constraint import CompileOptions, JsonSchema, Quote, Regex, emission
from agentloop.model.constraint.compiled import CompiledConstraint, ConstraintCache
from agentloop.model.constraint.dfa import Dfa
from agentloop.model.constraint.options import DEFAULT_OPTIONS
from agentloop.model.constraint.work import Work, check_work, current_work, doing
from tests.model.constraint.reference import VOCABULARY, automaton


@dataclass
class Slow:
    """A constraint whose compilation goes on until it is released or given up."""

    key: str = "slow"
    begun: threading.Event = field(default_factory=threading.Event)
    release: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)
    built: list[str] = field(default_factory=list[str])
    failure: Exception | None = None

    def automaton(self, options: CompileOptions) -> Dfa:
        self.built.append(threading.current_thread().name)
        self.begun.set()
        try:
            while not self.release.wait(0.002):
                check_work()
            if self.failure is not None:
                raise self.failure
        finally:
            self.ended.set()
        return automaton([(0, "a", 1), (1, "b", 0)], [True, False])


def start(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


async def aside(cache: ConstraintCache, slow: Slow) -> CompiledConstraint:
    return await cache.compile_aside(slow, VOCABULARY, DEFAULT_OPTIONS)


async def until(event: threading.Event) -> None:
    assert await asyncio.to_thread(event.wait, 10)


def test_threads_that_want_the_same_share_one_compilation() -> None:
    """Four threads, one compilation, one result for all; it is in memory afterwards."""
    cache, slow = ConstraintCache(), Slow()
    found: list[CompiledConstraint] = []
    asking = [
        start(lambda: found.append(cache.get_or_compile(slow, VOCABULARY, DEFAULT_OPTIONS)))
        for _ in range(4)
    ]
    assert slow.begun.wait(10)
    slow.release.set()
    for thread in asking:
        thread.join(10)
    assert len(slow.built) == 1
    assert len(found) == 4
    assert all(one is found[0] for one in found)
    assert cache.find(slow, VOCABULARY, DEFAULT_OPTIONS) is found[0]


def test_tasks_share_one_compilation_off_the_event_loop() -> None:
    """The loop goes on ticking meanwhile, and the work is done in another thread."""
    cache, slow = ConstraintCache(), Slow()

    async def main() -> list[CompiledConstraint]:
        asking = [asyncio.create_task(aside(cache, slow)) for _ in range(3)]
        await until(slow.begun)
        for _ in range(5):
            await asyncio.sleep(0)
        assert not any(task.done() for task in asking)
        slow.release.set()
        return await asyncio.gather(*asking)

    found = asyncio.run(main())
    assert slow.built == [name for name in slow.built if name.startswith("agentloop-compile")]
    assert len(slow.built) == 1
    assert all(one is found[0] for one in found)


def test_cancelling_the_only_wait_ends_the_compilation() -> None:
    """The worker stops at its next check; asking again begins afresh."""
    cache, slow = ConstraintCache(), Slow()

    async def main() -> None:
        asking = asyncio.create_task(aside(cache, slow))
        await until(slow.begun)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await until(slow.ended)
        assert cache.find(slow, VOCABULARY, DEFAULT_OPTIONS) is None
        slow.release.set()
        assert (await aside(cache, slow)).min_tokens == 1

    asyncio.run(main())
    assert len(slow.built) == 2


def test_cancelling_one_of_two_waits_leaves_the_work_to_the_other() -> None:
    """Only the last one to leave gives the work up."""
    cache, slow = ConstraintCache(), Slow()

    async def main() -> None:
        first, second = (asyncio.create_task(aside(cache, slow)) for _ in range(2))
        await until(slow.begun)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        slow.release.set()
        assert (await second).min_tokens == 1

    asyncio.run(main())
    assert len(slow.built) == 1


def test_all_who_wait_get_the_error_and_the_next_tries_again() -> None:
    """A refusal reaches every waiter and is not kept."""
    cache, slow = ConstraintCache(), Slow(failure=ConstraintError("no such text"))

    async def main() -> list[Any]:
        asking = [asyncio.create_task(aside(cache, slow)) for _ in range(2)]
        await until(slow.begun)
        slow.release.set()
        return await asyncio.gather(*asking, return_exceptions=True)

    assert [str(error) for error in asyncio.run(main())] == ["no such text"] * 2
    slow.failure = None
    assert cache.get_or_compile(slow, VOCABULARY, DEFAULT_OPTIONS).min_tokens == 1


def test_an_interrupted_thread_leaves_the_work_to_those_who_wait() -> None:
    """Ctrl-C in one thread is not the error of another, which compiles for itself."""
    cache = ConstraintCache()
    waiting = threading.Event()

    class Interrupted(Slow):
        def automaton(self, options: CompileOptions) -> Dfa:
            if not self.built:
                self.built.append("first")
                self.begun.set()
                assert waiting.wait(10)
                time.sleep(0.02)  # for the other to be waiting inside the cache
                raise KeyboardInterrupt
            return super().automaton(options)

    slow = Interrupted()
    slow.release.set()
    found: list[CompiledConstraint] = []

    def second() -> None:
        waiting.set()
        found.append(cache.get_or_compile(slow, VOCABULARY, DEFAULT_OPTIONS))

    def first() -> None:
        with pytest.raises(KeyboardInterrupt):
            cache.get_or_compile(slow, VOCABULARY, DEFAULT_OPTIONS)

    one = start(first)
    assert slow.begun.wait(10)
    other = start(second)
    one.join(10)
    other.join(10)
    assert found[0].min_tokens == 1


@pytest.mark.parametrize(
    "make",
    [
        lambda: JsonSchema({"type": "object", "properties": {"tardy": {"maxLength": 311}}}),
        lambda: Regex("(tardy|[a-f]{1,40}){2}"),
        lambda: Quote(["A tardy text, never quoted before. " * 30]),
    ],
    ids=["schema", "pattern", "quote"],
)
def test_a_compilation_that_is_given_up_ends_inside_its_loops(make: Callable[[], Any]) -> None:
    """Schemas, patterns and quotes all come by a check while they are compiled."""
    work = Work()
    work.give_up()
    with doing(work), pytest.raises(CompileCancelledError, match="given up"):
        make().automaton()
    assert current_work() is None


def test_the_lift_to_tokens_can_be_given_up() -> None:
    """The walk over the vocabulary checks as well."""
    cache, work = ConstraintCache(), Work()

    class Ready(Slow):
        def automaton(self, options: CompileOptions) -> Dfa:
            work.give_up()
            return automaton([(0, "a", 1), (1, "b", 0)], [True, False])

    with doing(work), pytest.raises(CompileCancelledError):
        cache._compiled(Ready(), VOCABULARY, DEFAULT_OPTIONS, "key")  # pyright: ignore[reportPrivateUsage] -- the work must be ours


WIDE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "small": {"type": "integer"},
        "rows": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"long": {"type": "string", "minLength": 240}, "n": {"const": 1}},
                "required": ["long"],
            },
            "minItems": 24,
            "maxItems": 24,
        },
    },
    "required": ["rows"],
}


def test_too_many_states_name_the_subschema_that_costs_most() -> None:
    """The refusal points at what takes the room, not at where the last state was added."""
    options = CompileOptions(max_states=60_000, max_depth=0)
    with pytest.raises(CompileLimitError) as caught:
        JsonSchema(WIDE).automaton(options)
    assert caught.value.pointer == "/properties/rows/items/properties/long"
    assert caught.value.limit == "states"
    assert "max_states = 60,000" in str(caught.value)


def test_too_many_steps_name_the_subschema_that_takes_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Alternatives that overlap are named by where they are."""
    monkeypatch.setattr(emission, "MAX_STEPS", 5)
    options = [{"properties": {f"k{j}": {"minLength": i + j} for j in range(4)}} for i in range(5)]
    schema = {
        "type": "object",
        "properties": {"a": {}, "deep": {"type": "object", "oneOf": options}},
    }
    with pytest.raises(CompileLimitError) as caught:
        JsonSchema(schema).automaton()
    assert (caught.value.pointer, caught.value.limit) == ("/properties/deep", "steps")


def test_too_much_time_is_a_refusal_that_names_where_it_went() -> None:
    """No processor time at all is too little for anything; the bound is told."""
    cache = ConstraintCache()
    schema = JsonSchema({"type": "object", "properties": {"late": {"minLength": 77}}})
    with pytest.raises(CompileLimitError, match="more than 0 s of processor time") as caught:
        cache.get_or_compile(schema, VOCABULARY, DEFAULT_OPTIONS, max_seconds=0.0)
    assert caught.value.limit == "seconds"


def test_the_time_of_a_part_is_not_that_of_the_whole() -> None:
    """Costs are by subschema, each without what its parts take; the costliest is named."""
    work = Work()
    with work.at("/a"):
        with work.at("/a/b"):
            until_s = time.perf_counter() + 0.02
            while time.perf_counter() < until_s:
                pass
        with work.at(None):
            work.cost_of(None).steps += 3
    assert work.costliest("seconds") == "/a/b"
    assert work.costliest("steps") == "/a"
