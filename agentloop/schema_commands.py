"""What the commands `agentloop schema ...` do."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import typer
from rich.text import Text

from agentloop.errors import CheckpointError, ConstraintError
from agentloop.model.constraint import JsonSchema
from agentloop.model.constraint import draw as drawing
from agentloop.model.constraint.audit import Audit, Finding, audit
from agentloop.model.constraint.vocabulary import Vocabulary
from agentloop.terminal import counted, milliseconds, out, print_json, printable

_STYLES = {"exact": "green", "bounded": "yellow", "refused": "bold red", "remark": "dim"}


def run_check(
    path: Path,
    tokenizer: Path | None,
    *,
    is_full: bool,
    annotates: bool,
    as_json: bool,
) -> None:
    """`agentloop schema check`."""
    schema = read_schema(path)
    vocabulary = None if tokenizer is None else read_vocabulary(tokenizer)
    began = time.perf_counter()
    found = audit(schema, formats="annotate" if annotates else "assert", vocabulary=vocabulary)
    took_s = time.perf_counter() - began
    if as_json:
        print_json({**asdict(found), "milliseconds": round(1000 * took_s, 1)})
    else:
        _print_audit(found, took_s, is_full=is_full)
    if not found.is_supported:
        raise typer.Exit(1)


def _print_audit(found: Audit, took_s: float, *, is_full: bool) -> None:
    counts = {
        status: sum(finding.status == status for finding in found.findings) for status in _STYLES
    }
    for finding in found.findings:
        if is_full or finding.status != "exact":
            out.print(_line(finding))
    told = ", ".join(f"{number} {status}" for status, number in counts.items() if number)
    out.print(f"keywords: {told or 'none'}", style="dim")
    if not found.is_supported:
        out.print(Text.assemble(("refused: ", "bold red"), printable(found.refusal)))
        return
    assert found.num_states is not None
    assert found.shortest is not None
    size = f"{counted(found.num_states, 'state')}, compiled in {milliseconds(took_s)}"
    if found.min_tokens is not None:
        size += f"; an answer needs {counted(found.min_tokens, 'token')} or more"
    out.print(size)
    out.print(f"a shortest value: {printable(found.shortest[:200])}")


def _line(finding: Finding) -> Text:
    return Text.assemble(
        (f"{finding.status:8}", _STYLES[finding.status]),
        f" #{printable(finding.pointer)} ",
        (printable(finding.keyword), "bold"),
        f"  {printable(finding.note)}",
    )


def run_explain(
    path: Path, text: str | None, file: Path | None, *, annotates: bool, as_json: bool
) -> None:
    """`agentloop schema explain`."""
    if (text is None) == (file is None):
        raise ConstraintError("give the text to judge, or --file with it; not both")
    judged = text if text is not None else _read(file or path)
    schema = JsonSchema(read_schema(path), formats="annotate" if annotates else "assert")
    found = schema.explain(judged)
    if as_json:
        print_json({"valid": found is None, "rejection": None if found is None else asdict(found)})
    elif found is None:
        out.print("valid", style="green")
    else:
        line = judged.split("\n")[found.line - 1]
        first = max(0, found.column - 41)
        out.print(printable(line[first : first + 79]))
        out.print(Text(" " * (found.column - 1 - first) + "^", style="bold red"))
        out.print(printable(str(found)))
    if found is not None:
        raise typer.Exit(1)


def run_draw(path: Path, form: Literal["mermaid", "dot"], max_states: int) -> None:
    """`agentloop schema draw`."""
    drawn = drawing(JsonSchema(read_schema(path)), form, max_states=max_states)
    print(drawn, end="", file=out.file)


def read_schema(path: Path) -> Any:
    """The schema in a file, or on standard input for `-`.

    Raises:
        ConstraintError: It cannot be read, or is no schema.
    """
    text = sys.stdin.read() if str(path) == "-" else _read(path)
    try:
        schema: Any = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConstraintError(
            f"{path}:{error.lineno}:{error.colno} is not JSON: {error.msg}"
        ) from error
    if type(schema) not in (dict, bool):
        raise ConstraintError(f"{path} holds {type(schema).__name__}, expected a JSON schema")
    return schema


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise ConstraintError(f"{path} cannot be read: {why}") from error


def read_vocabulary(path: Path) -> Vocabulary:
    """The tokens of a tokenizer.json; any special token stands for the end of text.

    Raises:
        CheckpointError: It is no tokenizer, or has no special token.
    """
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises bare Exception
        raise CheckpointError(f"{path} is no tokenizer.json: {error}") from error
    special = [i for i, token in tokenizer.get_added_tokens_decoder().items() if token.special]
    if not special:
        raise CheckpointError(f"{path} has no special token that could end a text")
    return Vocabulary.from_tokenizer(tokenizer, special[:1])
