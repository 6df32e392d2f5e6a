"""Random schemas and instances, and random texts of an automaton, for property tests."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
from hypothesis import strategies as st

from agentloop.model.constraint.dfa import Dfa

KEYS = ["a", "b", "ab", 'q"', "é"]
TEXTS = ["", "a", "ab", "abc", "é", "x\n", '"', "2024-02-29"]
PATTERNS = ["^a", "b$", "^[ab]*$", "a|é", "^.{1,2}$"]

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 12),
    st.sampled_from([0.5, -1.5, 2.25, 10.0, 1e3]),
    st.sampled_from(TEXTS),
)
instances: st.SearchStrategy[Any] = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(KEYS), inner, max_size=3)
    ),
    max_leaves=6,
)


@st.composite
def _keywords(draw: st.DrawFn, inner: st.SearchStrategy[Any]) -> dict[str, Any]:
    small = st.integers(0, 3)
    options: dict[str, st.SearchStrategy[Any]] = {
        "type": st.one_of(
            st.sampled_from(["null", "boolean", "integer", "number", "string", "array", "object"]),
            st.lists(
                st.sampled_from(["null", "integer", "string", "array", "object"]),
                min_size=1,
                max_size=3,
                unique=True,
            ),
        ),
        "enum": st.lists(instances, min_size=1, max_size=4),
        "const": instances,
        "minLength": small,
        "maxLength": small,
        "pattern": st.sampled_from(PATTERNS),
        "minimum": st.sampled_from([-1, 0, 0.5, 2, 10]),
        "maximum": st.sampled_from([-1, 0, 2.25, 3, 11]),
        "exclusiveMinimum": st.sampled_from([-1.5, 0, 2]),
        "exclusiveMaximum": st.sampled_from([0, 2.25, 10]),
        "multipleOf": st.sampled_from([1, 2, 3]),
        "properties": st.dictionaries(st.sampled_from(KEYS), inner, max_size=3),
        "required": st.lists(st.sampled_from(KEYS), max_size=2, unique=True),
        "additionalProperties": inner,
        "patternProperties": st.dictionaries(st.sampled_from(PATTERNS), inner, max_size=2),
        "propertyNames": inner,
        "minProperties": small,
        "maxProperties": small,
        "dependentRequired": st.dictionaries(
            st.sampled_from(KEYS),
            st.lists(st.sampled_from(KEYS), max_size=2, unique=True),
            max_size=2,
        ),
        "dependentSchemas": st.dictionaries(st.sampled_from(KEYS), inner, max_size=1),
        "items": inner,
        "prefixItems": st.lists(inner, min_size=1, max_size=2),
        "minItems": small,
        "maxItems": small,
        "contains": inner,
        "uniqueItems": st.just(True),
        "allOf": st.lists(inner, min_size=1, max_size=2),
        "anyOf": st.lists(inner, min_size=1, max_size=3),
        "oneOf": st.lists(inner, min_size=1, max_size=3),
        "not": inner,
        "if": inner,
        "then": inner,
        "else": inner,
        "unevaluatedProperties": st.one_of(st.booleans(), inner),
        "unevaluatedItems": st.one_of(st.booleans(), inner),
    }
    chosen = draw(st.lists(st.sampled_from(sorted(options)), min_size=1, max_size=4, unique=True))
    schema = {keyword: draw(options[keyword]) for keyword in chosen}
    if "contains" in schema and draw(st.booleans()):
        schema["minContains"] = draw(st.integers(0, 2))
        schema["maxContains"] = draw(st.integers(1, 3))
    return schema


schemas: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.booleans(), _keywords(st.booleans())), _keywords, max_leaves=5
)


def sample(dfa: Dfa, seed: int, length: int = 40) -> bytes:
    """A random text of an automaton, which finishes the short way once it is `length` long."""
    rng = random.Random(seed)
    distance: list[int] = distances(dfa)
    state, text = 0, bytearray()
    while True:
        low, high = int(dfa.offsets[state]), int(dfa.offsets[state + 1])
        arcs = [i for i in range(low, high) if distance[dfa.arc_targets[i]] >= 0]
        if dfa.accepting[state] and (not arcs or len(text) >= length or rng.random() < 0.3):
            return bytes(text)
        if len(text) >= length:
            best = min(distance[int(dfa.arc_targets[i])] for i in arcs)
            arcs = [i for i in arcs if distance[int(dfa.arc_targets[i])] == best]
        arc = rng.choice(arcs)
        text.append(int(dfa.arc_bytes[arc]))
        state = int(dfa.arc_targets[arc])


def distances(dfa: Dfa) -> list[int]:
    """Bytes from each state to the nearest accepting one, -1 where there is none."""
    before: list[list[int]] = [[] for _ in range(dfa.num_states)]
    sources: list[int] = np.repeat(np.arange(dfa.num_states), np.diff(dfa.offsets)).tolist()
    targets: list[int] = dfa.arc_targets.tolist()
    for source, target in zip(sources, targets, strict=True):
        before[target].append(source)
    found = [-1] * dfa.num_states
    level: list[int] = np.flatnonzero(dfa.accepting).tolist()
    for state in level:
        found[state] = 0
    while level:
        following: list[int] = []
        for state in level:
            for source in before[state]:
                if found[source] < 0:
                    found[source] = found[state] + 1
                    following.append(source)
        level = following
    return found


def compact(value: Any) -> str:
    """The compact JSON text of a value."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
