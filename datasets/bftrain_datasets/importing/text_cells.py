"""Shared code for readers of text: cells and numbers, Slurm's terms, and lines with a date."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable, Collection
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final, TypeVar

from bftrain.node_units import GPU
from bftrain.nodesets import MOST_NODES
from bftrain_datasets.log.eventlog import NodeState
from bftrain_datasets.log.time_formats import SMALLEST_EPOCH_S, RecordClock

V = TypeVar("V")
LOOKED_AT: Final = 1000  # lines searched for a format
MOST_DIGITS: Final = 9  # maximum length of a node or job number; Python rejects thousands of digits


def first_lines(head: bytes) -> list[str]:
    """Return the first lines of a file; the final line may be truncated."""
    return head.decode(errors="replace").splitlines()[:LOOKED_AT]


def unquoted(line: str) -> list[str]:
    """Split a line of a CSV table into its cells; return none if its quotes are invalid."""
    try:
        return next(csv.reader([line]), [])
    except csv.Error:  # a carriage return in the middle, or an overlong quoted cell
        return []


def whole_number(text: str) -> int | None:
    """Return a whole number of reasonable length, or None."""
    return int(text) if text.isdecimal() and len(text) <= MOST_DIGITS else None


def count_of(text: str) -> int:
    """Return a job's node count: 0 if missing, a number above ``MOST_NODES`` if it has too many digits."""
    number = whole_number(text)
    if number is None:
        return MOST_NODES + 1 if text.isdecimal() else 0
    return number


NO_TIME: Final = frozenset({"", "0", "unknown", "none", "n/a"})
NO_NODES: Final = frozenset({"", "none assigned", "none", "unknown", "n/a", "(null)"})

FLAGS: Final = "*~#!%$@^-+"  # suffixes that sinfo appends to a state
# Not responding, powering down, in maintenance, rebooting. Powered down (~)
# and powering up (#) are excluded: such a node is available to any job that requests it.
UNUSABLE_FLAGS: Final = frozenset("*!%$@^")
UNUSABLE_WORDS: Final = frozenset(
    (
        "drain", "maint", "maintenance", "not_responding", "no_respond", "power_down", "powering_down", "fail", "down",
        "future", "reboot", "reboot_requested", "reboot_issued", "invalid_reg", "inval", "external", "blocked",
    )
)  # fmt: skip

IDLE_STATES: Final = ("idle", "planned", "plnd", "power_save", "powered_down")
# A draining node still runs jobs; a reserved node waits for a scheduled job
BUSY_STATES: Final = (
    "allocated", "alloc", "mixed", "mix", "completing", "comp", "reserved", "resv", "draining", "drng",
    "failing", "failg", "blocked", "block", "suspended",
)  # fmt: skip
DOWN_STATES: Final = (
    "down", "drained", "drain", "fail", "maint", "unknown", "unk", "boot", "power_up", "pow_up", "powering_up",
    "power_down", "pow_dn", "powering_down", "future", "futr", "inval", "no_respond", "reboot", "reboot_issued",
    "reboot_requested", "perfctrs", "npc", "error", "noresp",
)  # fmt: skip

_STATES: Final[dict[str, NodeState]] = {
    **dict.fromkeys(DOWN_STATES, NodeState.DOWN),
    **dict.fromkeys(BUSY_STATES, NodeState.BUSY),
    **dict.fromkeys(IDLE_STATES, NodeState.IDLE),
}


@lru_cache(maxsize=1 << 12)
def state_of(text: str) -> NodeState | None:
    """Return a node's state from Slurm's term, or None if the term is unknown."""
    word = text.lower().rstrip(FLAGS)
    flags = text[len(word) :]
    base, *more = word.split("+")
    state = _STATES.get(base)
    if state == NodeState.IDLE and (UNUSABLE_FLAGS.intersection(flags) or UNUSABLE_WORDS.intersection(more)):
        return NodeState.DOWN
    return state


def moment_of(text: str, seconds: Callable[[str], float]) -> float | None:
    """Return seconds UTC, or None for Slurm's terms for no time, such as 0."""
    try:
        return seconds(text) or None
    except ValueError:
        if text.lower() in NO_TIME:
            return None
        raise


def moments(read: Callable[[V], float | None], *values: V) -> tuple[float | None, ...]:
    """Return several times from a row; an unreadable time is NaN, and the intake then skips the row."""

    def each(value: V) -> float | None:
        try:
            return read(value)
        except ValueError:
            return math.nan

    return tuple(map(each, values))


