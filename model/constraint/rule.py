"""What one group of keywords means, and how exactly it is generated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from agentloop.model.constraint.expression import Expr
from agentloop.model.constraint.scope import Scope

Exactness = Literal["exact", "bounded", "refused"]


@dataclass(frozen=True)
class Rule:
    """One group of keywords.

    Attributes:
        keywords: The keywords that are read together.
        apply: Gives the expression of a subschema that has at least one of them.
        exactness: "exact", or "bounded" where what is generated is a subset.
        note: What the bound is.
        first_draft: The first draft that has the keywords.
        last_draft: The last draft that has them.
    """

    keywords: tuple[str, ...]
    apply: Callable[[Scope], Expr]
    exactness: Exactness = "exact"
    note: str = ""
    first_draft: int = 4
    last_draft: int = 2020
