"""The command `agentloop bench engine`: how fast the model is on this machine.

Importing this loads no model library, so that help and mistakes answer at once.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

bench_app = typer.Typer(
    name="bench",
    help="Measure the model on this machine.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
GROUPS = ("ceilings", "passes", "decision", "calls", "lengths", "together", "shared_prefix")


@bench_app.callback()
def _group() -> None:  # pyright: ignore[reportUnusedFunction]  # makes `engine` a sub-command
    """Measure the model on this machine."""


@bench_app.command(
    epilog="[bold]Examples[/bold]\n\n  agentloop bench engine\n\n"
    "  agentloop bench engine --only calls --only decision --json"
)
def engine(
    only: Annotated[
        list[str] | None,
        typer.Option(help=f"One of {', '.join(GROUPS)}; may be repeated.", show_default=False),
    ] = None,
    repeat: Annotated[int, typer.Option(min=1, help="Runs that each median is taken of.")] = 3,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Threads of the model.", show_default=False)
    ] = None,
    model: Annotated[
        str,
        typer.Option("--model", envvar="AGENTLOOP_MODEL", metavar="FOLDER", help="Another model."),
    ] = "default",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result as JSON alone.")
    ] = False,
) -> None:
    """Passes and their bounds, a decision, tool calls beside left to right, calls at once."""
    wanted = only or list(GROUPS)
    unknown = [name for name in wanted if name not in GROUPS]
    if unknown:
        raise typer.BadParameter(f"{unknown[0]!r} is none of {', '.join(GROUPS)}")
    from rich.console import Console

    from agentloop.model.lm import DiffusionLM
    from agentloop.model.speed import Speed, machine

    err = Console(stderr=True)
    with DiffusionLM.load(model, num_threads=threads, report=err.print) as lm:
        speed = Speed(lm, repeat)
        found: dict[str, Any] = {"machine": machine(lm.engine.writer)}
        for name in wanted:
            err.print(f"measuring {name.replace('_', ' ')}", style="dim")
            found[name] = getattr(speed, name)()
    if as_json:
        typer.echo(json.dumps(found, indent=1))
        return
    out = Console()
    out.print(found["machine"])
    for name in wanted:
        show(name, found[name], out)


def show(name: str, found: dict[str, Any], console: Console) -> None:
    """Print a group of numbers as a table."""
    from rich.table import Table

    rows: dict[str, dict[str, float]] = (
        found if isinstance(next(iter(found.values())), dict) else {"": found}
    )
    table = Table(title=name.replace("_", " "))
    table.add_column("")
    columns = list(next(iter(rows.values())))
    for column in columns:
        table.add_column(column.replace("_", " "), justify="right")
    for row, numbers in rows.items():
        table.add_row(row.replace("_", " "), *(f"{numbers[c]:,.2f}" for c in columns))
    console.print(table)
