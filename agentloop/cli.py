"""The command line: names, options and help. What each command does is in its own file.

Importing this loads no model library, so that help and mistakes answer at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agentloop.cli_bench import bench_app
from agentloop.cli_eval import eval_app
from agentloop.cli_mcp import mcp_app
from agentloop.cli_runs import runs_app
from agentloop.cli_schema import schema_app
from agentloop.model.call_options import AnswerOptions
from agentloop.model.effort import Effort

app = typer.Typer(
    name="agentloop",
    help="Agents and retrieval on a diffusion language model whose output cannot be malformed.",
    epilog="Each command has examples: [bold]agentloop ask --help[/bold]",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(bench_app)
app.add_typer(eval_app)
app.add_typer(mcp_app)
app.add_typer(runs_app)
app.add_typer(schema_app)

ModelOption = Annotated[
    str,
    typer.Option(
        "--model",
        envvar="AGENTLOOP_MODEL",
        metavar="FOLDER",
        help="A folder with another model (config.json, *.safetensors, tokenizer.json).",
    ),
]
EffortOption = Annotated[
    Effort, typer.Option("--effort", "-e", help="How many passes the model may take.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON alone.")]
SeedOption = Annotated[
    int | None, typer.Option(help="Repeat a run with a temperature above 0.", show_default=False)
]
TemperatureOption = Annotated[float, typer.Option(min=0.0, help="0 gives the likeliest answer.")]


def _version(is_asked: bool) -> None:
    if is_asked:
        from importlib.metadata import version

        typer.echo(f"agentloop {version('agentloop')}")
        raise typer.Exit


@app.callback()
def options(
    show_version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Agents and retrieval on a diffusion language model whose output cannot be malformed."""


def _examples(*lines: str) -> str:
    """The end of a command's help."""
    return "[bold]Examples[/bold]\n\n" + "\n\n".join(f"  {line}" for line in lines)


