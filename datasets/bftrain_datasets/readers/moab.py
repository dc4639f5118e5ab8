"""Reader of Moab's job events, ``HH:MM:SS epoch job ID JOBEND ...``, and Maui's traces, both with fixed fields."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Final

from bftrain.node_units import CORE
from bftrain_datasets.importing.job_checks import RecordIntake
from bftrain_datasets.importing.open_jobs import OpenJob
from bftrain_datasets.importing.raw_file import RawFile
from bftrain_datasets.importing.text_cells import count_of, first_lines

name: Final = "moab"
about: Final = "Moab and Maui: events and traces of jobs in their folders stats"
tells_units: Final = (CORE,)

# Field positions in a trace of Maui; an event of Moab has four more before its number of nodes, and no name
JOB, STATE, CLASS, SUBMITTED, START, END, TASKS, PROCS, HOSTS = 0, 6, 7, 8, 10, 11, 21, 31, 37
BEFORE: Final = 4
EVENT_TIME, OBJECT, OBJECT_ID, EVENT = 1, 2, 3, 4
STARTS: Final = "JOBSTART"
ENDS: Final = frozenset({"JOBEND", "JOBCANCEL", "JOBFAILURE", "JOBPREEMPT"})
OUTAGES: Final = {"NODEDOWN": True, "NODEFAILURE": True, "NODEUP": False}
VERSION: Final = "VERSION"  # before the traces of Maui
STATES: Final = frozenset({"Completed", "Removed", "NotRun", "Vacated"})
# For events with NAME=value fields: the position of each field, and its placeholder if missing
NAMED: Final = {
    "STATE": STATE, "RCLASS": CLASS, "STARTTIME": START, "COMPLETIONTIME": END, "TASKS": TASKS, "DPROCS": PROCS,
    "TASKLIST": HOSTS,
}  # fmt: skip
NO_HOSTS: Final = frozenset({"-", "[NONE]", "NONE"})
_EVENT: Final = re.compile(r"\d\d:\d\d:\d\d \d{9,11}(?::\d+)? [a-z]+ \S+ [A-Z]+(?: |\Z)")
_PAIR: Final = re.compile(r"(?<![^\s;])([A-Z]+)=(?:\"([^\"]*)\"|([^\s;]*))")
_BETWEEN: Final = re.compile(r"[,:]")


def recognises(head: bytes) -> bool:
    """Return whether one of the first lines is an event of Moab, or a trace of Maui."""
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
                _add_event(fields, line, intake)
            else:
                _add_job(fields, _seconds(fields[END], intake), intake)
        except ValueError:
            intake.set_aside("bad_time")


def _add_event(fields: list[str], line: str, intake: RecordIntake) -> None:
    kind, time_s = fields[EVENT], intake.seconds(fields[EVENT_TIME].partition(":")[0])
    if kind in OUTAGES and fields[OBJECT] == "node":
        intake.outages.tell(fields[OBJECT_ID], time_s, out=OUTAGES[kind])
        intake.use()
        return
    trace = fields[BEFORE:]
    if len(trace) > 1 and _PAIR.match(trace[1]):
        trace = _trace_of_pairs(line)
    if kind != STARTS and kind not in ENDS:
        intake.set_aside("other_record")
    elif len(trace) <= HOSTS:
        intake.set_aside("malformed")
    else:
        trace[JOB] = fields[OBJECT_ID]
        if kind == STARTS:
            _begin(trace, time_s, intake)
        else:
            _add_job(trace, _seconds(trace[END], intake) or time_s, intake)


def _trace_of_pairs(line: str) -> list[str]:
    """Return the trace in an event with pairs ``NAME=value``, separated by blanks or semicolons."""
    trace = ["0"] * HOSTS + ["-"]
    for name_, quoted, plain in _PAIR.findall(line):
        if name_ in NAMED:
            trace[NAMED[name_]] = quoted or plain
    return trace


def _begin(trace: Sequence[str], time_s: float, intake: RecordIntake) -> None:
    job = OpenJob(
        job=trace[JOB],
        start_s=_seconds(trace[START], intake) or time_s,
        nodes=_hosts(trace),
        units=_cores(trace),
        queue=_queue(trace),
        place=intake.place(),
        expand=_names,
    )
    if intake.open_jobs.begin(job):
        intake.use()
    else:
        intake.set_aside("duplicate")


def _add_job(trace: Sequence[str], end_s: float | None, intake: RecordIntake) -> None:
    """Record an ended job, from this record alone or with the record of its start."""
    start_s = _seconds(trace[START], intake)
    known = None if end_s is None else intake.open_jobs.end(trace[JOB], end_s)
    if known is not None:
        start_s = start_s or known.start_s
    elif end_s is not None:
        intake.open_jobs.end_before_start(trace[JOB], end_s, intake.place(), start_s=start_s or end_s, counts=False)
    hosts, units = _hosts(trace), _cores(trace)
    if not hosts and known:
        hosts, units = known.nodes, known.units
    count = len(set(_BETWEEN.split(hosts))) if hosts else 0
    intake.job(trace[JOB], start_s, end_s, hosts, count=count, queue=_queue(trace), expand=_names, units=units)


def _seconds(text: str, intake: RecordIntake) -> float | None:
    return intake.seconds(text) or None


def _hosts(trace: Sequence[str]) -> str:
    return "" if trace[HOSTS] in NO_HOSTS else trace[HOSTS]


def _cores(trace: Sequence[str]) -> str:
    """Return the cores per host, if hosts are listed once per task, or else in total."""
    tasks = Counter(each for each in _BETWEEN.split(_hosts(trace)) if each)
    procs = max(1, count_of(trace[PROCS]))
    if tasks.total() > len(tasks):
        return "\n".join(f"{number * procs}*{host}" for host, number in tasks.items())
    return str(max(count_of(trace[TASKS]), len(tasks)) * procs)


def _queue(trace: Sequence[str]) -> str:
    """Return the class of ``[batch:1]``."""
    return trace[CLASS].strip("[]").partition(":")[0]


def _names(text: str) -> list[str]:
    names = [each for each in _BETWEEN.split(text) if each]
    if not names or not all(each.isprintable() for each in names):
        raise ValueError(f"{text[:60]!r} has no node")
    return names
