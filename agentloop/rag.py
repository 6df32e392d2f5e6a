"""Answers from documents: search, read, and quote the words that show it.

```python
with Index.open("notes.index") as index:
    index.sync("notes")
    found = await answer(index, lm, "When was the bridge built?")
found.text, [citation.place for citation in found.citations]
```

An answer is a span of one stored sentence and is cited with that sentence, or it is None. The model
cannot write anything else, whatever the documents say.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from typing_extensions import Unpack

from agentloop.citations import Citation, cite
from agentloop.cited_answer import CitedAnswer, find_answer
from agentloop.errors import AgentLoopError
from agentloop.model.call_options import AnswerOptions
from agentloop.model.prompts import Message, reading_answer, reading_messages
from agentloop.model_calls import Generation, current_model, generate
from agentloop.passages import Passage, Sentence, choose_passages
from agentloop.retrieval import Hit, Index

DEFAULT_TOP_K = 3
MAX_TOKENS = 128
"""Tokens of an answer with its quote, at most: one canvas of the default model."""
ROOM_FOR_ANSWER = 24
"""Tokens beside the quote: the answer itself."""
BYTES_PER_TOKEN = 3
"""A careful guess, for models that do not show their tokenizer."""


class Reader(Protocol):
    """A model that answers a conversation under a constraint, whatever it calls its efforts."""

    def generate(
        self,
        messages: Sequence[Message],
        *,
        constraint: Any = None,
        effort: Any = "medium",
        max_tokens: int | None = None,
        temperature: float = 0.0,
        seed: int | None = None,
    ) -> Awaitable[Generation]:
        """Answer the conversation; the answer is one that the constraint accepts."""
        ...


@dataclass(frozen=True, slots=True)
class Answer:
    """What the documents say to a question.

    Attributes:
        question: The question.
        text: The answer, None if it is not in the passages that were read.
        span: Where the answer itself stands, None without one.
        citations: The sentences that show it; empty without an answer.
        hits: What the search found, best first.
        passages: What of it the model read.
        generation: The model's part, None where nothing was found to be read.
        search_s: Seconds that the search took.
        total_s: Seconds in all.
    """

    question: str
    text: str | None
    span: Citation | None
    citations: tuple[Citation, ...]
    hits: tuple[Hit, ...]
    passages: tuple[Passage, ...]
    generation: Generation | None
    search_s: float
    total_s: float

    @property
    def num_steps(self) -> int:
        """Passes of the network."""
        return 0 if self.generation is None else self.generation.num_steps

    def to_json(self) -> dict[str, Any]:
        """A form that `json.dumps` takes."""
        return {
            "question": self.question,
            "answer": self.text,
            "span": None if self.span is None else self.span.to_json(),
            "citations": [citation.to_json() for citation in self.citations],
            "passages": [
                {"path": p.hit.path, "start": p.start, "end": p.end, "shown": p.text}
                for p in self.passages
            ],
            "steps": self.num_steps,
            "milliseconds": round(1000 * self.total_s, 1),
            "search_milliseconds": round(1000 * self.search_s, 1),
        }


async def answer(
    index: Index,
    model: Reader | None,
    question: str,
    *,
    top_k: int = DEFAULT_TOP_K,
    paths: str | Sequence[str] = (),
    is_required: bool = False,
    **options: Unpack[AnswerOptions],
) -> Answer:
    """Answer a question from the documents of an index.

    Args:
        index: Where to search.
        model: Who reads. None, inside a node, is the model of the run, and the call is then part of
            the run.
        question: The question.
        top_k: How many passages to read, at most.
        paths: Only documents whose path matches, as in `Index.search`.
        is_required: Whether to answer in any case, where the answer is known to be there.
        **options: How the model answers; see `agentloop.model.call_options.AnswerOptions`.

    Raises:
        AgentLoopError: The question is empty.
        RetrievalError: The search failed, or a document changed under it.
        ModelError: The model refuses the request; `ContextLengthError` for too long a question.
    """
    if not question.strip():
        raise AgentLoopError("the question is empty; ask something")
    began = time.perf_counter()
    hits = await index.asearch(question, top_k, paths=paths)
    search_s = time.perf_counter() - began
    passages = choose_passages(hits, question)
    if not passages:
        spent = time.perf_counter() - began
        return Answer(question, None, None, (), tuple(hits), (), None, search_s, spent)
    sentences = [sentence.text for passage in passages for sentence in passage.sentences]
    messages = reading_messages([passage.text for passage in passages], question)
    constraint = CitedAnswer(sentences, is_required=is_required)
    settings: dict[str, Any] = {**options}
    settings.setdefault("max_tokens", _max_tokens(model or current_model(), sentences))
    if model is None:
        generation = await generate(messages, constraint, name="answer", **settings)
    else:
        generation = await model.generate(messages, constraint=constraint, **settings)
    span, quotes = _located(index, passages, generation.value)
    return Answer(
        question=question,
        text=generation.value["answer"],
        span=span,
        citations=quotes,
        hits=tuple(hits),
        passages=tuple(passages),
        generation=generation,
        search_s=search_s,
        total_s=time.perf_counter() - began,
    )


def _max_tokens(model: Reader, sentences: Sequence[str]) -> int:
    """Room for the longest sentence, its answer, and the JSON around them."""
    tokenizer: Any = getattr(model, "tokenizer", None)
    texts = [reading_answer("", [sentence]) for sentence in sentences]
    if tokenizer is None:
        longest = max(len(text.encode()) // BYTES_PER_TOKEN for text in texts)
    else:
        longest = max(len(encoded.ids) for encoded in tokenizer.encode_batch(texts))
    return min(MAX_TOKENS, longest + ROOM_FOR_ANSWER)


def _located(
    index: Index, passages: Sequence[Passage], value: dict[str, Any]
) -> tuple[Citation | None, tuple[Citation, ...]]:
    """Where an answer and its quotes stand in the documents."""
    if value["answer"] is None:
        return None, ()
    quoted = [_sentence(passages, quote) for quote in value["quotes"]]
    start, end = find_answer(quoted[0].text, value["answer"])
    return cite(index, quoted[0], start, end), tuple(cite(index, each) for each in quoted)


def _sentence(passages: Sequence[Passage], text: str) -> Sentence:
    """The first shown sentence of a text."""
    return next(s for passage in passages for s in passage.sentences if s.text == text)
