"""Compiled constraints are found again in memory and on disk, and by nothing but their content."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

import numpy as np
import pytest

from agentloop.errors import CanvasTooSmallError
from agentloop.model.constraint.compiled import ConstraintCache, compile_constraint
from agentloop.model.constraint.dfa import Dfa
from agentloop.model.constraint.options import DEFAULT_OPTIONS, CompileOptions
from agentloop.model.constraint.store import ConstraintStore, is_consistent
from agentloop.model.constraint.token_automaton import TokenAutomaton
from agentloop.model.constraint.vocabulary import Vocabulary
from tests.model.constraint.reference import VOCABULARY, WIDE_VOCABULARY, automaton


@dataclass
class Counted:
    """A constraint that counts how often it is built."""

    key: str = "ab-ab"
    built: list[CompileOptions] = field(default_factory=list[CompileOptions])

    def automaton(self, options: CompileOptions) -> Dfa:
        self.built.append(options)
        return automaton([(0, "a", 1), (1, "b", 0)], [True, False])


def equal(one: TokenAutomaton, other: TokenAutomaton) -> bool:
    return all(
        np.array_equal(getattr(one, f.name), getattr(other, f.name)) for f in fields(TokenAutomaton)
    )


def test_a_constraint_is_compiled_once_for_a_vocabulary_and_options() -> None:
    """Equal keys share; another vocabulary, key or option does not."""
    cache, constraint = ConstraintCache(), Counted()
    first = compile_constraint(constraint, VOCABULARY, cache=cache)
    assert compile_constraint(Counted(), VOCABULARY, cache=cache) is first
    assert compile_constraint(constraint, WIDE_VOCABULARY, cache=cache) is not first
    spaced = replace(DEFAULT_OPTIONS, whitespace="spaced")
    assert compile_constraint(constraint, VOCABULARY, spaced, cache=cache) is not first
    assert compile_constraint(Counted(key="other"), VOCABULARY, cache=cache) is not first
    assert constraint.built == [DEFAULT_OPTIONS, DEFAULT_OPTIONS, spaced]
    assert len(cache) == 4


def test_the_least_recently_used_constraint_is_forgotten() -> None:
    """Beyond its size the cache keeps what was used last."""
    size = compile_constraint(Counted(), VOCABULARY, cache=ConstraintCache()).automaton.num_bytes
    cache = ConstraintCache(max_bytes=2 * size)
    constraints = [Counted(key=key) for key in "abc"]
    for used in (0, 1, 0, 2, 0, 1):
        compile_constraint(constraints[used], VOCABULARY, cache=cache)
    assert [len(c.built) for c in constraints] == [1, 2, 1]
    assert len(cache) == 2


def test_another_process_finds_the_stored_automaton(tmp_path: Path) -> None:
    """What one cache stores another loads without building the constraint."""
    store = ConstraintStore(tmp_path / "made")
    first = Counted()
    one = compile_constraint(
        first, VOCABULARY, cache=ConstraintCache(store=store, worth_storing_s=0.0)
    )
    second = Counted()
    other = compile_constraint(second, VOCABULARY, cache=ConstraintCache(store=store))
    assert second.built == []
    assert equal(one.automaton, other.automaton)
    quick = ConstraintCache(store=ConstraintStore(tmp_path / "empty"), worth_storing_s=60.0)
    compile_constraint(first, VOCABULARY, cache=quick)
    assert not (tmp_path / "empty").exists()


def test_a_damaged_file_is_as_good_as_none(tmp_path: Path) -> None:
    """Cut files, foreign files and arrays that do not fit each other are compiled again."""
    store = ConstraintStore(tmp_path)
    whole = compile_constraint(Counted(), VOCABULARY, cache=ConstraintCache()).automaton
    assert store.save("key", whole)
    loaded = store.load("key")
    assert loaded is not None
    assert equal(loaded, whole)
    (path,) = tmp_path.iterdir()
    content = path.read_bytes()
    for damaged in (b"", b"not arrays", content[:-5], content[:9]):
        path.write_bytes(damaged)
        assert store.load("key") is None
    assert store.load("other key") is None
    broken = replace(whole, pair_target=whole.pair_target + 100)
    assert store.save("key", broken)
    assert store.load("key") is None


def test_no_flipped_bit_goes_unnoticed(tmp_path: Path) -> None:
    """Damage anywhere in a file, even where the arrays still fit each other, makes it useless."""
    store = ConstraintStore(tmp_path)
    whole = compile_constraint(Counted(), VOCABULARY, cache=ConstraintCache()).automaton
    assert store.save("key", whole)
    (path,) = tmp_path.iterdir()
    content = path.read_bytes()
    rng = np.random.default_rng(3)
    for at in rng.integers(0, len(content), 300).tolist():
        damaged = bytearray(content)
        damaged[at] ^= 1 << int(rng.integers(8))
        path.write_bytes(bytes(damaged))
        loaded = store.load("key")
        assert loaded is None or equal(loaded, whole), at  # blanks in the header say nothing


def test_a_file_under_another_key_is_not_taken(tmp_path: Path) -> None:
    """A file that was renamed is the automaton of another constraint."""
    store = ConstraintStore(tmp_path)
    whole = compile_constraint(Counted(), VOCABULARY, cache=ConstraintCache()).automaton
    store.save("a", whole)
    (path,) = tmp_path.iterdir()
    content = path.read_bytes()
    store.save("b", whole)
    other = next(found for found in tmp_path.iterdir() if found != path)
    other.write_bytes(content)
    assert store.load("b") is None
    assert store.load("a") is not None


WRITER = """
import sys
from pathlib import Path
from agentloop.model.constraint.compiled import ConstraintCache, compile_constraint
from agentloop.model.constraint.store import ConstraintStore
from tests.model.constraint.reference import VOCABULARY
from tests.model.constraint.test_compiled import Counted

