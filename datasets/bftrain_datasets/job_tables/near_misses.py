"""Diagnosis of a file of unknown format: why it is not a table of jobs, and which option or command helps."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from bftrain_datasets.importing.text_columns import first_lines
from bftrain_datasets.job_tables.column_choice import columns_named, miss_text
from bftrain_datasets.job_tables.tables import JSON_BEGINS, RESERVATIONS, format_of, header_of, keys_in
from bftrain_datasets.log.time_formats import SMALLEST_EPOCH_S, RecordClock

_KNOWN_ENOUGH: Final = 2  # recognised columns from which a file counts as a job table
_LEAST_COLUMNS: Final = 2
# Minimum number of cells in a headerless row
_LEAST_CELLS: Final = 3
_SHOWN: Final = 6
_COMPARED_LINES: Final = 5  # lines to compare with the patterns of unsupported records
_MAP: Final = "--format jobs --map start={0},end={0}|elapsed={0},nodes={0}|count={0}"
_COLUMNS: Final = "--columns JobID,Start,End,NNodes,NodeList,State, in column order"
_SACCT: Final = "use the output of: sacct -a -X --parsable2 -o JobID,Start,End,NNodes,NodeList,State"
_LSF: Final = "import LSF's file lsb.acct"
_PBS: Final = "import the files in server_priv/accounting on the PBS server"
_DOWN: Final = "import the output of sacctmgr show event -P all_time, or set --down NODES@A:B"
# Words in the header of a command that lists present jobs, and a source of past jobs
_OF_NOW: Final = (
    ({"JOBID", "ST", "NODELIST(REASON)"}, "squeue", _SACCT),
    ({"JOBID", "STAT", "FROM_HOST"}, "bjobs", _LSF),
    ({"job-ID", "prior", "state"}, "qstat", "import the file accounting of Grid Engine"),
    ({"Job", "id", "Time", "Use", "S"}, "qstat", _PBS),
)
# The start of a line in unsupported records, and a supported source
_UNSUPPORTED: Final = (
    (r"<\?xml", "XML", "convert it to JSON or CSV, or import the scheduler's own files"),
    (r"Job <\d", "output of bhist -l", _LSF),
    (r'"JOB_(?:NEW|START|STATUS|REQUEUE)" "\d', "LSF's file lsb.events", _LSF),
    (r"JobId=\d+ (?:Array\w+=\S+ )*JobName=", "output of scontrol show job", _SACCT),
    (r"JobId=\S+ UserId=", "a file of Slurm's jobcomp/filetxt", _SACCT),
    (r"\[\d{4}-\d\d-\d\dT[\d:.+-]+\] ", "a log of slurmctld", _SACCT),
    (r"ReservationName=\S+ StartTime=|(?=.*\bName\b)(?=.*\bNodeNames\b).*\bFlags\b", "Slurm's reservations", _DOWN),
    (r"={20}", "output of qacct -j", "import the file accounting, which qacct reads"),
    (r"VERSION \d+$|\d\d:\d\d:\d\d \d{9,} ", "events of Moab or Maui", "import the records of Torque, Slurm or LSF"),
)


def near_miss(head: bytes) -> tuple[str, str] | None:
    """Return the problem and advice; None if the file does not resemble a table."""
    lines = first_lines(head)
    for start, source, fix in _UNSUPPORTED:
        if any(re.match(start, line) for line in lines[:_COMPARED_LINES]):
            return f"{source}, which is not supported", fix
    if head.lstrip().startswith(JSON_BEGINS):
        return _of_json(head)
    header = header_of(head.decode(errors="replace").lstrip().partition("\n")[0])
    printed = _of_commands(header.names, lines)
    if printed is not None:
        return printed
    times = sum(map(_is_time, header.names))
    if times and len(header.names) >= _LEAST_CELLS:
        shown = "blanks" if header.separator == " " else f"'{header.separator}'"
        return (
            f"rows of {len(header.names)} cells with {shown} between them, but no header",
            f"list the columns by {_COLUMNS}",
        )
    if any(cell.replace(".", "").isdigit() for cell in header.names):
        return None  # some other row
    found = columns_named(header.names)
    if len(found.uses) >= _KNOWN_ENOUGH:
        return miss_text(found), f"set the column by {_MAP.format('COL')}"
    alike = len(lines) > 1 and lines[1].count(header.separator) == lines[0].count(header.separator)
    if header.separator == " " or len(header.names) < _LEAST_COLUMNS or not alike:
        return None
    return f"no known column of jobs: {_some(header.names)}", f"set their meanings: {_MAP.format('COL')}"


def _of_commands(names: Sequence[str], lines: Sequence[str]) -> tuple[str, str] | None:
    """Return why the output of a command for people does not suffice; None for any other file."""
    for words, command, fix in _OF_NOW:
        if words <= {*names, *lines[0].split()} if lines else False:
            return f"output of {command}, which lists only current jobs", fix
    if len(lines) > 1 and lines[1].startswith("---") and not lines[1].strip("- "):
        return "columns cut to a width", "print them with --parsable2 (-P)"
    return None


def _of_json(head: bytes) -> tuple[str, str]:
    if format_of(head) == RESERVATIONS:
        return "Slurm's reservations, which are not supported", _DOWN
    names = keys_in(head)
    found = columns_named(names)
    fix = f"set the field by {_MAP.format('FIELD')}"
    if len(found.uses) >= _KNOWN_ENOUGH:
        return miss_text(found), fix
    if len(names) < _LEAST_COLUMNS:
        return "JSON, but no job record", "use objects with the fields of jobs, as lines or in an array"
    return f"JSON, but no known job field: {_some(names)}", fix


def _some(names: list[str] | tuple[str, ...]) -> str:
    return ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")


def _is_time(cell: str) -> bool:
    """Return whether a cell is a time after 1970, written as an epoch or as a date."""
    read: Callable[[str], float] = RecordClock().seconds
    with suppress(ValueError):
        return len(cell) > len("2026") and read(cell) >= SMALLEST_EPOCH_S
    return False
