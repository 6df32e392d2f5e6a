"""Stop texts: the answer ends at the first, leaves it out, and no pass goes beyond it."""

from __future__ import annotations

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from agentloop.model.stop_texts import StopText
from tests.model.tiny import tiny_lm

stops = st.lists(st.text("ab\u00e9", min_size=1, max_size=4), min_size=1, max_size=3)


@settings(max_examples=150, deadline=None)
@given(stops, st.text("ab\u00e9c", max_size=12))
def test_accepted_are_texts_that_hold_a_stop_only_at_their_end(given: list[str], text: str) -> None:
    """Against plain search: the first stop text that is complete must be complete at the end."""
    ends = [text.find(stop) + len(stop) for stop in given if stop in text]
    expected = not ends or min(ends) == len(text)
    assert StopText(given).automaton().accepts(text.encode()) == expected


@settings(max_examples=50, deadline=None)
@given(stops, st.text("ab\u00e9", max_size=12))
def test_parsing_leaves_the_stop_out(given: list[str], text: str) -> None:
    """What is left is the text ahead of the longest stop text at the end."""
    found = [stop for stop in given if text.endswith(stop)]
    assert StopText(given).parse(text) == text[: len(text) - max(map(len, found), default=0)]


def test_answers_end_at_a_stop() -> None:
    """With random weights, no answer holds a stop text, and some are ended by one."""
    lm = tiny_lm()
    answers = [
        lm.generate_sync("hi", stop=["e", "\n"], temperature=1.0, seed=seed, max_tokens=48)
        for seed in range(8)
    ]
    assert all("e" not in a.text and "\n" not in a.text for a in answers)
    stopped = [a for a in answers if a.finish_reason == "stop" and a.num_tokens]
    assert any(lm.vocabulary.text(a.token_ids).endswith((b"e", b"\n")) for a in stopped)


def test_a_stream_holds_back_what_may_be_a_stop() -> None:
    """The pieces join to the answer without its stop text."""
    lm = tiny_lm()

    async def pieces(seed: int) -> str:
        stream = lm.text_stream("hi", stop=["the", "e"], temperature=1.0, seed=seed, max_tokens=32)
        return "".join([piece async for piece in stream])

    for seed in range(4):
        whole = lm.generate_sync("hi", stop=["the", "e"], temperature=1.0, seed=seed, max_tokens=32)
        assert asyncio.run(pieces(seed)) == whole.text
