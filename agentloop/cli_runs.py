"""The commands `agentloop runs ...`: names, options and help. What they do is in `run_commands`.

Importing this loads no model and opens no store, so that help and mistakes answer at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

runs_app = typer.Typer(
    name="runs",
    help="Look at recorded runs, go on with them, fork, replay and forget them.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)

StoreArgument = Annotated[
    Path, typer.Argument(metavar="STORE", help="The file given as store= to g.run().")
]
RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="The run's name.")]
GraphOption = Annotated[
    str,
    typer.Option(
        "--graph", "-g", metavar="MODULE:NAME", help="The graph: a module or file.py, and a name."
    ),
]
OptionalGraph = Annotated[
    str | None,
    typer.Option(
        "--graph",
        "-g",
        metavar="MODULE:NAME",
        help="The graph, to draw it: a module or file.py, and a name.",
        show_default=False,
    ),
]
ModelOption = Annotated[
    str | None,
    typer.Option(
        metavar="FOLDER",
        help="The model that `llm` goes to: `default`, or a folder.",
        show_default=False,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON alone.")]


def _examples(*lines: str) -> str:
    return "[bold]Examples[/bold]\n\n" + "\n\n".join(f"  {line}" for line in lines)


@runs_app.command(
    "list",
    epilog=_examples("agentloop runs list runs.db", "agentloop runs list runs.db --status waiting"),
)
def list_(
    store: StoreArgument,
    status: Annotated[
        list[str] | None,
        typer.Option(help="Only runs that stand so: running, waiting, failed, done."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the runs of a store, the one that changed last first."""
    from agentloop.run_commands import list_runs

    list_runs(store, status or [], as_json=as_json)


@runs_app.command(
    epilog=_examples("agentloop runs show runs.db 42", "agentloop runs show runs.db 42 --json")
)
def show(
    store: StoreArgument,
    run: RunArgument,
    as_json: JsonOption = False,
) -> None:
    """Show a run: its steps, what they wrote and called, and what it waits for."""
    from agentloop.run_commands import show_run

    show_run(store, run, as_json=as_json)


@runs_app.command(
    epilog=_examples(
        "agentloop runs resume runs.db 42 --graph agent.py:graph",
        "agentloop runs resume runs.db 42 -g agent:graph --answer approve:0=true --model default",
        "agentloop runs resume runs.db 42 -g agent:graph --retry send:0",
    )
)
def resume(
    store: StoreArgument,
    run: RunArgument,
    graph: GraphOption,
    answers: Annotated[
        list[str] | None,
        typer.Option("--answer", metavar="PATH=JSON", help="Answer a question that it waits for."),
    ] = None,
    retry: Annotated[
        list[str] | None,
        typer.Option(metavar="PATH", help="An interrupted effect that did not happen: run it."),
    ] = None,
    model: ModelOption = None,
    migrate: Annotated[
        bool, typer.Option("--migrate", help="Go on although the graph has changed.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Go on with a run that was stopped, failed or waits for an answer.

    What is recorded does not run again. The exit code is 1 if it fails.
    """
    from agentloop.run_commands import Resumed, resume_run

    asked = Resumed(graph, tuple(answers or ()), tuple(retry or ()), model, migrate)
    resume_run(store, run, asked, as_json=as_json)


@runs_app.command(epilog=_examples("agentloop runs fork runs.db 42 43 --before 'answer#2'"))
def fork(
    store: StoreArgument,
    run: RunArgument,
    new_run: Annotated[str, typer.Argument(metavar="NEW", help="The copy's name.")],
    before: Annotated[
        str, typer.Option(metavar="PATH", help="The step from which the copy is to go on.")
    ],
) -> None:
    """Copy a run up to a step; `resume` goes on with the copy, with new code if there is."""
    from agentloop.run_commands import fork_run

    fork_run(store, run, new_run, before)


@runs_app.command(epilog=_examples("agentloop runs replay runs.db 42 --graph agent.py:graph"))
def replay(
    store: StoreArgument,
    run: RunArgument,
    graph: GraphOption,
    as_json: JsonOption = False,
) -> None:
    """Call every node of a run again, offline: models, tools and people give what they gave.

    The exit code is 1 if a node asks something else than it did. Nothing is written.
    """
    from agentloop.run_commands import replay_run

    replay_run(store, run, graph, as_json=as_json)


@runs_app.command(
    epilog=_examples(
        "agentloop runs prune runs.db --older-than 30d",
        "agentloop runs prune runs.db --older-than 12h --status failed --status done --dry-run",
    )
)
def prune(
    store: StoreArgument,
    older_than: Annotated[
        str, typer.Option(metavar="TIME", help="Only runs unchanged so long: 30d, 12h, 90m, 10s.")
    ],
    status: Annotated[
        list[str] | None, typer.Option(help="Only runs that stand so; by default done.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would go.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Forget runs that have not changed for a while, and give their space back."""
    from agentloop.run_commands import prune_runs

    prune_runs(store, older_than, status or ["done"], is_dry=dry_run, as_json=as_json)


@runs_app.command(
    epilog=_examples(
        "agentloop runs report runs.db 42 --out 42.html",
        "agentloop runs report runs.db 42 --out 42.html --graph agent.py:graph",
    )
)
def report(
    store: StoreArgument,
    run: RunArgument,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="The page to write.")],
    graph: OptionalGraph = None,
) -> None:
    """Write a run as one HTML page that needs nothing else: timeline, writes, calls, tokens."""
    from agentloop.run_commands import report_run

    report_run(store, run, out, graph)
