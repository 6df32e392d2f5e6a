"""Scores of predicted answer texts against held-out rows: pure functions, no model.

A prediction is the text a model wrote for a row. What does not parse scores nothing and is counted
under `valid`. Shares without a denominator are NaN.
"""

from __future__ import annotations

import json
import math
import re
import string
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

Row = Mapping[str, Any]
Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
Call = tuple[str, dict[str, Json]]

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def share(values: Iterable[float]) -> float:
    """The mean of some values, NaN if there are none."""
    listed = list(values)
    return sum(listed) / len(listed) if listed else math.nan


def _check_lengths(predictions: Sequence[str], rows: Sequence[Row]) -> None:
    if len(predictions) != len(rows):
        raise ValueError(f"got {len(predictions)} predictions for {len(rows)} rows; give one each")


def _parsed(text: str) -> Json:
    try:
        value: Json = json.loads(text)
    except ValueError:
        return None
    return value


def parse_calls(text: str) -> list[Call] | None:
    """The calls of an answer text, or None if it is no list of calls.

    Example:
        >>> parse_calls('[{"name":"add","arguments":{"a":1}}]')
        [('add', {'a': 1})]
    """
    items = _parsed(text)
    if not isinstance(items, list):
        return None
    calls: list[Call] = []
    for item in items:
        match item:
            case {"name": str(name), "arguments": dict(arguments)}:
                calls.append((name, arguments))
            case _:
                return None
    return calls


def canonical_value(value: Json) -> str:
    """A value as text that is equal where values count as equal.

    Strings differ neither by case nor by space at the ends; 1 and 1.0 are
    equal, true and 1 are not.

    Example:
        >>> canonical_value(" San Jose") == canonical_value("san jose")
        True
    """
    if isinstance(value, str):
        return json.dumps(value.casefold().strip())
    if isinstance(value, float) and value.is_integer():
        return json.dumps(int(value))
    if isinstance(value, list):
        return "[" + ",".join(canonical_value(v) for v in value) + "]"
    if isinstance(value, dict):
        inner = (f"{json.dumps(k)}:{canonical_value(v)}" for k, v in sorted(value.items()))
        return "{" + ",".join(inner) + "}"
    return json.dumps(value)


def _arguments(calls: Iterable[Call]) -> Counter[tuple[str, str, str]]:
    return Counter((name, k, canonical_value(v)) for name, a in calls for k, v in a.items())


def call_scores(predictions: Sequence[str], rows: Sequence[Row]) -> dict[str, float]:
    """Scores of tool calls.

    Returns:
        valid: share that parse as a list of calls.
        tool_name: share whose names equal the gold ones, in order.
        exact_call: share whose names and arguments equal the gold ones.
        argument_f1: F1 of (tool, argument, value) over all rows together.
        called: among rows with a gold call, share that call anything.
        refused: among rows without a gold call, share that call nothing.
        exact_when_called: `exact_call` among rows with a gold call.

    Raises:
        ValueError: if there is not one prediction for every row.
    """
    _check_lengths(predictions, rows)
    made = [parse_calls(p) for p in predictions]
    gold = [parse_calls(r["answer"]) or [] for r in rows]
    pairs = list(zip(made, gold, strict=True))
    names = [m is not None and [n for n, _ in m] == [n for n, _ in g] for m, g in pairs]
    exact = [
        same and _arguments(m or []) == _arguments(g)
        for same, (m, g) in zip(names, pairs, strict=True)
    ]
    given = [_arguments(m or []) for m in made]
    wanted = [_arguments(g) for g in gold]
    num_right = sum((g & w).total() for g, w in zip(given, wanted, strict=True))
    num_all = sum(c.total() for c in (*given, *wanted))
    return {
        "valid": share(m is not None for m in made),
        "tool_name": share(names),
        "exact_call": share(exact),
        "argument_f1": 2 * num_right / num_all if num_all else math.nan,
        "called": share(bool(m) for m, g in pairs if g),
        "refused": share(m == [] for m, g in pairs if not g),
        "exact_when_called": share(e for e, g in zip(exact, gold, strict=True) if g),
    }


def normalised_answer(text: str) -> str:
    """An answer without case, punctuation, articles and extra spaces.

    Source: the evaluation of SQuAD 1.1 (Rajpurkar et al. 2016).

    Example:
        >>> normalised_answer("The  Court, of Justice.")
        'court of justice'
    """
    return " ".join(_ARTICLES.sub(" ", text.casefold().translate(_PUNCTUATION)).split())


