"""Slurm's accounting as ``sacct --parsable`` prints it: one job a line, ``|`` between the columns."""

from __future__ import annotations

from itertools import pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from bftrain.errors import BadInput
from bftrain_datasets.importing.job_checks import RUNNING
from bftrain_datasets.importing.slurm_words import NO_TIME, moment_of, nodes_of
from bftrain_datasets.importing.text_cells import count_of, first_lines, unquoted

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bftrain_datasets.importing.job_checks import RecordIntake
    from bftrain_datasets.importing.raw_file import RawFile

name: Final = "sacct"
about: Final = "Slurm: sacct --parsable2, with a header or in the order of Open XDMoD"

# The columns that Open XDMoD asks sacct for: the most common dump without a header
# fmt: off
XDMOD_COLUMNS: Final = (
    "jobid", "jobidraw", "cluster", "partition", "qos", "account", "group", "gid", "user",
    "uid", "submit", "eligible", "start", "end", "elapsed", "exitcode", "state", "nnodes",
    "ncpus", "reqcpus", "reqmem", "reqtres", "alloctres", "timelimit", "nodelist", "jobname",
)
# fmt: on
FREE_TEXT: Final = frozenset({"jobname", "comment", "admincomment", "systemcomment", "workdir", "submitline", "reason"})
ALIASES: Final = {
    "job_id": "jobid",
    "start_time": "start",
    "starttime": "start",
    "end_time": "end",
    "endtime": "end",
    "node_list": "nodelist",
    "nodes": "nodelist",
    "allocnodes": "nnodes",
    "nodes_alloc": "nnodes",
    "nodes_req": "nnodes",
    "reqnodes": "nnodes",
}
JOB_COLUMNS: Final = ("jobid", "start", "end", "nodelist", "state", "partition", "nnodes")
HEADER_WITHIN: Final = 5  # lines
NEEDED: Final = ("start", "end")
SEPARATORS: Final = "|\t;,"
# A job that is configuring waits for nodes that it has already
UNFINISHED: Final = ("RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING", "STOPPED", "SIGNALING", "STAGE_OUT")
PENDING: Final = ("PENDING", "REQUEUE_", "SPECIAL_EXIT", "RESV_DEL_HOLD")
RESIZING: Final = "RESIZING"  # a record of each size: all but the last one have an end


class SacctLayout:
    """Where each column stands. Free text may hold the separator; it is found from both sides."""

    def __init__(self, columns: Sequence[str], separator: str) -> None:
        plain = [column.strip().lower().partition("%")[0] for column in columns]
        self.names = [ALIASES.get(column, column) for column in plain]
        self.separator = separator
        self.width = len(self.names)
        self.free = [place for place, column in enumerate(self.names) if column in FREE_TEXT]
        self.places = {column: place for place, column in reversed(list(enumerate(self.names)))}
        self._pick = itemgetter(*(self.places.get(column, self.width) for column in JOB_COLUMNS))

    def complete(self) -> bool:
        """Whether the columns tell of a job what has to be known."""
        return "jobid" in self.places and all(column in self.places for column in NEEDED)

    def cells(self, line: str) -> list[str] | None:
        """Split a line into its cells, or give None if they do not fit the columns."""
        quoted = self.separator == "," and '"' in line
        cells = unquoted(line) if quoted else line.split(self.separator)
        if len(cells) == self.width + 1 and not cells[-1]:  # --parsable ends each line with a separator
            cells.pop()
        return cells if len(cells) == self.width else None

    def pick(self, cells: list[str]) -> tuple[str, ...]:
        """Give the cells of ``JOB_COLUMNS``; a column that is not there is empty."""
        cells.append("")
        picked: tuple[str, ...] = self._pick(cells)
        return picked

    def torn(self, line: str) -> list[str] | None:
        """Split a line whose one column of free text holds separators."""
        cells = line.split(self.separator)
        surplus = len(cells) - self.width
        if surplus < 1 or len(self.free) != 1:
            return None
        place = self.free[0]
        text = self.separator.join(cells[place : place + surplus + 1])
        return [*cells[:place], text, *cells[place + surplus + 1 :]]


