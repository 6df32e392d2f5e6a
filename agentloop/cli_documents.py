"""The commands `index` and `ask`: documents in, cited answers out."""

from __future__ import annotations

import asyncio
import hashlib
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.text import Text

from agentloop.citations import Citation
from agentloop.errors import DocumentError
from agentloop.model.call_options import AnswerOptions
from agentloop.rag import Answer, answer
from agentloop.retrieval import Index, SyncReport
from agentloop.terminal import (
    cache_folder,
    counted,
    counting,
    load_model,
    milliseconds,
    note,
    out,
    print_json,
    printable,
)

MAX_PROBLEMS = 10
"""Files that are listed one by one when they are not searchable."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A question with how it is to be answered, as in `agentloop.rag.answer`."""

    question: str
    top_k: int = 3
    paths: tuple[str, ...] = ()
    is_required: bool = False
    options: AnswerOptions = field(default_factory=AnswerOptions)


def cached_index(folder: Path) -> Path:
    """Where the index of a folder is kept if no other place is named."""
    whole = folder.resolve()
    digest = hashlib.sha256(str(whole).encode("utf-8", "surrogateescape")).hexdigest()[:12]
    name = re.sub(r"[^\w.-]+", "-", whole.name) or "root"
    return cache_folder() / "indexes" / f"{name}-{digest}"


def sync(
    index: Path, folder: Path, *, is_lexical: bool = False, is_quiet: bool = False
) -> SyncReport:
    """Bring the index of a folder up to date, showing how far it is.

    Raises:
        DocumentError: The folder is missing or empty.
        RetrievalError: The index cannot be opened or written.
    """
    if not folder.is_dir():
        what = "is not a folder" if folder.exists() else "does not exist"
        raise DocumentError(f"{folder} {what}; give the folder of the documents")
    with (
        Index.open(index, None if is_lexical else "auto") as opened,
        counting("checking" if is_quiet else "indexing") as show,
    ):
        return opened.sync(folder, show)


def run_index(folder: Path, index: Path | None, *, is_lexical: bool, as_json: bool) -> None:
    """`agentloop index`."""
    place = index or cached_index(folder)
    report = sync(place, folder, is_lexical=is_lexical)
    if as_json:
        print_json(_report_json(place, report))
        return
    done = [counted(len(report.added), "file") + " added"] if report.added else []
    done += [counted(len(report.changed), "file") + " changed"] if report.changed else []
    done += [counted(len(report.removed), "file") + " removed"] if report.removed else []
    done += [counted(report.num_unchanged, "file") + " unchanged"] if report.num_unchanged else []
    out.print(f"{', '.join(done) or 'nothing to do'} in {report.seconds:.1f} s", style="bold")
    _print_problems(report)
    out.print(Text.assemble(("index  ", "dim"), str(place)))


def _print_problems(report: SyncReport) -> None:
    """The files that are not searchable in full, with the reasons."""
    if not report.problems:
        return
    out.print(f"{counted(len(report.problems), 'file')} not searchable in full:")
    for problem in report.problems[:MAX_PROBLEMS]:
        reason = problem.reason or problem.status
        out.print(
            Text.assemble(
                "  ", (printable(problem.path), "yellow"), f"  {problem.status}: ", (reason, "dim")
            )
        )
    if len(report.problems) > MAX_PROBLEMS:
        more = len(report.problems) - MAX_PROBLEMS
        out.print(f"  and {more:,} more: --json lists all", style="dim")


def _report_json(place: Path, report: SyncReport) -> dict[str, Any]:
    return {
        "index": str(place),
        "added": list(report.added),
        "changed": list(report.changed),
        "removed": list(report.removed),
        "unchanged": report.num_unchanged,
        "statuses": dict(report.statuses),
        "problems": [
            {"path": p.path, "status": p.status, "reason": p.reason} for p in report.problems
        ],
        "seconds": round(report.seconds, 3),
    }


def run_ask(place: Path, asked: Asked, model: str, *, as_json: bool) -> None:
    """`agentloop ask`."""
    index = place
    if not Index.exists(place):
        if not place.exists():
            raise DocumentError(f"{place} does not exist; give a folder of documents or an index")
        index = cached_index(place)
        report = sync(index, place, is_quiet=True)
        if report.problems:
            note(
                f"{counted(len(report.problems), 'file')} not searchable in full; "
                f"`agentloop index {place}` says why"
            )
    with Index.open(index, create=False) as opened, load_model(model) as lm:
        found = asyncio.run(
            answer(
                opened,
                lm,
                asked.question,
                top_k=asked.top_k,
                paths=asked.paths,
                is_required=asked.is_required,
                **asked.options,
            )
        )
    if as_json:
        print_json({**found.to_json(), "index": str(index)})
    else:
        print_answer(found)


def print_answer(found: Answer) -> None:
    """An answer, the sentences that show it, and what it cost."""
    if found.text is None:
        out.print("not in the documents", style="bold yellow")
        for passage in found.passages:
            place = f"{printable(passage.hit.path)}:{passage.start}-{passage.end}"
            out.print(f"  read {place}", style="dim")
    else:
        out.print(Text(printable(found.text), style="bold green"))
    for citation in found.citations:
        print_citation(citation, found.span)
    out.print(cost(found), style="dim")


def print_citation(citation: Citation, span: Citation | None) -> None:
    """A citation: on a terminal with the answer in it marked, else with the exact characters."""
    if out.is_terminal:
        out.print(_cited(citation, span))
    else:
        print(f"  “{citation.quote}”\n  {citation.place}{_more(citation)}", file=out.file)


def _more(citation: Citation) -> str:
    """Page and sections, where there are any."""
    page = "" if citation.page is None else f"  page {citation.page}"
    return page + (f"  {' > '.join(citation.headings)}" if citation.headings else "")


def _cited(citation: Citation, span: Citation | None) -> Text:
    quote = Text(printable(citation.quote))
    if span is not None and span.document_id == citation.document_id:
        quote.stylize("bold green", span.start - citation.start, span.end - citation.start)
    place, more = printable(citation.place), printable(_more(citation))
    return Text.assemble("  “", quote, "”\n  ", (place, "cyan"), (more, "dim"))


def cost(found: Answer) -> str:
    """Passes and times of an answer."""
    if found.generation is None:
        return f"nothing found to read, {milliseconds(found.total_s)}"
    passages = counted(len(found.passages), "passage")
    steps = counted(found.num_steps, "step")
    search = f"search {milliseconds(found.search_s)}"
    return f"{passages}, {steps}, {milliseconds(found.total_s)} ({search})"