@app.command(
    epilog=_examples(
        "agentloop index notes",
        "agentloop index notes --index notes.index",
        "agentloop index notes --lexical      [dim]no embeddings: much faster, words only[/dim]",
    )
)
def index(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The documents.")],
    index_path: Annotated[
        Path | None,
        typer.Option(
            "--index",
            metavar="PATH",
            help="Where to keep the index; by default in your cache, found again by `ask FOLDER`.",
            show_default=False,
        ),
    ] = None,
    lexical: Annotated[
        bool, typer.Option("--lexical", help="Make a new index for search by words alone.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Make documents searchable: text, Markdown, HTML and PDF, everything below FOLDER.

    Run it again after changes: only these are read. A run that was stopped goes on.
    """
    from agentloop.cli_documents import run_index

    run_index(folder, index_path, is_lexical=lexical, as_json=as_json)


@app.command(
    epilog=_examples(
        'agentloop ask notes "When was the bridge built?"',
        'agentloop ask notes.index "When was the bridge built?" --json',
        'agentloop ask notes "Who paid for it?" --only "letters/*" --effort high',
    )
)
def ask(
    place: Annotated[
        Path,
        typer.Argument(metavar="INDEX_OR_FOLDER", help="An index, or documents to sync first."),
    ],
    question: Annotated[str, typer.Argument(metavar="QUESTION", help="What to look for.")],
    top_k: Annotated[
        int, typer.Option("--top-k", "-k", min=1, max=20, help="Passages to read.")
    ] = 3,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="PATTERN", help="Only documents whose path matches."),
    ] = None,
    required: Annotated[
        bool, typer.Option("--required", help="Answer in any case, never `not in the documents`.")
    ] = False,
    effort: EffortOption = "medium",
    temperature: TemperatureOption = 0.0,
    seed: SeedOption = None,
    model: ModelOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Answer a question from documents, word for word, with the sentence that shows it.

    A citation is file:start-end, in characters of the stored text.
    """
    from agentloop.cli_documents import Asked, run_ask

    options: AnswerOptions = {"effort": effort, "temperature": temperature, "seed": seed}
    asked = Asked(question, top_k, tuple(only or ()), required, options)
    run_ask(place, asked, model, as_json=as_json)


@app.command(
    epilog=_examples(
        'agentloop call tools.json "A table for two in Lima tomorrow at eight"',
        'agentloop call tools.json "Rain in Oslo and in Bergen?" --max 2',
        'agentloop call tools.json "Wake me at 6" --required --system "Today is 2026-11-30."',
    )
)
def call(
    tools: Annotated[
        Path,
        typer.Argument(
            metavar="TOOLS.json",
            help="A list of tools: name, description and parameters (a JSON schema).",
        ),
    ],
    request: Annotated[str, typer.Argument(metavar="REQUEST", help="What the user wants.")],
    max_calls: Annotated[int, typer.Option("--max", min=1, help="Most calls in the answer.")] = 1,
    required: Annotated[
        bool, typer.Option("--required", help="At least one call, even if no tool seems to fit.")
    ] = False,
    system: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Told to the model first.", show_default=False),
    ] = None,
    effort: EffortOption = "medium",
    temperature: TemperatureOption = 0.0,
    seed: SeedOption = None,
    model: ModelOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Turn a request into tool calls whose arguments satisfy the tools' schemas, always.

    Nothing is executed: the calls are printed.
    """
    from agentloop.cli_calls import Requested, run_call

    options: AnswerOptions = {"effort": effort, "temperature": temperature, "seed": seed}
    asked = Requested(request, system, 1 if required else 0, max_calls, options)
    run_call(tools, asked, model, as_json=as_json)


@app.command(
    epilog=_examples(
        'agentloop watch "Is water wet?" --choices yes,no,maybe',
        'agentloop watch "Invent a person." --schema person.json --delay 0.3',
        'agentloop watch "Wake me at six" --tools tools.json --effort high',
    )
)
def watch(
    prompt: Annotated[str, typer.Argument(metavar="PROMPT", help="What to answer.")],
    schema: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Answer as JSON of this schema.", show_default=False),
    ] = None,
    choices: Annotated[
        str | None,
        typer.Option(metavar="A,B,...", help="Answer with one of these.", show_default=False),
    ] = None,
    tools: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Answer with calls of these tools.", show_default=False),
    ] = None,
    delay: Annotated[
        float, typer.Option(min=0.0, max=10.0, help="Seconds to rest after every step.")
    ] = 0.15,
    max_tokens: Annotated[
        int | None, typer.Option(min=1, help="Length of the canvas.", show_default=False)
    ] = None,
    effort: EffortOption = "medium",
    temperature: TemperatureOption = 0.0,
    seed: SeedOption = None,
    model: ModelOption = "default",
) -> None:
    """Watch a canvas being refined: masked, committed, revised, step by step.

    P(valid) is how likely the model would have kept to the constraint by itself.
    """
    from agentloop.cli_watch import Watched, form_of, run_watch

    form = form_of(schema, choices, tools)
    options: AnswerOptions = {"effort": effort, "temperature": temperature, "seed": seed}
    options["max_tokens"] = max_tokens
    run_watch(Watched(prompt, form, options), model, delay_s=delay)


@app.command(
    epilog=_examples(
        "agentloop train pairs.jsonl --out lights.model",
        "agentloop train pairs.jsonl --out lights.model --validation held_out.jsonl --minutes 30",
        'agentloop call tools.json "Dim the lamp" --model lights.model   [dim]the result[/dim]',
    )
)
def train(
    pairs: Annotated[
        Path,
        typer.Argument(
            metavar="PAIRS.jsonl",
            help="Lines with messages, the right answer, and tools or a schema.",
        ),
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FOLDER", help="Where the weights go.")
    ],
    base: Annotated[
        str,
        typer.Option(metavar="FOLDER", help="What to start from: a FOLDER of an earlier run."),
    ] = "default",
    validation: Annotated[
        str, typer.Option(metavar="SHARE|FILE", help="Pairs to hold out, or a file of them.")
    ] = "0.15",
    minutes: Annotated[float, typer.Option(min=0.0, help="Train so long at most.")] = 10.0,
    steps: Annotated[int, typer.Option(min=1, help="Train so many steps at most.")] = 2000,
    rank: Annotated[int, typer.Option(min=1, help="Size of the adapters.")] = 16,
    full: Annotated[
        bool, typer.Option("--full", help="Train all canvas weights; needs 4 GB and more.")
    ] = False,
    learning_rate: Annotated[
        float | None, typer.Option(help="By default 1e-3, or 1e-4 with --full.", show_default=False)
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Pairs per step.")] = 8,
    check_every: Annotated[int, typer.Option(min=1, help="Steps between held-out losses.")] = 20,
    patience: Annotated[
        int, typer.Option(min=1, help="Stop after so many checks without a better loss.")
    ] = 5,
    score: Annotated[
        int, typer.Option(min=0, help="Held-out pairs to answer before and after; 0 for none.")
    ] = 40,
    seed: Annotated[int, typer.Option(help="Of order, noise and the split.")] = 0,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Threads; by default all cores.", show_default=False)
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Teach the model your tools or schemas from pairs of a request and its right answer.

    Stops early when the held-out loss does; the best weights are kept, whatever ends it. The same
    command goes on where it stopped.
    """
    from agentloop.cli_train import Lesson, run_train, share_or_file, use_threads
    from agentloop.model.finetune import FinetuneOptions

    use_threads(threads)
    options = FinetuneOptions(
        rank=None if full else rank,
        learning_rate=learning_rate,
        batch_size=batch_size,
        max_steps=steps,
        max_seconds=60 * minutes,
        check_every=check_every,
        patience=patience,
        seed=seed,
    )
    run_train(Lesson(pairs, out, base, share_or_file(validation), score), options, as_json=as_json)


@app.command(epilog=_examples("agentloop demo", "agentloop demo --effort low"))
def demo(
    effort: EffortOption = "medium",
    model: ModelOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Answer three questions from the example documents and make two tool calls."""
    from agentloop.demo import run_demo

    run_demo(model, effort, as_json=as_json)
