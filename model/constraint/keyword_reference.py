"""The reference of JSON Schema keywords, written from the tables that compile them.

`python -m agentloop.model.constraint.keyword_reference > docs/json-schema.md` brings the page up to
date; a test compares them.
"""

from __future__ import annotations

from agentloop.model.constraint.emission import MAX_STEPS
from agentloop.model.constraint.formats import FORMATS
from agentloop.model.constraint.options import CompileOptions
from agentloop.model.constraint.pattern_syntax import MAX_REPEAT
from agentloop.model.constraint.rule import Rule
from agentloop.model.constraint.rules import RULES
from agentloop.model.constraint.schema import MAX_SCHEMA_DEPTH

_HEAD = """\
# JSON Schema

Drafts 4, 6, 7, 2019-09 and 2020-12 are read, by `$schema`; without it 2020-12, with the older
spellings of `items`, `dependencies` and exclusive bounds understood. Nothing is fetched. Keywords
that are not listed are remarks and change nothing.

* **exact**: what is generated is exactly what is valid, up to the limits of
  [decision 0002](decisions/0002-what-is-valid-and-what-is-generated.md).
* **bounded**: what is generated is valid, but some valid values are not generated.
* Whatever cannot be represented is refused with `UnsupportedSchemaError`, which has the JSON
  pointer, the keyword and the reason. Nothing is dropped silently.

`agentloop schema check SCHEMA.json` says for each keyword of a schema what becomes of it there: a
bound that the limits below do not lower is exact.

## Keywords

| keywords | drafts | generation | notes |
|---|---|---|---|
"""

_REFUSED = """
`x-quote`, `x-choice`, `x-regex` and `x-constraint` are ours: what they name is given beside the
schema, see [constraints.md](constraints.md). Like `pattern` they say nothing about other types.

## What is refused

* `$ref` to another document, `$dynamicRef` and `$recursiveRef` whose target depends on the path of
  evaluation, and references that lead back to themselves without a step into the value.
* `uniqueItems` over items that cannot be listed, where it is negated or one of several options.
* Patterns with back references, look-behind, word boundaries, flags, look-ahead other than right
  after a leading `^`, or a repeat bound over {max_repeat:,}.
* A `Quote` beside other assertions about its string than its length, and objects that differ only
  inside a `Quote`.
* Schemas that nest more than {max_nesting} deep, or whose references do.
* Schemas that need more than `max_states` states, {max_steps:,} steps to explore or, in a call,
  30 s of processor time, even after the limits below are lowered: a `CompileLimitError`, which
  names the subschema that costs most.

## Limits

`CompileOptions` narrow what is generated, never what `accepts` judges:

| option | default | what it bounds |
|---|---|---|
| `max_depth` | {depth} | containers nested where the schema is recursive or absent |
| `max_counted_length` | {length} | characters of a string whose `maxLength` is larger |
| `max_counted_items` | {items} | items or properties where their bound is larger |
| `max_states` | {states:,} | states of the byte automaton |
| `min_string_length` | {least} | characters of a string value, where the schema permits so many |

`extra_keys`, `portable_patterns`, `whitespace` and `max_text_length` are described in
[constraints.md](constraints.md).

## Formats

`format` is a requirement unless `formats="annotate"` is given. Unknown formats are remarks. What a
bounded format leaves out is neither generated nor accepted.

| format | generation | left out |
|---|---|---|
"""


def _drafts(rule: Rule) -> str:
    if rule.first_draft <= 4:
        return "all"
    first = {6: "6", 7: "7", 2019: "2019-09", 2020: "2020-12"}[rule.first_draft]
    return f"from {first}"


def keyword_reference() -> str:
    """The page as Markdown."""
    rows = [
        f"| {', '.join(f'`{keyword}`' for keyword in rule.keywords)} | {_drafts(rule)} |"
        f" {rule.exactness} | {rule.note} |"
        for rule in RULES
    ]
    options = CompileOptions()
    refused = _REFUSED.format(
        max_repeat=MAX_REPEAT,
        depth=options.max_depth,
        length=options.max_counted_length,
        items=options.max_counted_items,
        states=options.max_states,
        least=options.min_string_length,
        max_nesting=MAX_SCHEMA_DEPTH,
        max_steps=MAX_STEPS,
    )
    formats = [
        f"| `{name}` | {'exact' if found.is_exact else 'bounded'} | {found.note} |"
        for name, found in FORMATS.items()
    ]
    return _HEAD + "\n".join(rows) + "\n" + refused + "\n".join(formats) + "\n"


if __name__ == "__main__":
    print(keyword_reference(), end="")
