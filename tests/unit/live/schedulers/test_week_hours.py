"""Times of the week: which there are, in whose time zone, and what is none."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from bftrain.errors import BadValue
from bftrain.live.schedulers.week_hours import WeekHours

ZURICH = "Europe/Zurich"


def at(day: str, clock: str) -> float:
    """Return a time in the week of Monday, 2 November 2026, in Zurich."""
    number = 2 + ("mon", "tue", "wed", "thu", "fri", "sat", "sun").index(day)
    return datetime.fromisoformat(f"2026-11-{number:02} {clock}").replace(tzinfo=ZoneInfo(ZURICH)).timestamp()


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        ("", ["mon 12:00"], []),
        ("always", ["mon 12:00", "sun 23:59"], []),
        ("nights", ["mon 20:00", "tue 05:59", "sun 00:00"], ["mon 06:00", "mon 19:59", "sat 12:00"]),
        ("nights and week-ends", ["sat 12:00", "sun 19:00", "mon 05:00"], ["mon 06:00", "fri 19:59"]),
        (
            "Mon-Fri 19:00-07:00, Sat-Sun",
            ["fri 23:00", "sat 03:00", "tue 06:59", "sun 23:59"],
            ["mon 03:00", "tue 07:00"],
        ),
        ("Fri-Mon 00:00-24:00", ["fri 00:00", "mon 23:59"], ["tue 00:00", "thu 23:59"]),
        ("daily 12:00-13:00", ["wed 12:30"], ["wed 13:00"]),
        ("12:00-13:00", ["wed 12:30"], ["wed 13:00"]),
        ("sun", ["sun 00:00"], ["mon 00:00"]),
    ],
)
def test_what_lies_inside_and_outside(text: str, inside: list[str], outside: list[str]) -> None:
    hours = WeekHours.parse(text, ZURICH)
    assert [each for each in (*inside, *outside) if at(*each.split()) in hours] == inside


def test_the_time_zone_is_that_of_the_site() -> None:
    noon = at("wed", "12:00")
    assert noon in WeekHours.parse("12:00-13:00", ZURICH)
    assert noon not in WeekHours.parse("12:00-13:00", "America/New_York")


@pytest.mark.parametrize(
    ("text", "zone", "words"),
    [
        ("sometimes", "", "'sometimes' is no time of the week"),
        ("nights and", "", "'' is no time of the week"),
        ("Mon-Fry", "", "'fry' is no day"),
        ("Mon 25:00-26:00", "", "no such times of a day"),
        ("Mon 10:00-10:00", "", "no such times of a day"),
        ("Mon 10:70-11:00", "", "no such times of a day"),
        ("nights", "Europe/Atlantis", "there is no time zone 'Europe/Atlantis'"),
        ("nights", "../etc", "there is no time zone"),
    ],
)
def test_what_is_no_time_of_the_week_is_refused(text: str, zone: str, words: str) -> None:
    with pytest.raises(BadValue, match=words):
        WeekHours.parse(text, zone)
