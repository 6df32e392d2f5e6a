"""Long prompts: windows cut at turns, summaries, compression, stretched contexts."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from agentloop.errors import ContextLengthError, ModelError
from agentloop.model.constraint import Regex
from agentloop.model.dialogue import SUMMARY, Dialogue, cut_turns
from agentloop.model.lm import DiffusionLM
from agentloop.model.loading import load_networks
from agentloop.model.long_context import stretched
from agentloop.model.network import rotary_table
from agentloop.model.prompts import Message
from tests.model.tiny import tiny_config, tiny_lm, tiny_network, tiny_tokenizer, write_folder

SYSTEM: Message = {"role": "system", "content": "s"}
WORD = Regex("[a-z]{4}")


def turns_of(roles: str) -> list[Message]:
    names = {"s": "system", "u": "user", "a": "assistant", "t": "tool"}
    return [
        {"role": names[role], "content": f"{i}"}  # type: ignore[typeddict-item]  # a table of roles
        for i, role in enumerate(roles)
    ]


@given(st.text("s", max_size=2), st.text("uat", min_size=1, max_size=9), st.integers(1, 12))
def test_a_cut_keeps_the_most_turns_that_fit(system: str, roles: str, most: int) -> None:
    """System messages stay, the rest is a suffix that begins with a user, as long as can be."""
    messages = turns_of(system + roles)
    starts = [i for i, r in enumerate(roles) if r == "u"] or [0]
    fitting = [i for i in starts if len(system) + len(roles) - i <= most]
    if not fitting:
        with pytest.raises(ContextLengthError, match="the last turn and the system's messages"):
            cut_turns(messages, most, len)
        return
    kept = cut_turns(messages, most, len)
    assert kept == [*messages[: len(system)], *messages[len(system) + fitting[0] :]]


def test_a_dialogue_stays_within_its_window_and_mostly_in_the_cache() -> None:
    """Forty turns: each prompt fits, and cuts are rare, so beginnings are found in the cache."""
    lm = tiny_lm()

    async def talk() -> tuple[Dialogue, list[int], int]:
        dialogue = Dialogue(lm, max_tokens=900, keep=0.5, system=[SYSTEM])
        lengths: list[int] = []
        num_cuts = 0
        for i in range(40):
            before = dialogue.num_cut
            answer = await dialogue.ask(f"turn {i} " + "in the end " * 4, constraint=WORD, seed=0)
            lengths.append(answer.num_prompt_tokens)
            num_cuts += dialogue.num_cut > before
        return dialogue, lengths, num_cuts

    dialogue, lengths, num_cuts = asyncio.run(talk())
    assert max(lengths) <= 900
    assert 1 <= num_cuts <= 8
    assert dialogue.window[0] == SYSTEM
    assert dialogue.turns[-1]["role"] == "assistant"
    assert dialogue.num_cut + len(dialogue.turns) == 80
    assert lm.totals.hit_rate > 0.5


def test_what_is_cut_is_summed_up() -> None:
    """The hook gets the last summary and the turns that go; its text opens the window."""
    lm = tiny_lm()
    seen: list[tuple[str, int]] = []

    async def summarise(before: str, turns: Sequence[Message]) -> str:
        seen.append((before, len(turns)))
        return f"{len(seen)} cuts"

    async def talk() -> Dialogue:
        dialogue = Dialogue(lm, max_tokens=400, summarise=summarise)
        for i in range(16):
            await dialogue.ask(f"turn {i} " + "name " * 6, constraint=WORD, seed=0)
        return dialogue

    dialogue = asyncio.run(talk())
    assert len(seen) >= 2
    assert seen[0][0] == ""
    assert seen[1][0] == "1 cuts"
    assert sum(count for _, count in seen) == dialogue.num_cut
    assert dialogue.window[0] == {"role": "system", "content": f"{SUMMARY}{len(seen)} cuts"}


def test_a_turn_that_cannot_fit_adds_nothing() -> None:
    """The error names the sizes, and the conversation is as it was."""
    lm = tiny_lm()
    dialogue = Dialogue(lm, max_tokens=200)

    async def ask(text: str) -> None:
        await dialogue.ask(text, constraint=WORD)

    asyncio.run(ask("short"))
    before = list(dialogue.turns)
    with pytest.raises(ContextLengthError, match="but 200 are allowed"):
        asyncio.run(ask("long " * 100))
    assert dialogue.turns == before

    def verbose(_: str, __: Sequence[Message]) -> str:
        return "much " * 100

    talkative = Dialogue(lm, max_tokens=200, summarise=verbose, turns=list(before))

    async def talk() -> None:
        for _ in range(5):
            await talkative.ask("name " * 8, constraint=WORD)

    with pytest.raises(ContextLengthError, match="have summarise write less"):
        asyncio.run(talk())
    with pytest.raises(ModelError, match="keep is 0"):
        Dialogue(lm, keep=0)


def test_a_prompt_that_is_too_long_is_compressed_or_refused() -> None:
    """The hook gets the tokens there are; what it gives has to fit."""
    network, rooms = tiny_network(), list[int]()

    def shorten(messages: Sequence[Message], room: int) -> Sequence[Message]:
        rooms.append(room)
        return cut_turns(messages, room, lm.count_tokens)

    lm = DiffusionLM(network, network, tiny_tokenizer(), compress=shorten)
    turns: list[Message] = [{"role": "user", "content": f"{i} " + "word " * 40} for i in range(9)]
    answer = lm.generate_sync(turns, constraint=WORD, max_tokens=24)
    assert rooms == [1024 - 24]
    assert 0 < answer.num_prompt_tokens <= 1000
    with pytest.raises(ContextLengthError, match="the last turn"):
        lm.generate_sync("word " * 900, max_tokens=24)
    with pytest.raises(ContextLengthError, match="or load the model with compress"):
        tiny_lm().generate_sync(turns, constraint=WORD, max_tokens=24)


def test_the_whole_context_can_be_used() -> None:
    """A prompt that fills the context to the last token but the answer's is answered."""
    lm = tiny_lm()
    filler = 1024 - 16 - lm.count_tokens("")
    answer = lm.generate_sync("z" * filler, constraint=WORD, max_tokens=16)
    assert answer.num_prompt_tokens == 1024 - 16
    with pytest.raises(ContextLengthError, match=r"has 1,009 tokens and the answer up to 16"):
        lm.generate_sync("z" * (filler + 1), constraint=WORD, max_tokens=16)


