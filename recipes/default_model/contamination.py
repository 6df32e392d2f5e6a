"""Keeps held-out questions, dialogues and runs of words away from the training rows."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from recipes.default_model.questions import Question

Row = dict[str, Any]

SHINGLE_LENGTH = 12  # words


def normalised(text: str) -> str:
    """A text without case and punctuation, to compare rows of different sets.

    Example:
        >>> normalised("Who wrote  it?")
        'who wrote it'
    """
    return " ".join(re.findall(r"\w+", text.casefold()))


def question_of(row: Row) -> str:
    """What a row asks: the whole dialogue of a call row, the question of a reading row."""
    if row["task"] == "call":
        return normalised(" ".join(m["content"] for m in row["messages"] if m["role"] != "system"))
    return normalised(row["messages"][-1]["content"].rsplit("\n\nQuestion: ", 1)[1])


def shingles(texts: Iterable[str]) -> set[str]:
    """Every run of twelve words of some texts."""
    found: set[str] = set()
    for text in texts:
        words = normalised(text).split()
        found |= {
            " ".join(words[i : i + SHINGLE_LENGTH]) for i in range(len(words) - SHINGLE_LENGTH + 1)
        }
    return found


def without_contamination(
    rows: Iterable[Row], held_out: Sequence[Row], questions: Iterable[Question]
) -> tuple[list[Row], Counter[str]]:
    """The rows that share nothing with held-out rows or with the set those were drawn from.

    Args:
        rows: training rows.
        held_out: rows whose dialogues and questions must not be in training rows.
        questions: all questions of the held-out reading set; neither they nor runs of twelve words
            of their paragraphs may be in training rows.

    Returns:
        The rows that stay, and how many went for which reason.
    """
    listed = list(questions)
    asked = {question_of(r) for r in held_out} | {normalised(q.text) for q in listed}
    runs = shingles({" ".join(q.sentences) for q in listed})
    kept: list[Row] = []
    dropped: Counter[str] = Counter()
    for row in rows:
        if question_of(row) in asked:
            dropped[f"{row['task']}: same question or dialogue"] += 1
        elif runs & shingles(row.get("passages", ())):
            dropped[f"{row['task']}: shared run of {SHINGLE_LENGTH} words"] += 1
        else:
            kept.append(row)
    return kept, dropped
