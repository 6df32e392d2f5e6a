"""The options of one call to a model: their names, types, defaults and checks, in one place.

Every way to call a model takes these as keywords. Imports neither torch nor numpy.
"""

from __future__ import annotations

import difflib
import math
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypedDict

from agentloop.errors import ModelError
from agentloop.model.effort import LEVELS, Effort, SamplerOptions

if TYPE_CHECKING:
    from agentloop.model.constraint.dfa import Dfa

Choose = Literal["verified", "majority"]


class ParsedConstraint(Protocol):
    """A constraint that also turns its text into a value."""

    @property
    def key(self) -> str:
        """Identifies the language among all constraints."""
        ...

    def automaton(self, options: Any) -> Dfa:
        """The byte automaton of the language."""
        ...

    def parse(self, text: str) -> Any:
        """The value of an accepted text."""
        ...


class AnswerOptions(TypedDict, total=False):
    """How a call is answered; every key may be left out.

    Attributes:
        effort: Budget of passes: instant, low, medium or high, or a name that another model knows.
        max_tokens: Tokens of the answer at most; by default as many as the constraint needs, and
            at least 64.
        temperature: 0 is deterministic without a seed; a pair goes from the first to the second
            as the answer fills.
        top_p: Above temperature 0, draw among the likeliest tokens that hold this probability.
        seed: Source of every draw. If None it is drawn, and told in the answer; at temperature 0
            it is 0, so that further samples are the same each time.
        stop: Texts that end an answer without a constraint; the answer leaves them out.
        samples: Answers made side by side, of which one is given.
        choose: Which: the one that reads likeliest from left to right (`"verified"`), or the
            likeliest of those whose value most agree on (`"majority"`).
        verify: Whether the answer is scored left to right.
        thinking: Tokens of free text the model may write first, to itself; True takes as many as
            the effort provides for.
        sampler: How canvases are refined, instead of the effort's own way.
        priority: A call of a higher one goes before calls made up to ten seconds earlier for each
            level between them.
        deadline_s: Seconds from the call after which it is given up with a `DeadlineError`.
    """

    effort: Effort | str
    max_tokens: int | None
    temperature: float | tuple[float, float]
    top_p: float
    seed: int | None
    stop: str | Sequence[str]
    samples: int | None
    choose: Choose
    verify: bool | None
    thinking: int | bool
    sampler: SamplerOptions | None
    priority: int
    deadline_s: float | None


class CallOptions(AnswerOptions, total=False):
    """How a call is answered, and what with.

    Attributes:
        constraint: What the answer's text must satisfy; it always does.
    """

    constraint: ParsedConstraint | None


OPTION_NAMES = tuple(sorted(CallOptions.__optional_keys__))


@dataclass(frozen=True)
class Settings:
    """The options of a call, complete and checked.

    Attributes:
        constraint: As in `CallOptions`.
        max_tokens: As in `CallOptions`.
        seed: A number.
        stop: Texts that end the answer.
        samples: As in `CallOptions`.
        choose: As in `CallOptions`.
        verify: As in `CallOptions`.
        thinking_tokens: Length of the stretch of thinking, 0 for none.
        sampler: How canvases are refined.
        priority: As in `CallOptions`.
        deadline_s: As in `CallOptions`.
    """

    constraint: ParsedConstraint | None
    max_tokens: int | None
    seed: int
    stop: tuple[str, ...]
    samples: int
    choose: Choose
    verify: bool
    thinking_tokens: int
    sampler: SamplerOptions
    priority: int
    deadline_s: float | None


def settings_of(options: CallOptions) -> Settings:
    """The options of a call with defaults filled in.

    Raises:
        ModelError: An option is unknown or out of its range.
    """
    for name in options:
        if name not in OPTION_NAMES:
            near = difflib.get_close_matches(name, OPTION_NAMES, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            known = ", ".join(OPTION_NAMES)
            raise ModelError(f"{name!r} is not an option of a call{hint}; the options are {known}")
    effort = options.get("effort", "medium")
    level = next((LEVELS[name] for name in LEVELS if name == effort), None)
    if level is None:
        raise ModelError(f"effort is {effort!r}, expected one of {', '.join(LEVELS)}")
    samples, verify = options.get("samples"), options.get("verify")
    num_samples = level.samples if samples is None else samples
    _check_count("samples", num_samples, least=1)
    max_tokens, seed = options.get("max_tokens"), options.get("seed")
    if max_tokens is not None:
        _check_count("max_tokens", max_tokens, least=1)
    deadline_s = options.get("deadline_s")
    if deadline_s is not None and not deadline_s > 0:
        raise ModelError(f"deadline_s is {deadline_s!r}, expected seconds above 0")
    choose = options.get("choose", "verified")
    if choose not in ("verified", "majority"):
        raise ModelError(f"choose is {choose!r}, expected one of verified, majority")
    sampler = _sampler(options, options.get("sampler") or level.sampler)
    if seed is None:
        seed = secrets.randbits(32) if sampler.is_random else 0
    return Settings(
        constraint=options.get("constraint"),
        max_tokens=max_tokens,
        seed=seed,
        stop=_stop_texts(options),
        samples=num_samples,
        choose=choose,
        verify=num_samples > 1 or (level.verify if verify is None else verify),
        thinking_tokens=_thinking_tokens(options.get("thinking", 0), level.thinking_tokens),
        sampler=sampler,
        priority=options.get("priority", 0),
        deadline_s=deadline_s,
    )


def one_sample(options: CallOptions) -> CallOptions:
    """The options of a call that makes one answer, for whoever watches it.

    Raises:
        ModelError: More than one is asked for.
    """
    if (options.get("samples") or 1) > 1 or options.get("verify"):
        raise ModelError(
            f"samples is {options.get('samples')} and verify {options.get('verify')}, but one "
            "answer is watched while it is made, before it can be scored; use generate instead"
        )
    return {**options, "samples": 1, "verify": False}


def _sampler(options: CallOptions, base: SamplerOptions) -> SamplerOptions:
    """The way to refine, at the call's temperature and top_p."""
    top_p = options.get("top_p", base.top_p)
    if not 0.0 < top_p <= 1.0:
        raise ModelError(f"top_p is {top_p!r}, expected a number above 0 and at most 1")
    asked = options.get("temperature", base.temperature)
    first, last = asked if isinstance(asked, tuple) else (asked, base.final_temperature)
    for value in (first, last):
        if value is not None and not (math.isfinite(value) and value >= 0):
            raise ModelError(f"temperature is {asked!r}, expected a finite number of at least 0")
    return replace(base, temperature=first, final_temperature=last, top_p=top_p)


def _stop_texts(options: CallOptions) -> tuple[str, ...]:
    given = options.get("stop", ())
    texts = (given,) if isinstance(given, str) else tuple(given)
    if any(not text for text in texts):
        raise ModelError("stop holds an empty text, which would end every answer at once")
    if texts and options.get("constraint") is not None:
        raise ModelError(
            f"stop is {texts!r} beside a constraint, which already says where the text ends; "
            "leave stop out, or the constraint"
        )
    return texts


def _thinking_tokens(asked: int | bool, of_effort: int) -> int:
    if asked is True:
        return of_effort
    _check_count("thinking", int(asked), least=0)
    return int(asked)


def _check_count(name: str, value: int, *, least: int) -> None:
    if value < least:
        raise ModelError(f"{name} is {value!r}, expected at least {least}")
