"""Formats agree with independent readers of them."""

from __future__ import annotations

import datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentloop.model.constraint import JsonSchema

DATE = JsonSchema({"type": "string", "format": "date"})
MOMENT = JsonSchema({"type": "string", "format": "date-time"})
YEARS = (0, 1, 4, 9, 10, 40, 99, 100, 400, 800, 1000, 1900, 2000, 2023, 2024, 2100, 3200, 9999)


def is_date(text: str) -> bool:
    try:
        datetime.date.fromisoformat(text)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("year", YEARS)
def test_dates_are_those_that_a_calendar_holds(year: int) -> None:
    """Every month from 0 to 13 and day from 0 to 32, beside `datetime`; leap years included."""
    dfa = DATE.automaton()
    for month in range(14):
        for day in (*range(2), *range(27, 33)):
            text = f"{year:04}-{month:02}-{day:02}"
            assert dfa.accepts(f'"{text}"'.encode()) == is_date(text), text
            assert DATE.accepts(f'"{text}"') == is_date(text), text


@given(st.datetimes(timezones=st.just(datetime.UTC)))
@settings(deadline=None)
def test_moments_are_read(moment: datetime.datetime) -> None:
    """Whatever `datetime` writes with an offset is a date-time."""
    assert MOMENT.automaton().accepts(f'"{moment.isoformat()}"'.encode())