def answer_f1(answer: str, gold: str) -> float:
    """F1 of the words of two answers after normalisation.

    Source: the evaluation of SQuAD 1.1 (Rajpurkar et al. 2016).
    """
    given, wanted = normalised_answer(answer).split(), normalised_answer(gold).split()
    if not given or not wanted:
        return float(given == wanted)
    num_same = (Counter(given) & Counter(wanted)).total()
    return 2 * num_same / (len(given) + len(wanted))


def parse_reading(text: str) -> tuple[str | None, list[str]] | None:
    """The answer and the quotes of an answer text, or None if it is no such object."""
    match _parsed(text):
        case {"answer": str() | None as answer, "quotes": list(quotes)}:
            texts = [q for q in quotes if isinstance(q, str)]
            return (answer, texts) if len(texts) == len(quotes) else None
        case _:
            return None


def reading_scores(predictions: Sequence[str], rows: Sequence[Row]) -> dict[str, float]:
    """Scores of answers with quotes. A row whose "answers" are empty has no answer.

    Returns:
        valid: share that parse.
        exact, f1: over all rows; a row without an answer scores 1 for null and else 0.
        answerable_exact, answerable_f1: over rows with an answer.
        unanswerable: share of rows without an answer that got null.
        quote_in_passage: among answers given, share with quotes, all of them verbatim in a passage.
        quote_has_answer: among answers given, share with a quote that holds the answer's words.

    Raises:
        ValueError: if there is not one prediction for every row.
    """
    _check_lengths(predictions, rows)
    read = [parse_reading(p) for p in predictions]
    scored = [_answer_scores(r, row["answers"]) for r, row in zip(read, rows, strict=True)]
    answerable = [s for s, row in zip(scored, rows, strict=True) if row["answers"]]
    unanswerable = [s for s, row in zip(scored, rows, strict=True) if not row["answers"]]
    given = [
        (r[0], r[1], row["passages"])
        for r, row in zip(read, rows, strict=True)
        if r is not None and r[0] is not None
    ]
    return {
        "valid": share(r is not None for r in read),
        "exact": share(e for e, _ in scored),
        "f1": share(f for _, f in scored),
        "answerable_exact": share(e for e, _ in answerable),
        "answerable_f1": share(f for _, f in answerable),
        "unanswerable": share(e for e, _ in unanswerable),
        "quote_in_passage": share(
            bool(quotes) and all(any(q in p for p in passages) for q in quotes)
            for _, quotes, passages in given
        ),
        "quote_has_answer": share(
            any(normalised_answer(answer) in normalised_answer(q) for q in quotes)
            for answer, quotes, _ in given
        ),
    }


def _answer_scores(
    found: tuple[str | None, list[str]] | None, golds: Sequence[str]
) -> tuple[float, float]:
    """Exact match and F1 of one prediction; null is right where there is no gold answer."""
    if found is None:
        return 0.0, 0.0
    answer = found[0]
    if not golds or answer is None:
        right = float(answer is None and not golds)
        return right, right
    exact = any(normalised_answer(answer) == normalised_answer(g) for g in golds)
    return float(exact), max(answer_f1(answer, g) for g in golds)


def choice_scores(predictions: Sequence[str], rows: Sequence[Row]) -> dict[str, float]:
    """Scores of choices; `choices` of a row are the texts that were offered.

    Returns:
        valid: share that is one of the offered texts.
        exact: share equal to `answer`.

    Raises:
        ValueError: if there is not one prediction for every row.
    """
    _check_lengths(predictions, rows)
    pairs = list(zip(predictions, rows, strict=True))
    return {
        "valid": share(p in row["choices"] for p, row in pairs),
        "exact": share(p == row["answer"] for p, row in pairs),
    }


def answer_scores(predictions: Sequence[str], golds: Sequence[str]) -> dict[str, float]:
    """Scores of answers of any kind against gold texts: of calls, of other JSON, of plain text.

    Returns:
        exact: share equal to the gold, as JSON values where both parse.
        tool_name, argument_f1: as `call_scores`, where every gold answer is a list of calls.

    Raises:
        ValueError: if there is not one prediction for every gold text.
    """
    rows: list[Row] = [{"answer": gold} for gold in golds]
    _check_lengths(predictions, rows)
    pairs = list(zip(predictions, golds, strict=True))
    scores = {"exact": share(_key(p) == _key(g) for p, g in pairs)}
    if all(parse_calls(gold) is not None for gold in golds):
        of_calls = call_scores(predictions, rows)
        scores |= {name: of_calls[name] for name in ("tool_name", "argument_f1")}
    return scores


def _key(text: str) -> str:
    """A text that is equal for answers that count as equal."""
    try:
        return canonical_value(json.loads(text))
    except ValueError:
        return " ".join(text.split())
