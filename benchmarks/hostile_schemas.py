"""Schemas made to cost as much as they can, each compiled in a process with limits.

    python -m benchmarks.hostile_schemas --random 400

Each schema is compiled and lifted to the default model's vocabulary in a process of its own. It has
to end in an automaton or in a `ConstraintError`, within 5 CPU seconds and 1 GB.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import resource
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from agentloop.errors import ConstraintError
from agentloop.model.constraint import JsonSchema
from agentloop.model.constraint.compiled import ConstraintCache, compile_constraint
from agentloop.model.constraint.vocabulary import Vocabulary
from benchmarks.maskbench import default_vocabulary

MAX_CPU_S = 5.0
MAX_MIB = 1024
HANG_S = 60
"""CPU seconds after which a process is ended."""


def nested(depth: int, keyword: str) -> Any:
    """A schema inside a keyword of a schema, and so on so many times."""
    schema: Any = {"type": "integer"}
    for _ in range(depth):
        inner: Any = [schema, {}] if keyword == "allOf" else schema
        schema = {keyword: inner}
    return schema


def chain(length: int) -> dict[str, Any]:
    """Definitions that refer to each other in a chain, without a step into the value."""
    links = {str(i): {"$ref": f"#/$defs/{i + 1}"} for i in range(length)}
    return {"$defs": {**links, str(length): {"type": "null"}}, "$ref": "#/$defs/0"}


def overlapping(count: int) -> dict[str, Any]:
    """Alternatives none of which is ruled out before the end."""
    options = [
        {"properties": {f"k{j}": {"minLength": i + j} for j in range(8)}} for i in range(count)
    ]
    return {"type": "object", "oneOf": options}


HOSTILE: dict[str, Any] = {
    "deep arrays": nested(30, "items"),
    "too deep arrays": nested(5_000, "items"),
    "deep not": nested(90, "not"),
    "deep allOf": nested(45, "allOf"),
    "long chain of references": chain(2_000),
    "mutual references": {
        "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}},
        "$ref": "#/$defs/a",
    },
    "a reference in its own not": {"not": {"$ref": "#"}},
    "tree without leaves": {"type": "array", "items": {"$ref": "#"}, "minItems": 1},
    "wide tree": {"properties": {f"k{i}": {"$ref": "#"} for i in range(30)}},
    "huge enum": {"enum": [f"value {i}" for i in range(30_000)]},
    "enum of everything": {"enum": [None, True, 1, "a", [1, {"b": []}], {"c": {"d": 1}}] * 100},
    "catastrophic pattern": {"pattern": "^(a+)+$"},
    "exponential pattern": {"pattern": "(a|b)*a(a|b){18}"},
    "large repeat": {"pattern": "^(a{1,500}){1,500}$"},
    "conflicting lengths": {"type": "string", "minLength": 10**9, "maxLength": 10**9},
    "many items": {"type": "array", "minItems": 10**9},
    "many counted": {"items": {"type": "string", "maxLength": 200}, "maxItems": 10**6},
    "overlapping alternatives": overlapping(12),
    "counting what is contained": {
        "type": "array",
        "allOf": [{"contains": {"const": i}, "maxContains": 9} for i in range(12)],
    },
    "many dependencies": {
        "type": "object",
        "dependentRequired": {f"k{i}": [f"k{(i * 7 + 3) % 40}"] for i in range(40)},
    },
    "distinct letters": {"items": {"enum": [chr(97 + i) for i in range(26)]}, "uniqueItems": True},
    "large multiple": {"type": "integer", "multipleOf": 3_999},
    "many digits": {"type": "number", "minimum": float("1e-300"), "maximum": float("1e300")},
    "empty keys": {"properties": {"": {"properties": {"": {}}}}, "required": [""]},
    "odd keys": {"properties": {'\u0000\ud83d\ude00"\\': {"type": "null"}}},
    "half a surrogate": {"properties": {"\ud83d": {}}, "enum": ["\ud83d"]},
}


_PATTERNS = (
    "^(a+)+$",
    "(x+x+)+y",
    "^(([a-z])+.)+[A-Z]([a-z])+$",
    "(a|aa)+$",
    "(.*a){12}",
    "^(.{0,4}b){3}$",
    "(a|b)*a(a|b){9}",
    "[^a]{400}",
    "[A-Za-z]{3,300}",
    "(a|b|ab)*c" * 6,
    ".*" * 30,
)
_REFUSED = (
    "(a{0,99}){0,99}",
    "^(.{0,40}b){9}$",
    "(",
    "a{5,2}",
    r"(a)\1",
    r"\bword\b",
    "^(?<=a)b",
    "a(?=b)c",
)
_NUMBERS = (0, 1, -1, 2, 0.1, 1e-9, 3.7, 999, 2**31, 2**63, 10**30, 1e300, -1e300, 1e-300)
_STEPS = (2, 0.1, 1e-9, 3.7, 999, 0.25, 60, 4_001, 2**31, 0)
_SIZES = (0, 1, 2, 3, 7, 64, 1_000, 65_535, 10**6, 10**9, 2**63)
_MALFORMED: tuple[Any, ...] = (None, True, -1, "x", [], {}, [1], {"a": 1}, 1.5)
_NAMES = ("", "a", "b", "a" * 300, "\u0000", "é", "😀", "$ref", "__proto__")


class HostileSchemas:
    """Random schemas, any keyword anywhere, with the values that cost most."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.num_definitions = self.random.randrange(1, 6)

    def document(self) -> dict[str, Any]:
        """A schema with definitions that refer to one another as they like."""
        schema = self.schema(self.random.randrange(1, 7))
        if not isinstance(schema, dict):
            schema = {"not": schema}
        names = map(str, range(self.num_definitions))
        definitions = {name: self.schema(3) for name in names}
        return {**schema, "$defs": definitions}

    def schema(self, depth: int) -> Any:
        """A schema, or now and then a boolean or what is no schema at all."""
        draw = self.random.random()
        if draw < 0.06:
            return draw < 0.03
        if draw < 0.0605:
            return self.random.choice(_MALFORMED)
        keywords = self.random.sample(sorted(self.keywords()), self.random.randrange(1, 6))
        if draw > 0.1:
            keywords = [keyword for keyword in keywords if not keyword.startswith("uneval")]
        return {keyword: self.keywords()[keyword](depth - 1) for keyword in keywords}

    def keywords(self) -> Mapping[str, Callable[[int], Any]]:
        """How the value of each keyword is made."""
        pick, kinds = self.random.choice, ("string", "number", "integer", "array", "object", "null")
        anything: list[Any] = [*_NUMBERS, *_NAMES, None, [1], {"a": []}]
        made: dict[str, Callable[[int], Any]] = {
            "type": lambda _: pick(kinds),
            "pattern": lambda _: self.pattern(),
            "format": lambda _: pick(("date-time", "uri", "ipv6", "regex", "nonsense")),
            "enum": lambda _: [pick(anything) for _ in range(99)],
            "const": lambda _: pick((*_NUMBERS, *_NAMES)),
            "uniqueItems": lambda _: pick((True, False)),
            "required": lambda _: [pick(_NAMES) for _ in range(4)],
            "properties": lambda d: {n: self.inner(d) for n in self.random.sample(_NAMES, 4)},
            "patternProperties": lambda d: {self.pattern(): self.inner(d) for _ in range(3)},
            "$ref": lambda _: self.reference(),
        }
        made["multipleOf"] = lambda _: self.random.choices(_STEPS, (9, 9, 9, 9, 9, 9, 9, 1, 1, 1))[
            0
        ]
        for keyword in ("minimum", "maximum", "exclusiveMinimum"):
            made[keyword] = lambda _: pick(_NUMBERS)
        for bound in ("Length", "Items", "Properties", "Contains"):
            made[f"min{bound}"] = made[f"max{bound}"] = lambda _: pick(_SIZES)
        for keyword in ("allOf", "anyOf", "oneOf", "prefixItems"):
            made[keyword] = lambda d: [self.inner(d) for _ in range(self.random.randrange(1, 9))]
        for keyword in (
            *("not", "if", "then", "else", "items", "contains", "propertyNames"),
            *("additionalProperties", "unevaluatedProperties", "unevaluatedItems"),
        ):
            made[keyword] = self.inner
        return made

    def inner(self, depth: int) -> Any:
        """A schema inside another, as deep as is left."""
        if depth > 0:
            return self.schema(depth)
        return self.random.choice((True, {"type": "string"}, {"$ref": "#"}))

    def pattern(self) -> str:
        """A pattern, now and then one that is refused."""
        return self.random.choice(_REFUSED if self.random.random() < 0.01 else _PATTERNS)

    def reference(self) -> str:
        """A reference to a definition, now and then to none."""
        at = self.random.randrange(self.num_definitions + (self.random.random() < 0.01))
        return f"#/$defs/{at}"


