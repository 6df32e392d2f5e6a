"""The engine's schedule: who goes first, who leaves, and that nothing is left behind."""

import asyncio
import gc
import os
import random
import resource
import threading
import weakref
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from agentloop.errors import DeadlineError, ModelError, QueueFullError
from agentloop.model.constraint import Choice, Regex
from agentloop.model.engine import Engine, Job, fit_threads
from agentloop.model.lm import DiffusionLM
from agentloop.model.prompts import Message
from agentloop.model.sampler import CanvasRow, SamplerOptions
from tests.model.tiny import tiny_lm, tiny_network


@pytest.fixture(scope="module")
def lm() -> DiffusionLM:
    return tiny_lm()


def note(order: list[int], number: int, _: Future[Job]) -> None:
    order.append(number)


def job(lm: DiffusionLM, prompt: list[int], length: int = 6, **options: Any) -> Job:
    row = CanvasRow(lm.compile(Regex("[ab]{1,5}")), SamplerOptions(max_steps=4), length, seed=0)
    return Job(prompt, lambda _: None, row, Future(), **options)


def test_a_call_of_higher_priority_overtakes(lm: DiffusionLM) -> None:
    """With one canvas a step, urgent calls handed over last are answered first."""
    engine = Engine(tiny_network(), tiny_network(), max_batch=1)
    order: list[int] = []
    jobs = [job(lm, [1, 2, i], priority=i) for i in range(5)]
    for number, each in enumerate(jobs):
        each.future.add_done_callback(partial(note, order, number))
    engine.submit(jobs)
    for each in jobs:
        each.future.result(30)
    engine.close()
    assert order == [4, 3, 2, 1, 0]


def test_a_deadline_ends_a_call_between_steps(lm: DiffusionLM) -> None:
    """A call that is late after its first step fails with the passes it had; others go on."""
    engine = Engine(tiny_network(), tiny_network())
    late, good = job(lm, [1, 2, 3], deadline_s=3600), job(lm, [1, 2, 4])

    def wait(each: Job) -> None:
        each.deadline_s = 0.0

    late.on_step = wait
    engine.submit([late, good])
    assert good.future.result(30) is good
    with pytest.raises(DeadlineError, match="given up after 1 passes"):
        late.future.result(30)
    engine.close()
    assert engine.metrics()["num_failed"] == 0  # given up by itself, not by an error of the engine


def test_a_full_queue_refuses_and_goes_on(lm: DiffusionLM) -> None:
    """Calls beyond max_waiting are refused together; those that wait are answered."""
    engine = Engine(tiny_network(), tiny_network(), max_batch=1, max_waiting=3)
    gate = threading.Event()
    first = job(lm, [1, 2])

    def wait(_: Job) -> None:
        gate.wait(30)

    first.on_step = wait
    engine.submit([first])
    while engine.num_waiting:
        threading.Event().wait(0.005)
    rest = [job(lm, [1, 2, i]) for i in range(3)]
    engine.submit(rest)
    with pytest.raises(QueueFullError, match="3 calls wait for the model and 1 more"):
        engine.submit([job(lm, [7])])
    gate.set()
    for each in [first, *rest]:
        each.future.result(30)
    engine.close()
    assert engine.metrics()["peak_waiting"] == 3


def test_prompts_beyond_the_key_memory_wait(lm: DiffusionLM) -> None:
    """With memory for one prompt at a time, calls are answered one after the other."""
    engine = Engine(tiny_network(), tiny_network(), key_bytes=1)
    jobs = [job(lm, [i] * 100) for i in range(4)]
    most: list[int] = []
    for each in jobs:
        each.on_step = lambda _: most.append(engine.num_active)
    engine.submit(jobs)
    for each in jobs:
        each.future.result(30)
    engine.close()
    assert max(most) == 1


def test_a_long_prompt_does_not_hold_up_an_answer(lm: DiffusionLM) -> None:
    """While a prompt of many passes is read, a call that was already begun gets its steps."""
    engine = Engine(tiny_network(), tiny_network())
    engine.cache.max_rows = 64
    short, long = job(lm, [1, 2, 3]), job(lm, list(range(100)) * 9)
    order: list[str] = []
    short.future.add_done_callback(lambda _: order.append("short"))
    long.future.add_done_callback(lambda _: order.append("long"))
    engine.submit([short])
    engine.submit([long])
    short.future.result(30)
    long.future.result(30)
    engine.close()
    assert order == ["short", "long"]
    assert engine.cache.statistics.num_passes >= 15


def test_warmed_prefixes_are_there_when_they_are_needed() -> None:
    """After warming, a call takes the beginning from the cache; the future says what was new."""
    lm = tiny_lm()
    prefix = list(range(40, 40 + 130))
    first, again = lm.engine.warm([prefix, prefix])
    assert (first.result(30), again.result(30)) == (130, 0)
    made = job(lm, [*prefix[:128], 7, 8, 9])
    lm.engine.submit([made])
    assert made.future.result(30).cached_tokens == 128
    lm.close()
    with pytest.raises(ModelError, match="closed"):
        lm.engine.warm([prefix])


