"""What may be chosen when a constraint is compiled; nothing here changes what is valid.

Every option picks a subset of the valid texts to generate from, or a spelling of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, get_args

from agentloop.errors import ConstraintError

Whitespace = Literal["compact", "spaced", "tolerant"]
ExtraKeys = Literal["asked", "allowed"]
Formats = Literal["assert", "annotate"]


_COUNTS = ("max_", "min_")


@dataclass(frozen=True)
class CompileOptions:
    """Choices made when a constraint becomes an automaton.

    Attributes:
        whitespace: "compact" writes `{"a":1,"b":2}`, "spaced" writes `{"a": 1, "b": 2}`, "tolerant"
            accepts both in any mixture, and line breaks with indentation by up to `max_indent`
            spaces or a quarter as many tabs.
        extra_keys: "asked" offers keys beyond `properties` only where the schema asks for them;
            "allowed" offers them wherever they are valid.
        portable_patterns: Whether strings are generated only where every engine of regular
            expressions reads the pattern alike; they differ in their classes beyond ASCII.
        max_depth: How many containers may nest below a place whose schema is recursive or absent.
        max_states: Largest automaton to build before a refusal.
        max_text_length: Characters the text can have at most, None if unknown. Bounds beyond it can
            never be broken, so they are dropped.
        max_counted_length: Where a string may be longer than this, it is written up to this length
            only, since each character that is counted costs states.
        max_counted_items: The same for the items of an array and the properties of an object.
        max_indent: Most spaces of indentation that "tolerant" accepts.
        min_string_length: Fewest characters of a string that is written as a value, where the
            schema permits so many; models under a constraint are fond of the empty string.
    """

    whitespace: Whitespace = "compact"
    extra_keys: ExtraKeys = "asked"
    portable_patterns: bool = True
    max_depth: int = 3
    max_states: int = 120_000
    max_text_length: int | None = None
    max_counted_length: int = 256
    max_counted_items: int = 32
    max_indent: int = 32
    min_string_length: int = 0

    def __post_init__(self) -> None:
        if self.whitespace not in get_args(Whitespace):
            raise ConstraintError(
                f"whitespace must be one of {get_args(Whitespace)}, got {self.whitespace!r}"
            )
        if self.extra_keys not in get_args(ExtraKeys):
            raise ConstraintError(
                f"extra_keys must be one of {get_args(ExtraKeys)}, got {self.extra_keys!r}"
            )
        counts = {name: value for name, value in vars(self).items() if name[:4] in _COUNTS}
        for name, value in counts.items():
            least = 1 if name == "max_states" else 0
            if value is not None and value < least:
                raise ConstraintError(f"{name} must be {least} or more, got {value}")

    def tighter(self, *, much: bool = False) -> CompileOptions | None:
        """Options that need fewer states for the same constraint; None if there are none left."""
        if self.max_depth == 0:
            return None
        if much:
            return replace(self, max_depth=0, max_counted_length=16, max_counted_items=4)
        return replace(
            self,
            max_depth=self.max_depth - 1,
            max_counted_length=self.max_counted_length // 3,
            max_counted_items=self.max_counted_items // 2,
        )


DEFAULT_OPTIONS = CompileOptions()
