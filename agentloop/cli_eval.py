"""The command `agentloop eval retrieval`: how well search finds what answers a set of questions.

Importing this loads no model library, so that help and mistakes answer at once.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from agentloop.retrieval.evaluation import Outcome

eval_app = typer.Typer(
    name="eval",
    help="Score search on questions with known answers.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@eval_app.callback()
def _group() -> None:  # pyright: ignore[reportUnusedFunction]  # makes `retrieval` a sub-command
    """Score search on questions with known answers."""


@eval_app.command(
    epilog="[bold]Examples[/bold]\n\n  agentloop eval retrieval data/hotpot\n\n"
    "  agentloop eval retrieval data/hotpot --hidden --lexical --json"
)
def retrieval(
    questions: Annotated[
        Path,
        typer.Argument(metavar="SET", help="FOLDER/NAME of NAME_corpus and NAME_queries.jsonl."),
    ],
    hidden: Annotated[bool, typer.Option("--hidden", help="Leave the titles out.")] = False,
    lexical: Annotated[
        bool, typer.Option("--lexical", help="Without embeddings: search by words alone.")
    ] = False,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Ask the first N only.", show_default=False)
    ] = None,
    work: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Keeps documents and index for the next time.",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result as JSON alone.")
    ] = False,
) -> None:
    """Recall, all found and nDCG of each leg and of all together, with bootstrap intervals."""
    from agentloop.retrieval import Index
    from agentloop.retrieval.evaluation import LEXICAL_SETUPS, SETUPS, QuestionSet, evaluate
    from agentloop.terminal import cache_folder, counting, note, out, print_json

    asked = QuestionSet.read(questions)
    kind = f"{asked.name}-{'hidden' if hidden else 'titles'}"
    folder = (work or cache_folder() / "eval") / kind
    asked.write_documents(folder / "documents", has_titles=not hidden)
    embedder = None if lexical else "auto"
    with Index.open(folder / ("lexical" if lexical else "index"), embedder) as index:
        with counting("reading") as progress:
            index.sync(folder / "documents", progress)
        outcomes: list[Outcome] = []
        for setup in LEXICAL_SETUPS if lexical else SETUPS:
            note(f"asking: {setup}")
            outcomes.append(evaluate(index, asked.questions[:limit], setup))
    if as_json:
        num_questions = len(asked.questions[:limit])
        rows = [asdict(outcome) for outcome in outcomes]
        print_json({"set": kind, "questions": num_questions, "outcomes": rows})
    else:
        for line in table(kind, outcomes):
            print(line, file=out.file)


def table(name: str, outcomes: list[Outcome]) -> list[str]:
    """The lines of a Markdown table, one row for each way to search."""
    metrics = list(outcomes[0].scores)
    lines = [f"| {name} | {' | '.join(metrics)} | p50, p95 ms |", "|---" * (len(metrics) + 2) + "|"]
    for outcome in outcomes:
        cells = [
            f"{score.mean:.1f} ({score.low:.1f}-{score.high:.1f}; odd {score.odd:.1f})"
            for score in outcome.scores.values()
        ]
        times = f"{outcome.p50_ms:.0f}, {outcome.p95_ms:.0f}"
        lines.append(f"| {outcome.setup} | {' | '.join(cells)} | {times} |")
    return lines