@dataclass(frozen=True)
class Ending:
    """How the compilation of a schema ended.

    Attributes:
        kind: "compiled", the name of the error's class, or "ended by signal ...".
        is_typed: Whether it compiled or was refused by a `ConstraintError`.
        cpu_s: CPU seconds.
        peak_mib: Memory at most, beyond what the forking process held.
    """

    kind: str
    is_typed: bool
    cpu_s: float
    peak_mib: float

    @property
    def is_good(self) -> bool:
        """Whether it ended as it has to."""
        return self.is_typed and self.cpu_s <= MAX_CPU_S and self.peak_mib <= MAX_MIB


BYTES = Vocabulary([*(bytes([byte]) for byte in range(256)), b""], [256])


def _address_space() -> int:
    """Bytes of address space in use, where the system tells."""
    statm = Path("/proc/self/statm")
    return int(statm.read_text().split()[0]) * resource.getpagesize() if statm.exists() else 0


def _compile(schema: Any, vocabulary: Vocabulary, pipe: Connection) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (HANG_S, HANG_S))
    room = _address_space() + (4 * MAX_MIB << 20)
    resource.setrlimit(resource.RLIMIT_AS, (room, room))
    held_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    kind, is_typed, begun = "compiled", True, time.process_time()
    try:
        compile_constraint(JsonSchema(schema), vocabulary, cache=ConstraintCache())
    except ConstraintError as error:
        kind = type(error).__name__
    except BaseException as error:  # whatever it is, it is not what a caller should see
        kind, is_typed = repr(error)[:200], False
    used = time.process_time() - begun
    peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - held_kib
    pipe.send(Ending(kind, is_typed, used, peak_kib / 1024))


