"""A call in the hand: edits, pins and cancellation while it runs, streams that keep their word."""

from __future__ import annotations

import asyncio
import json
import random
import re
import threading
from collections.abc import Iterator
from typing import Any

import jsonschema
import numpy as np
import pytest
from torch import Tensor

from agentloop.errors import ContradictionError, ModelError
from agentloop.model.constraint import Choice, JsonSchema, Regex
from agentloop.model.effort import SamplerOptions
from agentloop.model.generation import Draft
from agentloop.model.handle import Handle
from agentloop.model.lm import DiffusionLM
from tests.model.tiny import tiny_lm

LETTERS = Regex("[a-z ]{12,40}")
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "kind": {"enum": ["then", "there", "in"]},
        "count": {"type": "integer", "minimum": 0, "maximum": 99},
    },
    "required": ["name", "kind", "count"],
    "additionalProperties": False,
}


class Gate:
    """Holds the engine between two steps until the test lets it go on."""

    def __init__(self, lm: DiffusionLM, monkeypatch: pytest.MonkeyPatch) -> None:
        self._permits = threading.Semaphore(0)
        forward = lm.engine.forward

        def waiting(jobs: Any) -> list[Tensor]:
            assert self._permits.acquire(timeout=60)
            return forward(jobs)

        monkeypatch.setattr(lm.engine, "forward", waiting)

    def step(self, handle: Handle, count: int = 1) -> Draft:
        """Let some steps happen; gives the draft after them."""
        for _ in range(count):
            seen = handle.draft.step
            self._permits.release()
            while handle.draft.step == seen and not handle.done:
                pass
        return handle.draft

    def open(self) -> None:
        """Let everything go on."""
        for _ in range(10_000):
            self._permits.release()


@pytest.fixture(scope="module")
def shared() -> DiffusionLM:
    return tiny_lm()


@pytest.fixture
def lm(shared: DiffusionLM) -> DiffusionLM:
    return shared


