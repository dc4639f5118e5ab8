"""Times of the week, such as "nights and week-ends" or "Mon-Fri 19:00-07:00, Sat-Sun", in a time zone."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import Final
from zoneinfo import ZoneInfo

from bftrain.errors import BadValue

_DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_WEEK: Final = frozenset(range(7))
_MIDNIGHT: Final = 24 * 60  # minutes of a day
_PART: Final = re.compile(r"(?:([a-z]{3})(?:-([a-z]{3}))?|daily)?\s*(?:(\d\d?):(\d\d)-(\d\d?):(\d\d))?")
_FIX: Final = 'such as "nights and week-ends", or "Mon-Fri 19:00-07:00, Sat-Sun"'

Span = tuple[
    frozenset[int], int, int
]  # days (Monday is 0), first minute, minute after the last; it may be the next day
_WORDS: Final[dict[str, Span]] = {
    "always": (_WEEK, 0, _MIDNIGHT),
    "nights": (_WEEK, 20 * 60, 6 * 60),
    "week-ends": (frozenset({5, 6}), 0, _MIDNIGHT),
    "weekends": (frozenset({5, 6}), 0, _MIDNIGHT),
}


@dataclass(frozen=True, slots=True)
class WeekHours:
    """Spans of the week; without any it is always."""

    spans: tuple[Span, ...] = ()
    zone: tzinfo | None = None  # none: that of this machine

    @classmethod
    def parse(cls, text: str, zone: str = "") -> WeekHours:
        """Read times of the week; BadValue says which part of the text is none."""
        try:
            found = ZoneInfo(zone) if zone else None
        except (KeyError, OSError, ValueError) as error:
            raise BadValue(
                f"there is no time zone {zone!r}", where="timezone", fix='such as "Europe/Zurich"'
            ) from error
        parts = re.split(r",|\band\b", text.lower()) if text.strip() else []
        return cls(tuple(_span(part.strip()) for part in parts), found)

    def __contains__(self, time_s: float) -> bool:
        """Return whether a time lies in one of the spans."""
        at = datetime.fromtimestamp(time_s, self.zone)
        day, minute = at.weekday(), 60 * at.hour + at.minute
        return not self.spans or any(_within(span, day, minute) for span in self.spans)


def _within(span: Span, day: int, minute: int) -> bool:
    days, begin, end = span
    if begin < end:
        return day in days and begin <= minute < end
    return (day in days and minute >= begin) or ((day - 1) % 7 in days and minute < end)


def _span(part: str) -> Span:
    if part in _WORDS:
        return _WORDS[part]
    found = _PART.fullmatch(part)
    if not part or found is None:
        raise BadValue(f"{part!r} is no time of the week", where="when", fix=_FIX)
    first, last, *clock = found.groups()
    days = _WEEK
    if first is not None:
        for name in (first, last or first):
            if name not in _DAYS:
                raise BadValue(f"{name!r} is no day: they are {', '.join(_DAYS)}", where="when", fix=_FIX)
        begin, end = _DAYS.index(first), _DAYS.index(last or first)
        days = frozenset((begin + more) % 7 for more in range((end - begin) % 7 + 1))
    if clock[0] is None:
        return days, 0, _MIDNIGHT
    begin_h, begin_min, end_h, end_min = map(int, clock)
    begin, end = 60 * begin_h + begin_min, 60 * end_h + end_min
    if max(begin_min, end_min) >= 60 or begin >= _MIDNIGHT or end > _MIDNIGHT or begin == end:  # noqa: PLR2004 - minutes
        raise BadValue(f"{part!r} has no such times of a day", where="when", fix=_FIX)
    return days, begin, end