def ending_of(schema: Any, vocabulary: Vocabulary = BYTES) -> Ending:
    """Compile a schema in a process of its own, forked from this one."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_compile, args=(schema, vocabulary, theirs))
    process.start()
    theirs.close()
    try:
        ending: Ending = ours.recv()
        return ending
    except EOFError:
        process.join()
        ended = signal.Signals(-(process.exitcode or 0)).name if process.exitcode else "nothing"
        return Ending(f"ended by {ended}", is_typed=False, cpu_s=HANG_S, peak_mib=0.0)
    finally:
        process.join()


def endings(num_random: int, vocabulary: Vocabulary) -> Iterator[tuple[str, Any, Ending]]:
    """The named schemas, then random ones, each with how it ended."""
    for name, schema in HOSTILE.items():
        yield name, schema, ending_of(schema, vocabulary)
    for seed in range(num_random):
        schema = HostileSchemas(seed).document()
        yield f"random {seed}", schema, ending_of(schema, vocabulary)


def main() -> None:
    """Compile them all and print how they ended."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--random", type=int, default=400, help="how many random schemas")
    options = parser.parse_args()
    kinds: Counter[str] = Counter()
    found: list[tuple[str, Ending]] = []
    vocabulary = default_vocabulary()
    _ = vocabulary.trie  # made once per model, not per schema
    for name, schema, ending in endings(options.random, vocabulary):
        kinds[ending.kind] += 1
        found.append((name, ending))
        if not ending.is_good:
            print(f"BAD {name}: {ending}\n{str(schema)[:1500]}", flush=True)
    print(", ".join(f"{kind} {count}" for kind, count in kinds.most_common()))
    for what in ("cpu_s", "peak_mib"):
        most = sorted(found, key=lambda pair: -getattr(pair[1], what))[:4]
        print(what, ", ".join(f"{name} {getattr(ending, what):.1f}" for name, ending in most))
    sys.exit(not all(ending.is_good for _, ending in found))


if __name__ == "__main__":
    main()
