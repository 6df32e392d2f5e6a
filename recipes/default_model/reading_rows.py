"""Reading rows: passages, a question, and the answer with the sentence that shows it.

One row in five has no answer: the right passage is away, or only its answering sentence is.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from agentloop.model.prompts import reading_answer, reading_messages
from recipes.default_model.questions import Question, content_words

Row = dict[str, Any]

MAX_ANSWER_CHARACTERS = 240
MAX_QUOTE_BYTES = 400  # other scripts take more tokens a letter
MAX_CHARACTERS = 1650  # of prompt and answer together: about 430 tokens
P_UNANSWERABLE = 0.2
P_KEEPS_REST = 0.6  # that an unanswerable row shows the rest of the right passage
P_ONE_PASSAGE = 0.4  # that sentences are shown as one passage


def cut(sentences: Sequence[str], place: int, num_words: int, rng: random.Random) -> list[str]:
    """Neighbouring sentences around a place, of at most some words, at a random side first."""
    first = last = place
    total = len(sentences[place].split())
    while True:
        sides = [i for i in (first - 1, last + 1) if 0 <= i < len(sentences)]
        sides = [i for i in sides if total + len(sentences[i].split()) <= num_words]
        if not sides:
            return list(sentences[first : last + 1])
        chosen = rng.choice(sides)
        total += len(sentences[chosen].split())
        first, last = min(first, chosen), max(last, chosen)


def written_question(text: str, rng: random.Random) -> str:
    """A question as people type it: as it stands, or with a capital and a question mark."""
    if text.endswith("?") or rng.random() < 0.4:
        return text
    return f"{text[0].upper()}{text[1:]}?"


class Distractors:
    """Passages that do not answer a question, those that share words with it first.

    Args:
        passages: topic and sentences of each passage.
        num_tried: how many random passages are compared.
    """

    def __init__(self, passages: Sequence[tuple[str, Sequence[str]]], num_tried: int = 40) -> None:
        self._passages = passages
        self._words = [content_words(" ".join(s)) for _, s in passages]
        self._num_tried = num_tried

    def choose(
        self, question: Question, count: int, num_words: int, rng: random.Random
    ) -> list[str]:
        """Some passages of at most `num_words` words for a question, without its answers."""
        asked = content_words(question.text)
        tried = rng.sample(range(len(self._passages)), min(self._num_tried, len(self._passages)))
        tried.sort(key=lambda i: -len(asked & self._words[i]))
        chosen: list[str] = []
        for i in tried:
            if len(chosen) == count:
                break
            topic, sentences = self._passages[i]
            if topic == question.topic:
                continue
            text = " ".join(cut(sentences, rng.randrange(len(sentences)), num_words, rng))
            if len(text.split()) <= num_words and not holds_answer(text, question):
                chosen.append(text)
        return chosen


def holds_answer(text: str, question: Question) -> bool:
    """Whether a text holds one of the answers, letters' case aside."""
    folded = text.casefold()
    return any(a.casefold() in folded for a in question.answers)


def reading_row(
    question: Question, passages: list[str], source: str, *, is_answerable: bool, asked: str
) -> Row | None:
    """One row, or None if it is too long or its answer or quote is."""
    answer, quotes = (question.answers[0], [question.quote]) if is_answerable else (None, [])
    if len(question.answers[0]) > MAX_ANSWER_CHARACTERS or not passages:
        return None
    if is_answerable and len(question.quote.encode()) > MAX_QUOTE_BYTES:
        return None
    assert not is_answerable or any(question.quote in p for p in passages)
    messages = reading_messages(passages, asked)
    text = reading_answer(answer, quotes)
    if sum(len(m["content"]) for m in messages) + len(text) > MAX_CHARACTERS:
        return None
    return {
        "task": "reading",
        "messages": messages,
        "answer": text,
        "passages": passages,
        "answers": list(question.answers) if is_answerable else [],
        "source": source,
        "id": question.id,
    }


def paragraph_row(
    question: Question,
    distractors: Distractors,
    source: str,
    rng: random.Random,
    *,
    num_words: tuple[int, int] = (40, 110),
    num_distractors: Sequence[int] = (0, 1, 1, 2),
) -> Row | None:
    """A row of a question on a paragraph, cut around the answer, among distractors.

    One in five is unanswerable: the paragraph is away, or only the answer's sentence is.
    """
    is_answerable = rng.random() >= P_UNANSWERABLE
    length = rng.randint(*num_words)
    others = distractors.choose(
        question, rng.choice(num_distractors), rng.randint(30, max(30, 150 - length)), rng
    )
    own = cut(question.sentences, question.place, length, rng)
    passages = [" ".join(own), *others]
    if not is_answerable:
        rest = " ".join(s for s in own if s != question.quote)
        keeps_rest = rest and not holds_answer(rest, question) and rng.random() < P_KEEPS_REST
        passages = [rest, *others] if keeps_rest else others
        if not passages:
            passages = distractors.choose(question, 1, length, rng)
    rng.shuffle(passages)
    asked = written_question(question.text, rng)
    return reading_row(question, passages, source, is_answerable=is_answerable, asked=asked)


def sentence_row(
    question: Question, distractors: Distractors, source: str, rng: random.Random
) -> Row | None:
    """A row of a question on one sentence, which stands among sentences of other pages.

    None if the question does not say enough to find its sentence.
    """
    asked = content_words(question.text)
    told = len(asked & content_words(question.quote))
    others = distractors.choose(question, rng.choice((1, 2, 2, 3)), 45, rng)
    rival = max((len(asked & content_words(o)) for o in others), default=0)
    if told < 2 or rival >= told:
        return None
    is_answerable = rng.random() >= P_UNANSWERABLE
    passages = [*others, question.quote] if is_answerable else others
    rng.shuffle(passages)
    if rng.random() < P_ONE_PASSAGE:
        passages = [" ".join(passages)]
    text = written_question(question.text, rng)
    return reading_row(question, passages, source, is_answerable=is_answerable, asked=text)


def capped(questions: Sequence[Question], per_topic: int, rng: random.Random) -> list[Question]:
    """At most some questions of every quoted sentence, chosen at random."""
    groups: dict[str, list[Question]] = defaultdict(list)
    for question in questions:
        groups[question.quote].append(question)
    return [q for g in groups.values() for q in rng.sample(g, min(per_topic, len(g)))]
