"""What may be chosen when a constraint is compiled; nothing here changes what is valid.

Every option picks a subset of the valid texts to generate from, or a spelling of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from agentloop.errors import ConstraintError

Whitespace = Literal["compact", "spaced", "tolerant"]
ExtraKeys = Literal["asked", "allowed"]
Formats = Literal["assert", "annotate"]


@dataclass(frozen=True)
class CompileOptions:
    """Choices made when a constraint becomes an automaton.

    Attributes:
        whitespace: "compact" writes `{"a":1,"b":2}`, "spaced" writes `{"a": 1, "b": 2}`, "tolerant"
            accepts both, and line breaks with indentation up to `max_indent` spaces.
        extra_keys: "asked" offers keys beyond `properties` only where the schema asks for them;
            "allowed" offers them wherever they are valid.
        max_depth: How many containers may nest below a place whose schema is recursive or absent.
        max_states: Largest automaton to build before a refusal.
        max_text_length: Characters the text can have at most, None if unknown. Bounds beyond it can
            never be broken, so they are dropped.
        max_indent: Most spaces of indentation that "tolerant" accepts.
    """

    whitespace: Whitespace = "compact"
    extra_keys: ExtraKeys = "asked"
    max_depth: int = 3
    max_states: int = 250_000
    max_text_length: int | None = None
    max_indent: int = 12

    def __post_init__(self) -> None:
        if self.whitespace not in get_args(Whitespace):
            raise ConstraintError(
                f"whitespace must be one of {get_args(Whitespace)}, got {self.whitespace!r}"
            )
        if self.extra_keys not in get_args(ExtraKeys):
            raise ConstraintError(
                f"extra_keys must be one of {get_args(ExtraKeys)}, got {self.extra_keys!r}"
            )
        if self.max_depth < 0 or self.max_states < 1 or self.max_indent < 0:
            raise ConstraintError(
                "max_depth and max_indent must be 0 or more and max_states 1 or more, got"
                f" {self.max_depth}, {self.max_indent} and {self.max_states}"
            )


DEFAULT_OPTIONS = CompileOptions()
