"""The commands `agentloop mcp ...`: names, options and help. What they do is in `cli_servers`.

Importing this loads neither the protocol's SDK nor a model, so that help and mistakes answer at
once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

mcp_app = typer.Typer(
    name="mcp",
    help="Use the tools of MCP servers, and serve an index, a graph or tools as one.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)

ServerArgument = Annotated[
    str,
    typer.Argument(metavar="SERVER", help="An address (http://...), or a command in quotes."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON alone.")]
TimeoutOption = Annotated[float, typer.Option("--timeout", min=0.1, help="Seconds to wait.")]


@mcp_app.command(
    epilog="[bold]Examples[/bold]\n\n"
    '  agentloop mcp tools "python weather_server.py"\n\n'
    "  agentloop mcp tools http://127.0.0.1:8000/mcp --json"
)
def tools(
    server: ServerArgument,
    reads: Annotated[
        list[str] | None,
        typer.Option("--reads", metavar="TOOL", help="A tool that only reads and tells nobody."),
    ] = None,
    timeout: TimeoutOption = 30.0,
    as_json: JsonOption = False,
) -> None:
    """List a server's tools; what a model is not constrained by, and what is refused."""
    from agentloop.cli_servers import run_tools

    run_tools(server, reads or (), timeout, as_json=as_json)


@mcp_app.command(
    epilog="[bold]Examples[/bold]\n\n"
    """  agentloop mcp call "python weather_server.py" forecast '{"city": "Oslo"}'"""
)
def call(
    server: ServerArgument,
    tool: Annotated[str, typer.Argument(metavar="TOOL", help="The tool's name.")],
    arguments: Annotated[str, typer.Argument(metavar="JSON", help="Its arguments.")] = "{}",
    timeout: TimeoutOption = 60.0,
    as_json: JsonOption = False,
) -> None:
    """Call one tool of a server; its arguments are checked here first."""
    from agentloop.cli_servers import run_call

    run_call(server, tool, arguments, timeout, as_json=as_json)


@mcp_app.command(
    epilog="[bold]Examples[/bold]\n\n"
    "  agentloop mcp serve notes.index\n\n"
    "  agentloop mcp serve my_tools:weather my_graphs:planner --http 8000"
)
def serve(
    served: Annotated[
        list[str],
        typer.Argument(
            metavar="WHAT...",
            help="An index, or MODULE:NAME of a tool, a list of tools or a graph of yours.",
        ),
    ],
    http: Annotated[
        int | None,
        typer.Option(
            metavar="PORT",
            min=1,
            max=65535,
            help="Serve programs of this machine at http://127.0.0.1:PORT/mcp; without it, the "
            "program that starts this one, on standard input and output.",
            show_default=False,
        ),
    ] = None,
    name: Annotated[str, typer.Option(help="What the server calls itself.")] = "agentloop",
    store: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Record the runs of graphs there, so that they may ask and wait.",
            show_default=False,
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER",
            help="The model that graphs use: a folder, or `default`.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Serve an index, a graph or tools to other programs of this machine."""
    from agentloop.cli_servers import run_serve

    run_serve(served, name, http, store, model)
