"""Diagnosis of a file of unknown format: why it is not a table of jobs, and which option or command helps."""

from __future__ import annotations

import re
from typing import Final

from bftrain_datasets.importing.text_columns import first_lines
from bftrain_datasets.job_tables.column_choice import columns_named, miss_text
from bftrain_datasets.job_tables.tables import RESERVATIONS, format_of, header_of, is_json, keys_in
from bftrain_datasets.log.time_formats import SMALLEST_EPOCH_S, RecordClock

_KNOWN_ENOUGH: Final = 2  # recognised columns from which a file counts as a job table
_LEAST_COLUMNS: Final = 2
_LEAST_CELLS: Final = 3  # minimum for a row without a header line
_SHOWN: Final = 6  # column names in a message
_COMPARED_LINES: Final = 5  # lines to compare with the patterns of unsupported records
_MAP: Final = "--format jobs --map start={0},end={0}|elapsed={0},nodes={0}|count={0}"
_COLUMNS: Final = "--columns JobID,Start,End,NNodes,NodeList,State, in column order"
_SACCT: Final = "use the output of: sacct -a -X --parsable2 -o JobID,Start,End,NNodes,NodeList,State"
_LSF: Final = "import LSF's file lsb.acct"
_PBS: Final = "import the files in server_priv/accounting on the PBS server"
_DOWN: Final = "import the output of sacctmgr show event -P all_time, or set --down NODES@A:B"
_OF_NOW: Final = ", which lists only current jobs"
_UNSUPPORTED: Final = ", which is not supported"
# Text at the start of a line, the format it reveals, and a supported source
_OTHER_FILES: Final = (
    (r"(?=.*\bJOBID\b)(?=.*\bST\b).*NODELIST\(REASON\)", f"output of squeue{_OF_NOW}", _SACCT),
    (r"(?=.*\bJOBID\b)(?=.*\bSTAT\b).*\bFROM_HOST\b", f"output of bjobs{_OF_NOW}", _LSF),
    (r"job-ID +prior\b.*\bstate\b", f"output of qstat{_OF_NOW}", "import Grid Engine's accounting file"),
    (r"Job id\b.*\bTime Use S\b", f"output of qstat{_OF_NOW}", _PBS),
    (r"---+ [- ]+$", "columns cut to a width", "print them with --parsable2 (-P)"),
    (r"<\?xml", f"XML{_UNSUPPORTED}", "convert it to JSON or CSV, or import the scheduler's own files"),
    (r"Job <\d", f"output of bhist -l{_UNSUPPORTED}", _LSF),
    (r'"JOB_(?:NEW|START|STATUS|REQUEUE)" "\d', f"LSF's file lsb.events{_UNSUPPORTED}", _LSF),
    (r"JobId=\d+ (?:Array\w+=\S+ )*JobName=", f"output of scontrol show job{_UNSUPPORTED}", _SACCT),
    (r"JobId=\S+ UserId=", f"a file of Slurm's jobcomp/filetxt{_UNSUPPORTED}", _SACCT),
    (r"\[\d{4}-\d\d-\d\dT[\d:.+-]+\] ", f"a log of slurmctld{_UNSUPPORTED}", _SACCT),
    (
        r"ReservationName=\S+ StartTime=|(?=.*\bName\b)(?=.*\bNodeNames\b).*\bFlags\b",
        f"Slurm's reservations{_UNSUPPORTED}",
        _DOWN,
    ),
    (r"={20}", f"output of qacct -j{_UNSUPPORTED}", "import the file accounting, which qacct reads"),
    (
        r"VERSION \d+$|\d\d:\d\d:\d\d \d{9,} ",
        f"events of Moab or Maui{_UNSUPPORTED}",
        "import the records of Torque, Slurm or LSF",
    ),
)


def near_miss(head: bytes) -> tuple[str, str] | None:
    """Return the problem and advice; None if the file resembles neither a table nor a known format."""
    lines = first_lines(head)
    for start, problem, fix in _OTHER_FILES:
        if any(re.match(start, line) for line in lines[:_COMPARED_LINES]):
            return problem, fix
    if is_json(head):
        return _of_json(head)
    header = header_of(head.decode(errors="replace").lstrip().partition("\n")[0])
    times = sum(map(_is_time, header.names))
    if times and len(header.names) >= _LEAST_CELLS:
        shown = "blanks" if header.separator == " " else f"'{header.separator}'"
        return (
            f"rows of {len(header.names)} cells with {shown} between them, but no header",
            f"list the columns with {_COLUMNS}",
        )
    if any(cell.replace(".", "").isdigit() for cell in header.names):
        return None  # some other row
    found = columns_named(header.names)
    if len(found.uses) >= _KNOWN_ENOUGH:
        return miss_text(found), f"set the columns with {_MAP.format('COL')}"
    alike = len(lines) > 1 and lines[1].count(header.separator) == lines[0].count(header.separator)
    if header.separator == " " or len(header.names) < _LEAST_COLUMNS or not alike:
        return None
    return f"no known column of jobs: {_some(header.names)}", f"set their meanings: {_MAP.format('COL')}"


def _of_json(head: bytes) -> tuple[str, str]:
    if format_of(head) == RESERVATIONS:
        return f"Slurm's reservations{_UNSUPPORTED}", _DOWN
    names = keys_in(head)
    found = columns_named(names)
    fix = f"set the fields with {_MAP.format('FIELD')}"
    if len(found.uses) >= _KNOWN_ENOUGH:
        return miss_text(found), fix
    if len(names) < _LEAST_COLUMNS:
        return "JSON, but no job record", "use objects with the fields of jobs, as lines or in an array"
    return f"JSON, but no known job field: {_some(names)}", fix


def _some(names: list[str] | tuple[str, ...]) -> str:
    return ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")


def _is_time(cell: str) -> bool:
    """Return whether a cell is a time after 1970, written as an epoch or as a date."""
    try:
        return len(cell) > len("2026") and RecordClock().seconds(cell) >= SMALLEST_EPOCH_S
    except ValueError:
        return False
