"""Conversion of scheduler and user time notations to seconds UTC."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, tzinfo
from typing import Final

from bftrain.durations import parse_duration
from bftrain.errors import BadInput, near
from bftrain.ranges import split_range

LARGEST_S: Final = 1e11  # year 5138; larger epochs are milliseconds
SMALLEST_EPOCH_S: Final = 1e8  # March 1973; smaller numbers count from another origin
WINDOW_REMEDY: Final = (
    "write A:B with seconds UTC or ISO times, such as 2026-01-01:2026-01-15T12:00; either may be omitted; "
    "or a part relative to the log, such as last-2w"
)
ENDS: Final = ("first", "last")  # the reference points of relative windows, as in last-2w

_LOCAL: Final = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d+))?\Z")
_SPAN: Final = re.compile(r"(?:(\d{1,9})(?:-| days?,? ))?(?:(\d{1,9}):)?(\d{1,9}):(\d{1,9}(?:\.\d{1,12})?)\Z")


class RecordClock:
    """Parses times, and counts its assumptions for the caller. ``zone`` is the default time zone.

    ``without_zone`` counts times without a zone, ``in_ms`` epochs in milliseconds, and ``twice`` local times that are
    ambiguous or nonexistent because of daylight saving time. ``first`` maps each of these counts to the place of its
    first occurrence, as returned by ``where``.
    """

    def __init__(self, zone: tzinfo = UTC, where: Callable[[], str] = str) -> None:
        self.zone = zone
        self.first: dict[str, str] = {}
        self._where = where
        self.without_zone = 0
        self.in_ms = 0
        self.twice = 0
        self._hours: dict[str, float] = {}  # hour as written -> seconds UTC of its start
        self._odd_hours: set[str] = set()  # hours with a clock change

    def seconds(self, text: str) -> float:
        """Return seconds UTC of an epoch or an ISO time; raise ``ValueError`` for other texts, and before 1970."""
        match = _LOCAL.match(text)
        if match is None:
            try:
                number = float(text)
            except ValueError:
                plain = _in_iso_form(text)
                return self.seconds(plain) if plain != text else self.local(datetime.fromisoformat(text))
            return self.epoch(number)
        self._assume("without_zone")
        minute, second = int(match[3]), int(match[4])
        if minute > 59 or second > 60:  # noqa: PLR2004 - clock limits; 60 is a leap second
            raise ValueError(f"{text!r} is not a time of day")
        fraction = float(f"0.{match[5]}") if match[5] else 0.0
        into_s = minute * 60 + second + fraction
        return self._hour(text[:13], match[1], match[2], minute) + into_s

    def readings(self, text: str) -> tuple[float, ...]:
        """Return the possible seconds UTC of a time: two if ambiguous or nonexistent, earlier first. Counts stay."""
        before = self.without_zone, self.twice
        first_s = self.seconds(text)
        self.without_zone, self.twice = before
        if text[:13] not in self._odd_hours or not _LOCAL.match(text):
            return (first_s,)
        moment = datetime.fromisoformat(f"{text[:10]}T{text[11:17]}00").replace(tzinfo=self.zone)
        apart = moment.utcoffset(), moment.replace(fold=1).utcoffset()
        if apart[0] is None or apart[1] is None or apart[0] == apart[1]:
            return (first_s,)
        return first_s, first_s + (apart[0] - apart[1]).total_seconds()

    def uncounted(self, text: str) -> float | None:
        """Return seconds UTC without counting assumptions, None if unreadable."""
        before = self.without_zone, self.in_ms, self.twice
        try:
            return self.seconds(text)
        except (ValueError, OverflowError):
            return None
        finally:
            self.without_zone, self.in_ms, self.twice = before

    def reset_twice(self, twice: int) -> None:
        """Reset the count of ambiguous or nonexistent times to ``twice``."""
        self.twice = twice
        if not twice:
            self.first.pop("twice", None)

    def local(self, moment: datetime) -> float:
        """Return seconds UTC of a time; ``zone`` is the default time zone."""
        if moment.tzinfo is None:
            self._assume("without_zone")
            moment = moment.replace(tzinfo=self.zone)
            self._note_clock_change(moment)
        return _since_1970(moment)

    def epoch(self, value: float) -> float:
        """Return seconds UTC of an epoch in seconds or milliseconds."""
        if not 0 <= value < LARGEST_S * 1000:  # also false for NaN
            raise ValueError(f"{value!r} is not a time")
        if value < LARGEST_S:
            return value
        self._assume("in_ms")
        return value / 1000

    def _hour(self, written: str, date: str, hour: str, minute: int) -> float:
        """Return seconds UTC of the start of this hour, by the zone's offset at this minute."""
        begin = datetime.fromisoformat(f"{date}T{hour}:00:00")
        begin_s = self.start_of_hour(written, begin)
        if begin_s is not None:
            return begin_s
        at = begin.replace(minute=minute, tzinfo=self.zone)
        self._note_clock_change(at)
        return _since_1970(at) - minute * 60

    def start_of_hour(self, written: str, begin: datetime) -> float | None:
        """Return seconds UTC of the start of a local hour; None if the clock changes in it."""
        known = self._hours.get(written)
        if known is not None or written in self._odd_hours:
            return known
        begin = begin.replace(tzinfo=self.zone)
        offsets = {at.utcoffset() for at in (begin, begin.replace(minute=59, fold=1), begin.replace(fold=1))}
        if len(offsets) > 1:
            self._odd_hours.add(written)
            return None
        begin_s = self._hours[written] = _since_1970(begin)
        return begin_s

    def count_local(self, times: int) -> None:
        """Count local times read elsewhere; the first is at the current place."""
        if times:
            self._assume("without_zone")
            self.without_zone += times - 1

    def _note_clock_change(self, moment: datetime) -> None:
        if moment.utcoffset() != moment.replace(fold=1).utcoffset():
            self._assume("twice")

    def _assume(self, what: str) -> None:
        count: int = getattr(self, what)
        if count == 0:
            self.first[what] = self._where()
        setattr(self, what, count + 1)


