"""Names in running text, found by how they are written: no model, no list of words.

A run is a stretch of words that begin with capitals or digits, short words of lower case between
them allowed ("Lord of the Rings"), and no punctuation within. What a text is about often stands as
its first run; what it leads to, as any of them.

What this does not cover: names in lower case, languages that capitalise every noun (runs are then
more, and mostly harmless), Chinese, Japanese and Thai, where a whole phrase is one word.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from agentloop.retrieval.analyser import Word

MAX_RUN_LENGTH = 8  # words
LEAD_LENGTH = 12  # words at the beginning of a text that may name what it is about
_MAX_JOINER_LENGTH = 4  # letters of a word of lower case within a name
_MAX_JOINERS = 2
_BREAK = re.compile(r"""[(\[:;!?,"“”/|–—]|\.\s|\n""")
_MIN_LENGTH = 4  # letters of a name of one word ...
_MIN_WIDE_LENGTH = 2  # ... and of one in a script that has no capitals


def runs(words: Sequence[Word]) -> list[tuple[int, int]]:
    """First word and one past the last of every run, in order, not overlapping."""
    found: list[tuple[int, int]] = []
    at = 0
    while at < len(words):
        if words[at].is_name_like:
            end = _run_end(words, at)
            found.append((at, end))
            at = end
        else:
            at += 1
    return found


def _run_end(words: Sequence[Word], start: int) -> int:
    """One past the last word of the run that begins at `start`."""
    end = start + 1
    while end - start < MAX_RUN_LENGTH:
        last = next(_continuations(words, end), None)
        if last is None:
            break
        end = last + 1
    return min(end, start + MAX_RUN_LENGTH)


def _continuations(words: Sequence[Word], end: int) -> Iterator[int]:
    """The next word of a name, after at most two short words of lower case."""
    longest = _MAX_JOINER_LENGTH
    for at in range(end, min(end + _MAX_JOINERS + 1, len(words))):
        if is_break(words, at):
            return
        if words[at].is_name_like:
            yield at
        if at > end:
            longest = _MAX_JOINER_LENGTH - 1  # "of the", but not "went to"
        if any(len(word.written) > longest for word in words[end : at + 1]):
            return


def is_break(words: Sequence[Word], at: int) -> bool:
    """Whether punctuation parts a word from the one before; the point of an initial does not."""
    gap = words[at].gap
    if gap.strip() == "." and len(words[at - 1].written) <= 2:
        return False
    return bool(_BREAK.search(gap))


def is_telling(word: Word) -> bool:
    """Whether a word is long enough to be a name by itself: "It" and "The" are not."""
    has_case = word.written[0].isupper() or word.written[0].isdigit()
    return len(word.term) >= (_MIN_LENGTH if has_case else _MIN_WIDE_LENGTH)


def lead_names(words: Sequence[Word]) -> list[str]:
    """What a text may be about by its first words: keys as `links.names_of` forms them.

    Every end of the first run counts where lower case or punctuation follows, with and without a
    short first word ("The Silent Harbour is", "Ada Lindqvist (born"): a name found later in some
    other text must be exactly one of these.
    """
    if not words or not words[0].is_name_like:
        return []
    keys: list[str] = []
    for end in _ends(words):
        for start in (0, 1):
            key = " ".join(word.term for word in words[start:end])
            is_article = start == 0 or len(words[0].written) <= 3
            is_name = end - start > 1 or (start < end and is_telling(words[start]))
            if is_name and is_article and words[start].is_name_like:
                keys.append(key)
    return list(dict.fromkeys(keys))


def _ends(words: Sequence[Word]) -> Iterator[int]:
    """Ends of the names that may begin at the first word."""
    num_joiners = 0
    for at, word in enumerate(words[:LEAD_LENGTH]):
        if at and is_break(words, at):
            return
        num_joiners = 0 if word.is_name_like else num_joiners + 1
        if num_joiners > _MAX_JOINERS:
            return
        goes_on = at + 1 < len(words) and words[at + 1].is_name_like and not is_break(words, at + 1)
        if word.is_name_like and not goes_on:
            yield at + 1


def lead_terms(words: Sequence[Word]) -> set[str]:
    """Terms of the name-like words that a text begins with."""
    return {word.term for word in words[:LEAD_LENGTH] if word.is_name_like}
