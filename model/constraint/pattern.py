"""Regular expressions to automata over code points, with the semantics of a search.

A pattern accepts a text when some part of the text matches, as in JSON Schema. Leading look-aheads
are intersections and complements; they are refused elsewhere. There is no backtracking anywhere, so
no pattern is slow to run; one that needs too many states is refused.
"""

from __future__ import annotations

from functools import lru_cache

from agentloop.model.constraint.characters import (
    CharDfa,
    Ranges,
    StateBudgetError,
    everything,
    from_rows,
    nothing,
)
from agentloop.model.constraint.code_points import Reading
from agentloop.model.constraint.pattern_syntax import (
    Chars,
    Choice,
    Edge,
    Look,
    Node,
    Parser,
    PatternError,
    Repeat,
    Sequence,
)
from agentloop.model.constraint.work import check_work

MAX_POSITIONS = 12_000
MAX_PATTERN_STATES = 6_000
_EMPTY = Sequence(())


@lru_cache(maxsize=512)
def compile_pattern(
    pattern: str, *, is_full_match: bool = False, reading: Reading = "exact"
) -> CharDfa:
    """The automaton of the texts that match a pattern.

    Args:
        pattern: The regular expression, an ECMA-262 subset.
        is_full_match: Whether the whole text must match, instead of some part of it.
        reading: "narrow" gives only texts that match in every engine, "wide" all that match in any.

    Raises:
        PatternError: The pattern is malformed or uses what has no exact automaton here.
        StateBudgetError: The pattern needs too many states.
    """
    tree = Parser(pattern, reading).parse()
    if is_full_match:
        tree = Sequence((Edge(at_end=False), tree, Edge(at_end=True)))
    found = [_alternative(option, pattern) for option in _options(tree)]
    whole = found[0]
    for automaton in found[1:]:
        whole = whole | automaton
    return whole


def _options(tree: Node) -> list[Node]:
    """The top alternatives, split only where one of them holds a look-ahead."""
    if not _has_look(tree):
        return [tree]
    if isinstance(tree, Choice):
        return [leaf for option in tree.options for leaf in _options(option)]
    return [tree]


def _has_look(node: Node) -> bool:
    match node:
        case Look():
            return True
        case Sequence(parts):
            return any(map(_has_look, parts))
        case Choice(options):
            return any(map(_has_look, options))
        case Repeat(part, _, _):
            return _has_look(part)
        case _:
            return False


def _flat(node: Node) -> list[Node]:
    if isinstance(node, Sequence):
        return [leaf for part in node.parts for leaf in _flat(part)]
    return [node]


def _alternative(node: Node, pattern: str) -> CharDfa:
    """One alternative: look-aheads after a leading `^` are taken out and intersected."""
    if not _has_look(node):
        return _search(node, pattern)
    parts = _flat(node)
    start = Edge(at_end=False)
    num_edges = 0
    while num_edges < len(parts) and parts[num_edges] == start:
        num_edges += 1
    num_looks = num_edges
    while num_looks < len(parts) and isinstance(parts[num_looks], Look):
        num_looks += 1
    rest = parts[num_looks:]
    if num_edges == 0 or any(map(_has_look, rest)):
        raise PatternError(
            f"pattern {pattern!r}: a look-ahead is supported only right after a leading '^'"
        )
    whole = _search(Sequence((start, *rest)), pattern)
    for look in parts[num_edges:num_looks]:
        assert isinstance(look, Look)
        if _has_look(look.part):
            raise PatternError(f"pattern {pattern!r}: a look-ahead inside another is not supported")
        seen = _search(Sequence((start, look.part)), pattern)
        whole = whole - seen if look.is_negative else whole & seen
    return whole


