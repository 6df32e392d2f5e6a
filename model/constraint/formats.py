r"""The languages of the `format` keyword.

Each is the grammar of its RFC as an automaton. Where the full grammar is not regular or needs far
too many states, the language is a subset (`is_exact` is False): what is generated is always valid,
what is judged invalid may be merely unusual.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from agentloop.model.constraint.characters import CharDfa, of_length
from agentloop.model.constraint.pattern import compile_pattern

MAX_HOST_LENGTH = 63
"""Host names are written up to this length, which keeps each label and the whole in limits."""

_YEAR = r"(?:\d{3}[1-9]|\d\d[1-9]0|\d[1-9]00|[1-9]000)"  # 0000 is no year to most calendars
_LEAP_YEAR = r"(?:\d\d(?:0[48]|[2468][048]|[13579][26])|(?:[02468][48]|[2468]0|[13579][26])00)"
DATE = (
    rf"(?:{_YEAR}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)"
    rf"|02-(?:0[1-9]|1\d|2[0-8]))|{_LEAP_YEAR}-02-29)"
)
_OFFSET = r"(?:[zZ]|[+-](?:[01]\d|2[0-3]):[0-5]\d)"
_LEAP_SECOND = r"23:59:60(?:\.\d+)?(?:[zZ]|[+-]00:00)"
TIME = rf"(?:(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d+)?{_OFFSET}|{_LEAP_SECOND})"
_CLOCK = r"T(?:\d+H(?:\d+M(?:\d+S)?)?|\d+M(?:\d+S)?|\d+S)"
_DATES = r"(?:\d+Y(?:\d+M(?:\d+D)?)?|\d+M(?:\d+D)?|\d+D)"
DURATION = rf"P(?:{_DATES}(?:{_CLOCK})?|{_CLOCK}|\d+W)"
_BYTE = r"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
IPV4 = rf"{_BYTE}(?:\.{_BYTE}){{3}}"
_GROUP = "[0-9a-fA-F]{1,4}"
_LAST32 = rf"(?:{_GROUP}:{_GROUP}|{IPV4})"
IPV6 = (
    rf"(?:(?:{_GROUP}:){{6}}{_LAST32}|::(?:{_GROUP}:){{5}}{_LAST32}"
    + "".join(
        rf"|(?:(?:{_GROUP}:){{0,{before}}}{_GROUP})?::(?:{_GROUP}:){{{4 - before}}}{_LAST32}"
        for before in range(5)
    )
    + rf"|(?:(?:{_GROUP}:){{0,5}}{_GROUP})?::{_GROUP}|(?:(?:{_GROUP}:){{0,6}}{_GROUP})?::)"
)
_HOST = r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?(?:\.[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?)*"
_ATOM = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
_QUOTED = r'"(?:[ !#-\[\]-~]|\\[ -~])*"'
_LOCAL = rf"(?:{_ATOM}(?:\.{_ATOM})*|{_QUOTED})"
EMAIL = rf"{_LOCAL}@(?:{_HOST}|\[{IPV4}\])"
_WIDE = "\u00a0-\ud7ff\uf900-\ufdcf\ufdf0-\uffef\U00010000-\U0001fffd\U00020000-\U0002fffd"
_IDN_ATOM = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~\u00a1-\ud7ff\uf900-\ufdcf\ufdf0-\uffef-]+"
_IDN_LABEL = r"[A-Za-z0-9\u00c0-\u02af\u0370-\u03ff\u0400-\u04ff\u3400-\u9fff\uac00-\ud7a3]+"
IDN_EMAIL = rf"{_IDN_ATOM}(?:\.{_IDN_ATOM})*@{_IDN_LABEL}(?:\.{_IDN_LABEL})*"
UUID = r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"
JSON_POINTER = r"(?:/(?:[^~/]|~[01])*)*"
RELATIVE_JSON_POINTER = rf"(?:0|[1-9]\d*)(?:#|{JSON_POINTER})"


def _uri(wide: str, *, may_be_relative: bool) -> str:
    """A URI by its grammar; `wide` are the further characters that an IRI may hold.

    Source: RFC 3986, appendix A, and RFC 3987, section 2.2.
    """
    encoded = "%[0-9a-fA-F]{2}"
    plain = rf"A-Za-z0-9._~!$&'()*+,;=\-{wide}"
    char = rf"(?:[{plain}:@]|{encoded})"
    user = rf"(?:(?:[{plain}:]|{encoded})*@)?"
    authority = rf"{user}(?:[{plain}]|{encoded})*(?::\d*)?"
    rooted = rf"/(?:{char}+(?:/{char}*)*)?"
    rest = rf"(?:\?(?:{char}|[/?])*)?(?:#(?:{char}|[/?])*)?"
    net = rf"//{authority}(?:/{char}*)*"
    absolute = rf"[A-Za-z][A-Za-z0-9+.-]*:(?:{net}|{rooted}|{char}+(?:/{char}*)*|){rest}"
    if not may_be_relative:
        return absolute
    first = rf"(?:[{plain}@]|{encoded})+"
    return rf"(?:{absolute}|(?:{net}|{rooted}|{first}(?:/{char}*)*|){rest})"


_VARIABLE = r"(?:[A-Za-z0-9_]|%[0-9a-fA-F]{2})(?:\.?(?:[A-Za-z0-9_]|%[0-9a-fA-F]{2}))*"
_VARIABLES = rf"{_VARIABLE}(?::[1-9]\d{{0,3}}|\*)?(?:,{_VARIABLE}(?::[1-9]\d{{0,3}}|\*)?)*"
_LITERAL = rf"[!#$&(-;=?-\[\]_a-z~{_WIDE}]|%[0-9a-fA-F]{{2}}"
URI_TEMPLATE = rf"(?:{_LITERAL}|\{{[+#./;?&=,!@|]?{_VARIABLES}\}})*"


@dataclass(frozen=True)
class Format:
    """A named language.

    Attributes:
        build: Gives the automaton.
        is_exact: Whether it is the whole language of the format.
        note: What is left out, where it is not.
    """

    build: Callable[[], CharDfa]
    is_exact: bool = True
    note: str = ""


def _of(pattern: str) -> Callable[[], CharDfa]:
    return lambda: compile_pattern(pattern, is_full_match=True)


def _host_name() -> CharDfa:
    labels = compile_pattern(_HOST, is_full_match=True) & of_length(1, MAX_HOST_LENGTH)
    return labels - compile_pattern(r"(?:^|\.)..--")


def _regex() -> CharDfa:
    return compile_pattern(r"[^\\^$.*+?()\[\]{}|/]*", is_full_match=True)


FORMATS: dict[str, Format] = {
    "date": Format(_of(DATE), False, "the year 0000"),
    "time": Format(_of(TIME), False, "leap seconds only at 23:59:60 UTC"),
    "date-time": Format(
        _of(rf"{DATE}[tT]{TIME}"), False, "the year 0000; leap seconds only at 23:59:60 UTC"
    ),
    "duration": Format(_of(DURATION)),
    "email": Format(_of(EMAIL), False, "no IPv6 literal; the limits on length are not checked"),
    "idn-email": Format(_of(IDN_EMAIL), False, "letters of common scripts"),
    "hostname": Format(_host_name, False, "at most 63 characters, no punycode"),
    "idn-hostname": Format(_host_name, False, "ASCII only, at most 63 characters"),
    "ipv4": Format(_of(IPV4)),
    "ipv6": Format(_of(IPV6)),
    "uri": Format(_of(_uri("", may_be_relative=False)), False, "no host in brackets"),
    "uri-reference": Format(_of(_uri("", may_be_relative=True)), False, "no host in brackets"),
    "iri": Format(_of(_uri(_WIDE, may_be_relative=False)), False, "no private characters"),
    "iri-reference": Format(_of(_uri(_WIDE, may_be_relative=True)), False, "no private characters"),
    "uri-template": Format(_of(URI_TEMPLATE), False, "no private characters"),
    "uuid": Format(_of(UUID)),
    "json-pointer": Format(_of(JSON_POINTER)),
    "relative-json-pointer": Format(_of(RELATIVE_JSON_POINTER)),
    "regex": Format(_regex, False, "patterns without special characters"),
}


@lru_cache(maxsize=len(FORMATS))
def format_automaton(name: str) -> CharDfa:
    """The automaton of a format."""
    return FORMATS[name].build()
