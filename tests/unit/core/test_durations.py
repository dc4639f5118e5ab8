"""Lengths of time as people write them: agree with datetime, and anything doubtful is refused."""

from __future__ import annotations

import math
from datetime import timedelta

import pytest

from bftrain.durations import parse_duration


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2min", timedelta(minutes=2)),
        ("1h30min", timedelta(hours=1, minutes=30)),
        ("1 h 30 m", timedelta(hours=1, minutes=30)),
        ("1.5 days", timedelta(days=1.5)),
        ("2W3d", timedelta(weeks=2, days=3)),
        ("250ms", timedelta(milliseconds=250)),
        ("1-12:00:00", timedelta(days=1, hours=12)),
        ("00:00:07.5", timedelta(seconds=7.5)),
    ],
)
def test_it_is_what_a_calendar_says(text: str, expected: timedelta) -> None:
    assert parse_duration(text) == expected.total_seconds()


def test_a_plain_number_is_seconds_of_any_size() -> None:
    assert [parse_duration(text) for text in ("90", " 1e3 ", "-1", "inf")] == [90.0, 1000.0, -1.0, math.inf]


@pytest.mark.parametrize(
    "text", ["", "h", "2mn", "1min2h", "1h1h", "-2min", "2min!", "1:00", "0:60:00", "1h 30", "1e3s", "٢min"]
)
def test_what_can_be_misread_is_refused_with_the_forms(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration: write seconds, or such as 90s, 2min"):
        parse_duration(text)
