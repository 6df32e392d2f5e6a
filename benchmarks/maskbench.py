"""Real schemas with their instances: what is compiled, what is judged right, how long it takes.

    python -m benchmarks.maskbench --data data/maskbench_dev.jsonl.gz
    python -m benchmarks.maskbench --data data/maskbench_dev.jsonl.gz --every 10 --spellings

The data is a file of lines {"id", "schema", "tests": [{"valid", "data"}]}; MaskBench's schemas
carry no licence, so they are not part of the repository. A schema is clean if it compiles and every
one of its instances is judged right. Compilation is cold: nothing that an earlier schema left is
used, except the automata of formats. `lifted` is the automaton and its lift to the default model's
49,152 tokens; `cached` is the same schema asked for once more, its JSON hashed anew. Times are CPU
seconds of the process, which other work on the machine changes little.
"""

from __future__ import annotations

import argparse
import gzip
import json
import resource
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track
from tokenizers import Tokenizer

from agentloop.errors import CompileLimitError, ConstraintError
from agentloop.model.base_weights import base_folder
from agentloop.model.constraint import CompileOptions, Dfa, EmptyConstraintError, JsonSchema
from agentloop.model.constraint.compiled import ConstraintCache
from agentloop.model.constraint.constraint import emitter_of
from agentloop.model.constraint.json_schema import document_of
from agentloop.model.constraint.options import DEFAULT_OPTIONS
from agentloop.model.constraint.scalars import automaton_of, scalar_piece
from agentloop.model.constraint.vocabulary import Vocabulary
from benchmarks.spellings import STYLES, respaced

CONSOLE = Console()
MAX_SHOWN = 40
QUANTILES = (0.5, 0.9, 0.99, 1.0)


@dataclass
class Judged:
    """What became of one schema.

    Attributes:
        name: The schema's id.
        refusal: Why it is refused, "" if it is not.
        automaton_s: CPU seconds from the schema to the automaton over bytes.
        lifted_s: CPU seconds from the schema to the automaton over tokens.
        cached_s: Seconds when it is asked for once more.
        num_states: States of the automaton over bytes.
        counts: How many instances were judged in which way.
        wrong: The instances that were not judged right.
    """

    name: str
    refusal: str = ""
    automaton_s: float = 0.0
    lifted_s: float = 0.0
    cached_s: float = 0.0
    num_states: int = 0
    counts: Counter[str] = field(default_factory=Counter[str])
    wrong: list[str] = field(default_factory=list[str])


