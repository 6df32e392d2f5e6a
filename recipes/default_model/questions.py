"""Questions with an exact answer span from QED, QAMR and XQuAD, as plain text.

The answer is a span of one sentence of a paragraph, letter for letter. This file knows nothing of
prompts or tokens.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from recipes.default_model.detokenise import Detokenised

MIN_TOKENS = 8  # of a sentence that is shown as a passage
QED_TRAIN = "nq-train-*-qed.jsonlines"
_SENTENCE_END = re.compile(
    r"(?<=[.!?])(?<!\b[A-Za-z]\.)(?<!\bSt\.)(?<!\bMr\.)(?<!\bDr\.)(?<!\bJr\.)(?<!\bNo\.)"
    r"(?<!\bca\.)(?<!\bvs\.)(?<!\bMrs\.)[\"')\]]*\s+(?=[\"'(\[]*[A-Z0-9])"
)
_WORD = re.compile(r"\w+")
_COMMON = frozenset(
    _WORD.findall(
        "a all an and any are as at be been by did do does for from had has have he her him his "
        "how i in is it its many me much my of on or our s she some t that the their them they "
        "this to us was we were what when where which who whom whose why will with would you your"
    )
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
    sentences = [plain.span(a, b) for a, b in pairwise(starts)]
    answer = plain.span(start, end).strip(" ,;:")
    if not answer or answer not in sentences[place] or not all(sentences):
        return None
    return Question(
        f"qed:{record['example_id']}", " ".join(record["question_text"].split()), [answer],
        sentences, place, record["title_text"],
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
    sentences = (Detokenised(" ".join(t)).text for t in tokens.values() if len(t) >= MIN_TOKENS)
    return questions, list(sentences)


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
    if not content_words(text) or text not in plain.text:
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
    sentences = [context[a:b].strip() for a, b in pairwise(starts)]
    first = asked["answers"][0]
    place = max(i for i, s in enumerate(starts[:-1]) if s <= first["answer_start"])
    answers = list(dict.fromkeys(a["text"] for a in asked["answers"]))
    if answers[0] not in sentences[place]:
        return None
    text = " ".join(asked["question"].split())
    return Question(f"xquad-en:{asked['id']}", text, answers, sentences, place, topic)
