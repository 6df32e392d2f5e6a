"""The bytes of an object: known keys in their order, then the others.

A state is the number of known keys passed and what is left to assert. The keys that may come next
form a trie whose branches are shared between states once they agree on what is still possible.
"""

from __future__ import annotations

from agentloop.model.constraint.expression import (
    FALSE,
    TRUE,
    Constant,
    Expr,
    conjunction,
    conjuncts,
    disjunction,
    leaves,
)
from agentloop.model.constraint.machine import (
    Asked,
    NamedKey,
    Outcome,
    UnnamedKey,
    final_outcome,
    known_keys,
    object_atoms,
    without,
)
from agentloop.model.constraint.object_assertions import (
    KeysAre,
    NumProperties,
    ObjectAtom,
    Required,
    num_properties,
)
from agentloop.model.constraint.object_places import Moves, Place
from agentloop.model.constraint.object_writer import ObjectWriter
from agentloop.model.constraint.pieces import Edge, Piece, ValueEmitter, after_step, live_states
from agentloop.model.constraint.scalars import bounded, scalar_piece


class ObjectEmission:
    """Explores the places of one object, then has those written that can still end."""

    def __init__(self, emitter: ValueEmitter, state: Asked, depth: int) -> None:
        self.emitter = emitter
        self.depth = depth
        self.keys = known_keys(state)
        self.start = Place(0, self._counting(state))
        self.moves: dict[Place, Moves] = {}
        self._edges: dict[tuple[Asked, int], Edge[Place] | None] = {}
        self.endings: dict[Place, Outcome | None] = {}

    def _offer(self, atoms: list[ObjectAtom]) -> Expr:
        """The keys that are to be offered though no assertion names them."""
        if self.emitter.options.extra_keys == "allowed" or not self.keys:
            return TRUE
        if any(isinstance(a, NumProperties) and a.lo > len(self.keys) for a in atoms):
            return TRUE
        offers = [offer for atom in atoms if (offer := atom.offers()) is not None]
        return disjunction(*offers)

    def _counting(self, state: Asked) -> Asked:
        """The state with an upper bound on properties dropped or lowered if that saves states."""
        parts: list[Expr] = []
        for part in conjuncts(state.must):
            if isinstance(part, NumProperties) and part.hi is not None:
                hi = max(part.lo, min(part.hi, self.emitter.options.max_counted_items))
                offer = self._offer(object_atoms(state))
                is_vacuous = offer == FALSE and part.hi >= len(self.keys)
                part = num_properties(part.lo, None if is_vacuous else hi)
            parts.append(part)
        return Asked(conjunction(*parts), state.goals)

    def piece(self) -> Piece | None:
        """The piece of the object with its braces, None if no object will do."""
        stack = [self.start]
        while stack:
            place = stack.pop()
            if place not in self.moves:
                self.moves[place] = self._moves(place)
                stack.extend(self.moves[place].targets())
        live = live_states({p: m.targets() for p, m in self.moves.items()}, self.endings)
        if self.start not in live:
            return None
        return ObjectWriter(self.keys, self.moves, self.endings, self.emitter.options).write(
            self.start, live
        )

    def _moves(self, place: Place) -> Moves:
        named: dict[int, Edge[Place]] = {}
        asked = place.asked
        atoms = object_atoms(asked)
        offer = self._offer(atoms)
        named_now = {key for atom in atoms for key in atom.known_keys()}
        needed = {key for atom in atoms if isinstance(atom, Required) for key in atom.keys}
        for index in range(place.num_passed, len(self.keys)):
            key = self.keys[index]
            if key in named_now or self._is_offered(key, offer):
                edge = self._named_edge(asked, index)
                if edge is not None:
                    named[index] = edge
            if key in needed:
                asked = without(asked, key)
                if asked.must == FALSE:
                    self.endings[place] = None
                    return Moves(named, None, ())
        self.endings[place] = final_outcome(asked)
        if place.is_closed or offer == FALSE:
            return Moves(named, None, ())
        return self._with_unnamed(named, asked, offer)

    def _is_offered(self, key: str, offer: Expr) -> bool:
        """Whether a key that only some other alternative names is asked for as any key is."""
        if isinstance(offer, Constant):
            return offer.value
        return NamedKey(key, self.emitter.machine).meets(offer)

    def _named_edge(self, asked: Asked, index: int) -> Edge[Place] | None:
        """The edge of a known key, which is the same wherever the same is left to assert."""
        key = (asked, index)
        if key not in self._edges:
            self._edges[key] = self._new_edge(asked, index)
        return self._edges[key]

    def _new_edge(self, asked: Asked, index: int) -> Edge[Place] | None:
        machine = self.emitter.machine
        step = machine.next_property(asked, NamedKey(self.keys[index], machine))
        piece = self.emitter.nested(step.asked, self.depth)
        self.emitter.count_step(asked, 0 if piece is None else len(piece.outcomes))
        if piece is None:
            return None
        states = after_step(step, piece)
        return Edge(piece, tuple(None if s is None else Place(index + 1, s) for s in states))

    def _with_unnamed(self, named: dict[int, Edge[Place]], asked: Asked, offer: Expr) -> Moves:
        machine = self.emitter.machine
        certain = [part.key for part in conjuncts(asked.must) if isinstance(part, KeysAre)]
        wanted = dict.fromkeys(c for atom in object_atoms(asked) for c in atom.conditions())
        goals = tuple(condition for condition in wanted if condition not in certain)
        about_key = machine.asked_at(Asked(conjunction(offer, *certain), goals), "string")
        if about_key is None:
            return Moves(named, None, ())
        keys = scalar_piece(bounded(about_key, self.emitter.options), "string")
        if keys is None:
            return Moves(named, None, ())
        is_last = self.emitter.options.extra_keys == "asked" and _counts(asked)
        edges: list[Edge[Place] | None] = []
        for outcome in keys.outcomes:
            met = [goal for goal, is_met in zip(goals, outcome, strict=True) if is_met]
            step = machine.next_property(asked, UnnamedKey(frozenset([*certain, *met])))
            piece = self.emitter.nested(step.asked, self.depth)
            self.emitter.count_step(asked, 0 if piece is None else len(piece.outcomes))
            if piece is None:
                edges.append(None)
                continue
            after = after_step(step, piece)
            places = [None if s is None else Place(len(self.keys), s, is_last) for s in after]
            edges.append(Edge(piece, tuple(places)))
        if not any(edges):
            return Moves(named, None, ())
        return Moves(named, keys.fragment, tuple(edges))


def _counts(asked: Asked) -> bool:
    """Whether a key that came twice could change the verdict, so that only one may be made up.

    A repeated key is read as its last value, so it is harmless where every property has to satisfy
    the same; it is not where properties are counted or where one that fails is what is wanted.
    """
    if asked.goals:
        return True
    for part in conjuncts(asked.must):
        if isinstance(part, ObjectAtom):
            if isinstance(part, NumProperties) and part.lo > 0:
                return True
        elif any(isinstance(leaf, ObjectAtom) for leaf in leaves(part)):
            return True
    return False
