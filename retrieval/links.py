"""Which documents a text names: links between passages through titles.

A link is found when it is needed, in the same snapshot as the search: there is nothing to keep in
step, and no link outlives the passage that it comes from.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from agentloop.retrieval.analyser import Analyser
from agentloop.retrieval.snapshot import Snapshot

MAX_NAME_WORDS = 10
_MIN_NAME_LENGTH = 3  # letters of a name of one word
_QUALIFIER = re.compile(r"\s*\([^()]*\)\s*$")  # "Mercury (planet)" is written Mercury elsewhere


def names_of(title: str, analyser: Analyser) -> list[str]:
    """Keys under which a document's title is looked up, as `mentioned` forms them.

    Args:
        title: What the document calls itself; "" gives none.
        analyser: That of the index.
    """
    keys: list[str] = []
    for name in dict.fromkeys([title, _QUALIFIER.sub("", title)]):
        words = analyser.words(name)
        key = " ".join(term for _, term in words)
        is_long_enough = len(words) > 1 or len(key) >= _MIN_NAME_LENGTH
        if words and is_long_enough and len(words) <= MAX_NAME_WORDS:
            keys.append(key)
    return keys


def mentioned(snapshot: Snapshot, analyser: Analyser, texts: Sequence[str]) -> list[dict[str, str]]:
    """Documents named in each text: id to the key of the longest name found.

    A name counts where its first word is written with a capital or a digit, or in a script that has
    no capitals; of names within names only the longest counts.
    """
    keyed = [list(_candidates(analyser.words(text))) for text in texts]
    known = snapshot.named({key for keys in keyed for _, _, key in keys})
    return [_longest(keys, known) for keys in keyed]


def _candidates(words: Sequence[tuple[str, str]]) -> Iterator[tuple[int, int, str]]:
    """First word, one past the last, and key of every stretch that may be a name."""
    for start, (written, _) in enumerate(words):
        if written[0].islower():
            continue
        key = ""
        for end in range(start, min(start + MAX_NAME_WORDS, len(words))):
            key = f"{key} {words[end][1]}" if key else words[end][1]
            yield start, end + 1, key


def _longest(
    candidates: Sequence[tuple[int, int, str]], known: dict[str, list[str]]
) -> dict[str, str]:
    found: dict[str, str] = {}
    covered = -1
    for _, end, key in sorted(
        (c for c in candidates if c[2] in known), key=lambda c: (c[0], -c[1])
    ):
        if end > covered:
            covered = end
            for document_id in known[key]:
                found.setdefault(document_id, key)
    return found