def read_entries(path: Path, every: int = 1) -> list[dict[str, Any]]:
    """Every n-th schema of the file, with its instances."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for i, line in enumerate(lines) if i % every == 0]


def default_vocabulary() -> Vocabulary:
    """The tokens of the default model."""
    tokenizer = Tokenizer.from_file(str(base_folder(CONSOLE.print) / "tokenizer.json"))
    return Vocabulary.from_tokenizer(tokenizer, [tokenizer.get_vocab()["<|im_end|>"]])


def forget() -> None:
    """Forget everything that earlier schemas left in memory."""
    for cache in (emitter_of, document_of, scalar_piece, automaton_of):
        cache.cache_clear()


def _depth(text: str) -> int:
    """A bound on how deeply containers nest in a text."""
    deepest = level = 0
    for char in text:
        level += (char in "[{") - (char in "]}")
        deepest = max(deepest, level)
    return deepest


def judge(entry: dict[str, Any], vocabulary: Vocabulary | None) -> Judged:
    """Compile a schema and judge its instances.

    Args:
        entry: The schema and its instances.
        vocabulary: What to lift the automaton to; None leaves that out.
    """
    judged = Judged(entry["id"])
    forget()
    begun = time.process_time()
    try:
        schema = JsonSchema(entry["schema"])
        dfa = schema.automaton()
    except EmptyConstraintError:
        schema, dfa = JsonSchema(entry["schema"]), None
    except ConstraintError as error:
        judged.refusal = str(error)
        return judged
    finally:
        judged.automaton_s = time.process_time() - begun
    if dfa is not None:
        judged.num_states = dfa.num_states
        if vocabulary is not None:
            _time_lift(judged, entry["schema"], vocabulary)
    for test in entry["tests"]:
        _judge_instance(judged, schema, dfa, test)
    return judged


def _time_lift(judged: Judged, schema: dict[str, Any], vocabulary: Vocabulary) -> None:
    cache = ConstraintCache()
    forget()
    for name in ("lifted_s", "cached_s"):
        begun = time.process_time()
        try:
            cache.get_or_compile(JsonSchema(schema), vocabulary, DEFAULT_OPTIONS)
        except CompileLimitError:
            judged.counts["not lifted"] += 1
            return
        setattr(judged, name, time.process_time() - begun)


def _judge_instance(
    judged: Judged, schema: JsonSchema, dfa: Dfa | None, test: dict[str, Any]
) -> None:
    text = json.dumps(test["data"], ensure_ascii=False)
    is_accepted = schema.accepts(text)
    judged.counts["valid" if test["valid"] else "invalid"] += 1
    if is_accepted != test["valid"]:
        judged.counts["valid rejected" if test["valid"] else "invalid accepted"] += 1
        judged.wrong.append(text)
    is_written = dfa is not None and _is_read(dfa, schema.canonical(text))
    if test["valid"]:
        judged.counts["valid written"] += is_written
    elif is_written:
        judged.counts["invalid accepted"] += 1
        judged.wrong.append(text)


def _is_read(dfa: Dfa, text: str) -> bool:
    try:
        return dfa.accepts(text.encode())
    except UnicodeEncodeError:
        return False


def judge_spellings(entry: dict[str, Any]) -> Judged:
    """How many valid instances are read in every style under the tolerant profile.

    The automaton takes every valid key, and is unrolled deeper where an instance needs it. An
    instance that is not read even in the compact spelling (its string is longer than strings are
    written, say) is counted apart.
    """
    judged = Judged(entry["id"])
    forget()
    try:
        schema = JsonSchema(entry["schema"])
        texts = [
            json.dumps(test["data"], ensure_ascii=False) for test in entry["tests"] if test["valid"]
        ]
        compact = [schema.canonical(text) for text in texts if schema.accepts(text)]
        unread = compact
        for max_depth in (DEFAULT_OPTIONS.max_depth, 1 + max(map(_depth, compact), default=0)):
            unread = _judge_styles(judged, schema, max_depth, unread) if unread else []
    except ConstraintError as error:
        judged.refusal = str(error)
        return judged
    judged.counts["not written"] += len(unread)
    return judged


def _judge_styles(
    judged: Judged, schema: JsonSchema, max_depth: int, compact: list[str]
) -> list[str]:
    """Judge the texts that the automaton reads in compact spelling; the others."""
    dfa = schema.automaton(
        CompileOptions(
            whitespace="tolerant",
            extra_keys="allowed",
            portable_patterns=False,
            max_depth=max_depth,
            max_states=1_000_000,
        )
    )
    unread = [text for text in compact if not _is_read(dfa, text)]
    for text in compact:
        if text in unread:
            continue
        judged.counts["instances"] += 1
        for name, style in STYLES.items():
            spelt = respaced(text, style)
            if not _is_read(dfa, spelt):
                judged.counts[f"not read: {name}"] += 1
                judged.wrong.append(spelt)
    return unread


def quantiles(values: list[float], scale: float) -> str:
    """The quantiles of some values, as cells of a table."""
    found = np.quantile(values, QUANTILES, method="higher") * scale if values else [0.0] * 4
    return " | ".join(f"{value:,.1f}" for value in found)


def report(judged: list[Judged]) -> Iterator[str]:
    """The results as lines of Markdown."""
    total = sum((one.counts for one in judged), Counter[str]())
    compiled = [one for one in judged if not one.refusal]
    clean = [one for one in compiled if not one.wrong]
    yield f"schemas {len(judged):,}, compiled {len(compiled):,}, clean {len(clean):,}"
    yield ", ".join(f"{name} {count:,}" for name, count in sorted(total.items()))
    yield ""
    yield "| | p50 | p90 | p99 | max |"
    yield "|---|---|---|---|---|"
    yield f"| automaton, ms | {quantiles([j.automaton_s for j in judged], 1e3)} |"
    lifted = [one for one in judged if one.lifted_s]
    if lifted:
        yield f"| lifted, ms | {quantiles([j.lifted_s for j in lifted], 1e3)} |"
        yield f"| cached, ms | {quantiles([j.cached_s for j in lifted], 1e3)} |"
    yield f"| states | {quantiles([float(j.num_states) for j in compiled], 1.0)} |"
    yield ""
    peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield f"peak memory of the process {peak_kib / 1024:,.0f} MiB"
    for one in judged:
        if one.refusal:
            yield f"refused {one.name}: {one.refusal}"
    wrong = [(one.name, text) for one in judged for text in one.wrong]
    for name, text in wrong[:MAX_SHOWN]:
        yield f"wrong {name}: {text[:200]!r}"
    if len(wrong) > MAX_SHOWN:
        yield f"... and {len(wrong) - MAX_SHOWN:,} more"
    slowest = sorted(judged, key=lambda one: -max(one.automaton_s, one.lifted_s))[:12]
    for one in slowest:
        yield (
            f"slow {one.name}: automaton {one.automaton_s:.2f} s, lifted {one.lifted_s:.2f} s, "
            f"{one.num_states:,} states"
        )


def worse_than(baseline: dict[str, int], judged: list[Judged]) -> Iterator[str]:
    """What is worse than counts kept from before: fewer clean, or more wrong."""
    total = sum((one.counts for one in judged), Counter[str]())
    total["clean"] = sum(not one.refusal and not one.wrong for one in judged)
    for name, kept in baseline.items():
        is_worse = total[name] < kept if name == "clean" else total[name] > kept
        if is_worse:
            yield f"{name}: {total[name]:,}, {kept:,} before"


def main() -> None:
    """Judge the schemas and print the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="the file of schemas, gzipped")
    parser.add_argument("--every", type=int, default=1, help="judge every n-th schema only")
    parser.add_argument("--no-lift", action="store_true", help="leave the vocabulary out")
    parser.add_argument("--baseline", type=Path, help="counts that may only improve")
    parser.add_argument("--spellings", action="store_true", help="judge whitespace instead")
    options = parser.parse_args()
    entries = read_entries(options.data, options.every)
    is_lifting = not (options.no_lift or options.spellings)
    vocabulary = default_vocabulary() if is_lifting else None
    if vocabulary is not None:
        _ = vocabulary.trie, vocabulary.fingerprint  # made once per model, not per schema
    judged: list[Judged] = []
    try:
        for entry in track(entries, "schemas", console=CONSOLE, disable=not sys.stdout.isatty()):
            judged.append(judge_spellings(entry) if options.spellings else judge(entry, vocabulary))
            if not sys.stdout.isatty() and len(judged) % 500 == 0:
                print(f"{len(judged):,} of {len(entries):,}", file=sys.stderr, flush=True)
    except KeyboardInterrupt:
        CONSOLE.print(f"interrupted after {len(judged):,} of {len(entries):,} schemas")
    for line in report(judged):
        CONSOLE.print(line, markup=False, highlight=False, soft_wrap=True)
    if options.baseline:
        worse = list(worse_than(json.loads(options.baseline.read_text()), judged))
        sys.exit("\n".join(worse))


if __name__ == "__main__":
    main()
