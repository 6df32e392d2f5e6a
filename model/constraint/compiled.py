"""Constraints made ready for a vocabulary, and the memory of those made before."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Protocol

from agentloop.errors import CanvasTooSmallError
from agentloop.model.constraint.dfa import Dfa
from agentloop.model.constraint.lift import lift
from agentloop.model.constraint.options import DEFAULT_OPTIONS, CompileOptions
from agentloop.model.constraint.token_automaton import TokenAutomaton
from agentloop.model.constraint.vocabulary import Vocabulary


class CompilableConstraint(Protocol):
    """What is asked of a constraint: `agentloop.model.constraint.Constraint` is one."""

    @property
    def key(self) -> str:
        """Identifies the language among all constraints: equal keys, equal automata."""
        ...

    def automaton(self, options: CompileOptions) -> Dfa:
        """The byte automaton of the language."""
        ...


@dataclass(frozen=True, eq=False)
class CompiledConstraint:
    """A constraint lifted to a vocabulary; immutable, shared between requests and threads.

    Attributes:
        automaton: The automaton over token classes.
        vocabulary: The vocabulary whose ids it reads.
        key: Identifies constraint and vocabulary; `""` for an automaton compiled without a key.
    """

    automaton: TokenAutomaton
    vocabulary: Vocabulary
    key: str = ""

    @property
    def num_states(self) -> int:
        """Number of token-level states, the one after the end of text included."""
        return self.automaton.num_states

    @property
    def num_classes(self) -> int:
        """Number of token classes, the end of text included."""
        return self.automaton.num_classes

    @property
    def min_tokens(self) -> int:
        """Tokens that the shortest accepted text needs, its end of text included."""
        return int(self.automaton.distance[0])

    def check_fits(self, canvas_length: int) -> None:
        """Refuse a canvas that the shortest accepted text does not fit.

        Raises:
            CanvasTooSmallError: `canvas_length` is below `min_tokens`.
        """
        if canvas_length < self.min_tokens:
            raise CanvasTooSmallError(self.min_tokens, canvas_length)


class ConstraintCache:
    """The most recently used compiled constraints; safe to share between threads."""

    def __init__(self, capacity: int = 256) -> None:
        self._capacity = capacity
        self._entries: OrderedDict[str, CompiledConstraint] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: str) -> CompiledConstraint | None:
        """The constraint compiled under a key, now the most recently used."""
        with self._lock:
            found = self._entries.get(key)
            if found is not None:
                self._entries.move_to_end(key)
            return found

    def put(self, compiled: CompiledConstraint) -> None:
        """Remember a constraint, and forget the least recently used beyond the capacity."""
        with self._lock:
            self._entries[compiled.key] = compiled
            self._entries.move_to_end(compiled.key)
            while len(self._entries) > self._capacity:
                self._entries.popitem(last=False)


_shared_cache = ConstraintCache()


def compile_constraint(
    constraint: CompilableConstraint | Dfa,
    vocabulary: Vocabulary,
    options: CompileOptions = DEFAULT_OPTIONS,
    *,
    cache: ConstraintCache | None = None,
) -> CompiledConstraint:
    """Lift a constraint, or a bare byte automaton, to the tokens of a vocabulary.

    Args:
        constraint: What the text must satisfy. A bare automaton is compiled afresh each time.
        vocabulary: The tokens of the model.
        options: How the text may be spelled and how far the automaton is unrolled.
        cache: Where to look first; by default one shared by the process.

    Raises:
        ConstraintError: No sequence of tokens spells an accepted text.
    """
    if isinstance(constraint, Dfa):
        return CompiledConstraint(lift(constraint, vocabulary), vocabulary)
    cache = _shared_cache if cache is None else cache
    key = f"{vocabulary.fingerprint}:{options!r}:{constraint.key}"
    compiled = cache.get(key)
    if compiled is None:
        automaton = lift(constraint.automaton(options), vocabulary)
        compiled = CompiledConstraint(automaton, vocabulary, key)
        cache.put(compiled)
    return compiled