LONGEST: Final = 100  # letters; lines with only a date are short
MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
UNIVERSAL: Final = frozenset({"UTC", "GMT", "Z"})
AROUND: Final = "#=-*<> \t[]"  # decoration around a date

_CLOCK: Final = re.compile(r"\d{1,2}:\d\d(:\d\d)?")
_NUMBER: Final = re.compile(r"\d{9,13}(\.\d{1,9})?\Z")
_ISO: Final = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d([.,]\d+)?\Z")
_ISO_ZONE: Final = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:[.,]\d+)? ?(Z|UTC|GMT|[+-]\d\d:?\d\d)\Z")
_OFFSET: Final = re.compile(r"[+-]\d{4}\Z")
_LABEL: Final = re.compile(r"[A-Za-z_ ]{1,30}[:=]\s*")


def looks_like_time(line: str) -> bool:
    """Return whether a line contains a time of day, and may therefore be a date."""
    return bool(_CLOCK.search(line[:LONGEST]))


def date_line(line: str, clock: RecordClock) -> float | None:
    """Return seconds UTC of a line with only a date and time, or None for any other line."""
    if len(line) > LONGEST:
        return None
    text = line.strip(AROUND)
    label = _LABEL.match(text)
    if label:
        text = text[label.end() :].strip(AROUND)
    try:
        if _NUMBER.match(text):
            number = float(text)
            return clock.epoch(number) if number >= SMALLEST_EPOCH_S else None
        if _ISO.match(text):
            return clock.seconds(text)
        zoned = _ISO_ZONE.match(text)
        if zoned:
            zone = "+00:00" if zoned[3] in UNIVERSAL else zoned[3]
            return clock.seconds(f"{zoned[1]}T{zoned[2]}{zone}")
        moment = _moment_of(text.replace(",", " ").split())
        return None if moment is None else clock.local(moment)
    except (ValueError, OverflowError):
        return None


def _moment_of(words: list[str]) -> datetime | None:
    """Parse a line of ``date``: month by name, day, year, time of day, AM or PM, and zone, in any order."""
    month = day = year = 0
    time = zone = half = ""
    for word in words:
        low = word.lower()
        if ":" in word:
            time = word
        elif low[:3] in MONTHS:
            month = MONTHS.index(low[:3]) + 1
        elif word.isdecimal():
            year, day = (int(word), day) if len(word) == 4 else (year, int(word))  # noqa: PLR2004 - digits of a year
        elif low in {"am", "pm"}:
            half = low
        elif word.isupper() or word[:1] in "+-":
            zone = word
    if not (month and day and year and _CLOCK.fullmatch(time)):
        return None
    hour, minute, second = (int(part) for part in f"{time}:0".split(":")[:3])
    if half:
        hour = hour % 12 + (12 if half == "pm" else 0)
    whole = datetime(year, month, day, hour, minute) + timedelta(seconds=second)  # noqa: DTZ001 - the zone is added next; 60 in a leap second
    if zone in UNIVERSAL:
        return whole.replace(tzinfo=UTC)
    return datetime.fromisoformat(f"{whole.isoformat()}{zone[:3]}:{zone[3:]}") if _OFFSET.match(zone) else whole


def names_slurm_jobs(columns: Collection[str]) -> bool:
    """Return whether these are columns of sacct, in its spelling or with underscores as in other tools."""
    names = {column.strip().lower().partition("%")[0] for column in columns}
    plain = {name.replace("_", "") for name in names}
    times = bool(plain & {"start", "starttime"}) and bool(plain & {"end", "endtime"})
    return bool(plain & {"jobid", "jobidraw"}) and times and ("nodelist" in plain or {"jobid", "start", "end"} <= names)


_TRES: Final = re.compile(r"(?:\A|,)(cpu|gres/gpu(?::[^=,]*)?|1)=(\d+)")


def units_in(tres: str, cpus: str, unit: str) -> str:
    """Return a job's number of GPUs or cores, from Slurm's trackable resources or its number of CPUs.

    >>> units_in("billing=8,cpu=8,gres/gpu:a100=2,gres/gpu=2,node=1", "8", "gpu")
    '2'
    """
    found = dict(_TRES.findall(tres))
    if unit == GPU:
        typed = (int(number) for name, number in found.items() if name.startswith("gres/gpu:"))
        return found.get("gres/gpu") or str(sum(typed))
    return found.get("cpu") or found.get("1") or (cpus if cpus.isdecimal() else "")
