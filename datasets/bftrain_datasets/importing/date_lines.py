"""Lines that say when, as ``date`` or a script writes them: ``t: Thu Feb 11 22:36:14 UTC 2021``."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from bftrain_datasets.log.time_formats import SMALLEST_EPOCH_S

if TYPE_CHECKING:
    from bftrain_datasets.log.time_formats import RecordClock

LONGEST: Final = 100  # letters; a line that only says when is short
MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
UNIVERSAL: Final = frozenset({"UTC", "GMT", "Z"})
AROUND: Final = "#=-*<> \t[]"  # that decorates a line

_CLOCK: Final = re.compile(r"\d{1,2}:\d\d(:\d\d)?")
_NUMBER: Final = re.compile(r"\d{9,13}(\.\d{1,9})?\Z")
_ISO: Final = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d([.,]\d+)?\Z")
_ISO_ZONE: Final = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:[.,]\d+)? ?(Z|UTC|GMT|[+-]\d\d:?\d\d)\Z")
_OFFSET: Final = re.compile(r"[+-]\d{4}\Z")
_LABEL: Final = re.compile(r"[A-Za-z_ ]{1,30}[:=]\s*")


def looks_like_time(line: str) -> bool:
    """Whether a line has a time of day in it, so that it may be meant to say when."""
    return bool(_CLOCK.search(line[:LONGEST]))


def date_line(line: str, clock: RecordClock) -> float | None:
    """Seconds UTC of a line that says when and nothing else, or None if it is no such line."""
    if len(line) > LONGEST:
        return None
    text = line.strip(AROUND)
    label = _LABEL.match(text)
    if label:
        text = text[label.end() :].strip(AROUND)
    try:
        return _seconds(text, clock)
    except (ValueError, OverflowError):
        return None


def _seconds(text: str, clock: RecordClock) -> float | None:
    if _NUMBER.match(text):
        number = float(text)
        return clock.epoch(number) if number >= SMALLEST_EPOCH_S else None
    if _ISO.match(text):
        return clock.seconds(text)
    zoned = _ISO_ZONE.match(text)
    if zoned:
        zone = "+00:00" if zoned[3] in UNIVERSAL else zoned[3]
        return clock.seconds(f"{zoned[1]}T{zoned[2]}{zone}")
    return _words(text.replace(",", " ").split(), clock)


class _Parts:
    """The parts of a line of ``date``, in any order: month by name, day, year, time of day, AM or PM, zone."""

    def __init__(self, words: list[str]) -> None:
        self.month = self.day = self.year = 0
        self.time = self.zone = self.half = ""
        for word in words:
            self._take(word, word.lower())

    def _take(self, word: str, low: str) -> None:
        if ":" in word:
            self.time = word
        elif low[:3] in MONTHS:
            self.month = MONTHS.index(low[:3]) + 1
        elif word.isdecimal():
            if len(word) == 4:  # noqa: PLR2004 - digits of a year
                self.year = int(word)
            else:
                self.day = int(word)
        elif low in {"am", "pm"}:
            self.half = low
        elif word.isupper() or word[:1] in "+-":
            self.zone = word

    def moment(self) -> datetime:
        """Date and time of day, of the zone that they name or of none."""
        hour, minute, second = (int(part) for part in f"{self.time}:0".split(":")[:3])
        if self.half:
            hour = hour % 12 + (12 if self.half == "pm" else 0)
        whole = datetime(self.year, self.month, self.day, hour, minute)  # noqa: DTZ001 - the zone comes next
        whole += timedelta(seconds=second)  # 60 in a leap second
        if self.zone in UNIVERSAL:
            return whole.replace(tzinfo=UTC)
        if _OFFSET.match(self.zone):
            return datetime.fromisoformat(f"{whole.isoformat()}{self.zone[:3]}:{self.zone[3:]}")
        return whole


def _words(words: list[str], clock: RecordClock) -> float | None:
    parts = _Parts(words)
    if not (parts.month and parts.day and parts.year and _CLOCK.fullmatch(parts.time)):
        return None
    return clock.local(parts.moment())
