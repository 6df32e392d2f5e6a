"""What a text leads to: documents that it names, and passages that speak of the same names.

A link is found when it is needed, in the same snapshot as the search: there is nothing to keep in
step, and no link outlives the passage that it comes from.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import log, sqrt

from agentloop.retrieval.analyser import Analyser, Word
from agentloop.retrieval.mentions import is_telling, lead_names, lead_terms, runs
from agentloop.retrieval.snapshot import Snapshot

MAX_NAME_WORDS = 10
LEAD_MARK = "?"  # before a term that only may be part of a document's name
_MIN_NAME_LENGTH = 3  # letters of a name of one word
_LEAD_CHARS = 300  # read of a document to see how it begins
_MAX_TRIES = 4  # shorter and shorter beginnings of a run that are looked up
_PART_WEIGHT = 0.5  # of a name all of whose words stand at a document's beginning ...
_WORD_WEIGHT = 0.25  # ... and of one word that does
_ARTICLES = (
    "the ",
    "der ",
    "die ",
    "das ",
    "le ",
    "la ",
    "les ",
    "el ",
    "los ",
    "las ",
    "il ",
    "lo ",
)
_QUALIFIER = re.compile(r"\s*\([^()]*\)\s*$")  # "Mercury (planet)" is written Mercury elsewhere


def names_of(title: str, analyser: Analyser) -> list[str]:
    """Keys under which a document's title is looked up, as `Links.named` forms them.

    Args:
        title: What the document calls itself; "" gives none.
        analyser: That of the index.
    """
    keys: list[str] = []
    short = title.partition(" ")[2] if title.casefold().startswith(_ARTICLES) else title
    for name in dict.fromkeys([title, _QUALIFIER.sub("", title), short]):
        words = analyser.words(name)
        key = " ".join(word.term for word in words)
        is_long_enough = len(words) > 1 or len(key) >= _MIN_NAME_LENGTH
        if words and is_long_enough and len(words) <= MAX_NAME_WORDS:
            keys.append(key)
    return keys


def keys_of(title: str, body: str, analyser: Analyser) -> list[str]:
    """Every key of a document: its names, and marked, the terms that may be part of one.

    Args:
        title: What the document calls itself; where it is "", its first words may name it.
        body: Its text from the first block that is no heading.
        analyser: That of the index.
    """
    words = analyser.words(body[:_LEAD_CHARS])
    names = names_of(title, analyser) or lead_names(words)
    parts = lead_terms(words) | {word.term for word in analyser.words(title) if word.is_name_like}
    return names + [LEAD_MARK + term for term in sorted(parts)]


@dataclass(slots=True)
class Links:
    """Follows names within one search; answers are remembered for as long.

    Attributes:
        snapshot: What is searched.
        analyser: That of the index.
        globs: Only documents whose path matches one of them are reached.
        max_named: A name that more documents go by says too little.
        max_shared: Likewise a name that more passages hold.
    """

    snapshot: Snapshot
    analyser: Analyser
    globs: Sequence[str] = ()
    max_named: int = 50
    max_shared: int = 200
    _beginning: dict[tuple[str, ...], list[str]] = field(
        default_factory=dict[tuple[str, ...], list[str]]
    )
    _holding: dict[tuple[str, ...], list[int]] = field(
        default_factory=dict[tuple[str, ...], list[int]]
    )

    def documents(self, text: str, own: str = "") -> dict[str, float]:
        """The documents that a text names, each with the strength of the link, 0 to 1.

        A name shared by n documents counts 1 / sqrt(n); less where only the words of the name stand
        at the beginning of a document, or where it is one word of a longer name.

        Args:
            text: A question or a passage.
            own: Id of the document that it is of, which is not meant.
        """
        words = self.analyser.words(text)
        candidates = list(_candidates(words))
        known = self.snapshot.named({key for _, _, key in candidates})
        exact = _longest(candidates, known)
        inner = _cut_words(words)
        whole = [(s, e, key) for s, e, key in exact if e > s + 1 or s not in inner]
        strengths: dict[str, float] = {}
        for start, end, key in exact:
            is_whole = (start, end, key) in whole
            self._add(strengths, known[key], 1.0 if is_whole else _WORD_WEIGHT)
        for names, weight in self._partly(words, whole, own):
            self._add(strengths, names, weight)
        strengths.pop(own, None)
        return strengths

    def _add(self, strengths: dict[str, float], names: Sequence[str], weight: float) -> None:
        if 0 < len(names) <= self.max_named:
            strength = weight / sqrt(len(names))
            for name in names:
                strengths[name] = max(strength, strengths.get(name, 0.0))

    def _partly(
        self, words: Sequence[Word], whole: Sequence[tuple[int, int, str]], own: str
    ) -> Iterator[tuple[list[str], float]]:
        """Documents that begin with the words of a part of a run that is no exact name."""
        covered = {at for start, end, _ in whole for at in range(start, end)}
        for first, end in runs(words):
            start = first
            while start < end:
                stop, names, weight = self._part(words, start, end, covered, own)
                if names:
                    yield names, weight
                start = stop

    def _part(
        self, words: Sequence[Word], start: int, end: int, covered: set[int], own: str
    ) -> tuple[int, list[str], float]:
        """Where to go on, and documents with the longest part of a run that any begins with."""
        for stop in range(min(end, start + _MAX_TRIES), start, -1):
            part = [word for word in words[start:stop] if word.is_name_like]
            if not (words[start].is_name_like and covered.isdisjoint(range(start, stop))):
                continue
            if len(part) > 1 or is_telling(part[0]):
                terms = tuple(sorted({word.term for word in part}))
                names = [name for name in self._begin_with(terms) if name != own]
                if names:
                    return stop, names, _PART_WEIGHT if len(terms) > 1 else _WORD_WEIGHT
        return start + 1, [], 0.0

    def _begin_with(self, terms: tuple[str, ...]) -> list[str]:
        if terms not in self._beginning:
            keys = [LEAD_MARK + term for term in terms]
            self._beginning[terms] = self.snapshot.named_all(keys, self.max_named + 1)
        return self._beginning[terms]

    def passages(self, text: str, known: Collection[str]) -> dict[int, float]:
        """Passages that hold a name of the text, each with the rarity of the rarest, 0 to 1.

        Args:
            text: A passage.
            known: Terms of the question: names made of these alone lead nowhere new.
        """
        num_chunks = self.snapshot.count("chunks")
        scale = log(max(num_chunks, 2))
        rarity: dict[int, float] = {}
        for terms in _shared_names(self.analyser.words(text)):
            if not all(term in known for term in terms):
                holding = self._hold(terms)
                weight = log(num_chunks / len(holding)) / scale if holding else 0.0
                for chunk_id in holding:
                    rarity[chunk_id] = max(weight, rarity.get(chunk_id, 0.0))
        return rarity

    def _hold(self, terms: tuple[str, ...]) -> list[int]:
        """Passages with every one of the terms; none where they are too many to tell anything."""
        if terms not in self._holding:
            found = self.snapshot.holding(terms, self.max_shared + 1, self.globs)
            self._holding[terms] = found if len(found) <= self.max_shared else []
        return self._holding[terms]


def _candidates(words: Sequence[Word]) -> Iterator[tuple[int, int, str]]:
    """First word, one past the last, and key of every stretch that may be a name."""
    for start, word in enumerate(words):
        if not word.is_name_like:
            continue
        key = ""
        for end in range(start, min(start + MAX_NAME_WORDS, len(words))):
            key = f"{key} {words[end].term}" if key else words[end].term
            yield start, end + 1, key


def _longest(
    candidates: Sequence[tuple[int, int, str]], known: Mapping[str, Sequence[str]]
) -> list[tuple[int, int, str]]:
    """The names among the candidates; of names within names only the longest counts."""
    found: list[tuple[int, int, str]] = []
    covered = -1
    for start, end, key in sorted(
        (c for c in candidates if c[2] in known), key=lambda c: (c[0], -c[1])
    ):
        if end > covered:
            covered = end
            found.append((start, end, key))
    return found


def _cut_words(words: Sequence[Word]) -> set[int]:
    """Places of the words of runs of several words."""
    return {at for start, end in runs(words) if end - start > 1 for at in range(start, end)}


def _shared_names(words: Sequence[Word]) -> Iterator[tuple[str, ...]]:
    """Terms of every run, and of the first and the last two words of a long one, once each."""
    seen: set[tuple[str, ...]] = set()
    for start, end in runs(words):
        spans = [(start, end)]
        if end - start > 3:
            spans += [(start, start + 2), (end - 2, end)]
        for a, b in spans:
            terms = tuple(dict.fromkeys(word.term for word in words[a:b]))
            if terms not in seen and (b - a > 1 or is_telling(words[a])):
                seen.add(terms)
                yield terms
