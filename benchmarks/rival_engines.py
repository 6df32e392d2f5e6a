"""Constraint engines behind one face: compile a schema, read a text token by token.

The others are no part of the project; `make compare-constraints` installs them apart.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

import numpy as np
from rich.console import Console
from tokenizers import Tokenizer

from agentloop.errors import ConstraintError
from agentloop.model.base_weights import base_folder
from agentloop.model.constraint import CompileOptions, Dfa, EmptyConstraintError, JsonSchema
from agentloop.model.constraint.compiled import CompiledConstraint, compile_constraint
from agentloop.model.constraint.inference import infer
from benchmarks.maskbench import default_vocabulary, forget

CONSOLE = Console()
CANVAS = 64


class Reader(Protocol):
    """A compiled schema that reads one text."""

    def mask(self) -> None:
        """Work out which tokens may come next."""
        ...

    def take(self, token: int) -> bool:
        """Read one token; False if it may not come."""
        ...

    def may_end(self) -> bool:
        """Whether the text may end here."""
        ...


class Engine(Protocol):
    """What is compared."""

    def compile(self, schema: dict[str, Any]) -> Callable[[], Reader]:
        """A maker of readers.

        Raises:
            Exception: The engine refuses the schema.
        """
        ...


def tokenizer_file() -> str:
    """The default model's tokenizer."""
    return str(base_folder(CONSOLE.print) / "tokenizer.json")


class LlGuidance:
    """llguidance, with its own defaults."""

    def __init__(self) -> None:
        self.lib: Any = import_module("llguidance")
        eos = Tokenizer.from_file(tokenizer_file()).token_to_id("<|im_end|>")
        slices = self.lib.LLTokenizer.json_slices()
        self.tokenizer = self.lib.LLTokenizer(tokenizer_file(), eos_token=eos, slices=slices)

    def compile(self, schema: dict[str, Any]) -> Callable[[], Reader]:
        """A maker of readers."""
        grammar = self.lib.LLMatcher.grammar_from_json_schema(json.dumps(schema))
        matcher = self.lib.LLMatcher(self.tokenizer, grammar, log_level=0)
        if matcher.is_error():
            raise ValueError(matcher.get_error())
        return lambda: LlGuidanceReader(matcher.deep_copy())


@dataclass
class LlGuidanceReader:
    """One text."""

    matcher: Any

    def mask(self) -> None:
        """Work out which tokens may come next."""
        self.matcher.compute_bitmask()

    def take(self, token: int) -> bool:
        """Read one token; False if it may not come."""
        return bool(self.matcher.consume_token(token))

    def may_end(self) -> bool:
        """Whether the text may end here."""
        return bool(self.matcher.is_accepting())


class XGrammar:
    """XGrammar; strict mode, its default, forbids keys that the schema does not name."""

    def __init__(self, *, strict: bool) -> None:
        self.lib: Any = import_module("xgrammar")
        vocabulary = default_vocabulary()
        self.info = self.lib.TokenizerInfo(
            list(vocabulary.token_bytes),
            self.lib.VocabType.RAW,
            stop_token_ids=list(vocabulary.eos_ids),
        )
        self.strict = strict

    def compile(self, schema: dict[str, Any]) -> Callable[[], Reader]:
        """A maker of readers."""
        compiler = self.lib.GrammarCompiler(self.info, max_threads=1, cache_enabled=False)
        grammar = compiler.compile_json_schema(json.dumps(schema), strict_mode=self.strict)
        return lambda: XGrammarReader(self.lib, self.info, grammar)


class XGrammarReader:
    """One text."""

    def __init__(self, lib: Any, info: Any, grammar: Any) -> None:
        self.matcher = lib.GrammarMatcher(grammar)
        self.bitmask = lib.allocate_token_bitmask(1, info.vocab_size)

    def mask(self) -> None:
        """Work out which tokens may come next."""
        self.matcher.fill_next_token_bitmask(self.bitmask)

    def take(self, token: int) -> bool:
        """Read one token; False if it may not come."""
        return bool(self.matcher.accept_token(token))

    def may_end(self) -> bool:
        """Whether the text may end here."""
        return bool(self.matcher.is_completed() or self.matcher.is_terminated())


