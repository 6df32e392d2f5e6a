"""Whatever the model believes, the final canvas holds a text of the real constraint."""

from __future__ import annotations

import json
from functools import lru_cache

import jsonschema
import numpy as np
import pytest

from agentloop.model.constraint import (
    Choice,
    Constraint,
    JsonSchema,
    List,
    Object,
    Quote,
    Regex,
    Text,
    ToolCalls,
)
from agentloop.model.constraint.class_weights import MASKED
from agentloop.model.constraint.compiled import (
    CompiledConstraint,
    ConstraintCache,
    compile_constraint,
)
from agentloop.model.constraint.inference import Weighting, infer
from agentloop.model.constraint.vocabulary import Vocabulary
from tests.model.constraint.test_vocabulary import byte_level, sentence_piece

PASSAGE = "The café opened in 1912.\nIts owner, Zoë, wrote “never again” on the wall. 漢字 too."
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 9},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "kind": {"enum": ["guest", "member", None]},
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 2},
    },
    "required": ["name", "kind"],
    "additionalProperties": False,
}
CONSTRAINTS: dict[str, Constraint] = {
    "choice": Choice(["yes", "no", "not in the passages"]),
    "regex": Regex("[A-Z][a-zé]{2,9}-[0-9]{2}"),
    "quote": Quote([PASSAGE]),
    "schema": JsonSchema(SCHEMA),
    "any JSON": JsonSchema({}),
    "object": Object(answer=Text(), quotes=List(Quote([PASSAGE]))),
    "tools": ToolCalls(
        [
            {"name": "find_bus", "description": "", "parameters": SCHEMA},
            {"name": "stop", "description": "", "parameters": {"type": "object"}},
        ],
        min=0,
        max=2,
    ),
}


@lru_cache
def vocabulary(kind: str) -> Vocabulary:
    if kind == "byte-level":
        return Vocabulary.from_tokenizer(byte_level(), [0], size=512)
    return Vocabulary.from_tokenizer(sentence_piece(), [2])


@lru_cache
def compiled(name: str, kind: str) -> CompiledConstraint:
    return compile_constraint(CONSTRAINTS[name], vocabulary(kind), cache=ConstraintCache())


def decode(
    compiled: CompiledConstraint, weighting: Weighting, seed: int, num_steps: int
) -> list[int]:
    """Commit random positions in a random order, take one back now and then."""
    generator = np.random.default_rng(seed)
    length = compiled.min_tokens + int(generator.integers(0, 24))
    tokens = np.full(length, MASKED)
    spread = generator.choice([0.0, 1.0, 10.0, 1000.0])
    for step in range(num_steps):
        logits = generator.normal(0, spread, (length, compiled.vocabulary.size))
        posterior = infer(
            compiled,
            logits.astype(np.float32),
            tokens,
            weighting=weighting,
            temperature=float(generator.choice([0.0, 0.3, 1.0])),
            generator=generator,
        )
        masked = np.flatnonzero(tokens == MASKED)
        count = -(-len(masked) // (num_steps - step))
        chosen = generator.permutation(masked)[:count]
        tokens[chosen] = posterior.tokens[chosen]
        if step + 1 < num_steps:
            tokens[generator.integers(length)] = MASKED
    assert (tokens != MASKED).all()
    return [int(token) for token in tokens]


@pytest.mark.parametrize("kind", ["byte-level", "SentencePiece"])
@pytest.mark.parametrize("name", CONSTRAINTS)
def test_every_canvas_ends_in_the_language(name: str, kind: str) -> None:
    """Random logits, 1 to 16 steps, positions taken back: always UTF-8 and always valid."""
    for seed, num_steps in enumerate([1, 1, 4, 4, 16]):
        weighting: Weighting = "local" if seed % 2 else "product"
        tokens = decode(compiled(name, kind), weighting, seed, num_steps)
        text = vocabulary(kind).text(tokens).decode()
        assert CONSTRAINTS[name].accepts(text), text
        if name == "schema":
            jsonschema.validate(json.loads(text), SCHEMA)
        if name == "quote":
            assert text in PASSAGE