class _Nfa:
    """Positions with free moves; `edges` lists moves that only the start or the end permits."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.free: list[list[int]] = []
        self.at_start: list[list[int]] = []
        self.at_end: list[list[int]] = []
        self.reads: list[tuple[Ranges, int] | None] = []

    def position(self) -> int:
        if len(self.free) >= MAX_POSITIONS:
            raise StateBudgetError(
                f"pattern {self.pattern!r} needs more than {MAX_POSITIONS:,} positions; lower its"
                " repeat bounds"
            )
        self.free.append([])
        self.at_start.append([])
        self.at_end.append([])
        self.reads.append(None)
        return len(self.free) - 1

    def build(self, node: Node, end: int) -> int:
        """The position from which a node leads to `end`."""
        match node:
            case Chars(ranges):
                start = self.position()
                self.reads[start] = (ranges, end)
                return start
            case Sequence(parts):
                for part in reversed(parts):
                    end = self.build(part, end)
                return end
            case Choice(options):
                start = self.position()
                self.free[start] = [self.build(option, end) for option in options]
                return start
            case Repeat(part, lo, hi):
                return self.repeat(part, lo, hi, end)
            case Edge(at_end):
                start = self.position()
                (self.at_end if at_end else self.at_start)[start].append(end)
                return start
            case Look():
                raise AssertionError("look-aheads are taken out before")

    def repeat(self, part: Node, lo: int, hi: int | None, end: int) -> int:
        if hi is None:
            loop = self.position()
            self.free[loop] = [self.build(part, loop), end]
            start = loop
        else:
            start = end
            for _ in range(hi - lo):
                skip = self.position()
                self.free[skip] = [self.build(part, start), end]
                start = skip
        for _ in range(lo):
            start = self.build(part, start)
        return start

    def closures(self, *, start: bool, end: bool) -> list[int]:
        """For each position a bit set of those that free moves reach, itself included."""
        count = len(self.free)
        moves = [
            self.free[i] + (self.at_start[i] if start else []) + (self.at_end[i] if end else [])
            for i in range(count)
        ]
        found = [0] * count
        for origin in range(count):
            bits, stack = 0, [origin]
            while stack:
                at = stack.pop()
                if bits >> at & 1:
                    continue
                bits |= 1 << at
                stack.extend(moves[at])
            found[origin] = bits
            check_work()
        return found


def _bits(value: int) -> list[int]:
    found: list[int] = []
    while value:
        low = value & -value
        found.append(low.bit_length() - 1)
        value ^= low
    return found


def _alphabet(nfa: _Nfa) -> tuple[list[Ranges], dict[Ranges, int]]:
    """Symbols that no set of the pattern tells apart, and each set as a bit set of symbols."""
    sets = list({reads[0] for reads in nfa.reads if reads})
    cuts = sorted({0} | {p for ranges in sets for lo, hi in ranges for p in (lo, hi + 1)})
    members: dict[int, int] = dict.fromkeys(cuts, 0)
    index = {cut: i for i, cut in enumerate(cuts)}
    for number, ranges in enumerate(sets):
        for lo, hi in ranges:
            for i in range(index[lo], index[hi + 1]):
                members[cuts[i]] |= 1 << number
    symbols: dict[int, list[tuple[int, int]]] = {}
    for cut, after in zip(cuts, [*cuts[1:], 0x110000], strict=True):
        if cut < after:
            symbols.setdefault(members[cut], []).append((cut, after - 1))
    masks = dict.fromkeys(sets, 0)
    for symbol, signature in enumerate(symbols):
        for number in _bits(signature):
            masks[sets[number]] |= 1 << symbol
    return [tuple(ranges) for ranges in symbols.values()], masks


def _search(node: Node, pattern: str) -> CharDfa:
    """The automaton of the texts some part of which matches, by subset construction."""
    nfa = _Nfa(pattern)
    final = nfa.position()
    start = nfa.build(node, final)
    symbols, masks = _alphabet(nfa)
    if not symbols:
        symbols = [((0, 0x10FFFF),)]
    inside, first = nfa.closures(start=False, end=False), nfa.closures(start=True, end=False)
    last, only = nfa.closures(start=False, end=True), nfa.closures(start=True, end=True)
    if first[start] >> final & 1 and inside[start] >> final & 1:
        return everything()
    reads: list[tuple[int, int, int]] = [  # position, symbols, closure of its target
        (i, masks[r[0]], inside[r[1]]) for i, r in enumerate(nfa.reads) if r
    ]
    table = _Subsets(reads, len(symbols), inside[start], final)
    rows, subsets = table.build(first[start], pattern)
    accepting = [
        _reaches(only if i == 0 else last, start if i == 0 else None, subset, final)
        for i, subset in enumerate(subsets)
    ]
    done = table.done
    if done is not None:
        accepting[done] = True
    automaton = from_rows(rows, [0 if ok else -1 for ok in accepting], symbols)
    return nothing() if automaton.is_empty else automaton


def _reaches(closures: list[int], start: int | None, subset: int, final: int) -> bool:
    if start is not None:
        return bool(closures[start] >> final & 1)
    return any(closures[i] >> final & 1 for i in _bits(subset))


class _Subsets:
    """Sets of positions as numbers; one that holds the final position accepts all that follows."""

    def __init__(
        self, reads: list[tuple[int, int, int]], num_symbols: int, restart: int, final: int
    ) -> None:
        self.by_position = {position: (mask, target) for position, mask, target in reads}
        self.readers = sum(1 << position for position in self.by_position)
        self.num_symbols = num_symbols
        self.restart = restart
        self.final = final
        self.done: int | None = None

    def build(self, start: int, pattern: str) -> tuple[list[list[int]], list[int]]:
        """Rows of targets and the sets; state 0 is the only one at the start of the text."""
        sets = [start]
        index: dict[int, int] = {}
        rows: list[list[int]] = []
        for at, subset in enumerate(sets):
            check_work()
            if subset >> self.final & 1:
                self.done = at
                rows.append([at] * self.num_symbols)
                continue
            row: list[int] = []
            for target in self.step(subset):
                if target >> self.final & 1:
                    target = 1 << self.final
                if target not in index:
                    index[target] = len(sets)
                    sets.append(target)
                row.append(index[target])
            rows.append(row)
            if len(sets) > MAX_PATTERN_STATES:
                raise StateBudgetError(
                    f"pattern {pattern!r} needs more than {MAX_PATTERN_STATES:,} states; simplify"
                    " it or lower its repeat bounds"
                )
        return rows, sets

    def step(self, subset: int) -> list[int]:
        """The set reached for each symbol; a match may also begin after it."""
        targets = [self.restart] * self.num_symbols
        for position in _bits(subset & self.readers):
            mask, target = self.by_position[position]
            for symbol in _bits(mask):
                targets[symbol] |= target
        return targets
