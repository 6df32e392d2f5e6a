"""The command `demo`: what this package is for, on documents and tools that come with it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.rule import Rule
from rich.text import Text

from agentloop.cli_calls import Called, Requested, choose_calls, load_tools, shown_call
from agentloop.cli_documents import cached_index, print_citation, sync
from agentloop.errors import RetrievalError
from agentloop.rag import Answer, answer
from agentloop.retrieval import Index
from agentloop.terminal import counted, load_model, milliseconds, out, print_json, printable

if TYPE_CHECKING:
    from agentloop.model.lm import DiffusionLM

DOCUMENTS = Path(__file__).parent / "demo_documents"
TOOLS = Path(__file__).parent / "demo_tools.json"
QUESTIONS = (
    "What is the capital of Mongolia?",
    "What is the diameter of Pluto?",
    "When did Bhutan join the UN?",
)
REQUESTS = (
    "Find me a Japanese restaurant in Seattle.",
    "What will the weather be like in Reykjavik?",
)


@dataclass(frozen=True, slots=True)
class Total:
    """What a run of the demo cost."""

    num_steps: int
    seconds: float


def verify(index: Index, found: Answer) -> None:
    """Compare every citation of an answer with the bytes of the stored text.

    Raises:
        RetrievalError: One differs.
    """
    for citation in found.citations:
        stored = index.text(citation.document_id).encode()
        here = stored[citation.start_byte : citation.end_byte]
        if here != citation.quote.encode() or not here:
            raise RetrievalError(f"{citation.place} holds {here!r}, not {citation.quote!r}")


def run_demo(model: str, effort: Any, *, as_json: bool) -> None:
    """`agentloop demo`."""
    place = cached_index(DOCUMENTS)
    sync(place, DOCUMENTS, is_quiet=True)
    tools = load_tools(TOOLS)
    with Index.open(place, create=False) as index, load_model(model) as lm:
        began = time.perf_counter()
        if not as_json:
            _print_documents(index)
        answers = [_ask(index, lm, question, effort, as_json) for question in QUESTIONS]
        if not as_json:
            _title(f"Tool calls: {', '.join(tool.name for tool in tools)}")
        calls: list[Called] = []
        for request in REQUESTS:
            asked = Requested(request, min_calls=1, options={"effort": effort})
            calls.append(choose_calls(lm, tools, asked))
            if not as_json:
                _print_called(request, calls[-1])
        total = Total(
            sum(a.num_steps for a in answers) + sum(c.generation.num_steps for c in calls),
            time.perf_counter() - began,
        )
    if as_json:
        print_json(_demo_json(answers, calls))
    else:
        _print_end(answers, calls, total)


def _ask(index: Index, lm: DiffusionLM, question: str, effort: str, as_json: bool) -> Answer:
    found = asyncio.run(answer(index, lm, question, is_required=True, effort=effort))
    verify(index, found)
    if not as_json:
        _print_found(found)
    return found


def _title(text: str) -> None:
    out.print()
    out.print(Rule(Text(text, style="bold"), style="dim", align="left"))


def _print_documents(index: Index) -> None:
    documents = index.documents()
    kinds = sorted({Path(document.path).suffix.lstrip(".") for document in documents})
    _title(f"Questions to {counted(len(documents), 'document')} ({', '.join(kinds)})")


def _print_found(found: Answer) -> None:
    out.print()
    out.print(Text.assemble(("? ", "bold cyan"), (found.question, "bold")))
    out.print(Text.assemble("  ", (printable(found.text or ""), "bold green")))
    for citation in found.citations:
        print_citation(citation, found.span)
    _print_cost(found.num_steps, found.total_s)


def _print_called(request: str, called: Called) -> None:
    out.print()
    out.print(Text.assemble(("> ", "bold cyan"), (request, "bold")))
    for call in called.calls:
        out.print(Text.assemble("  ", shown_call(call)))
    _print_cost(called.generation.num_steps, called.total_s)


def _print_cost(num_steps: int, seconds: float) -> None:
    passes = counted(num_steps, "pass", "passes")
    out.print(f"  {passes}, {milliseconds(seconds)}", style="dim")


def _print_end(answers: Sequence[Answer], calls: Sequence[Called], total: Total) -> None:
    num_citations = sum(len(found.citations) for found in answers)
    num_calls = sum(len(called.calls) for called in calls)
    out.print()
    out.print(Rule(style="dim"))
    out.print(
        f"{counted(num_citations, 'citation')} equal the documents' bytes, "
        f"{counted(num_calls, 'call')} satisfy their schemas; "
        f"{counted(total.num_steps, 'pass', 'passes')} in {milliseconds(total.seconds)}, "
        "nothing retried"
    )


def _demo_json(answers: Sequence[Answer], calls: Sequence[Called]) -> dict[str, Any]:
    return {
        "answers": [found.to_json() for found in answers],
        "calls": [
            {"request": request, **called.to_json()}
            for request, called in zip(REQUESTS, calls, strict=True)
        ],
    }
