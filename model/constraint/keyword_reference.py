"""The reference of JSON Schema keywords, written from the tables that compile them.

`python -m agentloop.model.constraint.keyword_reference > docs/json-schema.md` brings the page up to
date; a test compares them.
"""

from __future__ import annotations

from agentloop.model.constraint.formats import FORMATS
from agentloop.model.constraint.options import CompileOptions
from agentloop.model.constraint.pattern_syntax import MAX_REPEAT
from agentloop.model.constraint.rule import Rule
from agentloop.model.constraint.rules import RULES

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

## Keywords

| keywords | drafts | generation | notes |
|---|---|---|---|
"""

_REFUSED = """
## What is refused

* `$ref` to another document, `$dynamicRef` and `$recursiveRef` whose target depends on the path of
  evaluation, and references that lead back to themselves without a step into the value.
* `uniqueItems` over items that cannot be listed, where it is negated or one of several options.
* Patterns with back references, look-behind, word boundaries, flags, look-ahead other than right
  after a leading `^`, or a repeat bound over {max_repeat:,}.
* Schemas that need more than `max_states` states even after the limits below are lowered.

## Limits

`CompileOptions` narrow what is generated, never what `accepts` judges:

| option | default | what it bounds |
|---|---|---|
| `max_depth` | {depth} | containers nested where the schema is recursive or absent |
| `max_counted_length` | {length} | characters of a string whose `maxLength` is larger |
| `max_counted_items` | {items} | items or properties where their bound is larger |
| `max_states` | {states:,} | states of the byte automaton |

## Formats

`format` is a requirement unless `formats="annotate"` is given. Unknown formats are remarks.

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
    )
    formats = [
        f"| `{name}` | {'exact' if found.is_exact else 'bounded'} | {found.note} |"
        for name, found in FORMATS.items()
    ]
    return _HEAD + "\n".join(rows) + "\n" + refused + "\n".join(formats) + "\n"


if __name__ == "__main__":
    print(keyword_reference(), end="")
