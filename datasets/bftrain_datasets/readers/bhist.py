"""Reader of LSF's job history as printed by ``bhist -l``: a paragraph per job, with its events and their times."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from typing import Final

from bftrain.errors import BadInput
from bftrain.node_units import CORE
from bftrain_datasets.importing.job_checks import RUNNING, RecordIntake
from bftrain_datasets.importing.raw_file import RawFile
from bftrain_datasets.importing.text_cells import MONTHS, first_lines

name: Final = "bhist"
about: Final = "LSF: the history of jobs that bhist -l prints"
tells_units: Final = (CORE,)

JOB: Final = re.compile(r"Job <(\d+(?:\[\d+\])?)>, ")
QUEUE: Final = re.compile(r"to Queue <([^<>]*)>")
INDENT: Final = 21  # blanks at the begin of continued lines, which may be split within a word
SUMMARY: Final = "Summary of time in seconds"
ENDS: Final = ("Done successfully", "Exited", "Completed", "Requeued", "Execution host unavailable; job is killed")
MOST_YEARS: Final = 12  # within this time a date falls on every day of the week
_DAY: Final = r"(Sun|Mon|Tue|Wed|Thu|Fri|Sat) ([A-Z][a-z]{2}) +(\d{1,2}) (\d\d:\d\d:\d\d)(?: (\d{4}))?"
EVENT: Final = re.compile(rf"{_DAY}: (?:\[(\d+)\] )?(.*)")
UNTIL: Final = re.compile(rf"{SUMMARY} spent in various states by +{_DAY}")
DISPATCHED: Final = ("Dispatched ", "dispatched ")
ALLOCATED: Final = ", Allocated "  # precedes the held hosts if other hosts were requested
LONGEST: Final = 1 << 18  # largest length of an event
MOST_LINES: Final = 10_000  # per job
_HOSTS: Final = re.compile(r"<(?:(\d+)\*)?([\w.-]+)>")
_WEEKDAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


def recognises(head: bytes) -> bool:
    """Return whether one of the first lines begins a job, and another is an event with its day of the week."""
    lines = first_lines(head)
    return any(map(JOB.match, lines)) and any(map(EVENT.match, lines))


def read(file: RawFile, intake: RecordIntake) -> None:
    """Read every job. Dates need a year: from the summary, or with ``LSB_DISPLAY_YEAR`` set."""
    until_s = intake.options.window[1]
    latest = 0 if until_s is None else datetime.fromtimestamp(until_s, intake.clock.zone).year
    if not latest and not any(found and found[5] for found in _dates(first_lines(file.head))):
        fix = "set LSB_DISPLAY_YEAR=Y for bhist, or set the end by --window A..B"
        raise BadInput("dates without a year", where=file.where, fix=fix)
    first, lines = 0, list[str]()
    for number, line in file.lines():
        if JOB.match(line):
            _add_job(first, lines, latest, intake)
            first, lines = number, [line]
        elif first and line.startswith(" " * INDENT):
            lines[-1] += line[INDENT:] if len(lines[-1]) < LONGEST else ""
        elif first and len(lines) < MOST_LINES:
            lines.append(line)
    _add_job(first, lines, latest, intake)


def _dates(lines: list[str]) -> Iterator[re.Match[str] | None]:
    yield from (EVENT.match(line) or UNTIL.match(line) for line in lines)


def _add_job(first: int, lines: list[str], latest: int, intake: RecordIntake) -> None:
    """Pass on each time that a job held hosts, as one row each."""
    if not lines:
        return
    job, queue = JOB.match(lines[0]), QUEUE.search(" ".join(lines[:3]))
    years = [int(found[5]) for found in _dates(lines) if found and found[5]]
    latest = max(years, default=latest)
    held: dict[str, tuple[float | None, Counter[str]]] = {}  # array index -> start and hosts
    rows = 0
    for line in lines:
        event = EVENT.match(line)
        if event is None or not event[7].startswith((*DISPATCHED, *ENDS)):
            continue
        index, text, time_s = event[6] or "", event[7], _time(event, latest, intake)
        if text.startswith(DISPATCHED):
            named = (text.partition(ALLOCATED)[2] or text).partition("<")[2].partition(", ")[0]
            slots = Counter[str]()
            for number, host in _HOSTS.findall(f"<{named}"):
                slots[host] += int(number or 1)
            held[index] = time_s, slots
        elif index in held:
            rows += 1
            _add_stay(first, job, index, held.pop(index), time_s, queue, intake)
    for index, stay in held.items():
        rows += 1
        _add_stay(first, job, index, stay, RUNNING, queue, intake)
    if not rows:
        intake.row(first)
        intake.set_aside("never_started")


def _add_stay(
    first: int,
    job: re.Match[str] | None,
    index: str,
    stay: tuple[float | None, Counter[str]],
    end_s: float | None,
    queue: re.Match[str] | None,
    intake: RecordIntake,
) -> None:
    start_s, slots = stay
    intake.row(first)
    if start_s is None or end_s is None:
        intake.set_aside("bad_time")
        return
    name = f"{job[1] if job else ''}{f'[{index}]' if index else ''}"
    units = "\n".join(f"{number}*{host}" for host, number in slots.items())
    hosts, of_queue = "\n".join(slots), queue[1] if queue else ""
    intake.job(name, start_s, end_s, hosts, count=len(slots), queue=of_queue, expand=str.split, units=units)


def _time(event: re.Match[str], latest: int, intake: RecordIntake) -> float | None:
    """Return seconds UTC of an event; one without a year is of the last year up to ``latest`` with that weekday."""
    day, month, date, clock, year, *_ = event.groups()
    for each in [int(year)] if year else range(latest, latest - MOST_YEARS, -1):
        try:
            moment = datetime.fromisoformat(f"{each:04d}-{MONTHS.index(month.lower()) + 1:02d}-{int(date):02d}T{clock}")
        except ValueError:
            continue
        if _WEEKDAYS[moment.weekday()] == day:
            try:
                return intake.seconds(moment.isoformat())
            except ValueError:
                return None
    return None
