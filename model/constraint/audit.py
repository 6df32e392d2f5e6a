"""What becomes of a schema, keyword by keyword, and how large its automaton is."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from agentloop.errors import ConstraintError, UnsupportedSchemaError
from agentloop.model.constraint.code_points import Reading
from agentloop.model.constraint.constraint import EmptyConstraintError
from agentloop.model.constraint.dfa import Dfa
from agentloop.model.constraint.formats import FORMATS
from agentloop.model.constraint.given import NOTHING_GIVEN
from agentloop.model.constraint.json_schema import JsonSchema
from agentloop.model.constraint.json_types import is_object
from agentloop.model.constraint.lift import lift
from agentloop.model.constraint.options import DEFAULT_OPTIONS, CompileOptions, Formats
from agentloop.model.constraint.pattern import compile_pattern
from agentloop.model.constraint.rule import Rule
from agentloop.model.constraint.rules import RULES
from agentloop.model.constraint.schema import Document, SchemaReference
from agentloop.model.constraint.vocabulary import Vocabulary

Status = Literal["exact", "bounded", "refused", "remark"]
ANNOTATIONS = frozenset(
    {
        *("$schema", "$id", "id", "$anchor", "$dynamicAnchor", "$recursiveAnchor", "$vocabulary"),
        *("$comment", "$defs", "definitions", "title", "description", "default", "examples"),
        *("deprecated", "readOnly", "writeOnly"),
    }
)
"""Keywords that never assert anything, in any validator."""

_SINCE = {
    "const": 6,
    "dependentRequired": 2019,
    "dependentSchemas": 2019,
    "minContains": 2019,
    "maxContains": 2019,
    "prefixItems": 2020,
}
"""Drafts of keywords that came later than others of their rule."""


@dataclass(frozen=True)
class Finding:
    """What becomes of one keyword at one place.

    Attributes:
        pointer: JSON pointer of the subschema.
        keyword: The keyword, `""` where the subschema itself is at fault.
        status: "exact", "bounded" (some valid values are not generated), "refused", or "remark" (a
            keyword that is not known and asserts nothing).
        note: What the bound is, or the reason.
    """

    pointer: str
    keyword: str
    status: Status
    note: str = ""


@dataclass(frozen=True)
class Audit:
    """What becomes of a schema.

    Attributes:
        findings: By place, in the order of the document.
        num_states: Of the byte automaton; None if there is none.
        shortest: A shortest text; None if there is no automaton.
        min_tokens: Tokens of the shortest text in tokens, its end included; None without a
            vocabulary.
        refusal: Why there is no automaton, `""` if there is one.
    """

    findings: tuple[Finding, ...]
    num_states: int | None = None
    shortest: str | None = None
    min_tokens: int | None = None
    refusal: str = ""

    @property
    def is_supported(self) -> bool:
        """Whether values of the schema can be generated."""
        return not self.refusal


def audit(
    schema: Any,
    options: CompileOptions = DEFAULT_OPTIONS,
    *,
    formats: Formats = "assert",
    vocabulary: Vocabulary | None = None,
) -> Audit:
    """Look at all of a schema, past what is refused, and compile it if it can be.

    Example:
        >>> found = audit({"type": "string", "maxLength": 3, "color": "red"})
        >>> [(f.keyword, f.status) for f in found.findings]
        [('type', 'exact'), ('maxLength', 'exact'), ('color', 'remark')]
        >>> found.shortest
        '""'
    """
    findings = tuple(_findings(schema, options, formats))
    try:
        dfa = JsonSchema(schema, formats=formats).automaton(options)
    except EmptyConstraintError:
        return Audit(findings, refusal="no value satisfies it")
    except ConstraintError as error:
        return Audit(findings, refusal=str(error))
    min_tokens = None if vocabulary is None else int(lift(dfa, vocabulary).distance[0])
    return Audit(findings, dfa.num_states, shortest_text(dfa), min_tokens)


def shortest_text(dfa: Dfa) -> str:
    """A shortest text, in bytes, of an automaton that accepts some."""
    before: dict[int, tuple[int, int]] = {0: (-1, 0)}
    todo = deque([0])
    while todo:
        state = todo.popleft()
        if dfa.accepting[state]:
            return _spelt(before, state)
        for i in range(int(dfa.offsets[state]), int(dfa.offsets[state + 1])):
            target = int(dfa.arc_targets[i])
            if target not in before:
                before[target] = (state, int(dfa.arc_bytes[i]))
                todo.append(target)
    raise AssertionError("an automaton of a constraint accepts some text")


def _spelt(before: dict[int, tuple[int, int]], state: int) -> str:
    text = bytearray()
    while state != 0:
        state, byte = before[state]
        text.append(byte)
    return bytes(reversed(text)).decode()


def _findings(schema: Any, options: CompileOptions, formats: Formats) -> list[Finding]:
    try:
        document = Document(json.loads(json.dumps(schema)), formats, NOTHING_GIVEN)
        nodes = document.reachable()
    except UnsupportedSchemaError as error:
        return [Finding(error.pointer, error.keyword, "refused", error.reason)]
    found: list[Finding] = []
    for node in nodes:
        if is_object(node.location.schema):
            found += _of_place(document, node, options)
    return found


def _of_place(document: Document, node: SchemaReference, options: CompileOptions) -> list[Finding]:
    here = node.location
    refused: UnsupportedSchemaError | None = None
    try:
        document.expand(node.number)
    except UnsupportedSchemaError as error:
        refused = error
    found: list[Finding] = []
    for keyword in here.schema:
        if keyword in ANNOTATIONS:
            continue
        if refused and (refused.pointer, refused.keyword) == (here.pointer, keyword):
            found.append(Finding(here.pointer, keyword, "refused", refused.reason))
            continue
        rule = next((r for r in RULES if keyword in r.keywords and _applies(r, here.draft)), None)
        is_remark = keyword == "format" and document.formats == "annotate"
        if rule is None or is_remark or here.draft < _SINCE.get(keyword, 0):
            found.append(Finding(here.pointer, keyword, "remark", "asserts nothing"))
        else:
            found.append(_by_rule(rule, keyword, node, options))
    return found


def _applies(rule: Rule, draft: int) -> bool:
    return rule.first_draft <= draft <= rule.last_draft


def _by_rule(rule: Rule, keyword: str, node: SchemaReference, options: CompileOptions) -> Finding:
    here = node.location
    is_exact = rule.exactness == "exact"
    test = _EXACT_WHERE.get(keyword)
    if not is_exact and test is not None:
        is_exact = test(here.schema, node, options)
    return Finding(
        here.pointer,
        keyword,
        "exact" if is_exact else "bounded",
        "" if is_exact else _note(keyword, here.schema, rule),
    )


def _note(keyword: str, schema: Any, rule: Rule) -> str:
    if keyword == "format":
        known = FORMATS.get(schema[keyword])
        return "an unknown format asserts nothing" if known is None else known.note
    return rule.note


def _is_acyclic(schema: Any, node: SchemaReference, options: CompileOptions) -> bool:
    return not node.is_cyclic


def _is_closed(schema: Any, node: SchemaReference, options: CompileOptions) -> bool:
    return schema.get("additionalProperties") is False and "patternProperties" not in schema


def _is_short(schema: Any, node: SchemaReference, options: CompileOptions) -> bool:
    return bool(schema.get("maxLength", 0) <= options.max_counted_length)


def _is_few(keyword: str) -> Callable[[Any, SchemaReference, CompileOptions], bool]:
    return lambda schema, node, options: schema.get(keyword, 0) <= options.max_counted_items


def _is_integral(schema: Any, node: SchemaReference, options: CompileOptions) -> bool:
    return bool(schema.get("type") == "integer")


def _is_read_alike(schema: Any, node: SchemaReference, options: CompileOptions) -> bool:
    """Whether every engine of regular expressions takes the pattern to mean the same."""
    readings: list[Reading] = ["narrow", "wide"]
    narrow, wide = (compile_pattern(schema["pattern"], reading=reading) for reading in readings)
    return not options.portable_patterns or (wide - narrow).is_empty


def _is_exact_format(schema: Any, node: SchemaReference, options: CompileOptions) -> bool:
    known = FORMATS.get(schema["format"])
    return known is not None and known.is_exact


_EXACT_WHERE: dict[str, Callable[[Any, SchemaReference, CompileOptions], bool]] = {
    "$ref": _is_acyclic,
    "$dynamicRef": _is_acyclic,
    "$recursiveRef": _is_acyclic,
    "properties": _is_closed,
    "additionalProperties": _is_closed,
    "minLength": _is_short,
    "maxLength": _is_short,
    "minItems": _is_few("maxItems"),
    "maxItems": _is_few("maxItems"),
    "maxProperties": _is_few("maxProperties"),
    "minimum": _is_integral,
    "maximum": _is_integral,
    "exclusiveMinimum": _is_integral,
    "exclusiveMaximum": _is_integral,
    "multipleOf": _is_integral,
    "pattern": _is_read_alike,
    "format": _is_exact_format,
}
