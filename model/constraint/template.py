"""Templates: fixed text with fields, each under a constraint of its own.

A template joins languages end to end. Where the end of one cannot be told from the start of the
next, the automaton of the whole is made deterministic by subset construction.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from string import Formatter
from typing import Any, ClassVar

from typing_extensions import override

from agentloop.errors import ConstraintError
from agentloop.model.constraint.character_wording import quoted
from agentloop.model.constraint.constraint import (
    Constraint,
    JsonConstraint,
    TextConstraint,
    emitted,
)
from agentloop.model.constraint.explanation import explain_json
from agentloop.model.constraint.expression import Expr, Kind, conjunction
from agentloop.model.constraint.fragment import Builder, Fragment, exit_of
from agentloop.model.constraint.joining import content_of, deterministic
from agentloop.model.constraint.json_reader import read_json
from agentloop.model.constraint.jsontext import JsonTextError, parse_json
from agentloop.model.constraint.machine import Asked, Machine
from agentloop.model.constraint.options import DEFAULT_OPTIONS
from agentloop.model.constraint.rejection import continuation, num_shared
from agentloop.model.constraint.scalars import (
    OpaqueText,
    OpaqueTextError,
    bounded,
    scalar_piece,
    text_fragment,
)
from agentloop.model.constraint.spelling import escape


@dataclass(frozen=True)
class Part:
    """A stretch of a template.

    Attributes:
        text: The text itself, None for a field.
        expr: What a field satisfies.
        is_json: Whether the field holds JSON, instead of the text of a string.
    """

    text: str | None = None
    expr: Expr | None = None
    is_json: bool = False

    def ends(self, whole: str, start: int) -> set[int]:
        """Where the stretch may end in a text if it starts at an offset."""
        if self.expr is None:
            assert self.text is not None
            return {start + len(self.text)} if whole.startswith(self.text, start) else set()
        rest = whole[start:]
        if not self.is_json:
            lengths = range(self.continuation(rest)[0] + 1)
        else:
            root = read_json(rest).root
            if root is None or not root.is_whole:
                return set()
            lengths = range(1 if root.kind == "number" else root.end, root.end + 1)
        return {start + length for length in lengths if self.accepts(rest[:length])}

    def accepts(self, text: str) -> bool:
        """Whether a field may hold a text."""
        assert self.expr is not None
        if not self.is_json:
            return Machine().run(Asked(self.expr), text) is not None
        try:
            value = parse_json(text)
        except JsonTextError:
            return False
        return text == text.strip() and Machine().run(Asked(self.expr), value) is not None

    def continuation(self, text: str) -> tuple[int, tuple[str, ...]]:
        """How far a text agrees with the stretch, and what may follow there."""
        if self.expr is None:
            assert self.text is not None
            shared = num_shared(self.text, text)
            return shared, (quoted(self.text[shared:]),) if shared < len(self.text) else ()
        if self.is_json:
            if self.accepts(text):
                return len(text), ()
            rejection = explain_json(self.expr, text)
            return rejection.offset, rejection.allowed
        return continuation(Machine().at_kind(self.expr, "string"), text)

    def fragment(self, *, in_json: bool) -> Fragment | None:
        """The bytes of the stretch, as they are or inside a JSON string."""
        if self.expr is None:
            assert self.text is not None
            builder = Builder(DEFAULT_OPTIONS.max_states)
            word = escape(self.text) if in_json else self.text.encode()
            last = builder.state() if word else 0
            if word:
                builder.word(0, word, last)
            builder.end(last, exit_of(0))
            return builder.finish()
        if self.is_json:
            if in_json:
                raise OpaqueTextError("a template with a field of JSON cannot be a JSON string")
            return emitted(self.expr, DEFAULT_OPTIONS)
        about = Machine().at_kind(self.expr, "string")
        if not in_json:
            return text_fragment(about, DEFAULT_OPTIONS)
        piece = scalar_piece(bounded(Asked(about), DEFAULT_OPTIONS), "string")
        return None if piece is None else content_of(piece.fragment)


@dataclass(frozen=True, eq=False)
class TemplateText(OpaqueText):
    """The text is made of some stretches in order."""

    kind: ClassVar[Kind] = "string"
    parts: tuple[Part, ...]
    shown: str

    @override
    def accepts(self, text: str) -> bool:
        return len(text) in self._places(text)[-1]

    def _places(self, text: str) -> list[set[int]]:
        """Where each stretch may start, and where the last one may end."""
        found = [{0}]
        for part in self.parts:
            found.append({end for start in found[-1] for end in part.ends(text, start)})
        return found

    @property
    @override
    def wording(self) -> str:
        return f"of the form {quoted(self.shown)}"

    @override
    def continuation(self, text: str) -> tuple[int, tuple[str, ...]]:
        places = self._places(text)
        best, phrases = 0, dict[str, None]()
        for part, starts in zip(self.parts, places[:-1], strict=True):
            for start in starts:
                length, allowed = part.continuation(text[start:])
                if start + length > best:
                    best = start + length
                    phrases.clear()
                if start + length == best:
                    phrases.update(dict.fromkeys(allowed))
        inner = [said for said in phrases if not said.startswith("the end of the")]
        ends = ["the end of the text"] if best in places[-1] else []
        return best, (*inner, *ends)

    @override
    def spelt(self, *, in_json: bool) -> Fragment:
        found = _joined(self, in_json)
        if found is None:
            raise ConstraintError(f"no text is of the form {self.shown!r}: a field has none")
        return found

    def fields(self, text: str) -> list[str]:
        """The text of each field of an accepted text; of several readings the longest first."""
        places = self._places(text)
        ends = {len(text)}
        suffixes = [ends]
        for part, starts in zip(reversed(self.parts), reversed(places[:-1]), strict=True):
            ends = {start for start in starts if part.ends(text, start) & suffixes[-1]}
            suffixes.append(ends)
        suffixes.reverse()
        at, found = 0, list[str]()
        for part, after in zip(self.parts, suffixes[1:], strict=True):
            end = max(part.ends(text, at) & after)
            if part.expr is not None:
                found.append(text[at:end])
            at = end
        return found


@lru_cache(maxsize=64)
def _joined(template: TemplateText, in_json: bool) -> Fragment | None:
    """The stretches end to end, with one exit: by the closing quote inside a JSON string."""
    builder = Builder(DEFAULT_OPTIONS.max_states)
    start = 0
    for part in template.parts:
        fragment = part.fragment(in_json=in_json)
        if fragment is None:
            return None
        after = builder.state()
        builder.place(fragment, start, [after])
        start = after
    if in_json:
        builder.arc(start, ord('"'), exit_of(0))
    else:
        builder.end(start, exit_of(0))
    return deterministic(builder.finish(), DEFAULT_OPTIONS.max_states)


class Template(TextConstraint):
    """Fixed text with fields in braces, each under a constraint; `{{` and `}}` are braces.

    A field may hold a constraint on a text, or on JSON where the template stands by itself.

    Raises:
        ConstraintError: A field has no constraint, or is there twice, or the text is malformed.

    Example:
        >>> from agentloop.model.constraint import Choice, Regex
        >>> line = Template("{day}, {hour} h", day=Choice(["Mon", "Tue"]), hour=Regex("[0-9]{1,2}"))
        >>> line.accepts("Tue, 14 h"), line.fields("Tue, 14 h")
        (True, {'day': 'Tue', 'hour': '14'})
    """

    def __init__(self, template: str, **fields: Constraint) -> None:
        self.template = template
        self._names, parts = _parsed(template, fields)
        self.parts: Mapping[str, Constraint] = {name: fields[name] for name in self._names}
        self._expression = TemplateText(parts, template)

    def text_expression(self) -> Expr:
        """The constraint as an expression about a string."""
        return conjunction(self._expression)

    def fields(self, text: str) -> dict[str, Any]:
        """The values of the fields in a valid text.

        Raises:
            ConstraintError: The text is not valid.
        """
        found = self._expression.fields(self.parse(text))
        return {
            name: self.parts[name].parse(inner)
            for name, inner in zip(self._names, found, strict=True)
        }

    def description(self) -> list[Any]:
        """What the constraint is, as JSON."""
        fields = [[name, inner.description()] for name, inner in self.parts.items()]
        return ["Template", self.template, fields]


def _parsed(template: str, fields: Mapping[str, Constraint]) -> tuple[list[str], tuple[Part, ...]]:
    names: list[str] = []
    parts: list[Part] = []
    try:
        pieces = list(Formatter().parse(template))
    except ValueError as error:
        raise ConstraintError(f"the template {template!r} is malformed: {error}") from None
    for text, name, spec, conversion in pieces:
        if text:
            parts.append(Part(text))
        if name is None:
            continue
        if spec or conversion or name not in fields or name in names:
            raise ConstraintError(_field_error(name, names, fields))
        names.append(name)
        parts.append(_field(name, fields[name]))
    unused = [name for name in fields if name not in names]
    if unused or not parts:
        raise ConstraintError(
            f"the template {template!r} has the fields {names}, not {unused}"
            if unused
            else "Template needs some text or a field, got none"
        )
    return names, tuple(parts)


def _field_error(name: str, names: list[str], fields: Mapping[str, Constraint]) -> str:
    if name in names:
        return f"the field {name!r} comes twice in the template; give each a name of its own"
    if name in fields:
        return f"the field {name!r} has a format; its constraint says how it is spelt"
    return f"the field {name!r} of the template has no constraint, only {sorted(fields)}"


def _field(name: str, constraint: Constraint) -> Part:
    if isinstance(constraint, TextConstraint):
        return Part(expr=constraint.text_expression())
    if isinstance(constraint, JsonConstraint):
        return Part(expr=constraint.value_expression(), is_json=True)
    raise ConstraintError(f"the field {name!r} must have a constraint, got {constraint!r}")
