"""Tokens as byte strings: byte-level and SentencePiece tokenizers, and the trie of the strings."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    trainers,
)

from agentloop.errors import ConstraintError
from agentloop.model.constraint.trie import ByteTrie
from agentloop.model.constraint.vocabulary import Vocabulary

TEXTS = ['[{"name": "Find", "n": 12}]', "naïve café 漢字 😀\n\ttab", " leading", "a\x00\x7f\xad"]


def byte_level() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<|end|>", "<|mask|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXTS * 4, trainer)
    added = [AddedToken("<tool>", normalized=False)]
    tokenizer.add_tokens(added)  # pyright: ignore[reportUnknownMemberType] - bare list in the stubs
    return tokenizer


def sentence_piece() -> Tokenizer:
    pieces = ["<unk>", "<s>", "</s>", *[f"<0x{b:02X}>" for b in range(256)]]
    pieces += ["▁", "▁a", "a", "b", "▁ab", "ab", "é"]
    vocab = {piece: i for i, piece in enumerate(pieces)}
    merges = [("▁", "a"), ("a", "b"), ("▁a", "b")]
    tokenizer = Tokenizer(
        models.BPE(vocab=vocab, merges=merges, unk_token="<unk>", byte_fallback=True)
    )
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    ends = [AddedToken("<s>"), AddedToken("</s>")]
    tokenizer.add_special_tokens(ends)  # pyright: ignore[reportUnknownMemberType] - as above
    return tokenizer


@pytest.mark.parametrize("text", TEXTS)
def test_byte_level_tokens_spell_their_text(text: str) -> None:
    """The byte strings of a text's tokens join to the text, split code points included."""
    tokenizer = byte_level()
    vocabulary = Vocabulary.from_tokenizer(tokenizer, [0])
    assert vocabulary.text(tokenizer.encode(text).ids) == text.encode()


@pytest.mark.parametrize("text", ["ab a", "aé漢 b😀\n"])
def test_sentence_piece_tokens_spell_their_text(text: str) -> None:
    """`▁` spells a space and byte-fallback tokens spell bytes."""
    tokenizer = sentence_piece()
    vocabulary = Vocabulary.from_tokenizer(tokenizer, [2])
    assert vocabulary.text(tokenizer.encode(text).ids) == text.encode()


def test_special_and_added_tokens_are_never_text() -> None:
    """Control tokens, added tokens, the unknown token and excluded ids spell nothing."""
    tokenizer = byte_level()
    vocabulary = Vocabulary.from_tokenizer(tokenizer, [0], size=1000, exclude=[5])
    added = tokenizer.get_vocab()["<tool>"]
    assert vocabulary.size == 1000
    assert all(vocabulary.token_bytes[i] == b"" for i in (0, 1, 5, added, 999))
    pieces = Vocabulary.from_tokenizer(sentence_piece(), [2])
    assert [pieces.token_bytes[i] for i in range(4)] == [b"", b"", b"", b"\x00"]


def test_text_stops_at_the_first_end() -> None:
    """What stands after an end of text is not part of it."""
    assert Vocabulary([b"a", b"b", b"", b""], [2, 3]).text([1, 0, 3, 0, 2]) == b"ba"


def test_the_fingerprint_tells_contents_apart() -> None:
    """Equal content gives equal fingerprints; moving a byte across tokens does not."""
    one = Vocabulary([b"a", b"bc", b""], [2])
    assert one.fingerprint == Vocabulary([b"a", b"bc", b"x"], [2]).fingerprint
    assert one.fingerprint != Vocabulary([b"ab", b"c", b""], [2]).fingerprint
    assert one.fingerprint != Vocabulary([b"a", b"bc", b"", b""], [2, 3]).fingerprint


def test_wrong_vocabularies_are_refused_by_name() -> None:
    """No end of text, a size below the tokenizer, and tokenizers with joining rules raise."""
    with pytest.raises(ConstraintError, match=r"below its size 1; got \[1\]"):
        Vocabulary([b"a"], [1])
    with pytest.raises(ConstraintError, match="at least one end-of-text id"):
        Vocabulary([b"a"], [])
    with pytest.raises(ConstraintError, match="size=3 is smaller than the tokenizer"):
        Vocabulary.from_tokenizer(byte_level(), [0], size=3)
    word_piece = Tokenizer(models.WordPiece({"[UNK]": 0, "a": 1}, unk_token="[UNK]"))
    word_piece.decoder = decoders.WordPiece()
    with pytest.raises(ConstraintError, match=r"decodes by \['WordPiece'\]"):
        Vocabulary.from_tokenizer(word_piece, [0])


@settings(max_examples=50, deadline=None)
@given(st.lists(st.binary(max_size=5), max_size=20))
def test_the_trie_spells_every_string(strings: list[bytes]) -> None:
    """Walking up from a string's node gives the string; levels and sharing are exact."""
    trie = ByteTrie.from_strings(strings)
    prefixes = {s[:n] for s in strings for n in range(len(s) + 1)} | {b""}
    assert trie.num_nodes == len(prefixes)
    assert trie.depth == max(map(len, strings), default=0)
    for string, start in zip(strings, trie.string_nodes.tolist(), strict=True):
        if not string:
            assert start == -1
            continue
        assert trie.level_offsets[len(string)] <= start < trie.level_offsets[len(string) + 1]
        spelled, node = b"", start
        while node:
            spelled = bytes([trie.node_bytes[node]]) + spelled
            node = int(trie.parents[node])
        assert spelled == string
