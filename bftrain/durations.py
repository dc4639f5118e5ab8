"""Durations as people write them, ``90``, ``2min``, ``1h30min``, ``1-12:00:00``, and times."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

FORMS: Final = "seconds, or such as 90s, 2min, 1h30min, 2d, 1w or 1-12:00:00"
_UNITS: Final = {
    **dict.fromkeys(("ms",), 0.001),
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hr", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), 86_400.0),
    **dict.fromkeys(("w", "week", "weeks"), 7 * 86_400.0),
}
_PART: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*", re.ASCII)
_CLOCK: Final = re.compile(r"(?:(\d{1,6})-)?(\d{1,6}):([0-5]\d):([0-5]\d(?:\.\d{1,9})?)", re.ASCII)


def parse_duration(text: str) -> float:
    """Return a duration in seconds; seconds are also the default unit.

    >>> parse_duration("120"), parse_duration("2min"), parse_duration("1h30min"), parse_duration("1.5 d")
    (120.0, 120.0, 5400.0, 129600.0)
    >>> parse_duration("1-12:00:00")
    129600.0

    Raises:
        ValueError: The text has none of these forms, or a unit is not smaller than the one before it.

    """
    try:
        return float(text)
    except ValueError:
        pass
    clock = _CLOCK.fullmatch(text.strip())
    if clock is not None:
        days, hours, minutes, seconds = (float(part or 0.0) for part in clock.groups())
        return days * 86_400.0 + hours * 3600.0 + minutes * 60.0 + seconds
    rest, total_s, last_s = text.strip().lower(), 0.0, float("inf")
    while rest:
        part = _PART.match(rest)
        unit_s = _UNITS.get(part[2], 0.0) if part is not None else 0.0
        if part is None or not 0.0 < unit_s < last_s:
            break
        total_s, last_s, rest = total_s + float(part[1]) * unit_s, unit_s, rest[part.end() :]
    if rest or last_s == float("inf"):
        raise ValueError(f"{text!r} is not a duration: write {FORMS}")
    return total_s


def parse_time(text: str) -> float:
    """Return a time in seconds UTC: seconds, or ISO 8601, which is local time unless it has a zone.

    Raises:
        ValueError: The text has neither form.

    """
    try:
        return float(text)
    except ValueError:
        pass
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{text!r} is not a time: write one such as 2030-01-31T18:00, or seconds UTC") from error