def test_half_of_many_calls_cancelled_at_random_leave_nothing(lm: DiffusionLM) -> None:
    """Of 200 calls 100 are cancelled at random moments: no row, no waiting call, no task stays."""
    draw = random.Random(5)
    kept: list[weakref.ref[Any]] = []

    async def run() -> int:
        tasks = [
            asyncio.create_task(
                lm.generate(f"call {i}", constraint=Choice(["then", "there"]), seed=0)
            )
            for i in range(200)
        ]
        chosen = draw.sample(tasks, 100)
        for each in chosen:
            await asyncio.sleep(draw.random() * 0.002)
            each.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert len(asyncio.all_tasks()) == 1
        kept.extend(weakref.ref(each) for each in tasks)
        return sum(isinstance(each, asyncio.CancelledError) for each in results)

    assert 0 < asyncio.run(run()) <= 100
    lm.generate_sync("a last call", constraint=Choice(["then"]))
    for _ in range(1000):  # the last future is set ahead of the end of its step
        if not lm.engine.num_active:
            break
        threading.Event().wait(0.005)
    assert (lm.engine.num_waiting, lm.engine.num_active) == (0, 0)
    gc.collect()
    assert not any(each() for each in kept)


def calls(lm: DiffusionLM, count: int) -> None:
    """Answer `count` calls with prompts of their own, 50 at once."""

    async def run(start: int) -> None:
        await asyncio.gather(
            *(lm.decide(f"question {start + i}", ["yes", "no"]) for i in range(50))
        )

    for start in range(0, count, 50):
        asyncio.run(run(start))


def resident_bytes() -> int:
    """Memory that the process holds now; 0 where the system does not tell."""
    statm = Path("/proc/self/statm")
    return int(statm.read_text().split()[1]) * resource.getpagesize() if statm.exists() else 0


@pytest.mark.parametrize("count", [300, pytest.param(10_000, marks=pytest.mark.slow)])
def test_memory_stays_flat(lm: DiffusionLM, count: int) -> None:
    """Many calls with prompts of their own grow neither the cache beyond its budget nor memory."""
    lm.engine.cache.budget_bytes = 2 * 2**20
    calls(lm, max(100, count // 10))
    gc.collect()
    tensors = sum(issubclass(type(each), torch.Tensor) for each in gc.get_objects())
    before = resident_bytes()
    calls(lm, count)
    gc.collect()
    assert lm.engine.cache.statistics.bytes <= lm.engine.cache.budget_bytes
    now = sum(issubclass(type(each), torch.Tensor) for each in gc.get_objects())
    assert now <= tensors * 1.05 + 50
    assert resident_bytes() - before < 20 * 2**20 + 8_000 * count  # the math library keeps shapes


def test_metrics_say_what_was_done() -> None:
    """Fill, steps and the cache's use follow from the calls that were made."""
    lm = tiny_lm()
    for _ in range(2):
        lm.decide_sync("then or there?", ["then", "there"])
    found = lm.engine.metrics()
    assert found["num_finished"] == found["num_steps"] == 2
    assert found["rows_per_step"] == 1.0
    assert found["cache_hit_rate"] == 0.5
    assert found["cache_bytes"] == lm.engine.cache.statistics.bytes > 0
    assert (found["num_waiting"], found["num_active"], found["num_failed"]) == (0, 0, 0)
    lm.close()


def test_threads_fit_the_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is pinned to one processor gets one thread; fewer threads are left alone."""
    before = torch.get_num_threads()
    processors = {0}

    def affinity(_: int) -> set[int]:
        return processors

    monkeypatch.setattr(os, "sched_getaffinity", affinity, raising=False)
    try:
        torch.set_num_threads(2)
        fit_threads()
        assert torch.get_num_threads() == 1
        processors |= set(range(8))
        fit_threads()
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


def test_calls_that_find_no_room_in_an_event_loop_are_told(lm: DiffusionLM) -> None:
    """Beyond max_waiting, and on a closed model, awaiting a call raises and nothing hangs."""
    lm = tiny_lm()
    lm.engine._queue.limit = 2  # pyright: ignore[reportPrivateUsage]  # no call may be slow enough

    async def run(count: int) -> list[Any]:
        asked = [lm.decide(f"{i}?", ["then", "there"]) for i in range(count)]
        return await asyncio.gather(*asked, return_exceptions=True)

    results = asyncio.run(run(6))
    assert sum(isinstance(each, QueueFullError) for each in results) == 4
    lm.close()
    assert all("closed" in str(each) for each in asyncio.run(run(2)))


def test_warming_reads_what_conversations_begin_with() -> None:
    """A system prompt that was warmed is in the cache for the conversations that begin with it."""
    lm = tiny_lm()
    system: Message = {"role": "system", "content": "You sort letters. " * 20}
    num_new = asyncio.run(lm.warm([[system]]))
    assert num_new > 128
    for text in ("one", "another"):
        answer = lm.generate_sync(
            [system, {"role": "user", "content": text}], constraint=Choice(["then"]), effort="low"
        )
        assert lm.engine.cache.statistics.hit_tokens >= num_new // 64 * 64 or not answer.num_steps
    assert asyncio.run(lm.warm([[system]])) == 0
    lm.close()
