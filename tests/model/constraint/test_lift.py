"""The automaton over token classes equals the byte automaton, token by token."""

from __future__ import annotations

from collections import deque

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from agentloop.errors import ConstraintError
from agentloop.model.constraint import lift as lift_module
from agentloop.model.constraint.dfa import Dfa
from agentloop.model.constraint.lift import lift
from agentloop.model.constraint.token_automaton import TokenAutomaton
from agentloop.model.constraint.vocabulary import Vocabulary
from tests.model.constraint.reference import automaton, dfas

Edge = tuple[int, int, int]
vocabularies = st.lists(
    st.binary(min_size=0, max_size=4).map(lambda s: bytes(97 + b % 3 for b in s)),
    min_size=1,
    max_size=12,
)


def spelled_edges(dfa: Dfa, vocabulary: Vocabulary) -> tuple[set[Edge], dict[int, int]]:
    """Edges (state, token, state) on accepted token paths, and distances to acceptance."""
    moves: dict[tuple[int, int], int] = {}
    for state in range(dfa.num_states):
        for token, text in enumerate(vocabulary.token_bytes):
            after = state
            for byte in text:
                after = int(dfa.step(np.array([after], np.int32), byte)[0])
            if text and after >= 0:
                moves[state, token] = after
    reached, queue = {0}, deque([0])
    while queue:
        state = queue.popleft()
        new = {t for (s, _), t in moves.items() if s == state} - reached
        reached |= new
        queue.extend(new)
    distance = {s: 1 for s in reached if dfa.accepting[s]}
    for _ in range(dfa.num_states):
        for (s, _), t in moves.items():
            if s in reached and t in distance:
                distance[s] = min(distance.get(s, 10**6), distance[t] + 1)
    edges = {(s, k, t) for (s, k), t in moves.items() if s in distance and t in distance}
    return edges, distance


def expanded_edges(lifted: TokenAutomaton) -> set[Edge]:
    """The text edges of a lifted automaton, token by token, in states of the byte automaton."""
    edges: set[Edge] = set()
    for pair in range(lifted.num_pairs):
        source = int(lifted.byte_state[lifted.pair_source[pair]])
        target = int(lifted.byte_state[lifted.pair_target[pair]])
        for token_class in lifted.classes_of(pair).tolist():
            if token_class < lifted.eos_class:
                edges |= {(source, k, target) for k in lifted.tokens_of(token_class).tolist()}
    return edges


def check(dfa: Dfa, vocabulary: Vocabulary) -> None:
    edges, distance = spelled_edges(dfa, vocabulary)
    if 0 not in distance:
        with pytest.raises(ConstraintError, match="no text satisfies the constraint"):
            lift(dfa, vocabulary)
        return
    lifted = lift(dfa, vocabulary)
    assert expanded_edges(lifted) == edges
    states = lifted.byte_state[:-1].tolist()
    assert dict(zip(states, lifted.distance[:-1].tolist(), strict=True)) == distance
    assert lifted.byte_state[0] == 0
    ends = lifted.pair_source[lifted.pair_target == lifted.done].tolist()
    assert {int(lifted.byte_state[s]) for s in ends} - {-1} == {
        s for s in distance if dfa.accepting[s]
    }
    live = {k for _, k, _ in edges} | set(vocabulary.eos_ids)
    assert set(np.flatnonzero(lifted.token_class >= 0).tolist()) == live
    moves = {k: frozenset((s, t) for s, j, t in edges if j == k) for k in live}
    text = live - set(vocabulary.eos_ids)
    assert len({moves[k] for k in text}) == lifted.num_classes - 1


@settings(max_examples=80, deadline=None)
@given(dfas(max_states=5, alphabet=b"abc"), vocabularies)
def test_every_token_edge_is_lifted_and_no_other(dfa: Dfa, strings: list[bytes]) -> None:
    """Edges, distances, ends and classes are those found by spelling every token at every state."""
    check(dfa, Vocabulary([*strings, b""], [len(strings)]))


