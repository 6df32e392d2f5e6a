"""The commands `agentloop schema ...`: names, options and help. What they do is elsewhere.

Importing this loads neither a model nor numpy, so that help and mistakes answer at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

schema_app = typer.Typer(
    name="schema",
    help="Look at JSON schemas as constraints: what is exact, why a text is rejected, a drawing.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)

SchemaArgument = Annotated[
    Path, typer.Argument(metavar="SCHEMA.json", help="A JSON schema, or `-` for standard input.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON alone.")]
AnnotateOption = Annotated[
    bool, typer.Option("--annotate-formats", help="Take `format` as a mere remark.")
]


@schema_app.command(
    epilog="[bold]Examples[/bold]\n\n"
    "  agentloop schema check person.json\n\n"
    "  agentloop schema check person.json --tokenizer model/tokenizer.json --json"
)
def check(
    schema: SchemaArgument,
    tokenizer: Annotated[
        Path | None,
        typer.Option(
            metavar="TOKENIZER.json",
            help="Count the fewest tokens an answer needs with this tokenizer.",
            show_default=False,
        ),
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="List exact keywords too, not only the others.")
    ] = False,
    annotate_formats: AnnotateOption = False,
    as_json: JsonOption = False,
) -> None:
    """Tell which keywords are exact, bounded, refused or without effect, and the automaton's size.

    Exits with 1 if the schema is refused.
    """
    from agentloop.schema_commands import run_check

    run_check(schema, tokenizer, is_full=every, annotates=annotate_formats, as_json=as_json)


@schema_app.command(
    epilog="[bold]Examples[/bold]\n\n"
    """  agentloop schema explain person.json '{"name": "Ann", "age": -1}'\n\n"""
    "  agentloop schema explain person.json --file answer.json --json"
)
def explain(
    schema: SchemaArgument,
    text: Annotated[
        str | None, typer.Argument(metavar="TEXT", help="The text to judge.", show_default=False)
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file", "-f", metavar="FILE", help="A file with the text.", show_default=False
        ),
    ] = None,
    annotate_formats: AnnotateOption = False,
    as_json: JsonOption = False,
) -> None:
    """Tell where and why a text is rejected, what stands there and what could have.

    Exits with 0 if the text is valid, with 1 if it is not.
    """
    from agentloop.schema_commands import run_explain

    run_explain(schema, text, file, annotates=annotate_formats, as_json=as_json)


@schema_app.command(
    epilog="[bold]Examples[/bold]\n\n"
    "  agentloop schema draw switch.json\n\n"
    "  agentloop schema draw switch.json --form dot | dot -Tsvg > switch.svg"
)
def draw(
    schema: SchemaArgument,
    form: Annotated[
        Literal["mermaid", "dot"], typer.Option(help="Mermaid for Markdown, DOT for Graphviz.")
    ] = "mermaid",
    max_states: Annotated[int, typer.Option(min=1, help="Draw so many states at most.")] = 60,
) -> None:
    """Draw the automaton of a small schema: states, and the characters between them."""
    from agentloop.schema_commands import run_draw

    run_draw(schema, form, max_states)
