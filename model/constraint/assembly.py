"""From loose edges to a token automaton: pruning, merging of symbols, class sets.

Knows neither bytes nor tries; the lift hands it the edges it found.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agentloop.errors import ConstraintError
from agentloop.model.constraint.segments import offsets_of, ragged, sum_segments
from agentloop.model.constraint.token_automaton import TokenAutomaton

Ints = NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Edges:
    """Loose edges between states of a byte automaton, grouped by symbol.

    Attributes:
        offsets: (N + 1,) the edges of each of N symbols.
        sources: (E,) int32.
        targets: (E,) int32.
        symbol_of: (V,) int32, the symbol of each token id; -1 where it moves no state.
    """

    offsets: NDArray[np.int64]
    sources: Ints
    targets: Ints
    symbol_of: Ints


def assemble(
    edges: Edges, accepting: NDArray[np.bool_], eos_ids: tuple[int, ...]
) -> TokenAutomaton:
    """Drop what lies on no accepted path of tokens, merge equal symbols, add the end of text.

    Raises:
        ConstraintError: No sequence of tokens spells an accepted text.
    """
    num_bytes_states = len(accepting)
    distance = _distances(edges, accepting)
    kept = np.flatnonzero(distance >= 0)
    if len(kept) == 0 or kept[0] != 0:
        raise ConstraintError(
            "no text satisfies the constraint: no sequence of tokens of this vocabulary spells one"
        )
    done = len(kept)
    renumber = np.full(num_bytes_states, -1, np.int32)
    renumber[kept] = np.arange(done)
    symbols = np.repeat(np.arange(len(edges.offsets) - 1), np.diff(edges.offsets))
    sources, targets = renumber[edges.sources], renumber[edges.targets]
    alive = (sources >= 0) & (targets >= 0)
    sources, targets, symbols = sources[alive], targets[alive], symbols[alive]
    class_of, representatives = _merge(sources, targets, symbols, len(edges.offsets) - 1)
    chosen = representatives[symbols]
    sources, targets, classes = sources[chosen], targets[chosen], class_of[symbols[chosen]]
    eos_class = int(representatives.sum())
    token_class = class_of[edges.symbol_of]
    token_class[list(eos_ids)] = eos_class
    ends = renumber[np.flatnonzero(accepting & (distance >= 0))]
    return _pack(
        np.concatenate([sources, ends, [done]]),
        np.concatenate([targets, np.full(len(ends), done), [done]]),
        np.concatenate([classes, np.full(len(ends), eos_class), [eos_class + 1]]),
        token_class,
        np.append(distance[kept], 0).astype(np.int32),
        np.append(kept, -1).astype(np.int32),
    )


def _pack(
    sources: NDArray[np.int32],
    targets: NDArray[np.int32],
    classes: NDArray[np.int32],
    token_class: Ints,
    distance: Ints,
    byte_state: Ints,
) -> TokenAutomaton:
    num_states, num_classes = len(distance), int(classes.max())
    pairs = sources.astype(np.int64) * num_states + targets
    pairs, in_order = np.divmod(np.sort(pairs * (num_classes + 1) + classes), num_classes + 1)
    starts = np.flatnonzero(np.diff(pairs, prepend=-1))
    sources, targets = np.divmod(pairs[starts], num_states)
    pair_set, set_offsets, set_classes = _class_sets(in_order, starts)
    tokens = np.argsort(token_class, kind="stable").astype(np.int32)
    tokens = tokens[np.count_nonzero(token_class < 0) :]
    return TokenAutomaton(
        token_class=token_class,
        class_offsets=offsets_of(token_class[tokens], num_classes),
        class_tokens=tokens,
        pair_offsets=offsets_of(sources, num_states),
        pair_source=sources.astype(np.int32),
        pair_target=targets.astype(np.int32),
        pair_set=pair_set,
        set_offsets=set_offsets,
        set_classes=set_classes,
        distance=distance,
        byte_state=byte_state,
    )


def _class_sets(classes: NDArray[np.int64], starts: NDArray[np.int64]) -> tuple[Ints, Ints, Ints]:
    """Number the distinct runs of classes in order of appearance: set of each run, and the sets.

    Two independent 64-bit sums identify a run.
    """
    generator = np.random.default_rng(0x5EED)
    mixes = generator.integers(1, 2**64, (2, int(classes.max()) + 1), np.uint64)
    one, other = (sum_segments(mix[classes], starts) for mix in mixes)
    order = np.lexsort((other, one))  # stable: the first run of a group comes first
    is_new = np.ones(len(order), np.bool_)
    is_new[1:] = (np.diff(one[order]) != 0) | (np.diff(other[order]) != 0)
    group = np.cumsum(is_new) - 1
    first = order[is_new]
    rank = np.empty(len(first), np.int32)
    rank[np.argsort(first)] = np.arange(len(first))
    pair_set = np.empty(len(order), np.int32)
    pair_set[order] = rank[group]
    first = np.sort(first)
    sizes = np.diff(np.append(starts, len(classes)))[first]
    at, _ = ragged(starts[first], sizes)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    return pair_set, offsets, classes[at].astype(np.int32)


def _merge(
    sources: Ints, targets: Ints, symbols: NDArray[np.int64], num_symbols: int
) -> tuple[Ints, NDArray[np.bool_]]:
    """Class of each symbol, -1 without edges, and whether it is the first of its class.

    The classes end with one more -1, for the tokens that have no symbol.
    """
    class_of = np.full(num_symbols + 1, -1, np.int32)
    representatives = np.zeros(num_symbols, np.bool_)
    offsets = offsets_of(symbols, num_symbols)
    edges = np.ascontiguousarray(np.stack([sources, targets], axis=1))
    seen: dict[bytes, int] = {}
    for symbol in np.flatnonzero(np.diff(offsets)):
        content = edges[offsets[symbol] : offsets[symbol + 1]].tobytes()
        representatives[symbol] = content not in seen
        class_of[symbol] = seen.setdefault(content, len(seen))
    return class_of, representatives


def _distances(edges: Edges, accepting: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Fewest tokens to `done` of every state on an accepted path; -1 for the others."""
    num_states = len(accepting)
    joined = np.sort(edges.sources.astype(np.int64) * num_states + edges.targets)
    joined = joined[np.diff(joined, prepend=-1) != 0]
    sources, targets = np.divmod(joined, num_states)
    reached = _search(sources, targets, np.zeros(1, np.int64), num_states) >= 0
    back = np.argsort(targets, kind="stable")
    ends = np.flatnonzero(accepting & reached)
    steps = _search(targets[back], sources[back], ends, num_states)
    return np.where(reached & (steps >= 0), steps + 1, -1)


def _search(
    sources: NDArray[np.int64],
    targets: NDArray[np.int64],
    seeds: NDArray[np.int64],
    num_states: int,
) -> NDArray[np.int64]:
    """Breadth-first distance of every state from the seeds; -1 where there is no way."""
    offsets = offsets_of(sources, num_states)
    distance = np.full(num_states, -1, np.int64)
    frontier, depth = seeds, 0
    while len(frontier):
        distance[frontier] = depth
        depth += 1
        ways, _ = ragged(offsets[frontier], offsets[frontier + 1] - offsets[frontier])
        reached = targets[ways]
        frontier = np.unique(reached[distance[reached] < 0])
    return distance
