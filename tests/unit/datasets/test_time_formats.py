"""Times as people and schedulers write them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from bftrain import BadInput
from bftrain.errors import FormerSpelling
from bftrain_datasets.log.time_formats import SMALLEST_EPOCH_S, RecordClock, span_s, window, zone

NEW_YEAR = 1_767_225_600.0  # 2026-01-01 UTC
BERLIN = "Europe/Berlin"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-01-01T00:00:00", NEW_YEAR),
        ("2026-01-01 01:02:03", NEW_YEAR + 3723),
        ("2026-01-01T00:00:00.25", NEW_YEAR + 0.25),
        ("2026-01-01T00:00:00,5", NEW_YEAR + 0.5),
        ("2026-01-01T01:00:00+01:00", NEW_YEAR),
        ("2026-01-01T00:00:00Z", NEW_YEAR),
        ("2026-01-01", NEW_YEAR),
        ("2026-01-01 00:00:00 UTC", NEW_YEAR),
        ("2026-01-01 00:00:00.25 GMT", NEW_YEAR + 0.25),
        ("2026-01-01 00:00:00+00", NEW_YEAR),
        (" 2026/01/01 00:00:00", NEW_YEAR),
        ("1767225600", NEW_YEAR),
        ("1767225600.75", NEW_YEAR + 0.75),
        ("1767225600750", NEW_YEAR + 0.75),
        ("2016-12-31T23:59:60", datetime(2017, 1, 1, tzinfo=UTC).timestamp()),
        ("0", 0.0),
    ],
)
def test_every_way_to_write_a_time(text: str, expected: float) -> None:
    clock = RecordClock()
    assert clock.seconds(text) == expected
    assert clock.seconds(text) == expected  # now that the hour is known


@pytest.mark.parametrize(
    "text",
    [
        *["", "Unknown", "tomorrow", "2026-13-01T00:00:00", "2026-02-30T00:00:00", "2026-01-01T24:00:00"],
        *["2026-01-01T00:60:00", "2026-01-01T00:00:61", "2026-01-01T00:00:0x", "-1", "-1767225600", "1e400", "nan"],
        *["UTC", "2026-01-01 00:00:00 UTC UTC", "01/02/2026", "2026/1/1x"],
        *[
            "inf",
            str(2**70),
            "1969-12-31T23:59:59",
            "0001-01-01T00:00:00",
            "\x00",
            "2026-01-01T00:00:00|",
            "²",
            "9" * 9999,
        ],
    ],
)
def test_what_is_no_time(text: str) -> None:
    clock = RecordClock()
    with pytest.raises(ValueError, match=r".+"):
        clock.seconds(text)


def test_what_was_assumed_is_counted() -> None:
    clock = RecordClock()
    for text in ("2026-01-01T00:00:00", "2026-01-01T00:00:01", "2026-01-01T00:00:00Z", "1767225600", "1767225600000"):
        clock.seconds(text)
    assert (clock.without_zone, clock.in_ms, clock.twice) == (2, 1, 0)


def test_local_times_follow_summer_and_winter() -> None:
    clock = RecordClock(zone(BERLIN))
    assert clock.seconds("2026-01-01T01:00:00") == NEW_YEAR
    assert clock.seconds("2026-07-01T02:00:00") == datetime(2026, 7, 1, tzinfo=UTC).timestamp()
    assert clock.seconds("2026-01-01T00:00:00Z") == NEW_YEAR
    assert clock.twice == 0


def test_hours_that_a_clock_shows_twice_or_never() -> None:
    clock = RecordClock(zone(BERLIN))
    twice = clock.seconds("2025-10-26T02:30:00")
    assert twice == datetime(2025, 10, 26, 0, 30, tzinfo=UTC).timestamp()  # the earlier one
    assert clock.twice == 1
    never = clock.seconds("2026-03-29T02:30:00")
    assert never == datetime(2026, 3, 29, 1, 30, tzinfo=UTC).timestamp()
    assert clock.twice == 2
    clock.seconds("2025-10-26T02:31:00")
    assert clock.twice == 3
    assert clock.seconds("2025-10-26T03:00:00") - twice == 5400
    assert clock.twice == 3


def test_a_clock_that_changes_by_half_an_hour() -> None:
    """On Lord Howe Island the hour from 1 to 2 in the night is odd in its second half only."""
    clock = RecordClock(zone("Australia/Lord_Howe"))
    assert clock.seconds("2026-04-05T01:15:00") == datetime(2026, 4, 4, 14, 15, tzinfo=UTC).timestamp()
    assert clock.twice == 0
    assert clock.seconds("2026-04-05T01:45:00") == datetime(2026, 4, 4, 14, 45, tzinfo=UTC).timestamp()
    assert clock.twice == 1
    assert clock.seconds("2026-04-05T02:00:00") == datetime(2026, 4, 4, 15, 30, tzinfo=UTC).timestamp()


@pytest.mark.parametrize("name", [BERLIN, "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe", "+05:30", "UTC"])
def test_each_minute_of_a_year_agrees_with_the_library(name: str) -> None:
    clock, place = RecordClock(zone(name)), zone(name)
    moment = datetime(2025, 1, 1, 0, 7, 13)  # noqa: DTZ001 - a local time is what this is about
    while moment.year == 2025:
        assert clock.seconds(moment.isoformat()) == moment.replace(tzinfo=place).timestamp()
        moment += timedelta(minutes=37)


@pytest.mark.parametrize("name", ["UTC", "utc", "Z"])
def test_utc_by_any_name(name: str) -> None:
    assert zone(name) is UTC


def test_a_zone_by_its_offset() -> None:
    assert zone("-07:00") == timezone(timedelta(hours=-7))


@pytest.mark.parametrize(
    "name", ["Europe/Berln", "", "../etc/passwd", "/etc/passwd", "+2:00", "Europe", "\x00", "no zone", "CESTX"]
)
def test_no_such_zone(name: str) -> None:
    with pytest.raises(BadInput, match="unknown time zone") as error:
        zone(name)
    assert len(str(error.value)) < 200
    with pytest.raises(BadInput, match="did you mean 'Europe/Berlin'"):
        zone("Europe/Berln")


def test_a_time_that_another_notation_gave() -> None:
    clock = RecordClock(zone(BERLIN))
    assert clock.local(datetime(2026, 1, 1, 1)) == NEW_YEAR  # noqa: DTZ001 - without a zone it is in that of the clock
    assert clock.local(datetime(2026, 1, 1, tzinfo=UTC)) == NEW_YEAR
    assert clock.without_zone == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0:10", (0.0, 10.0)),
        (":10", (None, 10.0)),
        ("5:", (5.0, None)),
        ("2026-01-01T01:", (NEW_YEAR + 3600, None)),
        (":2026-01-01T01:00", (None, NEW_YEAR + 3600)),
        ("2026-01-01T01:00+01:00:1767229200", (NEW_YEAR, NEW_YEAR + 3600)),
        (":", (None, None)),
        ("2026-01-01:2026-01-02", (NEW_YEAR, NEW_YEAR + 86400)),
        (" 2026-01-01T00:00:00 : 2026-01-01T01:00:00+00:00 ", (NEW_YEAR, NEW_YEAR + 3600)),
    ],
)
def test_windows(text: str, expected: tuple[float | None, float | None]) -> None:
    assert window(text) == expected


def test_a_window_in_its_former_spelling_has_a_hint() -> None:
    with pytest.warns(FormerSpelling, match=r"2026-01-01\.\.2026-01-02 is now 2026-01-01:2026-01-02"):
        assert window("2026-01-01..2026-01-02") == (NEW_YEAR, NEW_YEAR + 86400)


def test_windows_in_a_zone() -> None:
    assert window("2026-01-01T01:00:00:2026-01-01T01:00:00Z", zone=zone(BERLIN)) == (NEW_YEAR, NEW_YEAR + 3600)


@pytest.mark.parametrize("text", ["", "5", "a:b", "10:5", "5:5", "1:.2", "-5:5"])
def test_no_window(text: str) -> None:
    with pytest.raises(BadInput, match=r"--down: .*(not a window|stops before).*write A:B"):
        window(text, "--down")


def test_spans() -> None:
    assert span_s("1-02:03:04") == 93784
    assert span_s("12:00:00.5") == 43200.5
    assert span_s("2 days, 0:01:00") == 172860
    assert span_s("12:00") == 720
    assert {span_s(text) for text in ("", "x", "1-2-3", "9" * 30 + ":00:00")} == {None}


def test_times_before_1973_may_count_from_zero() -> None:
    assert RecordClock().seconds("5") == 5 < SMALLEST_EPOCH_S
