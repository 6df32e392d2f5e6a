"""Numbers as text: one canonical spelling per value, and automata for ranges and multiples.

The canonical spelling is a plain decimal: no exponent, no plus, no leading zeros, no trailing zeros
after the point, no point without digits after it, no `-0`. So 1, 1.0 and 1e0 are all spelt `1`, and
a set of numbers is a set of texts. All arithmetic is on `Decimal`, never on floats.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Context, Decimal, InvalidOperation
from functools import lru_cache

from agentloop.model.constraint.characters import (
    CharDfa,
    Ranges,
    StateBudgetError,
    explore,
)

MAX_REMAINDERS = 4_000
"""Largest integer a multiple is tested against, after scaling away the decimals."""
MAX_DIGITS = 400
"""Longest plain spelling that is worth writing out; an exponent can hide thousands of zeros."""

FLOAT_DIGITS = 15
"""Digits up to which different decimals are different floats."""

SYMBOLS: tuple[Ranges, ...] = (
    *(((0x30 + digit, 0x30 + digit),) for digit in range(10)),
    ((0x2D, 0x2D),),
    ((0x2E, 0x2E),),
)
MINUS, POINT = 10, 11
_EXACT = Context(prec=2 * MAX_DIGITS, Emax=10**6, Emin=-(10**6))


def to_decimal(value: float | int | Decimal) -> Decimal | None:
    """The exact decimal a JSON number stands for; None where it is not finite or far too long."""
    try:
        number = value if isinstance(value, Decimal) else Decimal(repr(value))
    except InvalidOperation:
        return None
    if not number.is_finite() or (number and abs(number.adjusted()) > MAX_DIGITS):
        return None
    return number if len(number.as_tuple().digits) <= MAX_DIGITS else None


def spell(number: Decimal) -> str:
    """The canonical spelling of a number.

    Example:
        >>> spell(Decimal("-12.50")), spell(Decimal("1e3")), spell(Decimal("-0.0"))
        ('-12.5', '1000', '0')
    """
    if not number:
        return "0"
    text = format(number, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


@dataclass(frozen=True)
class Bounds:
    """An interval of numbers; None is unbounded, `open_*` excludes the bound itself."""

    lo: Decimal | None = None
    hi: Decimal | None = None
    is_lo_open: bool = False
    is_hi_open: bool = False

    def holds(self, number: Decimal) -> bool:
        """Whether a number lies inside."""
        if self.lo is not None and (number < self.lo or (self.is_lo_open and number == self.lo)):
            return False
        return self.hi is None or not (number > self.hi or (self.is_hi_open and number == self.hi))


# State of reading a canonical number. Phases: "start", "minus" (after it), "zero" (a single leading
# 0), "int", "point", "zeros" (fraction digits so far end in 0) and "frac" (end in another digit).
_ENDS = {"zero", "int", "frac"}


def _phase(phase: str, symbol: int) -> str | None:
    """The next phase of a canonical spelling, None where it cannot go on."""
    if symbol == MINUS:
        return "minus" if phase == "start" else None
    if symbol == POINT:
        return "point" if phase in ("zero", "int") else None
    if phase in ("start", "minus"):
        return "zero" if symbol == 0 else "int"
    if phase == "int":
        return "int"
    if phase == "zero":
        return None
    return "zeros" if symbol == 0 else "frac"


@lru_cache(maxsize=1)
def any_number() -> CharDfa:
    """Every canonical number."""

    def step(state: tuple[str, bool], symbol: int) -> tuple[str, bool] | None:
        phase, negative = state
        found = _phase(phase, symbol)
        if found is None:
            return None
        return found, negative if found in ("zero", "minus", "point", "zeros") else False

    def step_signed(state: tuple[str, bool], symbol: int) -> tuple[str, bool] | None:
        found = step(state, symbol)
        if found is not None and found[0] == "minus":
            return "minus", True
        return found

    # A minus stays pending until a digit other than 0 shows that the value is not 0.
    return explore(
        ("start", False), step_signed, lambda s: s[0] in _ENDS and not s[1], SYMBOLS
    ).minimised()


@lru_cache(maxsize=1)
def any_integer() -> CharDfa:
    """Every canonical number without a fraction."""
    return any_number() & explore(
        "start",
        lambda state, symbol: None if symbol == POINT else _phase(state, symbol),
        lambda state: state in _ENDS,
        SYMBOLS,
    )


def _digits(bound: Decimal) -> tuple[str, str]:
    whole, _, fraction = spell(abs(bound)).partition(".")
    return whole, fraction


_Magnitude = tuple[str, int, int]
_Signed = tuple[bool, _Magnitude]


class _Comparison:
    """Compares the magnitude being read with a fixed one, digit by digit.

    States: ("whole", digits read, sign of what is read minus the bound's same digits),
    ("fraction", digits read) while all digits are equal, and the settled signs -1 and 1.
    """

    def __init__(self, bound: Decimal) -> None:
        self.whole, self.fraction = _digits(bound)

    start: _Magnitude = ("whole", 0, 0)

    def step(self, state: _Magnitude, symbol: int) -> _Magnitude:
        part, read, sign = state
        if part == "settled" or symbol == MINUS:
            return state
        if symbol == POINT:
            sign = self.sign_of_whole(state)
            return ("settled", 0, sign) if sign else ("fraction", 0, 0)
        if part == "whole":
            if read >= len(self.whole):
                return ("settled", 0, 1)
            return ("whole", read + 1, sign or _sign(symbol - int(self.whole[read])))
        if read >= len(self.fraction):
            return ("settled", 0, 1) if symbol else state
        found = _sign(symbol - int(self.fraction[read]))
        return ("settled", 0, found) if found else ("fraction", read + 1, 0)

    def sign_of_whole(self, state: _Magnitude) -> int:
        _, read, sign = state
        return -1 if read < len(self.whole) else sign

    def sign(self, state: _Magnitude) -> int:
        """Sign of the magnitude read minus the bound, if the text ends here."""
        part, read, sign = state
        if part == "settled":
            return sign
        if part == "whole":
            return self.sign_of_whole(state) or (-1 if self.fraction else 0)
        return -1 if read < len(self.fraction) else 0


def _sign(number: int) -> int:
    return (number > 0) - (number < 0)


@lru_cache(maxsize=512)
def compared(bound: Decimal, wanted: frozenset[int]) -> CharDfa:
    """Canonical numbers whose difference to a bound has one of the wanted signs (-1, 0, 1)."""
    comparison = _Comparison(bound)
    is_below_zero = bound < 0
    begin = ("begin", 0, 0)

    def step(state: _Signed, symbol: int) -> _Signed:
        negative, magnitude = state
        if magnitude == begin:
            magnitude = comparison.start
            negative = symbol == MINUS
        return negative, comparison.step(magnitude, symbol)

    def is_accepting(state: _Signed) -> bool:
        negative, magnitude = state
        if negative != is_below_zero:
            return (-1 if negative else 1) in wanted
        return comparison.sign(magnitude) * (-1 if negative else 1) in wanted

    return any_number() & explore((False, begin), step, is_accepting, SYMBOLS)


def in_bounds(bounds: Bounds) -> CharDfa:
    """Canonical numbers inside an interval."""
    found = any_number()
    if bounds.lo is not None:
        found = found & compared(bounds.lo, frozenset({1} if bounds.is_lo_open else {0, 1}))
    if bounds.hi is not None:
        found = found & compared(bounds.hi, frozenset({-1} if bounds.is_hi_open else {0, -1}))
    return found


@lru_cache(maxsize=256)
def multiples(step: Decimal) -> CharDfa:
    """Canonical numbers that are an integer times `step`, which is above 0.

    A number with at most k decimals is read as an integer of units 10^-k modulo the step's own
    units; what has more decimals than the step is no multiple of it.

    Raises:
        StateBudgetError: The step has too many digits for a table of remainders.
    """
    reduced = step.normalize(_EXACT)
    exponent = int(reduced.as_tuple().exponent)
    decimals = max(0, -exponent)
    modulus = int(reduced.scaleb(decimals, _EXACT))
    # The whole part w counts w * 10^decimals units, which is a multiple exactly when w is one of
    # modulus / gcd; the remainder is therefore kept in units throughout.
    if modulus > MAX_REMAINDERS:
        raise StateBudgetError(
            f"multipleOf {spell(step)} needs a table of {modulus:,} remainders; at most"
            f" {MAX_REMAINDERS:,} are supported"
        )

    def read(state: tuple[int, int], symbol: int) -> tuple[int, int] | None:
        remainder, fraction = state  # fraction: digits after the point, -1 before it
        if symbol == MINUS:
            return state
        if symbol == POINT:
            return (remainder, 0) if fraction < 0 and decimals else None
        if fraction >= decimals:
            return None
        return (remainder * 10 + symbol) % modulus, fraction + (fraction >= 0)

    def is_multiple(state: tuple[int, int]) -> bool:
        remainder, fraction = state
        return remainder * pow(10, decimals - max(fraction, 0), modulus) % modulus == 0

    return any_number() & explore((0, -1), read, is_multiple, SYMBOLS)


@lru_cache(maxsize=1)
def read_exactly() -> CharDfa:
    """Canonical numbers whose order survives reading them as floats.

    Integers are read exactly by anyone. A fraction is kept to FLOAT_DIGITS digits: up to there
    different decimals are different floats, in the same order.
    """

    def read(state: tuple[int, bool], symbol: int) -> tuple[int, bool] | None:
        num_digits, has_point = state
        if symbol == MINUS:
            return state
        if symbol == POINT:
            return (num_digits, True) if num_digits < FLOAT_DIGITS else None
        if num_digits == FLOAT_DIGITS:
            return None if has_point else state
        return num_digits + 1, has_point

    return any_number() & explore((0, False), read, lambda _: True, SYMBOLS)