store = ConstraintStore(Path(sys.argv[1]), max_bytes=int(sys.argv[2]))
whole = compile_constraint(Counted(), VOCABULARY, cache=ConstraintCache()).automaton
for i in range(60):
    key = str((i * 7 + int(sys.argv[3])) % 5)
    assert store.save(key, whole)
    store.load(str(i % 5))
"""


def test_writers_in_several_processes_leave_whole_files_and_keep_to_the_size(
    tmp_path: Path,
) -> None:
    """Two processes write, read and evict the same keys; a reader never sees half a file."""
    whole = compile_constraint(Counted(), VOCABULARY, cache=ConstraintCache()).automaton
    store = ConstraintStore(tmp_path)
    store.save("0", whole)
    size = next(tmp_path.iterdir()).stat().st_size
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path), str(3 * size), str(i)])
        for i in range(2)
    ]
    num_read = 0
    while any(writer.poll() is None for writer in writers):
        for key in map(str, range(5)):
            loaded = store.load(key)
            if loaded is not None:
                assert equal(loaded, whole)
                num_read += 1
    assert [writer.returncode for writer in writers] == [0, 0]
    assert num_read
    assert list(tmp_path.glob("*.part")) == []
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 3 * size


def test_what_a_killed_writer_left_is_removed(tmp_path: Path) -> None:
    """Unfinished files go once they are old, not while their writer may be at work."""
    whole = compile_constraint(Counted(), VOCABULARY, cache=ConstraintCache()).automaton
    old, new = tmp_path / "old.part", tmp_path / "new.part"
    for path in (old, new):
        path.write_bytes(b"half")
    os.utime(old, (1.0, 1.0))
    ConstraintStore(tmp_path).save("key", whole)
    assert not old.exists()
    assert new.exists()


@pytest.mark.parametrize("name", [f.name for f in fields(TokenAutomaton) if f.name != "byte_state"])
def test_arrays_that_lead_outside_are_noticed(name: str) -> None:
    """Too large an index, too short an array or another dtype makes an automaton inconsistent."""
    whole = compile_constraint(Counted(), VOCABULARY, cache=ConstraintCache()).automaton
    array = getattr(whole, name)
    assert is_consistent(whole)
    assert not is_consistent(replace(whole, **{name: array.astype(np.int64)}))
    assert not is_consistent(replace(whole, **{name: array[:0]}))
    if name != "distance":
        assert not is_consistent(replace(whole, **{name: array + 1000}))


def test_the_store_stays_below_its_size(tmp_path: Path) -> None:
    """Files not used for longest go first, and no partial file is left."""
    whole = compile_constraint(Counted(), VOCABULARY, cache=ConstraintCache()).automaton
    big = ConstraintStore(tmp_path)
    big.save("a", whole)
    size = next(tmp_path.iterdir()).stat().st_size
    store = ConstraintStore(tmp_path, max_bytes=2 * size)
    store.save("b", whole)
    store.save("c", whole)
    assert len(list(tmp_path.iterdir())) == 2
    assert store.load("c") is not None


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    """Where the folder cannot be made the constraint is compiled all the same."""
    (tmp_path / "file").write_text("in the way")
    store = ConstraintStore(tmp_path / "file" / "folder")
    cache = ConstraintCache(store=store, worth_storing_s=0.0)
    compiled = compile_constraint(Counted(), VOCABULARY, cache=cache)
    assert compiled.min_tokens == 1
    assert not store.save("key", compiled.automaton)


def test_a_compiled_constraint_tells_its_size_and_needs() -> None:
    """States, classes and the fewest tokens are counted with the end of text."""
    dfa = automaton([(0, "a", 1), (1, "b", 2)], [False, False, True])
    compiled = compile_constraint(dfa, Vocabulary([b"a", b"b", b"c", b""], [3]))
    assert (compiled.num_states, compiled.num_classes, compiled.min_tokens) == (4, 3, 3)
    compiled.check_fits(3)
    with pytest.raises(CanvasTooSmallError, match="at least 3 tokens but the canvas has 2"):
        compiled.check_fits(2)