@settings(max_examples=30, deadline=None)
@given(dfas(max_states=5, alphabet=b"abc"), vocabularies, st.booleans())
def test_all_ways_to_expand_a_move_agree(dfa: Dfa, strings: list[bytes], sparse: bool) -> None:
    """By states or by arcs, with or without a table, in one piece or many: the same automaton."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lift_module, "_SORT_COST", 0 if sparse else 10**9)
        patch.setattr(lift_module, "_MAX_TABLE", 0)
        patch.setattr(lift_module, "_MAX_PAIRS", 2)
        check(dfa, Vocabulary([*strings, b""], [len(strings)]))


@settings(max_examples=30, deadline=None)
@given(dfas(max_states=5, alphabet=b"abc"))
def test_class_sets_of_pairs_cover_the_edges(dfa: Dfa) -> None:
    """Sets are distinct, and going through them by class, pair or target gives the same edges."""
    vocabulary = Vocabulary([b"a", b"b", b"c", b"ab", b"bca", b""], [5])
    assume(0 in spelled_edges(dfa, vocabulary)[1])
    lifted = lift(dfa, vocabulary)
    sets = [tuple(s) for s in np.split(lifted.set_classes, lifted.set_offsets[1:-1])]
    assert len(set(sets)) == len(sets) == lifted.num_sets
    edges = {(p, int(c)) for p in range(lifted.num_pairs) for c in lifted.classes_of(p)}
    assert len(edges) == lifted.num_edges
    for c in range(lifted.num_classes + 1):
        assert sorted(lifted.pairs_of(c).tolist()) == sorted(p for p, k in edges if k == c)
        assert [c in members for members in sets] == [
            u in lifted.sets_of(c) for u in range(len(sets))
        ]
        for u, members in enumerate(sets):
            held = lifted.has_class(np.array([u], np.int32), np.array([c], np.int32))
            assert held.tolist() == [c in members]
    assert lifted.sets_of(-1).tolist() == lifted.pairs_of(-1).tolist() == []
    offsets, pairs = lifted.pairs_by_target
    for state in range(lifted.num_states):
        assert set(lifted.pair_target[pairs[offsets[state] : offsets[state + 1]]]) <= {state}
    assert sorted(pairs.tolist()) == list(range(lifted.num_pairs))
    tokens = [set(lifted.tokens_of_set(u).tolist()) for u in range(lifted.num_sets)]
    assert tokens == [{t for c in s for t in lifted.tokens_of(int(c)).tolist()} for s in sets]


def test_states_that_only_bytes_could_leave_are_pruned() -> None:
    """A state from which no token leads to acceptance is dropped, and so is the way to it."""
    dfa = automaton([(0, "a", 1), (0, "b", 2), (2, "a", 3), (1, "b", 3)], [False] * 3 + [True])
    assert lift(dfa, Vocabulary([b"a", b"b", b""], [2])).byte_state.tolist() == [0, 1, 2, 3, -1]
    lifted = lift(dfa, Vocabulary([b"a", b"ab", b"b" * 2, b"b", b""], [4, 0]))
    assert lifted.byte_state.tolist() == [0, 3, -1]
    assert lifted.token_class.tolist() == [1, 0, -1, -1, 1]
    with pytest.raises(ConstraintError, match="no sequence of tokens of this vocabulary"):
        lift(dfa, Vocabulary([b"b", b"bb", b""], [2]))


def test_the_empty_text_needs_one_token() -> None:
    """Where only the empty text is accepted the automaton has an end of text and nothing else."""
    lifted = lift(automaton([], [True]), Vocabulary([b"a", b""], [1]))
    assert lifted.distance.tolist() == [1, 0]
    assert lifted.token_class.tolist() == [-1, 0]
    assert lifted.num_classes == 1


def test_a_long_chain_lifts_sparsely() -> None:
    """Ten thousand states with one arc each fold into as many edges as tokens fit."""
    text = np.random.default_rng(0).integers(97, 100, 10_000)
    dfa = automaton([(i, int(b), i + 1) for i, b in enumerate(text)], [False] * 10_000 + [True])
    lifted = lift(dfa, Vocabulary([b"a", b"b", b"c", b"ab", b"abc", b""], [5]))
    spelled = bytes(text.tolist())
    expected = 10_000 + spelled.count(b"ab") + spelled.count(b"abc")
    assert lifted.num_edges == expected + 2
    assert lifted.num_bytes < 2_000_000