class OutlinesCore:
    """outlines-core: a regular expression of the schema, indexed by the vocabulary."""

    def __init__(self) -> None:
        self.lib: Any = import_module("outlines_core")
        vocabulary = default_vocabulary()
        ids: dict[bytes, list[int]] = {}
        for token, text in enumerate(vocabulary.token_bytes):
            if text:
                ids.setdefault(text, []).append(token)
        self.eos = vocabulary.eos_ids[0]
        self.vocabulary = self.lib.Vocabulary(self.eos, ids)
        self.num_words = -(-vocabulary.size // 32)

    def compile(self, schema: dict[str, Any]) -> Callable[[], Reader]:
        """A maker of readers."""
        regex = self.lib.json_schema.build_regex_from_schema(json.dumps(schema))
        index = self.lib.Index(regex, self.vocabulary)
        return lambda: OutlinesReader(self.lib.Guide(index), self.eos, self.num_words)


class OutlinesReader:
    """One text."""

    def __init__(self, guide: Any, eos: int, num_words: int) -> None:
        self.guide = guide
        self.eos = eos
        self.words = np.zeros(num_words, np.int32)

    def mask(self) -> None:
        """Work out which tokens may come next."""
        self.guide.write_mask_into(self.words.ctypes.data, self.words.size, 4)

    def take(self, token: int) -> bool:
        """Read one token; False if it may not come."""
        is_allowed = bool(self.guide.accepts_tokens([token]))
        if is_allowed:
            self.guide.advance(token, return_tokens=False)
        return is_allowed

    def may_end(self) -> bool:
        """Whether the text may end here."""
        return bool(self.guide.is_finished() or self.guide.accepts_tokens([self.eos]))


class Ours:
    """agentloop; the automaton that reads takes every valid key, as `JsonSchema.accepts` does."""

    def __init__(self) -> None:
        self.vocabulary = default_vocabulary()
        _ = self.vocabulary.trie, self.vocabulary.fingerprint
        generator = np.random.default_rng(1)
        self.logits = generator.normal(0, 3, (512, self.vocabulary.size)).astype(np.float32)

    def compile(self, schema: dict[str, Any]) -> Callable[[], Reader]:
        """A maker of readers."""
        forget()
        compiled: CompiledConstraint | None
        try:
            dfa = JsonSchema(schema).automaton()
            compiled = compile_constraint(dfa, self.vocabulary)
        except EmptyConstraintError:
            compiled = None
        return lambda: OurReader(self, schema, compiled)


READING = CompileOptions(
    whitespace="spaced", extra_keys="allowed", portable_patterns=False, max_depth=5
)


class OurReader:
    """One text, read by bytes; the mask is a step of inference over a canvas."""

    def __init__(
        self, engine: Ours, schema: dict[str, Any], compiled: CompiledConstraint | None
    ) -> None:
        self.engine = engine
        self.compiled = compiled
        self.dfa: Dfa | None = None
        with suppress(ConstraintError):
            self.dfa = JsonSchema(schema).automaton(READING)
        self.read = b""

    def step(self) -> None:
        """One refinement step over a canvas without a committed token."""
        if self.compiled is None:
            return
        length = max(CANVAS, self.compiled.min_tokens)
        if length <= len(self.engine.logits):
            infer(self.compiled, self.engine.logits[:length], [-1] * length)

    def mask(self) -> None:
        """Nothing: a canvas has no next token."""

    def take(self, token: int) -> bool:
        """Read one token; a wrong one shows at the end."""
        self.read += self.engine.vocabulary.token_bytes[token]
        return True

    def may_end(self) -> bool:
        """Whether the text may end here."""
        return self.dfa is not None and self.dfa.accepts(self.read)


ENGINES: dict[str, Callable[[], Engine]] = {
    "agentloop": Ours,
    "llguidance": LlGuidance,
    "XGrammar": lambda: XGrammar(strict=False),
    "XGrammar, strict": lambda: XGrammar(strict=True),
    "outlines-core": OutlinesCore,
}