@pytest.fixture
def gate(lm: DiffusionLM, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    held = Gate(lm, monkeypatch)
    yield held
    held.open()


def test_an_edit_stands_and_the_rest_adapts(lm: DiffusionLM, gate: Gate) -> None:
    """The edited text is in the answer, where it was put, and the answer is accepted."""
    handle = lm.start("hi", constraint=LETTERS, temperature=1.0, seed=1)
    gate.step(handle, 4)
    handle.edit((0, 2), "in the end ")
    assert handle.draft.text().startswith("in the end ")
    assert handle.draft.marks[0] == "fixed"
    gate.open()
    answer = handle.result(60)
    assert answer.text.startswith("in the end ")
    assert re.fullmatch("[a-z ]{12,40}", answer.text)


def test_an_edit_before_the_last_step_is_not_lost(lm: DiffusionLM, gate: Gate) -> None:
    """The step that would have finished the answer is followed by another that adapts it."""
    one = SamplerOptions(max_steps=1)
    handle = lm.start("hi", constraint=Regex("[a-z]{6}-[a-z]{6}"), sampler=one, seed=1)
    handle.edit((0, 0), "inthen-")
    gate.open()
    answer = handle.result(60)
    assert re.fullmatch("inthen-[a-z]{6}", answer.text)
    assert answer.num_steps > 1


def test_a_contradiction_is_an_error_and_changes_nothing(lm: DiffusionLM, gate: Gate) -> None:
    """The refused edit leaves no trace: the answer is that of an untouched call."""
    call: dict[str, Any] = {"constraint": LETTERS, "temperature": 1.0, "seed": 2}
    handle = lm.start("hi", **call)
    before = gate.step(handle, 3)
    with pytest.raises(ContradictionError, match="allowed there"):
        handle.edit((0, 1), "UPPER")
    with pytest.raises(ModelError, match="pushes fixed text off the canvas"):
        handle.edit((0, 1), "z" * 99)
    assert handle.draft == before
    gate.open()
    assert handle.result(60).text == lm.generate_sync("hi", **call).text


def test_a_pinned_span_outlives_doubt(lm: DiffusionLM, gate: Gate) -> None:
    """With revision at every step, what is pinned stays and what is not may go."""
    eager = SamplerOptions(max_steps=24, edit_threshold=0.99, max_revisions=200, temperature=1.0)
    handle = lm.start("hi", constraint=LETTERS, sampler=eager, temperature=1.0, seed=5)
    draft = gate.step(handle, 2)
    held = draft.pieces[0]
    assert draft.marks[0] != "masked"
    handle.pin((0, 1))
    for _ in range(6):
        assert gate.step(handle).pieces[0] == held
    handle.unpin((0, 1))
    gate.open()
    assert handle.result(60).num_steps > 8


def test_edits_by_text_and_masks_that_cannot_be_pinned(lm: DiffusionLM, gate: Gate) -> None:
    """A span may be a text of the draft; a text that is not there, or masks, are refused."""
    handle = lm.start("hi", constraint=LETTERS, temperature=1.0, seed=3)
    draft = gate.step(handle, 3)
    first = draft.pieces[0]
    handle.edit(first, "the")
    assert handle.draft.text().startswith("the")
    with pytest.raises(ModelError, match="the draft does not hold 'nowhere'"):
        handle.edit("nowhere", "a")
    with pytest.raises(ModelError, match="hold masks, expected text to pin"):
        handle.pin((0, len(handle.draft.marks)))
    with pytest.raises(ModelError, match=r"the span is \(0, 999\), expected slots from 0"):
        handle.edit((0, 999), "a")
    gate.open()
    assert handle.result(60).text.startswith("the")


def test_a_finished_answer_cannot_be_edited(lm: DiffusionLM) -> None:
    """The error says that it is finished; so it does where nothing was ever open."""
    handle = lm.start("hi", constraint=LETTERS, seed=1)
    handle.result(60)
    for span in [(0, 1), "a"]:
        with pytest.raises(ModelError, match="finished and cannot be changed"):
            handle.edit(span, "b")  # type: ignore[arg-type]  # both forms of a span
    with pytest.raises(ModelError, match="finished"):
        lm.start("hi", constraint=Choice(["only"])).pin((0, 1))


def test_edits_of_a_later_canvas_count_from_the_beginning(lm: DiffusionLM, gate: Gate) -> None:
    """Slots of a finished canvas are refused by number; those of the current one may change."""
    small = SamplerOptions(canvas_length=8, max_steps=2, window=None)
    handle = lm.start("hi", constraint=Regex("[a-z]{40}"), sampler=small, seed=1)
    while len([m for m in handle.draft.marks if m == "committed"]) < 9:
        gate.step(handle)
    with pytest.raises(ModelError, match="what stands before is finished"):
        handle.edit((0, 1), "q")
    gate.open()
    assert len(handle.result(60).text) == 40


@pytest.mark.parametrize("seed", range(6))
def test_random_edits_never_break_the_answer(lm: DiffusionLM, gate: Gate, seed: int) -> None:
    """Edits, pins and unpins at random times: refused or honoured, the answer is always valid."""
    rng = random.Random(seed)
    handle = lm.start("hi", constraint=JsonSchema(SCHEMA), temperature=1.0, seed=seed)
    num_refused = 0
    for _ in range(12):
        gate.step(handle, rng.randint(0, 2))
        if handle.done:
            break
        start = rng.randrange(len(handle.draft.marks))
        span = (start, min(start + rng.randint(0, 3), len(handle.draft.marks)))
        try:
            kind = rng.choice(["edit", "pin", "unpin"])
            if kind == "edit":
                handle.edit(span, rng.choice(["a", "then", '"', "7", "name", '"kind":"in"']))
            else:
                getattr(handle, kind)(span)
        except ModelError:
            num_refused += 1
    gate.open()
    jsonschema.validate(json.loads(handle.result(60).text), SCHEMA)
    assert num_refused < 12


def test_cancelling_drops_the_call(lm: DiffusionLM, gate: Gate) -> None:
    """Waiting raises, in both worlds, and the engine is idle again."""
    handle = lm.start("hi", constraint=LETTERS, seed=1)
    gate.step(handle)
    handle.cancel()
    assert handle.done
    with pytest.raises(ModelError, match="cancelled before it was answered"):
        handle.result(60)

    async def wait() -> None:
        await handle

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(wait())


def test_a_stream_of_text_is_never_taken_back(lm: DiffusionLM) -> None:
    """Pieces join to the answer even where every step revises; the first comes before the end."""
    eager = SamplerOptions(max_steps=24, edit_threshold=0.9, max_revisions=99, review_rounds=2)

    async def run(seed: int) -> list[str]:
        stream = lm.text_stream("hi", constraint=LETTERS, sampler=eager, temperature=1.0, seed=seed)
        return [piece async for piece in stream]

    for seed in range(5):
        pieces = asyncio.run(run(seed))
        assert re.fullmatch("[a-z ]{12,40}", "".join(pieces))
        assert len(pieces) > 2
        assert all(pieces)


def test_forced_text_is_streamed_ahead_of_the_first_pass(lm: DiffusionLM, gate: Gate) -> None:
    """While the engine stands still, the beginning without a choice is handed out already."""

    async def run() -> str:
        handle = lm.start("hi", constraint=JsonSchema(SCHEMA), seed=1)
        texts = handle.texts()
        first = await anext(texts)
        assert handle.draft.step == 0
        gate.open()
        return first + "".join([piece async for piece in texts])

    text = asyncio.run(run())
    assert text.startswith('{"name":"')
    jsonschema.validate(json.loads(text), SCHEMA)


def test_streamed_text_is_what_the_call_answers(lm: DiffusionLM) -> None:
    """Watching does not change an answer that is never revised."""
    call: dict[str, Any] = {"constraint": JsonSchema(SCHEMA), "temperature": 1.0, "seed": 4}

    async def run() -> str:
        return "".join([piece async for piece in lm.text_stream("hi", **call)])

    assert asyncio.run(run()) == lm.generate_sync("hi", **call).text


def test_handed_out_text_cannot_be_edited(lm: DiffusionLM, gate: Gate) -> None:
    """What a reader has seen as settled is refused; what follows may change."""

    async def run() -> None:
        handle = lm.start("hi", constraint=LETTERS, seed=1, temperature=1.0)
        texts = handle.texts()
        asyncio.get_running_loop().call_later(0.05, gate.step, handle, 2)
        assert await anext(texts)
        with pytest.raises(ModelError, match="handed out already"):
            handle.edit((0, 1), "b")
        await texts.aclose()
        assert handle.done

    asyncio.run(run())


def test_a_reader_that_leaves_cancels_the_call(lm: DiffusionLM) -> None:
    """Both streams: breaking off ends the call in the engine."""

    async def run() -> list[bool]:
        ended: list[bool] = []
        for name in ("drafts", "texts"):
            handle = lm.start("hi", max_tokens=300, temperature=1.0, seed=1)
            stream = getattr(handle, name)()
            async for _ in stream:
                break
            await stream.aclose()
            ended.append(handle.job.future.cancelled())
        return ended

    assert asyncio.run(run()) == [True, True]


def test_a_slow_reader_gets_the_last_draft_and_holds_nobody_up(lm: DiffusionLM) -> None:
    """A reader that sleeps while hundreds of steps happen misses drafts, not the answer."""

    async def run() -> tuple[list[Draft], str]:
        slow = SamplerOptions(canvas_length=32, max_steps=32, window=1)
        handle = lm.start("hi", constraint=Regex("[a-z]{150}"), sampler=slow, max_tokens=160)
        seen: list[Draft] = []
        async for draft in handle.drafts():
            seen.append(draft)
            if len(seen) == 1:
                await asyncio.to_thread(handle.result, 60)
        return seen, (await handle).text

    seen, text = asyncio.run(run())
    assert seen[-1].final
    assert seen[-1].text() == text
    assert len(seen) <= 66


def test_a_failing_network_reaches_the_reader(
    lm: DiffusionLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream ends with the error of its call."""

    def broken(_: object) -> list[Tensor]:
        raise RuntimeError("no memory")

    monkeypatch.setattr(lm.engine, "forward", broken)

    async def run() -> None:
        async for _ in lm.draft_stream("hi"):
            pass

    with pytest.raises(RuntimeError, match="no memory"):
        asyncio.run(run())


def test_a_draft_names_the_slots_of_a_text() -> None:
    """The span covers every piece that the text touches, masks counted as one character."""
    draft = Draft(
        1, ("ab", "", "cd", "e"), ("fixed", "masked", "committed", "committed"), 1.0, False
    )
    assert draft.span_of("b") == (0, 1)
    assert draft.span_of("cd") == (2, 3)
    assert draft.span_of("de") == (2, 4)
    assert draft.span_of("b░c") == (0, 3)
    with pytest.raises(ValueError, match="substring not found"):
        draft.span_of("x")


def test_canvases_of_thoughts_are_not_edited(lm: DiffusionLM, gate: Gate) -> None:
    """While the model thinks there is no answer to change, and the draft is empty."""
    handle = lm.start("hi", constraint=LETTERS, thinking=8, seed=1)
    gate.step(handle)
    if not handle.draft.pieces:
        with pytest.raises(ModelError, match="still thinking"):
            handle.edit((0, 0), "a")
    gate.open()
    assert np.isfinite(handle.result(60).log_p).all()
