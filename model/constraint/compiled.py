"""Constraints made ready for a vocabulary, and the memory of those made before."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Protocol

from agentloop.errors import CanvasTooSmallError, CompileLimitError
from agentloop.model.constraint.dfa import Dfa
from agentloop.model.constraint.flights import Flights
from agentloop.model.constraint.lift import lift
from agentloop.model.constraint.options import DEFAULT_OPTIONS, CompileOptions
from agentloop.model.constraint.store import ConstraintStore, default_folder
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
    """The most recently used compiled constraints; safe to share between threads.

    Attributes:
        store: Where automata that took long to compile are kept between processes; may be None.
    """

    def __init__(
        self,
        max_bytes: int = 256 << 20,
        store: ConstraintStore | None = None,
        worth_storing_s: float = 0.1,
    ) -> None:
        """Make an empty cache.

        Args:
            max_bytes: Size in memory beyond which the least recently used are forgotten.
            store: A folder to look in and to keep dear automata in.
            worth_storing_s: Seconds of compilation from which an automaton is put in the store.
        """
        self.store = store
        self._max_bytes = max_bytes
        self._worth_storing_s = worth_storing_s
        self._entries: OrderedDict[str, CompiledConstraint] = OrderedDict()
        self._num_bytes = 0
        self._lock = threading.Lock()
        self._flights = Flights[tuple[str, float | None], CompiledConstraint]()

    def __len__(self) -> int:
        return len(self._entries)

    def get_or_compile(
        self,
        constraint: CompilableConstraint,
        vocabulary: Vocabulary,
        options: CompileOptions,
        *,
        max_seconds: float | None = None,
    ) -> CompiledConstraint:
        """The constraint compiled before under the same key, vocabulary and options, or afresh.

        Who asks while another thread compiles the same waits for that.

        Raises:
            CompileLimitError: It takes more than `max_seconds` of processor time.
            ConstraintError: It cannot be compiled.
        """
        found = self.find(constraint, vocabulary, options)
        if found is not None:
            return found
        key, make = self._work(constraint, vocabulary, options)
        return self._flights.run((key, max_seconds), make, max_seconds)

    async def compile_aside(
        self,
        constraint: CompilableConstraint,
        vocabulary: Vocabulary,
        options: CompileOptions,
        *,
        max_seconds: float | None = None,
    ) -> CompiledConstraint:
        """As `get_or_compile`, without keeping the event loop.

        Cancelling ends the compilation, unless another call waits for the same.
        """
        found = self.find(constraint, vocabulary, options)
        if found is None:
            key, make = self._work(constraint, vocabulary, options)
            found = await self._flights.run_aside((key, max_seconds), make, max_seconds)
        return found

    def _work(
        self, constraint: CompilableConstraint, vocabulary: Vocabulary, options: CompileOptions
    ) -> tuple[str, Callable[[], CompiledConstraint]]:
        key = _key(constraint, vocabulary, options)
        return key, partial(self._compiled, constraint, vocabulary, options, key)

    def _compiled(
        self,
        constraint: CompilableConstraint,
        vocabulary: Vocabulary,
        options: CompileOptions,
        key: str,
    ) -> CompiledConstraint:
        automaton = self.store.load(key) if self.store else None
        if automaton is None:
            begun = time.perf_counter()
            automaton = _lifted(constraint, vocabulary, options)
            if self.store and time.perf_counter() - begun >= self._worth_storing_s:
                self.store.save(key, automaton)
        compiled = CompiledConstraint(automaton, vocabulary, key)
        self._remember(compiled)
        return compiled

    def find(
        self, constraint: CompilableConstraint, vocabulary: Vocabulary, options: CompileOptions
    ) -> CompiledConstraint | None:
        """The constraint if it is in memory; never compiles or reads a file."""
        key = _key(constraint, vocabulary, options)
        with self._lock:
            found = self._entries.get(key)
            if found is not None:
                self._entries.move_to_end(key)
            return found

    def _remember(self, compiled: CompiledConstraint) -> None:
        with self._lock:
            if compiled.key not in self._entries:
                self._num_bytes += compiled.automaton.num_bytes
            self._entries[compiled.key] = compiled
            self._entries.move_to_end(compiled.key)
            while self._num_bytes > self._max_bytes and len(self._entries) > 1:
                _, forgotten = self._entries.popitem(last=False)
                self._num_bytes -= forgotten.automaton.num_bytes


def _lifted(
    constraint: CompilableConstraint, vocabulary: Vocabulary, options: CompileOptions
) -> TokenAutomaton:
    """The automaton over tokens, by the tightest options where others take too much memory."""
    dfa = constraint.automaton(options)
    try:
        return lift(dfa, vocabulary)
    except CompileLimitError as error:
        tightest = options.tighter(much=True)
        if error.limit != "states" or tightest is None:
            raise
    return lift(constraint.automaton(tightest), vocabulary)


def _key(constraint: CompilableConstraint, vocabulary: Vocabulary, options: CompileOptions) -> str:
    return f"{vocabulary.fingerprint}:{options!r}:{constraint.key}"


@lru_cache(maxsize=1)
def shared_cache() -> ConstraintCache:
    """The cache that the whole process uses, backed by the user's cache folder."""
    return ConstraintCache(store=ConstraintStore(default_folder()))


def compile_constraint(
    constraint: CompilableConstraint | Dfa,
    vocabulary: Vocabulary,
    options: CompileOptions = DEFAULT_OPTIONS,
    *,
    cache: ConstraintCache | None = None,
    max_seconds: float | None = None,
) -> CompiledConstraint:
    """Lift a constraint, or a bare byte automaton, to the tokens of a vocabulary.

    Args:
        constraint: What the text must satisfy. A bare automaton is compiled afresh each time.
        vocabulary: The tokens of the model.
        options: How the text may be spelled and how far the automaton is unrolled.
        cache: Where to look first; by default one shared by the process.
        max_seconds: Processor time it may take.

    Raises:
        CompileLimitError: It would take more states, steps or time than it may.
        ConstraintError: No sequence of tokens spells an accepted text.
    """
    if isinstance(constraint, Dfa):
        return CompiledConstraint(lift(constraint, vocabulary), vocabulary)
    chosen = shared_cache() if cache is None else cache
    return chosen.get_or_compile(constraint, vocabulary, options, max_seconds=max_seconds)
