"""A JSON Schema as expressions: one node per subschema, worked out when it is first needed.

`rules` says what each keyword means; this file applies them, follows references and keeps equal
subschemas together.
"""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from typing import Any

from typing_extensions import override

from agentloop.errors import UnsupportedSchemaError
from agentloop.model.constraint.expression import FALSE, TRUE, Expr, Reference, conjunction
from agentloop.model.constraint.given import NOTHING_GIVEN, Given
from agentloop.model.constraint.json_types import is_list, is_object
from agentloop.model.constraint.options import Formats
from agentloop.model.constraint.references import Location, ReferenceTable, enter, subschemas
from agentloop.model.constraint.rules import ASSERTING, RULES
from agentloop.model.constraint.scope import Scope

MAX_SCHEMA_DEPTH = 100
"""Deepest nesting of a schema document that is read, counted in JSON containers."""


@dataclass(frozen=True, eq=False)
class SchemaReference(Reference):
    """Stands for a subschema of a document."""

    document: Document
    number: int

    @property
    def location(self) -> Location:
        """Where the subschema is; for equal ones, where the first of them is."""
        return self.document.locations[self.number]

    @property
    def pointer(self) -> str:
        """The JSON pointer of the subschema."""
        return self.location.pointer

    @property
    @override
    def is_cyclic(self) -> bool:
        return self.document.is_cyclic(self.number)

    @override
    def expand(self) -> Expr:
        return self.document.expand(self.number)


class Document:
    """A schema document, as `json.loads` gives it, with everything that was worked out about it.

    Raises:
        UnsupportedSchemaError: The document nests too deeply.
    """

    def __init__(
        self, schema: Any, formats: Formats = "assert", given: Given = NOTHING_GIVEN
    ) -> None:
        _check(schema)
        self.formats: Formats = formats
        self.given = given
        self.table = ReferenceTable(schema)
        self.locations: list[Location] = []
        self._numbers: dict[tuple[str, int, str], int] = {}
        self._expanded: dict[int, Expr] = {}
        self._opening: set[int] = set()
        self._lock = threading.RLock()  # documents are shared; `_opening` is one thread's path
        self._cyclic: set[int] | None = None

    @property
    def root(self) -> Expr:
        """The expression of the whole schema."""
        return self.reference(self.table.root)

    def check(self) -> None:
        """Work out every subschema that the root reaches, so that what is refused shows at once."""
        try:
            for number in _edges(self):
                self.expand(number)
        except RecursionError:
            raise UnsupportedSchemaError("", "", "its references nest too deeply") from None

    def reachable(self) -> list[SchemaReference]:
        """The subschemas that the root reaches, without repeats, the root first.

        Raises:
            UnsupportedSchemaError: A reference leads nowhere.
        """
        return [SchemaReference(self, number) for number in _edges(self)]

    def reference(self, location: Location) -> Expr:
        """The expression of a subschema, not worked out yet unless it is trivial."""
        schema = location.schema
        if isinstance(schema, bool):
            return TRUE if schema else FALSE
        if not is_object(schema):
            raise location.refusal("", f"a schema must be an object or a boolean, got {schema!r}")
        if not ASSERTING.intersection(schema):
            return TRUE
        location = enter(location)
        key = (location.base, location.draft, json.dumps(schema))
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.locations)
            self.locations.append(location)
        return SchemaReference(self, number)

    def expand(self, number: int) -> Expr:
        """The expression of a numbered subschema."""
        found = self._expanded.get(number)
        if found is not None:
            return found
        with self._lock:
            return self._expand_once(number)

    def _expand_once(self, number: int) -> Expr:
        found = self._expanded.get(number)
        if found is None:
            here = self.locations[number]
            if number in self._opening:
                raise here.refusal("$ref", "the reference leads back to itself")
            self._opening.add(number)
            try:
                found = self._expand(Scope(self, here))
            finally:
                self._opening.discard(number)
            self._expanded[number] = found
        return found

    def _expand(self, scope: Scope) -> Expr:
        here = scope.here
        keywords = set(here.schema)
        if here.draft <= 7 and "$ref" in keywords:
            keywords = {"$ref"}  # its siblings are ignored in these drafts
        return conjunction(
            *(
                rule.apply(scope)
                for rule in RULES
                if keywords.intersection(rule.keywords)
                and rule.first_draft <= here.draft <= rule.last_draft
            )
        )

    def resolve(self, here: Location, keyword: str) -> Location:
        """What a reference keyword of a subschema stands for."""
        reference = here.schema[keyword]
        if keyword == "$ref":
            return self.table.resolve(here, reference, keyword)
        return self.table.resolve_dynamic(here, reference, keyword)

    def is_cyclic(self, number: int) -> bool:
        """Whether a subschema can be reached from itself through keywords and references."""
        if self._cyclic is None:
            self._cyclic = self._find_cycles()
        return number in self._cyclic

    def _find_cycles(self) -> set[int]:
        after = _edges(self)
        cyclic: set[int] = set()
        for component in _components(after):
            if len(component) > 1 or component[0] in after[component[0]]:
                cyclic.update(component)
        return cyclic


def _edges(document: Document) -> dict[int, list[int]]:
    """For every subschema that the root reaches, those one keyword away."""
    after: dict[int, list[int]] = {}
    todo = [document.root]
    while todo:
        node = todo.pop()
        if not isinstance(node, SchemaReference) or node.number in after:
            continue
        here = node.location
        below = [document.reference(place) for place in subschemas(here)]
        for keyword in ("$ref", "$dynamicRef", "$recursiveRef"):
            if keyword in here.schema:
                below.append(document.reference(document.resolve(here, keyword)))
        after[node.number] = [n.number for n in below if isinstance(n, SchemaReference)]
        todo.extend(below)
    return after


def _components(after: dict[int, list[int]]) -> list[list[int]]:
    """Strongly connected components, iteratively.

    Source: Tarjan, Depth-first search and linear graph algorithms, 1972.
    """
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    path: list[int] = []
    on_path: set[int] = set()
    found: list[list[int]] = []
    for root in after:
        if root in index:
            continue
        work = [(root, iter(after[root]))]
        index[root] = low[root] = len(index)
        path.append(root)
        on_path.add(root)
        while work:
            node, children = work[-1]
            child = next(children, None)
            if child is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    found.append(_popped(path, on_path, node))
            elif child not in index:
                index[child] = low[child] = len(index)
                path.append(child)
                on_path.add(child)
                work.append((child, iter(after[child])))
            elif child in on_path:
                low[node] = min(low[node], index[child])
    return found


def _popped(path: list[int], on_path: set[int], node: int) -> list[int]:
    component: list[int] = []
    while True:
        member = path.pop()
        on_path.discard(member)
        component.append(member)
        if member == node:
            return component


def _check(schema: Any) -> None:
    """Refuse what nests too deeply, before anything recurses into it."""
    stack: list[tuple[Any, str, int]] = [(schema, "", 0)]
    while stack:
        value, pointer, depth = stack.pop()
        if depth > MAX_SCHEMA_DEPTH:
            raise UnsupportedSchemaError(
                pointer, "", f"the schema nests more than {MAX_SCHEMA_DEPTH} deep"
            )
        if is_object(value):
            stack.extend((inner, f"{pointer}/{key}", depth + 1) for key, inner in value.items())
        elif is_list(value):
            stack.extend((inner, f"{pointer}/{i}", depth + 1) for i, inner in enumerate(value))
