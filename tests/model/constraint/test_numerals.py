"""Ranges and multiples of numbers agree with decimal arithmetic."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentloop.model.constraint.characters import StateBudgetError
from agentloop.model.constraint.numerals import (
    Bounds,
    any_integer,
    any_number,
    in_bounds,
    multiples,
    spell,
    to_decimal,
)

numbers = st.decimals(
    min_value=-2000, max_value=2000, places=3, allow_nan=False, allow_infinity=False
) | st.sampled_from([Decimal(x) for x in ("0", "-0.5", "1", "10", "99.9", "-100", "0.001")])


@given(st.floats(allow_nan=False, allow_infinity=False, min_value=-1e20, max_value=1e20))
@settings(deadline=None)
def test_spelling_is_canonical_and_keeps_the_value(value: float) -> None:
    """A float's spelling is read back as the same float and is in the language."""
    number = to_decimal(value)
    assert number is not None
    text = spell(number)
    assert float(json.loads(text)) == value
    assert any_number().accepts(text)
    assert any_integer().accepts(text) == (value == int(value))


@pytest.mark.parametrize(
    "text",
    ["", "-", "-0", "00", "01", "1.", "1.0", "-0.0", ".5", "1e5", "+1", "1.50", "0x1", "--1"],
)
def test_other_spellings_are_not_canonical(text: str) -> None:
    """Only one spelling of each value is in the language."""
    assert not any_number().accepts(text)


@given(st.none() | numbers, st.none() | numbers, st.booleans(), st.booleans(), st.lists(numbers))
@settings(deadline=None, max_examples=100)
def test_bounds_hold_exactly(
    lo: Decimal | None,
    hi: Decimal | None,
    is_lo_open: bool,
    is_hi_open: bool,
    values: list[Decimal],
) -> None:
    """A number is in the automaton of an interval exactly when it lies in the interval."""
    bounds = Bounds(lo, hi, is_lo_open, is_hi_open)
    automaton = in_bounds(bounds)
    for value in [*values, *(b for b in (lo, hi) if b is not None)]:
        assert automaton.accepts(spell(value)) == bounds.holds(value), value


@given(
    st.sampled_from([Decimal(x) for x in ("1", "3", "7", "12", "0.01", "2.5", "0.0075", "100")]),
    st.lists(numbers, min_size=1),
    st.integers(-500, 500),
)
@settings(deadline=None, max_examples=100)
def test_multiples_leave_no_remainder(step: Decimal, values: list[Decimal], times: int) -> None:
    """A number is a multiple exactly when the decimal remainder is zero."""
    automaton = multiples(step)
    assert automaton.accepts(spell(step * times))
    for value in values:
        assert automaton.accepts(spell(value)) == (value % step == 0), value


def test_a_step_with_too_many_digits_is_refused() -> None:
    """A table of remainders that would be too large is an error that says so."""
    with pytest.raises(StateBudgetError, match="123,457 remainders; at most 4,000"):
        multiples(Decimal("1.23457"))
