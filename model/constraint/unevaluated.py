"""`unevaluatedProperties` and `unevaluatedItems`, by listing what evaluates a property or an item.

A property is evaluated if some subschema that names it holds. So for every group of properties
that the same subschemas name, by name or by pattern, either one of these holds or the values
satisfy what is asked of the unevaluated. Items go by their places; where `contains` may or may not
count, all cases of which subschemas hold are listed.
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
from agentloop.model.constraint.machine import Asked, Machine
from agentloop.model.constraint.object_assertions import Required, Shape
from agentloop.model.constraint.references import Location, enter
from agentloop.model.constraint.scalar_assertions import Words
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
    covers: Callable[[Scope, str | int], bool],
    names: Iterable[str | int],
    assertion: Callable[[list[str | int]], Expr],
) -> Expr:
    """The assertion per group of names that the same subschemas cover, unless one of them holds."""
    groups: dict[tuple[Expr, ...], list[str | int]] = {}
    for name in names:
        covering = [e for e in found if covers(e.scope, name)]
        if all(e.conditions for e in covering):
            key = tuple(dict.fromkeys(conjunction(*e.conditions) for e in covering))
            groups.setdefault(key, []).append(name)
    return conjunction(*(disjunction(*key, assertion(group)) for key, group in groups.items()))


class _Properties:
    """Which subschemas evaluate which properties, for one `unevaluatedProperties`."""

    keyword = "unevaluatedProperties"

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.value = scope.sub(self.keyword)
        self.is_open = scope.schema[self.keyword] is not False
        self.found = list(evaluating(scope, self.keyword))
        self.names = dict.fromkeys(n for e in self.found for n in e.scope.mapping("properties"))
        self.patterns = list(
            dict.fromkeys(p for e in self.found for p in self.patterns_of(e.scope).values())
        )

    def patterns_of(self, inner: Scope) -> dict[str, Expr]:
        """The patterns of a subschema as conditions on the key."""
        return {
            p: inner.pattern("patternProperties", p) for p in inner.mapping("patternProperties")
        }

    def covers_all(self, inner: Scope) -> bool:
        """Whether a subschema evaluates every property."""
        return "additionalProperties" in inner.schema or (
            self.keyword in inner.schema and inner.here.pointer != self.scope.here.pointer
        )

    def covers_name(self, inner: Scope, name: str) -> bool:
        """Whether a subschema evaluates a property by its name."""
        machine = Machine()
        return name in inner.mapping("properties") or any(
            machine.run(Asked(pattern), name) is not None
            for pattern in self.patterns_of(inner).values()
        )

    def shape(self, named: set[str | int], cell: Expr | None) -> Expr:
        """The values of some named properties, or of those in a cell, are as is asked."""
        properties = tuple((n, self.value if n in named else TRUE) for n in self.names)
        cells = () if cell is None else ((cell, self.value),)
        return Shape(properties, cells, TRUE, self.is_open and cell is not None)

    def expression(self) -> Expr:
        """The meaning of the keyword."""
        by_name = _grouped(
            self.found,
            lambda inner, name: self.covers_all(inner) or self.covers_name(inner, str(name)),
            self.names,
            lambda group: self.shape(set(group), None),
        )
        return conjunction(by_name, *self._cells())

    def _cells(self) -> Iterator[Expr]:
        """What holds of the properties that nothing names, by the patterns that they match."""
        if len(self.patterns) > MAX_CONDITIONS:
            raise self.scope.here.refusal(
                self.keyword,
                f"it depends on {len(self.patterns)} patterns; at most {MAX_CONDITIONS} are"
                " supported",
            )
        unnamed = negation(Words(frozenset(self.names))) if self.names else TRUE
        for truths in product((True, False), repeat=len(self.patterns)):
            matched = {p for p, is_met in zip(self.patterns, truths, strict=True) if is_met}
            covering = [
                e
                for e in self.found
                if self.covers_all(e.scope)
                or matched.intersection(self.patterns_of(e.scope).values())
            ]
            if all(e.conditions for e in covering):
                met = [p if p in matched else negation(p) for p in self.patterns]
                cell = conjunction(unnamed, *met)
                holding = [conjunction(*e.conditions) for e in covering]
                yield disjunction(*holding, self.shape(set(), cell))


def unevaluated_properties(scope: Scope) -> Expr:
    """`unevaluatedProperties`."""
    properties = _Properties(scope)
    return TRUE if properties.value == TRUE else properties.expression()


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
        lambda inner, i: covers_all(inner) or int(i) < _prefix_length(inner),
        range(length + 1),  # the last stands for all items beyond
        lambda group: elements(
            tuple(item if i in group else TRUE for i in range(length)),
            item if length in group else TRUE,
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