def header_of(line: str) -> SacctLayout | None:
    """Read a line as a header, if it is one."""
    for separator in SEPARATORS:
        if separator in line:
            layout = SacctLayout(line.rstrip(separator).split(separator), separator)
            return layout if layout.complete() else None
    return None


def headless(line: str) -> SacctLayout | None:
    """Recognise the most common dump that comes without a header."""
    layout = SacctLayout(XDMOD_COLUMNS, "|")
    cells = layout.cells(line) or layout.torn(line)
    if cells is None:
        return None
    stamps = (cells[layout.places[column]] for column in ("submit", "start", "end"))
    return layout if all(_is_time(stamp) for stamp in stamps) else None


def _is_time(text: str) -> bool:
    return text.lower() in NO_TIME or (text[:4].isdigit() and text[4:5] in {"-", *"0123456789"})


def recognises(head: bytes) -> bool:
    """Say whether one of the first lines is a header of ours, or the first one a row without."""
    lines = first_lines(head)[:HEADER_WITHIN]
    if any(header_of(line) for line in lines) or any(headless(line) for line in lines[:1]):
        return True
    return any(_is_rule(rule) and "jobid" in words.lower().split() for words, rule in pairwise(lines))


def read(file: RawFile, intake: RecordIntake) -> None:
    """Read every job."""
    layout = _layout_for(intake.options.columns, file.head)
    for number, line in file.lines():
        if not line.strip():
            continue
        header = header_of(line) if "tart" in line or "TART" in line else None  # of Start or start_time
        if header is not None:
            layout = header
            continue
        intake.row(number)
        layout = layout or headless(line)
        cells = layout.cells(line) if layout else None
        if layout is not None and cells is None:
            cells = layout.torn(line)
            if cells is not None:
                intake.note("delimiter_in_text")
        if layout is None or cells is None:
            if layout is None and _is_rule(line):
                raise BadInput("columns that are cut to a width", where=file.name, fix="use sacct with --parsable2")
            intake.set_aside("malformed")
            continue
        take_job(layout.pick(cells), intake)
    if layout is None:
        raise BadInput(
            "no header, and not the columns that we know", where=file.name, fix=f"name {_wanted()} with --columns"
        )


def _layout_for(columns: Sequence[str] | None, head: bytes) -> SacctLayout | None:
    """Make a layout of the columns that the options name; the first line tells what stands between them."""
    if not columns:
        return None
    first = head.decode(errors="replace").lstrip().partition("\n")[0]
    layout = SacctLayout(columns, next((mark for mark in SEPARATORS if mark in first), SEPARATORS[0]))
    if not layout.complete():
        raise BadInput(f"not enough columns: {', '.join(columns)}", where="--columns", fix=f"name {_wanted()}")
    return layout


def _is_rule(line: str) -> bool:
    """Whether it is the line of dashes that sacct puts under its header unless it is asked for --parsable."""
    return line.startswith("---") and not line.strip("- ")


def take_job(cells: Iterable[str], intake: RecordIntake) -> None:
    """Hand one job over; the cells are those of ``JOB_COLUMNS``, in this order."""
    job, start, end, nodes, state, queue, count = cells
    if "." in job:
        intake.set_aside("step")
        return
    try:
        start_s, end_s = moment_of(start, intake.clock.seconds), moment_of(end, intake.clock.seconds)
    except ValueError:
        intake.set_aside("bad_time")
        return
    if state.startswith(PENDING):
        start_s = None
    elif state.startswith(UNFINISHED):
        if end_s is not None and start_s is not None and end_s > start_s:
            intake.observed(end_s)  # where sacct cut the job off
        end_s = RUNNING
    elif end_s is None and state.startswith(RESIZING):
        end_s = RUNNING
    intake.job(
        job,
        start_s,
        end_s,
        nodes_of(nodes),
        count=count_of(count),
        queue=queue,
        preempted=state.startswith("PREEMPTED"),
    )


def _wanted() -> str:
    return "JobID, Start, End, NodeList and, if you have them, State, Partition and NNodes"
