"""Moab's events of jobs, ``HH:MM:SS epoch job ID JOBEND ...``, and Maui's traces: lines with fields in their places."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from bftrain_datasets.importing.job_checks import RecordIntake
from bftrain_datasets.importing.open_jobs import OpenJob
from bftrain_datasets.importing.raw_file import RawFile
from bftrain_datasets.importing.text_cells import first_lines

name: Final = "moab"
about: Final = "Moab and Maui: events and traces of jobs in their folders stats"

# Places of the fields in a trace of Maui; an event of Moab has four more before its number of nodes, and no name
JOB, STATE, CLASS, SUBMITTED, START, END, HOSTS = 0, 6, 7, 8, 10, 11, 37
BEFORE: Final = 4
EVENT_TIME, OBJECT, OBJECT_ID, EVENT = 1, 2, 3, 4
STARTS: Final = "JOBSTART"
ENDS: Final = frozenset({"JOBEND", "JOBCANCEL", "JOBFAILURE", "JOBPREEMPT"})
OUTAGES: Final = {"NODEDOWN": True, "NODEFAILURE": True, "NODEUP": False}
VERSION: Final = "VERSION"  # before the traces of Maui
STATES: Final = frozenset({"Completed", "Removed", "NotRun", "Vacated"})
NO_HOSTS: Final = frozenset({"-", "[NONE]", "NONE"})
_EVENT: Final = re.compile(r"\d\d:\d\d:\d\d \d{9,11}(?::\d+)? [a-z]+ \S+ [A-Z]+(?: |\Z)")
_BETWEEN: Final = re.compile(r"[,:]")


def recognises(head: bytes) -> bool:
    """Say whether one of the first lines is an event of Moab, or a trace of Maui."""
    return any(_is_event(line) or _is_trace(line.split()) for line in first_lines(head))


def _is_event(line: str) -> bool:
    return _EVENT.match(line[:200]) is not None


def _is_trace(fields: Sequence[str]) -> bool:
    times = fields[SUBMITTED : END + 1]
    return (
        len(fields) > HOSTS and fields[STATE] in STATES and fields[CLASS][:1] == "[" and all(map(str.isdecimal, times))
    )


def read(file: RawFile, intake: RecordIntake) -> None:
    """Read every line."""
    for number, line in file.lines():
        fields = line.split()
        if not fields or line.startswith("#") or fields[0] == VERSION:
            continue
        intake.row(number)
        event = _is_event(line)
        if not event and len(fields) <= HOSTS:
            intake.set_aside("malformed")
            continue
        try:
            if event:
                _take_event(fields, intake)
            else:
                _take(fields, _seconds(fields[END], intake), intake)
        except ValueError:
            intake.set_aside("bad_time")


def _take_event(fields: list[str], intake: RecordIntake) -> None:
    kind, time_s = fields[EVENT], intake.seconds(fields[EVENT_TIME].partition(":")[0])
    if kind in OUTAGES and fields[OBJECT] == "node":
        intake.outages.tell(fields[OBJECT_ID], time_s, out=OUTAGES[kind])
        intake.use()
        return
    trace = fields[BEFORE:]
    if kind != STARTS and kind not in ENDS:
        intake.set_aside("other_record")
    elif len(trace) <= HOSTS:
        intake.set_aside("malformed")
    else:
        trace[JOB] = fields[OBJECT_ID]
        if kind == STARTS:
            _begin(trace, time_s, intake)
        else:
            _take(trace, _seconds(trace[END], intake) or time_s, intake)


def _begin(trace: Sequence[str], time_s: float, intake: RecordIntake) -> None:
    job = OpenJob(
        job=trace[JOB],
        start_s=_seconds(trace[START], intake) or time_s,
        nodes=_hosts(trace),
        queue=_queue(trace),
        place=intake.place(),
        expand=_names,
    )
    if intake.open_jobs.begin(job):
        intake.use()
    else:
        intake.set_aside("duplicate")


def _take(trace: Sequence[str], end_s: float | None, intake: RecordIntake) -> None:
    """Take a job that ended; the record tells all of it, or else that of its start does."""
    start_s = _seconds(trace[START], intake)
    known = None if end_s is None else intake.open_jobs.end(trace[JOB], end_s)
    if known is not None:
        start_s = start_s or known.start_s
    elif end_s is not None:
        intake.open_jobs.end_unseen(trace[JOB], end_s, intake.place(), start_s=start_s or end_s, counts=False)
    hosts = _hosts(trace) or (known.nodes if known else "")
    count = len(set(_BETWEEN.split(hosts))) if hosts else 0
    intake.job(trace[JOB], start_s, end_s, hosts, count=count, queue=_queue(trace), expand=_names)


def _seconds(text: str, intake: RecordIntake) -> float | None:
    return intake.seconds(text) or None


def _hosts(trace: Sequence[str]) -> str:
    return "" if trace[HOSTS] in NO_HOSTS else trace[HOSTS]


def _queue(trace: Sequence[str]) -> str:
    """Give the class of ``[batch:1]``."""
    return trace[CLASS].strip("[]").partition(":")[0]


def _names(text: str) -> list[str]:
    names = [each for each in _BETWEEN.split(text) if each]
    if not names or not all(each.isprintable() for each in names):
        raise ValueError(f"{text[:60]!r} names no node")
    return names
