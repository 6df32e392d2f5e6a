"""Reading rows (passages, question, answer and its quote) from QED, QAMR and XQuAD.

The answer is a span of a passage and the quote is the sentence around it, both letter for letter.
This file knows nothing of tokens or of the other tasks.
"""

from __future__ import annotations

import csv
import json
import random
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentloop.model.prompts import reading_answer, reading_messages
from recipes.default_model.detokenise import Detokenised

Row = dict[str, Any]

MAX_ANSWER_CHARACTERS = 240
MAX_QUOTE_CHARACTERS = 400
MAX_CHARACTERS = 1650  # of prompt and answer together: about 430 tokens
P_UNANSWERABLE = 0.2
QED_TRAIN = "nq-train-*-qed.jsonlines"
_SENTENCE_END = re.compile(r"(?<=[.!?])[\"')\]]*\s+(?=[\"'(\[]*[A-Z0-9])")
_WORD = re.compile(r"\w+")
_COMMON = frozenset(
    "a an and are as at be been by did do does for from had has have he her his how in is it its "
    "many much of on or she that the their they this to was were what when where which who whom "
    "whose why will with would s t".split()
)


@dataclass(frozen=True)
class Question:
    """A question on a paragraph that is split into sentences.

    Attributes:
        id: where it comes from.
        text: the question.
        answers: right answers, the best first; each is a span of the answer's sentence.
        sentences: the paragraph.
        place: which sentence holds the answer.
        topic: the paragraph's page; others on the same topic may answer too.
    """

    id: str
    text: str
    answers: Sequence[str]
    sentences: Sequence[str]
    place: int
    topic: str

    @property
    def quote(self) -> str:
        """The sentence that shows the answer."""
        return self.sentences[self.place]


def content_words(text: str) -> frozenset[str]:
    """The words of a text that carry meaning, folded.

    Example:
        >>> sorted(content_words("Who wrote the Iliad?"))
        ['iliad', 'wrote']
    """
    return frozenset(_WORD.findall(text.casefold())) - _COMMON


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


def read_qed(folder: Path) -> Iterator[Question]:
    """Questions of QED's training files whose answer stands in one sentence."""
    for path in sorted(folder.glob(QED_TRAIN)):
        for line in path.read_text(encoding="utf-8").splitlines():
            question = qed_question(json.loads(line))
            if question is not None:
                yield question


def qed_question(record: Mapping[str, Any]) -> Question | None:
    """One record of QED, detokenised; None if its answer does not stand in one sentence."""
    if record["answer_type"] != "single_sentence" or len(record["answer_spans"]) != 1:
        return None
    start, end = record["answer_spans"][0]
    paragraph = record["paragraph_text"]
    starts = [*record["sentence_starts"], len(paragraph)]
    place = max((i for i, s in enumerate(starts[:-1]) if s <= start), default=None)
    if place is None or end > starts[place + 1]:
        return None
    plain = Detokenised(paragraph)
    sentences = [plain.span(a, b) for a, b in zip(starts, starts[1:], strict=False)]
    answer = plain.span(start, end).strip(" ,;:")
    if not answer or answer not in sentences[place] or not all(sentences):
        return None
    return Question(
        f"qed:{record['example_id']}", record["question_text"], [answer], sentences, place,
        record["title_text"],
    )  # fmt: skip


def read_qamr(folder: Path) -> tuple[list[Question], list[str]]:
    """Questions of QAMR on which the validators agree, and all its sentences."""
    tokens: dict[str, list[str]] = {}
    with (folder / "wiki-sentences.tsv").open(encoding="utf-8") as lines:
        for line in lines:
            name, text = line.rstrip("\n").split("\t")
            tokens[name] = text.split()
    questions: list[Question] = []
    for split in ("dev", "test"):
        with (folder / "filtered" / f"{split}.tsv").open(encoding="utf-8", newline="") as file:
            for number, fields in enumerate(csv.reader(file, "excel-tab", quoting=csv.QUOTE_NONE)):
                question = qamr_question(fields, tokens, f"qamr:{split}:{number}")
                if question is not None:
                    questions.append(question)
    return questions, [Detokenised(" ".join(t)).text for t in tokens.values()]


def qamr_question(
    fields: Sequence[str], tokens: Mapping[str, Sequence[str]], name: str
) -> Question | None:
    """One line of QAMR; None if the answer is no span or a validator gave another one."""
    sentence, _, _, _, _, question, answer, *validators = fields
    if sentence not in tokens or any(v.split(":")[1] != answer for v in validators):
        return None
    places = [int(i) for i in answer.split()]
    if places != list(range(places[0], places[-1] + 1)):
        return None
    words = tokens[sentence]
    start = len(" ".join([*words[: places[0]], ""]))
    plain = Detokenised(" ".join(words))
    text = plain.span(start, start + len(" ".join(words[places[0] : places[-1] + 1])))
    text = text.strip(" ,;:")
    if not text or text not in plain.text:
        return None
    topic = sentence.rsplit(":", 2)[0]
    return Question(name, " ".join(question.split()), [text], [plain.text], 0, topic)


def read_xquad(path: Path) -> Iterator[Question]:
    """Questions of XQuAD's English file."""
    articles = json.loads(path.read_text(encoding="utf-8"))["data"]
    for number, article in enumerate(articles):
        for paragraph in article["paragraphs"]:
            for asked in paragraph["qas"]:
                question = _xquad_question(asked, paragraph["context"], f"article {number}")
                if question is not None:
                    yield question


def _xquad_question(asked: Mapping[str, Any], context: str, topic: str) -> Question | None:
    starts = [0, *(m.end() for m in _SENTENCE_END.finditer(context)), len(context)]
    sentences = [context[a:b].strip() for a, b in zip(starts, starts[1:], strict=False)]
    first = asked["answers"][0]
    place = max(i for i, s in enumerate(starts[:-1]) if s <= first["answer_start"])
    answers = list(dict.fromkeys(a["text"] for a in asked["answers"]))
    if answers[0] not in sentences[place]:
        return None
    return Question(f"xquad-en:{asked['id']}", asked["question"], answers, sentences, place, topic)


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
    if is_answerable and len(question.quote) > MAX_QUOTE_CHARACTERS:
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
        keeps_rest = rest and not holds_answer(rest, question) and rng.random() < 0.4
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
    if rng.random() < 0.4:
        passages = [" ".join(passages)]
    text = written_question(question.text, rng)
    return reading_row(question, passages, source, is_answerable=is_answerable, asked=text)


def capped(questions: Sequence[Question], per_topic: int, rng: random.Random) -> list[Question]:
    """At most some questions of every quoted sentence, chosen at random."""
    groups: dict[str, list[Question]] = defaultdict(list)
    for question in questions:
        groups[question.quote].append(question)
    return [q for g in groups.values() for q in rng.sample(g, min(per_topic, len(g)))]
