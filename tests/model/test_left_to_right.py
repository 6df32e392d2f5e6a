"""Left-to-right decoding: valid under the constraint, and greedy token by token."""

import json

import jsonschema
import numpy as np
import pytest
import torch

from agentloop.errors import CanvasTooSmallError
from agentloop.model.constraint import JsonSchema, Regex
from agentloop.model.left_to_right import decode_left_to_right
from tests.model.test_engine import SCHEMA
from tests.model.tiny import tiny_lm, tiny_network


@pytest.mark.parametrize("seed", range(4))
def test_texts_are_valid(seed: int) -> None:
    """With random weights the text parses and validates, even where the budget is short."""
    lm = tiny_lm(seed)
    compiled = lm.compile(JsonSchema(SCHEMA))
    prompt = lm.prompt_ids("then")
    keys = lm.engine.cache.read(prompt[:-1]).keys
    for budget in (compiled.min_tokens, 40, 64):
        done = decode_left_to_right(lm.engine.writer, prompt, keys, compiled, budget)
        assert done.num_steps <= budget
        jsonschema.validate(json.loads(lm.vocabulary.text(done.tokens)), SCHEMA)
    with pytest.raises(CanvasTooSmallError):
        decode_left_to_right(lm.engine.writer, prompt, keys, compiled, compiled.min_tokens - 1)


def test_tokens_are_the_greedy_ones() -> None:
    """Where the constraint leaves everything open, each token is the argmax of a fresh run."""
    lm, network = tiny_lm(), tiny_network()
    compiled = lm.compile(Regex("[ -~]*"))
    prompt = lm.prompt_ids("in the end")
    keys = lm.engine.cache.read(prompt[:-1]).keys
    written = decode_left_to_right(lm.engine.writer, prompt, keys, compiled, 12).tokens
    allowed = np.array(
        [all(32 <= b < 127 for b in s) and bool(s) for s in lm.vocabulary.token_bytes]
    )
    allowed[lm.vocabulary.eos_ids[0]] = True
    for i, token in enumerate(written):
        hidden, _ = network.read(torch.tensor([[*prompt, *written[:i]]]))
        scores = network.logits(hidden[0, -1]).numpy()
        assert token == int(np.where(allowed, scores, -np.inf).argmax())
