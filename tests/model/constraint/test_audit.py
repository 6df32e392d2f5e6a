"""An audit tells of every keyword of a schema, and agrees with compiling it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings

from agentloop.errors import ConstraintError
from agentloop.model.constraint import Choice, CompileOptions, JsonSchema
from agentloop.model.constraint.audit import audit, shortest_text
from agentloop.model.constraint.json_types import is_list
from agentloop.model.constraint.vocabulary import Vocabulary
from tests.model.constraint.schemas import distances, schemas


def at(schema: Any, pointer: str) -> Any:
    for part in pointer.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        schema = schema[int(name)] if is_list(schema) else schema[name]
    return schema


@given(schemas)
@settings(deadline=None, max_examples=30)
def test_an_audit_agrees_with_compiling(schema: Any) -> None:
    """Findings are of the schema's keywords, and it is supported exactly if it compiles."""
    found = audit(schema)
    for finding in found.findings:
        assert finding.keyword == "" or finding.keyword in at(schema, finding.pointer)
    try:
        dfa = JsonSchema(schema).automaton()
    except ConstraintError:
        assert not found.is_supported
        return
    assert found.is_supported
    assert not [finding for finding in found.findings if finding.status == "refused"]
    assert found.num_states == dfa.num_states
    assert found.shortest is not None
    assert dfa.accepts(found.shortest.encode())
    assert len(found.shortest.encode()) == distances(dfa)[0]
    assert JsonSchema(schema).accepts(found.shortest)


@pytest.mark.parametrize(
    ("schema", "keyword", "status"),
    [
        ({"maxLength": 256}, "maxLength", "exact"),
        ({"maxLength": 257}, "maxLength", "bounded"),
        ({"maxItems": 32}, "maxItems", "exact"),
        ({"maxItems": 33}, "maxItems", "bounded"),
        ({"minItems": 2}, "minItems", "exact"),
        ({"properties": {}, "additionalProperties": False}, "properties", "exact"),
        ({"properties": {}}, "properties", "bounded"),
        ({"items": {"$ref": "#"}}, "$ref", "bounded"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"type": "null"}}}, "$ref", "exact"),
        ({"format": "uuid"}, "format", "exact"),
        ({"format": "time"}, "format", "bounded"),
        ({"format": "colour"}, "format", "bounded"),
        ({"pattern": "^[a-z]+$"}, "pattern", "exact"),
        ({"pattern": r"^\s+$"}, "pattern", "bounded"),
        ({"type": "integer", "minimum": 2}, "minimum", "exact"),
        ({"minimum": 2.5}, "minimum", "bounded"),
        ({"type": "integer", "colour": 1}, "colour", "remark"),
        ({"pattern": "("}, "pattern", "refused"),
        ({"$schema": "http://json-schema.org/draft-04/schema#", "const": 1, "type": "null"},
         "const", "remark"),
    ],
)  # fmt: skip
def test_what_becomes_of_a_keyword_depends_on_its_value(
    schema: dict[str, Any], keyword: str, status: str
) -> None:
    """A bound that costs nothing is exact; one that is lowered is bounded; and so on."""
    statuses = {f.keyword: f.status for f in audit(schema).findings}
    assert statuses[keyword] == status


def test_refusals_are_listed_past_the_first() -> None:
    """Each refused place is there, and the audit says why there is no automaton."""
    found = audit({"allOf": [{"multipleOf": -1}, {"enum": 3}, {"type": "string"}]})
    refused = {(f.pointer, f.keyword) for f in found.findings if f.status == "refused"}
    assert refused == {("/allOf/0", "multipleOf"), ("/allOf/1", "enum")}
    assert "is not supported" in found.refusal
    lost = audit({"$ref": "#/$defs/none"})
    assert lost.findings[0].status == "refused"
    assert not lost.is_supported


def test_the_fewest_tokens_are_those_of_the_vocabulary() -> None:
    """The shortest text in tokens need not be the shortest in bytes."""
    words = Vocabulary([b'"', b"a", b"b", b'"bbbb"', b""], [4])
    found = audit({"enum": ["aa", "bbbb"]}, vocabulary=words)
    assert (found.shortest, found.min_tokens) == ('"aa"', 2)
    assert audit({"enum": ["aa"]}).min_tokens is None
    assert shortest_text(Choice([""]).automaton()) == ""


def test_options_decide_what_is_bounded() -> None:
    """With wider limits more is exact."""
    wide = CompileOptions(max_counted_length=300)
    assert audit({"maxLength": 257}, wide).findings[0].status == "exact"
