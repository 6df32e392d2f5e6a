"""The byte string of every token: how token ids spell text.

Reads byte-level tokenizers (GPT-2, SmolLM2, Qwen, Llama 3) and SentencePiece ones (`▁` for a space,
`<0x0A>` for a byte). Special and added tokens are never part of text. It knows no constraints.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self, cast

from agentloop.errors import ConstraintError
from agentloop.model.constraint.trie import ByteTrie

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class Vocabulary:
    """Token ids as byte strings, with the ids that end a text.

    Attributes:
        token_bytes: V byte strings by token id; `b""` for ids that are never part of text.
        eos_ids: The ids that end a text.
    """

    def __init__(self, token_bytes: Sequence[bytes], eos_ids: Iterable[int]) -> None:
        """Take the byte strings as they are; ids in `eos_ids` stop being part of text.

        Raises:
            ConstraintError: No end of text is given or one lies outside the vocabulary.
        """
        self.eos_ids = tuple(dict.fromkeys(int(i) for i in eos_ids))
        outside = [i for i in self.eos_ids if not 0 <= i < len(token_bytes)]
        if not self.eos_ids or outside:
            raise ConstraintError(
                f"a vocabulary needs at least one end-of-text id below its size "
                f"{len(token_bytes)}; got {list(self.eos_ids)}"
            )
        strings = list(token_bytes)
        for i in self.eos_ids:
            strings[i] = b""
        self.token_bytes = tuple(strings)

    @classmethod
    def from_tokenizer(
        cls,
        tokenizer: Tokenizer,
        eos_ids: Iterable[int],
        *,
        size: int | None = None,
        exclude: Iterable[int] = (),
    ) -> Self:
        """Read the byte strings out of a tokenizer.

        Args:
            tokenizer: A byte-level or SentencePiece-like tokenizer.
            eos_ids: The ids that end a text.
            size: V of the model's logits, where they are padded beyond the tokenizer.
            exclude: Ids that are not text although the tokenizer does not say so (a mask token).

        Raises:
            ConstraintError: The tokenizer is of neither kind, or has more ids than `size`.
        """
        spec: dict[str, Any] = json.loads(tokenizer.to_str())
        spell = _speller(spec)
        vocab = tokenizer.get_vocab(with_added_tokens=True)
        needed = max(vocab.values(), default=-1) + 1
        if size is not None and size < needed:
            raise ConstraintError(
                f"size={size} is smaller than the tokenizer, whose highest id is {needed - 1}; "
                f"pass the number of logits of the model"
            )
        excluded = {int(token["id"]) for token in spec.get("added_tokens", ())} | set(exclude)
        unknown = vocab.get(str(spec["model"].get("unk_token")))
        if unknown is not None:
            excluded.add(unknown)
        strings = [b""] * (needed if size is None else size)
        for token, i in vocab.items():
            if i not in excluded:
                strings[i] = spell(token)
        return cls(strings, eos_ids)

    @property
    def size(self) -> int:
        """Number of token ids V."""
        return len(self.token_bytes)

    @cached_property
    def longest(self) -> int:
        """Bytes of the longest token, at least 1; none spells more characters."""
        return max(1, *map(len, self.token_bytes))

    @cached_property
    def trie(self) -> ByteTrie:
        """The byte trie of all text tokens."""
        return ByteTrie.from_strings(self.token_bytes)

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the byte strings and ends of text: equal content, equal fingerprint."""
        digest = hashlib.sha256(repr(self.eos_ids).encode())
        for string in self.token_bytes:
            digest.update(len(string).to_bytes(4, "little") + string)
        return digest.hexdigest()

    def text(self, tokens: Iterable[int]) -> bytes:
        """The bytes that tokens spell up to the first end of text.

        Example:
            >>> Vocabulary([b"a", b"b", b""], [2]).text([0, 1, 2, 0])
            b'ab'
        """
        parts: list[bytes] = []
        for i in tokens:
            if i in self.eos_ids:
                break
            parts.append(self.token_bytes[i])
        return b"".join(parts)


def _speller(spec: dict[str, Any]) -> Speller:
    kinds = _kinds(spec.get("decoder"))
    if spec.get("decoder") is None:
        kinds = _kinds(spec.get("pre_tokenizer"))
    if "ByteLevel" in kinds:
        return _ByteLevel()
    if kinds & {"ByteFallback", "Metaspace", "Replace"}:
        return _SentencePiece(byte_fallback=bool(spec["model"].get("byte_fallback")))
    raise ConstraintError(
        f"constraints need a byte-level or SentencePiece tokenizer, whose tokens join without "
        f"rules; this one decodes by {sorted(kinds) or 'nothing'}"
    )


def _kinds(node: object) -> set[str]:
    """Every "type" inside a part of a tokenizer's description."""
    children: list[object] = []
    kinds: set[str] = set()
    if isinstance(node, dict):
        fields = cast("dict[str, object]", node)
        kinds = {str(fields["type"])} if "type" in fields else set()
        children = list(fields.values())
    elif isinstance(node, list):
        children = cast("list[object]", node)
    return kinds.union(*map(_kinds, children))


class _ByteLevel:
    """The GPT-2 alphabet: printable bytes stand for themselves, the others for U+0100 on."""

    def __init__(self) -> None:
        kept = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
        moved = [b for b in range(256) if b not in set(kept)]
        self._byte_of = {chr(b): b for b in kept}
        self._byte_of.update({chr(256 + n): b for n, b in enumerate(moved)})

    def __call__(self, token: str) -> bytes:
        """Bytes of a token; none where it holds a character outside the alphabet."""
        try:
            return bytes([self._byte_of[c] for c in token])
        except KeyError:
            return b""


class _SentencePiece:
    """`▁` is a space and, with byte fallback, `<0xNN>` is a byte."""

    def __init__(self, *, byte_fallback: bool) -> None:
        self._byte_fallback = byte_fallback

    def __call__(self, token: str) -> bytes:
        """Bytes of a token."""
        byte = _BYTE_TOKEN.fullmatch(token) if self._byte_fallback else None
        if byte:
            return bytes([int(byte[1], 16)])
        return token.replace("▁", " ").encode()


Speller = _ByteLevel | _SentencePiece
