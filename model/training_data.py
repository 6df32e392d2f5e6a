"""Training rows: from JSONL with messages and answers to padded batches of noisy canvases.

Everything random is drawn from (seed, step), so a run resumed at a step sees what the unbroken run
would have seen.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor

from agentloop.errors import ModelError
from agentloop.model.config import ModelConfig
from agentloop.model.noise import KINDS, add_noise
from agentloop.model.prompts import render_chat
from agentloop.model.tensors import from_array

CANVAS_LENGTHS = (16, 32, 48, 64, 96, 128)


@dataclass(frozen=True)
class Row:
    """One example as tokens.

    Attributes:
        prompt: Ids of the rendered messages, open for the answer.
        answer: Ids of the answer, without end of text.
        structure: Per answer token, whether it is JSON structure rather than a value.
        task: Name of its task.
    """

    prompt: list[int]
    answer: list[int]
    structure: list[bool]
    task: str


@dataclass(frozen=True)
class Batch:
    """B rows with n noisy canvases each.

    Attributes:
        prompt: (B, P) ids, padded at the end; the last prompt token is left out, it is the anchor.
        prompt_bias: (B, P) 0 or minus infinity at padding.
        canvas: (B, n, 1 + L) ids: the anchor, then the slots.
        positions: (B, 1 + L) places in the text.
        targets: (B, n, L) clean ids.
        weights: (B, n, L) loss weights.
    """

    prompt: Tensor
    prompt_bias: Tensor
    canvas: Tensor
    positions: Tensor
    targets: Tensor
    weights: Tensor

    @property
    def num_tokens(self) -> int:
        """Positions processed: prompts once, canvases once."""
        return int(self.prompt_bias.isfinite().sum()) + self.canvas.numel()


def structure_of(text: str) -> NDArray[np.bool_]:
    """Per character of a JSON text, whether it is structure: punctuation, quotes and keys.

    Example:
        >>> "".join("s" if s else "v" for s in structure_of('{"a":"b","c":12}'))
        'ssssssvssssssvvs'
    """
    marks = np.ones(len(text), np.bool_)
    in_string = is_value = False
    index = 0
    while index < len(text):
        char = text[index]
        if in_string:
            step = 2 if char == "\\" else 1
            if char == '"':
                in_string = False
            elif is_value:
                marks[index : index + step] = False
            index += step
            continue
        if char == '"':
            in_string, is_value = True, not _is_key(text, index)
        elif char not in "{}[],: \n":
            marks[index] = False
        index += 1
    return marks


def _is_key(text: str, start: int) -> bool:
    """Whether the string that opens at `start` is an object's key."""
    end = start + 1
    while end < len(text) and text[end] != '"':
        end += 2 if text[end] == "\\" else 1
    return text[end + 1 : end + 2] == ":"


def read_rows(
    path: Path, tokenizer: Tokenizer, *, max_prompt: int = 480, limit: int | None = None
) -> list[Row]:
    """Tokenised rows of a JSONL file; those too long for the longest canvas or prompt are left out.

    Raises:
        ModelError: A line is not JSON or lacks `messages` or `answer`; names file and line.
    """
    rows: list[Row] = []
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                item = json.loads(line)
                text: str = item["answer"]
                prompt = tokenizer.encode(render_chat(item["messages"])).ids
            except (ValueError, KeyError, TypeError) as error:
                raise ModelError(f"{path}:{number} is no training row: {error!r}") from None
            encoded = tokenizer.encode(text)
            if len(prompt) > max_prompt or len(encoded.ids) >= CANVAS_LENGTHS[-1]:
                continue
            marks = structure_of(text)
            structure = [bool(marks[a:b].all()) for a, b in encoded.offsets]
            rows.append(Row(prompt, encoded.ids, structure, str(item.get("task", ""))))
            if limit is not None and len(rows) == limit:
                break
    return rows


def batch_order(rows: list[Row], batch_size: int, epoch: int, seed: int) -> list[list[int]]:
    """Row numbers of an epoch's batches: shuffled, with rows of like length together."""
    rng = np.random.default_rng([seed, 1, epoch])
    order = rng.permutation(len(rows))
    batches: list[list[int]] = []
    pool = batch_size * 32
    for start in range(0, len(order) - batch_size + 1, pool):
        near = sorted(
            (int(i) for i in order[start : start + pool]),
            key=lambda i: (_bucket(len(rows[i].answer) + 1), len(rows[i].prompt)),
        )
        full = range(0, len(near) - batch_size + 1, batch_size)
        batches += [near[at : at + batch_size] for at in full]
    rng.shuffle(batches)
    return batches


def _bucket(length: int) -> int:
    return next(i for i, size in enumerate(CANVAS_LENGTHS) if size >= length)


def make_batch(rows: list[Row], config: ModelConfig, rng: np.random.Generator) -> Batch:
    """Pad rows to one prompt length and one canvas length and noise them."""
    assert config.mask_id is not None
    fits = _bucket(max(len(row.answer) for row in rows) + 1)
    roomier = min(fits + int(rng.random() < 0.25), len(CANVAS_LENGTHS) - 1)
    L = CANVAS_LENGTHS[roomier]
    P = max(len(row.prompt) for row in rows) - 1
    B, n = len(rows), len(KINDS)
    eos = config.eos_ids[0]
    prompt = np.full((B, P), eos, np.int64)
    bias = np.zeros((B, P), np.float32)
    canvas = np.empty((B, n, 1 + L), np.int64)
    targets = np.empty((B, n, L), np.int64)
    weights = np.empty((B, n, L), np.float32)
    for b, row in enumerate(rows):
        read, length = len(row.prompt) - 1, len(row.answer)
        prompt[b, :read] = row.prompt[:-1]
        bias[b, read:] = -np.inf
        clean = np.array(row.answer + [eos] * (L - length), np.int64)
        structure = np.array(row.structure + [False] * (L - length), np.bool_)
        noisy = add_noise(
            clean, length, structure, mask_id=config.mask_id, vocab_size=config.vocab_size, rng=rng
        )
        canvas[b, :, 0] = row.prompt[-1]
        canvas[b, :, 1:] = noisy.tokens
        targets[b], weights[b] = clean, noisy.weights
    ends = np.array([[len(row.prompt) - 1] for row in rows])
    return Batch(
        from_array(prompt),
        from_array(bias),
        from_array(canvas),
        from_array(ends + np.arange(1 + L)),
        from_array(targets),
        from_array(weights),
    )
