"""`unevaluatedProperties` and `unevaluatedItems`, by listing what evaluates a property or an item.

A property is evaluated if some subschema that names it holds. So for every group of properties that
the same subschemas name, either one of these holds or the values satisfy what is asked of the
unevaluated. Where patterns decide what is named, all cases of which subschemas hold are listed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import product

from agentloop.model.constraint.array_assertions import elements
from agentloop.model.constraint.expression import (
    TRUE,
    Expr,
    KindIs,
    conjunction,
    disjunction,
    negation,
)
from agentloop.model.constraint.json_types import is_list
from agentloop.model.constraint.object_assertions import Required, Shape
from agentloop.model.constraint.references import Location, enter
from agentloop.model.constraint.scope import Scope

MAX_CONDITIONS = 6
"""Most subschemas that may or may not hold; their combinations are listed."""
MAX_NESTING = 64
OBJECT = KindIs(frozenset({"object"}))


@dataclass(frozen=True)
class Evaluating:
    """A subschema that evaluates what its keywords name, where all conditions hold."""

    conditions: tuple[Expr, ...]
    scope: Scope


def evaluating(
    scope: Scope, keyword: str, conditions: tuple[Expr, ...] = (), depth: int = 0
) -> Iterator[Evaluating]:
    """The subschemas applied in place to the same value as `scope`, itself first."""
    if depth > MAX_NESTING:
        raise scope.here.refusal(keyword, "the references to subschemas nest too deeply")
    yield Evaluating(conditions, scope)
    for further, location in _applied(scope):
        inner = Scope(scope.document, enter(location))
        if isinstance(inner.here.schema, dict):
            yield from evaluating(inner, keyword, (*conditions, *further), depth + 1)


def _applied(scope: Scope) -> Iterator[tuple[tuple[Expr, ...], Location]]:
    """The subschemas right inside one, each with what must hold for it to count."""
    here, schema = scope.here, scope.schema
    for keyword in ("$ref", "$dynamicRef", "$recursiveRef"):
        if keyword in schema:
            yield (), scope.document.resolve(here, keyword)
    for i in range(len(schema.get("allOf", ()))):
        yield (), here.at("allOf", i)
    for keyword in ("anyOf", "oneOf"):
        for i in range(len(schema.get(keyword, ()))):
            yield (scope.sub(keyword, i),), here.at(keyword, i)
    if "if" in schema:
        test = scope.sub("if")
        yield (test,), here.at("if")
        for keyword, truth in (("then", test), ("else", negation(test))):
            if keyword in schema:
                yield (truth,), here.at(keyword)
    for key in scope.mapping("dependentSchemas"):
        yield (conjunction(OBJECT, Required((key,))),), here.at("dependentSchemas", key)


def _by_cases(
    scope: Scope,
    keyword: str,
    found: list[Evaluating],
    assertion: Callable[[list[Scope]], Expr],
) -> Expr:
    """What `assertion` says of the subschemas that hold, over all cases of which hold."""
    conditions = list(dict.fromkeys(c for e in found for c in e.conditions if c != TRUE))
    if len(conditions) > MAX_CONDITIONS:
        raise scope.here.refusal(
            keyword,
            f"it depends on {len(conditions)} subschemas that may hold; at most"
            f" {MAX_CONDITIONS} are supported",
        )
    cases: list[Expr] = []
    for truths in product((True, False), repeat=len(conditions)):
        holding = {c for c, truth in zip(conditions, truths, strict=True) if truth}
        guards = [c if c in holding else negation(c) for c in conditions]
        counted = [e.scope for e in found if all(c == TRUE or c in holding for c in e.conditions)]
        cases.append(conjunction(*guards, assertion(counted)))
    return disjunction(*cases)


def _grouped(
    found: list[Evaluating],
    covers: Callable[[Scope, str | int | None], bool],
    names: Iterable[str | int],
    assertion: Callable[[list[str | int], bool], Expr],
) -> Expr:
    """The assertion per group of names that the same subschemas cover.

    Args:
        found: The evaluating subschemas.
        covers: Whether a subschema covers a name, or (None) what nothing names.
        names: All names.
        assertion: What must hold of a group that is not covered: its names, and whether it is the
            one that holds what nothing names.
    """
    groups: dict[frozenset[Expr], list[str | int]] = {}
    rest: frozenset[Expr] | None = None
    for name in (*names, None):
        covering = [e for e in found if covers(e.scope, name)]
        if any(not e.conditions for e in covering):
            continue
        key = frozenset(conjunction(*e.conditions) for e in covering)
        groups.setdefault(key, [])
        if name is None:
            rest = key
        else:
            groups[key].append(name)
    return conjunction(
        *(disjunction(*key, assertion(group, key == rest)) for key, group in groups.items())
    )


def unevaluated_properties(scope: Scope) -> Expr:
    """`unevaluatedProperties`."""
    keyword = "unevaluatedProperties"
    value = scope.sub(keyword)
    if value == TRUE:
        return TRUE
    is_open = scope.schema[keyword] is not False
    found = list(evaluating(scope, keyword))
    names = dict.fromkeys(name for e in found for name in e.scope.mapping("properties"))

    def covers_all(inner: Scope) -> bool:
        return "additionalProperties" in inner.schema or (
            keyword in inner.schema and inner.here.pointer != scope.here.pointer
        )

    def shape(asked: Iterable[str | int], is_rest: bool, scopes: list[Scope]) -> Expr:
        patterns = {
            inner.pattern("patternProperties", pattern): TRUE
            for inner in scopes
            for pattern in inner.mapping("patternProperties")
        }
        named = set(asked)
        properties = tuple((name, value if name in named else TRUE) for name in names)
        kept = tuple(patterns.items())
        return Shape(properties, kept, value if is_rest else TRUE, is_open and is_rest)

    def case(scopes: list[Scope]) -> Expr:
        if any(map(covers_all, scopes)):
            return TRUE
        covered = {name for inner in scopes for name in inner.mapping("properties")}
        return shape([name for name in names if name not in covered], True, scopes)

    if any("patternProperties" in e.scope.schema for e in found if e.conditions):
        return _by_cases(scope, keyword, found, case)
    certain = [e.scope for e in found if not e.conditions]
    return _grouped(
        found,
        lambda inner, name: covers_all(inner) or name in inner.mapping("properties"),
        names,
        lambda group, is_rest: shape(group, is_rest, certain),
    )


def unevaluated_items(scope: Scope) -> Expr:
    """`unevaluatedItems`."""
    keyword = "unevaluatedItems"
    value = scope.sub(keyword)
    if value == TRUE:
        return TRUE
    found = list(evaluating(scope, keyword))

    def covers_all(inner: Scope) -> bool:
        return _evaluates_all_items(inner) or (
            keyword in inner.schema and inner.here.pointer != scope.here.pointer
        )

    def contained(scopes: list[Scope]) -> list[Expr]:
        return [
            inner.sub("contains")
            for inner in scopes
            if "contains" in inner.schema and inner.here.draft == 2020
        ]

    def case(scopes: list[Scope]) -> Expr:
        if any(map(covers_all, scopes)):
            return TRUE
        length = max(map(_prefix_length, scopes), default=0)
        return elements((TRUE,) * length, disjunction(value, *contained(scopes)))

    if any("contains" in e.scope.schema for e in found if e.conditions):
        return _by_cases(scope, keyword, found, case)
    length = max(_prefix_length(e.scope) for e in found)
    item = disjunction(value, *contained([e.scope for e in found if not e.conditions]))
    return _grouped(
        found,
        lambda inner, i: covers_all(inner) or (i is not None and int(i) < _prefix_length(inner)),
        range(length),
        lambda group, is_rest: elements(
            tuple(item if i in group else TRUE for i in range(length)), item if is_rest else TRUE
        ),
    )


def _evaluates_all_items(scope: Scope) -> bool:
    items = scope.schema.get("items")
    if isinstance(items, list):
        return "additionalItems" in scope.schema
    return items is not None


def _prefix_length(scope: Scope) -> int:
    prefix = scope.schema.get("items")
    if not is_list(prefix):
        prefix = scope.schema.get("prefixItems") if scope.here.draft == 2020 else None
    return len(prefix) if is_list(prefix) else 0
