"""Times as LSF prints them: of jobs, and of advance reservations. They are local, and most have no year."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator
from typing import Final

_TIME: Final = re.compile(r"(\w{3}) +(\d+) (\d+):(\d+)(?::(\d+))?(?: (\d{4}))?")
_MONTHS: Final = "JanFebMarAprMayJunJulAugSepOctNovDec"
_CLOCK: Final = re.compile(r"(\d+):(\d+)(?::(\d+))?")
_WINDOW: Final = re.compile(r"(\d+(?:[/:]\d+)+)-(\d+(?:[/:]\d+)+)")
_RESERVED: Final = re.compile(r"(\S+):[-\d]+/\d+")  # a host, and slots in use of those that are reserved
_DAY_S: Final = 86_400
_HALF_A_YEAR_S: Final = 182 * _DAY_S


def length_s(text: str, unit_s: float) -> float:
    """Parse a duration such as ``57 second(s)``, ``1440.0/n1`` (minutes, by ``unit_s``) or ``24:00:00``; 0 if none."""
    if clock := _CLOCK.match(text):
        hours, minutes, seconds = (int(part or 0) for part in clock.groups())
        return 3600.0 * hours + 60 * minutes + seconds
    found = re.match(r"\d+(?:\.\d+)?", text)
    return unit_s * float(found[0]) if found else 0.0


def moment(text: str, now_s: float) -> float:
    """Parse a time of the past such as ``Nov 21 10:10``, perhaps with seconds and the year; 0 if it is none."""
    found = _TIME.match(text)
    if found is None or found[1] not in _MONTHS:
        return 0.0
    month = _MONTHS.index(found[1]) // 3 + 1
    day, hour, minute, second, year = (int(part or 0) for part in found.groups()[1:])
    present = time.localtime(now_s).tm_year
    times = [_local(each, month, day, hour, minute, second) for each in ([year] if year else [present, present - 1])]
    return next((at for at in times if at <= now_s + _DAY_S), 0.0)


def read_reservations(said: str, now_s: float) -> dict[str, float]:
    """Parse the output of ``brsvs -w``: from when on each host is reserved, for reservations that are not over.

    A window is ``11/12/6/0-11/12/8/0`` (month, day, hour, minute), or recurs: ``12:0-14:0 *`` each day and
    ``3:0:0-3:3:0 *`` each week, from Sunday as day 0. Lines without one name more hosts of the reservation before.
    """
    plans: dict[str, float] = {}
    begin_s: float | None = None
    for line in said.splitlines():
        if window := _WINDOW.search(line):
            begin_s = _next_window(window[1], window[2], now_s)
        elif not line[:1].isspace():
            begin_s = None
        if begin_s is not None:
            plans |= {host: min(begin_s, plans.get(host, math.inf)) for host in _RESERVED.findall(line)}
    return plans


def _next_window(begin: str, end: str, now_s: float) -> float | None:
    """Return when the first window begins that is not over."""
    first, last = ([int(part) for part in re.split("[/:]", text)] for text in (begin, end))
    windows = _dated(first[-4:], last[-4:], now_s) if "/" in begin else _recurring(first, last, now_s)
    return next((begun for begun, over in windows if now_s < over), None)


def _dated(first: list[int], last: list[int], now_s: float) -> Iterator[tuple[float, float]]:
    """Yield the windows between two times of the year, from that of last year to one in half a year."""
    present = time.localtime(now_s).tm_year
    for year in (present - 1, present, present + 1):
        if (begun := _local(year, *first)) < now_s + _HALF_A_YEAR_S:  # a later one was that of a year before
            yield begun, _local(year + (last < first), *last)


def _recurring(first: list[int], last: list[int], now_s: float) -> Iterator[tuple[float, float]]:
    """Yield the windows of each day, or of the day of each week that comes first, from a week ago on."""
    now = time.localtime(now_s)
    (*day, hour, minute), (*last_day, last_hour, last_minute) = first, last
    longer = (last_day[0] - day[0]) % 7 if day and last_day else 0
    for offset in range(-7, 8):
        if not day or (now.tm_wday + 1 + offset) % 7 == day[0]:
            date = now.tm_mday + offset
            begun = _local(now.tm_year, now.tm_mon, date, hour, minute)
            yield begun, _local(now.tm_year, now.tm_mon, date + longer, last_hour, last_minute)


def _local(*parts: int) -> float:
    """Return seconds since 1970 of a local year, month, day, hour, minute and perhaps second."""
    year, month, day, hour, minute, second = (*parts, 0)[:6]
    return time.mktime((year, month, day, hour, minute, second, 0, 0, -1))
