"""A JSON Schema document: where its subschemas are, what identifies them and what `$ref` means.

Nothing is fetched: a reference that leaves the document is refused. Drafts 4 to 7, 2019-09 and
2020-12 differ in where subschemas stand and in the keywords that name them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin

from agentloop.errors import UnsupportedSchemaError
from agentloop.model.constraint.json_types import is_list, is_object, is_schema

DRAFTS = {
    "draft-04": 4,
    "draft-06": 6,
    "draft-07": 7,
    "draft/2019-09": 2019,
    "draft/2020-12": 2020,
}
LATEST = 2020
ONE_SCHEMA = (
    "additionalItems", "additionalProperties", "contains", "else", "if", "items", "not",
    "propertyNames", "then", "unevaluatedItems", "unevaluatedProperties", "contentSchema",
)  # fmt: skip
SCHEMA_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
SCHEMA_MAPS = (
    "$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties",
)  # fmt: skip


@dataclass(frozen=True)
class Location:
    """A subschema with what its references and keywords depend on.

    Attributes:
        schema: The subschema itself.
        pointer: Its JSON pointer from the root of the document.
        base: The URI its references are relative to.
        draft: 4, 6, 7, 2019 or 2020.
    """

    schema: Any
    pointer: str
    base: str
    draft: int

    def at(self, *path: str | int) -> Location:
        """The location of a value inside this one, as written; its own `$id` is not applied."""
        schema, pointer = self.schema, self.pointer
        for part in path:
            schema = schema[part]
            pointer = f"{pointer}/{str(part).replace('~', '~0').replace('/', '~1')}"
        return Location(schema, pointer, self.base, self.draft)

    def refusal(self, keyword: str, reason: str) -> UnsupportedSchemaError:
        """The error for a keyword of this subschema."""
        return UnsupportedSchemaError(self.pointer, keyword, reason)


def draft_of(schema: Any, default: int) -> int:
    """The draft that a subschema's `$schema` names."""
    name = schema.get("$schema") if is_object(schema) else None
    if not isinstance(name, str):
        return default
    return next((draft for part, draft in DRAFTS.items() if part in name), default)


def enter(location: Location) -> Location:
    """The same subschema with its own `$id` and `$schema` applied."""
    schema = location.schema
    if not is_object(schema):
        return location
    draft = draft_of(schema, location.draft)
    name = schema.get("$id" if draft > 4 else "id")
    if not isinstance(name, str) or (draft <= 7 and "$ref" in schema):
        return Location(schema, location.pointer, location.base, draft)
    base = urldefrag(urljoin(location.base, name)).url or location.base
    return Location(schema, location.pointer, base, draft)


def subschemas(location: Location) -> Iterator[Location]:
    """The subschemas right below one, wherever a keyword puts them."""
    schema = location.schema
    if not is_object(schema):
        return
    for keyword in ONE_SCHEMA:
        if is_schema(schema.get(keyword)):
            yield enter(location.at(keyword))
    for keyword in SCHEMA_LISTS:
        options = schema.get(keyword)
        if is_list(options):
            yield from (enter(location.at(keyword, i)) for i in range(len(options)))
    for keyword in SCHEMA_MAPS:
        named = schema.get(keyword)
        if is_object(named):
            places = (name for name, value in named.items() if is_schema(value))
            yield from (enter(location.at(keyword, name)) for name in places)


class ReferenceTable:
    """The resources and anchors of a document, and the resolution of references against them."""

    def __init__(self, schema: Any) -> None:
        self.root = enter(Location(schema, "", "", draft_of(schema, LATEST)))
        self.resources: dict[str, Location] = {"": self.root, self.root.base: self.root}
        self.anchors: dict[tuple[str, str], Location] = {}
        self.dynamic: dict[str, dict[str, Location]] = {}
        self._collect(self.root)

    def _collect(self, root: Location) -> None:
        stack = [root]
        while stack:
            here = stack.pop()
            if is_object(here.schema):
                self._register(here, here.schema)
                stack.extend(subschemas(here))

    def _register(self, here: Location, schema: Mapping[str, Any]) -> None:
        is_shadowed = here.draft <= 7 and "$ref" in schema
        name = schema.get("$id" if here.draft > 4 else "id")
        if isinstance(name, str) and not is_shadowed:
            if name.startswith("#"):
                self.anchors.setdefault((here.base, name[1:]), here)
            else:
                self.resources.setdefault(here.base, here)
        for keyword in ("$anchor", "$dynamicAnchor"):
            anchor = schema.get(keyword)
            if isinstance(anchor, str) and here.draft >= 2019:
                self.anchors.setdefault((here.base, anchor), here)
                if keyword == "$dynamicAnchor":
                    self.dynamic.setdefault(anchor, {}).setdefault(here.base, here)
        if schema.get("$recursiveAnchor") is True:
            self.dynamic.setdefault("", {}).setdefault(here.base, here)

    def resolve(self, here: Location, reference: Any, keyword: str) -> Location:
        """The location that a reference stands for.

        Raises:
            UnsupportedSchemaError: It leaves the document, or names nothing in it.
        """
        if not isinstance(reference, str):
            raise here.refusal(keyword, f"a reference must be a string, got {reference!r}")
        url, fragment = urldefrag(urljoin(here.base, reference))
        if reference.startswith("#"):
            url = here.base
        resource = self.resources.get(url)
        if resource is None:
            raise here.refusal(
                keyword, f"{reference!r} is not in this document; nothing is fetched"
            )
        fragment = unquote(fragment)
        if not fragment:
            return resource
        if fragment.startswith("/"):
            return self._follow(here, resource, fragment, keyword)
        found = self.anchors.get((resource.base, fragment))
        if found is None:
            raise here.refusal(keyword, f"{reference!r} names no anchor of this document")
        return found

    def _follow(self, here: Location, found: Location, fragment: str, keyword: str) -> Location:
        for part in fragment[1:].split("/"):
            name: str | int = part.replace("~1", "/").replace("~0", "~")
            if isinstance(found.schema, list) and re.fullmatch(r"0|[1-9]\d*", str(name)):
                name = int(name)
            try:
                found = enter(found.at(name))
            except (KeyError, IndexError, TypeError):
                raise here.refusal(
                    keyword, f"the pointer #{fragment} leads nowhere: no {name!r}"
                ) from None
        return found

    def resolve_dynamic(self, here: Location, reference: Any, keyword: str) -> Location:
        """The location that a `$dynamicRef` or `$recursiveRef` stands for, where that is fixed.

        Evaluation starts at the root, so an anchor of the root resource is always the outermost
        one; an anchor of the document's only resource that has it is, too.

        Raises:
            UnsupportedSchemaError: Which anchor is meant depends on the path of evaluation.
        """
        found = self.resolve(here, reference, keyword)
        schema: Mapping[str, Any] = found.schema if is_object(found.schema) else {}
        if keyword == "$recursiveRef":
            name = "" if schema.get("$recursiveAnchor") is True else None
        else:
            anchor = urldefrag(str(reference)).fragment
            name = anchor if schema.get("$dynamicAnchor") == anchor else None
        if name is None:
            return found
        candidates = self.dynamic.get(name, {})
        if self.root.base in candidates:
            return candidates[self.root.base]
        if len(candidates) == 1:
            return found
        raise here.refusal(
            keyword, f"which of {len(candidates)} anchors is meant depends on how it was reached"
        )