def _in_iso_form(text: str) -> str:
    """Convert a time such as ``2026/01/05 00:00:00 UTC``, written by databases and schedulers, to ISO form."""
    plain = text.strip()
    if plain[4:5] == "/":
        plain = plain.replace("/", "-", 2)
    return f"{plain[:-3].rstrip()}+00:00" if plain.endswith(("UTC", "GMT")) else plain


def _since_1970(moment: datetime) -> float:
    seconds = moment.timestamp()
    if seconds < 0:
        raise ValueError(f"{moment} is before 1970")
    return seconds


def zone(name: str) -> tzinfo:
    """Return a time zone by its name, such as Europe/Berlin, or by its offset, such as +02:00."""
    if name.upper() in {"UTC", "Z"}:
        return UTC
    if re.fullmatch(r"[+-]\d\d:\d\d", name):
        return datetime.fromisoformat(f"2000-01-01T00:00:00{name}").tzinfo or UTC
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones  # noqa: PLC0415 - rarely needed

    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise BadInput(
            f"unknown time zone '{name}'",
            where="--timezone",
            fix=near(name, available_timezones()) or "write one such as Europe/Berlin, or an offset such as +02:00",
        ) from error


def window(text: str, where: str = "--window", zone: tzinfo = UTC) -> tuple[float | None, float | None]:
    """Parse ``A:B`` to seconds UTC; raise ``BadInput`` for other texts.

    Either end may be empty; ISO times default to the time zone ``zone``.
    """
    if from_end(text) is not None:
        fix = "write A:B, or import all and cut the log: bftrain slice --window"
        raise BadInput(f"{text!r} is relative to the log, whose ends are unknown while reading", where=where, fix=fix)
    clock = RecordClock(zone)
    ends = split_range(text, lambda end: clock.uncounted(end) is not None)
    if ends is None:
        raise BadInput(f"{text!r} is not a window", where=where, fix=WINDOW_REMEDY)
    begin_s, end_s = (clock.uncounted(end) if end else None for end in ends)
    if begin_s is not None and end_s is not None and begin_s >= end_s:
        raise BadInput(f"{text!r} stops before its start", where=where, fix=WINDOW_REMEDY)
    return begin_s, end_s


def from_end(text: str) -> tuple[str, float] | None:
    """Parse ``last-2w`` or ``first-12h`` to its reference point and seconds; ``None`` for any other text.

    >>> from_end("last-2w"), from_end("0:600")
    (('last', 1209600.0), None)
    """
    end, dash, length = text.strip().partition("-")
    if not dash or end not in ENDS:
        return None
    try:
        seconds = parse_duration(length)
    except ValueError:
        return None
    return (end, seconds) if 0.0 < seconds < LARGEST_S else None


def time_text(time_s: float) -> str:
    """Return a time as text; a time counted from zero stays a number."""
    if not SMALLEST_EPOCH_S <= time_s < LARGEST_S:
        return f"{time_s:.0f} s"
    return f"{datetime.fromtimestamp(time_s, UTC):%Y-%m-%d %H:%M:%S} UTC"


def span_s(text: str) -> float | None:
    """Return the seconds of a span such as ``1-02:03:04``, ``2 days, 12:00:00`` or ``3:04``; None for other texts."""
    match = _SPAN.match(text)
    if match is None:
        return None
    days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return days * 86400 + hours * 3600 + minutes * 60 + seconds
