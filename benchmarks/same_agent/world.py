"""What the three agents share: a scripted model, a search, and whoever is asked for approval."""

from __future__ import annotations

DOCUMENTS = {"river": "The Aare flows through Bern.", "capital": "Bern is the capital."}
_answers: list[str] = []


def reset() -> None:
    """Forget earlier answers."""
    _answers.clear()


async def plan(question: str) -> tuple[str, ...]:
    """The searches that a question needs."""
    return tuple(word for word in DOCUMENTS if word in question)


async def search(query: str) -> list[str]:
    """The passages that a search finds."""
    return [DOCUMENTS[query]]


async def answer(question: str, passages: list[str]) -> str:
    """An answer; the first is too short."""
    text = "Bern" if not _answers else f"Bern, because: {' '.join(passages)}"
    _answers.append(text)
    return text


async def is_good(text: str) -> bool:
    """Whether an answer gives its reasons."""
    return "because" in text


def approves(text: str) -> bool:
    """What somebody says who is shown an answer."""
    return "because" in text
