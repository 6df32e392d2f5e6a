"""Names of documents are found in texts, and lead to what no single passage says."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop.retrieval import Index
from agentloop.retrieval.analyser import Analyser
from agentloop.retrieval.links import MAX_NAME_WORDS, Links, names_of
from agentloop.retrieval.search import Mode
from agentloop.retrieval.snapshot import Snapshot

ANALYSER = Analyser()
WORDS = st.lists(st.sampled_from(["Red", "Green", "blue", "Sea", "sea", "Lion"]), max_size=8)
FILMS = {
    "film.md": "# Silent Harbour\n\nSilent Harbour is a drama directed by Ada Lindqvist.\n",
    "director.md": "# Ada Lindqvist\n\nShe was born in Uppsala and studied music there.\n",
    "other.md": "# Bo Berg\n\nHe was born in Lund. He never directed a drama film.\n",
    "town.md": "# Uppsala\n\nA town north of the capital.\n",
}


class Names(Snapshot):
    """A snapshot that knows names alone."""

    def __init__(self, titles: list[str]) -> None:
        self.keys: dict[str, list[str]] = {}
        for title in titles:
            for key in names_of(title, ANALYSER):
                self.keys.setdefault(key, []).append(title)

    def named(self, keys: Collection[str]) -> dict[str, list[str]]:
        """Those of the keys that are names."""
        return {key: self.keys[key] for key in keys if key in self.keys}

    def named_all(self, keys: Sequence[str], limit: int) -> list[str]:
        """No document is known by parts of its name."""
        return []


def test_names_are_keys_with_and_without_their_qualifier() -> None:
    """Mercury (planet) is meant where a text says Mercury, and The Who where it says Who."""
    assert names_of("Mercury (planet)", ANALYSER) == ["mercuri planet", "mercuri"]
    assert names_of("The Rank Organisation", ANALYSER) == ["the rank organis", "rank organis"]
    assert names_of("", ANALYSER) == names_of("X", ANALYSER) == []
    assert names_of("word " * (MAX_NAME_WORDS + 1), ANALYSER) == []


def test_the_longest_name_counts() -> None:
    """New York City names neither New York nor York; common words in lower case name nothing."""
    names = Names(["New York City", "New York", "York", "It", "Tower", "Café de Flore"])
    text = "In New York City, not in York, there is a tower; it is not the CAFÉ DE FLORE."
    found = Links(names, ANALYSER).documents(text)
    assert found == {"New York City": 1.0, "York": 1.0, "Café de Flore": 1.0}


def test_one_word_of_a_longer_name_counts_less() -> None:
    """Smith is not what a text about Mark Smith leads to, unless nothing else is known."""
    found = Links(Names(["Smith", "Lund"]), ANALYSER).documents(
        "Mark Smith of Sweden went to Lund."
    )
    assert found == {"Smith": 0.25, "Lund": 1.0}


def test_a_name_of_many_counts_for_each_a_little() -> None:
    """Four documents of one name count a half each; more than the limit, nothing."""
    names = Names(["Lund"])
    names.keys["lund"] = ["a", "b", "c", "d"]
    assert Links(names, ANALYSER).documents("Lund") == dict.fromkeys("abcd", 0.5)
    assert Links(names, ANALYSER, max_named=3).documents("Lund") == {}


@given(WORDS, st.lists(WORDS.map(" ".join), max_size=4))
def test_names_found_are_those_of_a_plain_search(words: list[str], titles: list[str]) -> None:
    """From left to right, the longest name that begins with a capital, as a loop finds it."""
    names = Names(titles)
    terms = [word.term for word in ANALYSER.words(" ".join(words))]
    expected: set[str] = set()
    covered = 0
    for start, word in enumerate(words):
        if word[0].isupper():
            for end in range(len(words), max(start, covered), -1):
                if titles_there := names.keys.get(" ".join(terms[start:end])):
                    expected.update(titles_there)
                    covered = end
                    break
    assert set(Links(names, ANALYSER).documents(" ".join(words))) == expected


def test_a_document_without_a_title_is_named_by_how_it_begins(index: Index, docs: Path) -> None:
    """The first words of a text file, or all words of the name among them, lead to it."""
    (docs / "1.txt").write_text("Silent Harbour is a drama by Ada Lindqvist and Bo Berg.")
    (docs / "2.txt").write_text("Ada Lindqvist (born 1950) studied music.")
    (docs / "3.txt").write_text("Bo Erik Johan Berg lives in Lund.")
    (docs / "4.txt").write_text("A drama about nothing.")
    index.sync(docs)
    hits = index.search("who made Silent Harbour", 9, "lexical", hops=2)
    links = {hit.path: hit.scores.get("link", 0.0) for hit in hits}
    assert [hit.path for hit in hits][:3] == ["1.txt", "2.txt", "3.txt"]
    assert links["2.txt"] == pytest.approx(2 * links["3.txt"])


@pytest.mark.parametrize("mode", ["hybrid", "lexical", "dense"])
def test_a_second_hop_reaches_what_a_found_passage_names(
    index: Index, docs: Path, mode: Mode
) -> None:
    """The director's page shares no word with the question; the film's page names her."""
    for name, text in FILMS.items():
        (docs / name).write_text(text)
    index.sync(docs)
    question = "who made Silent Harbour"
    plain = [hit.path for hit in index.search(question, 9, mode)]
    hopped = [hit.path for hit in index.search(question, 9, mode, hops=2)]
    assert plain[0] == hopped[0] == "film.md"
    assert hopped[1] == "director.md"
    assert set(plain) <= set(hopped)


def test_no_link_outlives_its_documents(index: Index, docs: Path) -> None:
    """Requirement 19: with the page that names it, or itself, gone, nothing is reached."""
    for name, text in FILMS.items():
        (docs / name).write_text(text)
    index.sync(docs)
    (docs / "director.md").unlink()
    index.sync(docs)
    assert "director.md" not in {h.path for h in index.search("Silent Harbour", 9, hops=2)}
    (docs / "director.md").write_text(FILMS["director.md"])
    (docs / "film.md").write_text("# Silent Harbour\n\nA drama.\n")
    index.sync(docs)
    found = index.search("Silent Harbour", 9, "lexical", hops=2)
    assert [hit.path for hit in found] == ["film.md"]
    assert index.fsck().ok


def test_filters_hold_across_a_hop(index: Index, docs: Path) -> None:
    """A document that the pattern leaves out is not reached through a link either."""
    for name, text in FILMS.items():
        (docs / name).write_text(text)
    index.sync(docs)
    hits = index.search("Silent Harbour", 9, hops=2, paths=["film*", "town*"])
    assert {hit.path for hit in hits} <= {"film.md", "town.md"}


def test_more_hops_than_two_are_refused(index: Index) -> None:
    """The message says what is legal."""
    with pytest.raises(ValueError, match="hops must be 1 or 2, got 3"):
        index.search("x", hops=3)