def test_stretched_frequencies_reach_as_far_and_stay_as_sharp() -> None:
    """The slowest pair turns over the new context as over the old; the fastest is unchanged."""
    config = tiny_config()
    longer = stretched(config, 4 * config.max_position_embeddings)
    assert longer.max_position_embeddings == 4096
    old, _ = rotary_table(config, torch.tensor([1, 1023]))
    new, _ = rotary_table(longer, torch.tensor([1, 4 * 1023]))
    half = config.head_dim // 2
    assert float(old[0, 0]) == pytest.approx(float(new[0, 0]))
    assert float(old[1, half - 1]) == pytest.approx(float(new[1, half - 1]), abs=1e-4)
    assert stretched(config, 512) == replace(config, max_position_embeddings=512)
    with pytest.raises(ModelError, match="context is 0"):
        stretched(config, 0)


def test_a_model_is_loaded_for_a_longer_context(tmp_path: Path) -> None:
    """Beyond the trained length it answers, within it the shorter limit holds."""
    folder = tmp_path / "tiny"
    write_folder(folder)
    prompt = "z" * 1500
    with DiffusionLM.load(folder, dtype=torch.float32, context=2048) as lm:
        answer = lm.generate_sync(prompt, constraint=WORD)
        assert answer.num_prompt_tokens > 1024
    with DiffusionLM.load(folder, dtype=torch.float32, context=256) as lm:
        with pytest.raises(ContextLengthError, match="context is 256"):
            lm.generate_sync("z" * 300, constraint=WORD)
        short = lm.generate_sync("hi", constraint=WORD).token_ids
    with DiffusionLM.load(folder, dtype=torch.float32) as lm:
        assert lm.generate_sync("hi", constraint=WORD).token_ids == short
    loaded = load_networks(folder, dtype=torch.float32, context=2048)
    assert loaded.reader is loaded.writer
    assert loaded.reader.config.rope_theta == stretched(tiny_config(), 2048).rope_theta
