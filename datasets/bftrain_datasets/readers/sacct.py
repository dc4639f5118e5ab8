"""Slurm's accounting: one job per line, as ``sacct`` prints it with ``--parsable2``.

Get it with ``SLURM_TIME_FORMAT=%s sacct -a -D -X -P -o JobID,Partition,Start,End,NNodes,NodeList,State``. Columns may
have any order. Files without a header have the columns of Open XDMoD, or of ``--columns``.

| column | required | meaning |
|---|---|---|
| ``JobID`` | yes | steps such as ``12.batch`` are skipped |
| ``Start``, ``End`` | yes | epochs or local times; ``Unknown`` while the job waits or runs |
| ``NodeList`` | yes | node set, such as ``n[1-4]``; not with ``--counts`` |
| ``State`` | | running, waiting and preempted jobs, and node failures |
| ``Partition`` | | partition |
| ``NNodes`` | | checked against ``NodeList``; the size with ``--counts`` |
| ``ElapsedRaw``, ``Elapsed`` | | resolves local times that a clock shows twice |
| ``Cluster`` | | cluster |
| ``AllocTRES``, ``AllocCPUS`` | | GPUs and cores |
| ``User``, ``Submit`` | | for the waits in ``bftrain assess`` |
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from operator import itemgetter
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bftrain.errors import BadInput
from bftrain.node_units import CORE, GPU, NODE, in_words_of
from bftrain_datasets.importing.job_checks import RecordIntake
from bftrain_datasets.importing.job_columns import JobTable, keys_of, time_cell
from bftrain_datasets.importing.machine_nodes import Units
from bftrain_datasets.importing.raw_file import LARGE_BLOCK_BYTES, RawFile
from bftrain_datasets.importing.states import JobState, apply_job_states, job_states_of
from bftrain_datasets.importing.text_columns import (
    HEADER_WITHIN,
    NO_NODES,
    NO_TIME,
    SEPARATORS,
    Texts,
    by_text,
    chosen,
    coded,
    columns_of,
    contains,
    count_of,
    first_lines,
    lengths_of,
    merged,
    moment_of,
    moments,
    names_slurm_jobs,
    times_of,
    unquoted,
    without,
)
from bftrain_datasets.log.arrow_arrays import Column, numpy_of
from bftrain_datasets.log.time_formats import span_s

name: Final = "sacct"
about: Final = "Slurm: sacct --parsable2, with a header or Open XDMoD's columns"

# Columns of Open XDMoD, the most common dump without a header
# fmt: off
XDMOD_COLUMNS: Final = (
    "jobid", "jobidraw", "cluster", "partition", "qos", "account", "group", "gid", "user",
    "uid", "submit", "eligible", "start", "end", "elapsed", "exitcode", "state", "nnodes",
    "ncpus", "reqcpus", "reqmem", "reqtres", "alloctres", "timelimit", "nodelist", "jobname",
)
# fmt: on
# Columns whose text may contain the separator
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
    "tres_alloc": "alloctres",
    "ncpus": "alloccpus",
    "cpus_alloc": "alloccpus",
    "user_name": "user",
    "submit_time": "submit",
    "submittime": "submit",
}
ASKED: Final = frozenset({"reqnodes", "nodes_req"})  # a requested number may differ from the nodes in NodeList
JOB_COLUMNS: Final = (
    "jobid", "start", "end", "nodelist", "state", "partition", "nnodes", "elapsedraw", "elapsed", "cluster",
    "alloctres", "alloccpus", "user", "submit",
)  # fmt: skip
tells_units: Final = (GPU, CORE)  # the resources in the records
NEEDED: Final = frozenset({"jobid", "start", "end"})
WANTED: Final = "JobID, Start, End, NodeList and, if available, State, Partition and NNodes"
MARKDOWN_RULE: Final = ("|--", "| --", "|:-", "| :-")  # the line below a header
_SMALL_BLOCK_BYTES: Final = 1 << 16
_TIMES: Final = ("start", "end", "elapsedraw", "elapsed")
_UNIQUE: Final = frozenset({"jobid", "start", "end", "submit", "elapsed", "elapsedraw", "nodelist"})
_COMMA: Final = re.compile(r",(?![^\[]*\])")
_TRES: Final = re.compile(r"(?:\A|,)(cpu|gres/gpu(?::[^=,]*)?|1)=(\d+)")  # 1 is the number of cpu in Slurm's database


class _Layout:
    """The index of each column. Free text may contain the separator; it is located from both sides.

    ``closed`` means a trailing separator on each line, as with ``--parsable``.
    """

    def __init__(self, columns: Sequence[str], separator: str, *, closed: bool = False) -> None:
        plain = [column.strip().lower().partition("%")[0] for column in columns]
        self.names = [ALIASES.get(column, column) for column in plain]
        if "jobid" not in self.names:
            self.names = ["jobid" if column == "jobidraw" else column for column in self.names]
        self.written = plain
        self.separator = separator
        self.closed = closed
        self.width = len(self.names)
        self.padded = any(column != column.strip() for column in columns)
        self.free = [place for place, column in enumerate(self.names) if column in FREE_TEXT]
        self.places = {column: place for place, column in reversed(list(enumerate(self.names)))}
        count_place = self.places.get("nnodes")
        self.tells_nodes = count_place is not None and plain[count_place] not in ASKED
        self.units = {GPU: "alloctres" in self.places, CORE: bool({"alloctres", "alloccpus"} & self.places.keys())}

    def complete(self) -> bool:
        return self.places.keys() >= NEEDED

    def cells(self, line: str) -> list[str] | None:
        """Return the cells of a line, or None if they do not fit the columns."""
        quoted = self.separator == "," and '"' in line
        cells = unquoted(line) if quoted else line.split(self.separator)
        if self.padded:
            cells = list(map(str.strip, cells))
        if len(cells) == self.width + 1 and not cells[-1] and (self.closed or not self.free):
            cells.pop()
        return cells if len(cells) == self.width else None

    def torn(self, line: str) -> list[str] | None:
        """Return the cells of a line with separators in its node set or only free-text column."""
        # Commas in brackets are part of a node set, as in n[1,3]
        cells = _COMMA.split(line) if self.separator == "," else line.split(self.separator)
        if self.closed and not cells[-1]:
            cells.pop()
        surplus = len(cells) - self.width
        if not surplus:
            return cells
        if surplus < 1 or len(self.free) != 1:
            return None
        place = self.free[0]
        text = self.separator.join(cells[place : place + surplus + 1])
        return [*cells[:place], text, *cells[place + surplus + 1 :]]


def _header_of(line: str) -> _Layout | None:
    for separator in SEPARATORS:
        if separator in line:
            closed = line.endswith(separator)
            layout = _Layout(line.rstrip(separator).split(separator), separator, closed=closed)
            return layout if layout.complete() else None
    return None


def _headless(line: str) -> _Layout | None:
    """Return the layout of the most common headerless dump, or None."""
    layout = _Layout(XDMOD_COLUMNS, "|", closed=_is_closed(line, "|", len(XDMOD_COLUMNS)))
    cells = layout.cells(line) or layout.torn(line)
    if cells is None:
        return None
    stamps = (cells[layout.places[column]] for column in ("submit", "start", "end"))
    return layout if all(_is_time(stamp) for stamp in stamps) else None


def _is_closed(line: str, separator: str, width: int) -> bool:
    return line.endswith(separator) and line.count(separator) == width


def _is_time(text: str) -> bool:
    return text.lower() in NO_TIME or (text[:4].isdigit() and text[4:5] in {"-", *"0123456789"})


def recognises(head: bytes) -> bool:
    """Return whether one of the first lines is a sacct header, or the first line a headerless row.

    Also true for columns cut to a width, which ``read`` rejects with advice.
    """
    lines = first_lines(head)[:HEADER_WITHIN]
    headers = [header for header in map(_header_of, lines) if header and names_slurm_jobs(header.written)]
    if headers or any(_headless(line) for line in lines[:1]):
        return True
    return any(_is_rule(rule) and "jobid" in words.lower().split() for words, rule in pairwise(lines))


def read(file: RawFile, intake: RecordIntake) -> None:
    """Read every job."""
    layout = _layout_for(intake.options.columns, file.head)
    intake.reports_outages = bool(intake.reports_outages)  # None to False: only another file can report outages
    for first, block in file.blocks(LARGE_BLOCK_BYTES):
        for number, header, lines in _below_headers(first, block, file):
            layout = header or layout
            while layout is None and lines:
                raw, _, rest = lines.partition(b"\n")
                line = file.text(raw, number)
                layout = _headless(line)
                if _is_rule(line):
                    raise BadInput("columns cut to a width", where=file.name, fix="use sacct with --parsable2")
                if layout is None:
                    _skip(line, number, intake)
                    number, lines = number + 1, rest  # noqa: PLW2901 - the rest of the part
            if layout is not None and lines:
                _read_lines(number, lines, layout, file, intake)
    if layout is None:
        raise BadInput("no header, and unknown columns", where=file.name, fix=f"list {WANTED} by --columns")


def _below_headers(first: int, block: bytes, file: RawFile) -> Iterator[tuple[int, _Layout | None, bytes]]:
    """Yield the parts of a block below each header, if any, with their first line number and layout."""
    begin, layout = 0, None
    # Parts of "Start" and "start_time"; two searches are six times as fast as one for both
    for mark in sorted(match.start() for word in (b"tart", b"TART") for match in re.finditer(word, block)):
        line = block.rfind(b"\n", 0, mark) + 1
        if line < begin:
            continue
        end = block.find(b"\n", mark)
        end = len(block) if end < 0 else end
        header = _header_of(block[line:end].decode(errors="replace").rstrip("\r"))
        if header is not None:
            file.text(block[line:end], first + block.count(b"\n", 0, line))  # a doubt if it is not UTF-8
            yield first + block.count(b"\n", 0, begin), layout, block[begin : max(begin, line - 1)]
            begin, layout = min(end + 1, len(block)), header
    yield first + block.count(b"\n", 0, begin), layout, block[begin:]


def _skip(line: str, number: int, intake: RecordIntake) -> None:
    """Skip a line that does not fit the columns, unless it is empty or a rule."""
    if line.strip() and not line.startswith(MARKDOWN_RULE):
        intake.row(number)
        intake.set_aside("malformed")


def _read_lines(first: int, block: bytes, layout: _Layout, file: RawFile, intake: RecordIntake) -> None:
    """Read lines with the same layout: the usual lines as columns, the rest one by one."""
    names = [name for name in JOB_COLUMNS if name in layout.places]
    places = [layout.places[name] for name in names]
    closing = [layout.width] if layout.closed else []
    found = (
        None if layout.padded else columns_of(block, layout.separator, layout.width + layout.closed, places + closing)
    )
    middle = block.find(b"\n", len(block) // 2) if found is None and len(block) > _SMALL_BLOCK_BYTES else -1
    if middle > 0 and not layout.padded:  # the lines that Arrow cannot parse may be few
        _read_lines(first, block[:middle], layout, file, intake)
        _read_lines(first + block.count(b"\n", 0, middle) + 1, block[middle + 1 :], layout, file, intake)
        return
    rows, others, columns = found or (np.zeros(0, dtype=np.int64), np.arange(block.count(b"\n") + 1), [])
    if columns and layout.closed:
        usual = lengths_of(columns.pop()) == 0
        others = np.union1d(others, rows[~usual])
        rows, columns = rows[usual], columns if usual.all() else [chosen(column, usual) for column in columns]
    lines = block.split(b"\n") if others.size else []
    odd_rows, odd_cells = [], []
    for row in others.tolist():
        cells = _odd_cells(file.text(lines[row], first + row), first + row, layout, intake)
        if cells is not None:
            odd_rows.append(row)
            odd_cells.append([cells[place] for place in places])
    if odd_rows:
        rows = np.append(rows, odd_rows)
        columns = merged(columns, odd_cells, np.argsort(rows))
        rows.sort()
    if rows.size and not layout.units.get(intake.options.unit, True):
        needed = "AllocTRES" if intake.options.unit == GPU else "AllocTRES or AllocCPUS"
        what = f"no column has the {in_words_of(intake.options.unit, 'nodes')} of a job"
        raise BadInput(what, where=file.name, fix=f"add {needed} to the columns of sacct")
    if rows.size:
        table = _table_of(rows + first, dict(zip(names, columns, strict=True)), layout, intake)
        intake.take(table)


def _odd_cells(line: str, number: int, layout: _Layout, intake: RecordIntake) -> list[str] | None:
    """Return the cells of any line; skip it if they do not fit the columns."""
    if not line.strip() or line.startswith(MARKDOWN_RULE):
        return None
    cells = layout.cells(line)
    if cells is None:
        cells = layout.torn(line)
        if cells is None:
            _skip(line, number, intake)
        else:
            intake.line = number
            intake.note("notation")
    return cells


def _table_of(
    lines: NDArray[np.int64], columns: Mapping[str, Column], layout: _Layout, intake: RecordIntake
) -> JobTable:
    """Return the jobs of lines in columns; job steps, and jobs of other clusters, are marked to be skipped."""
    text = {name: coded(column) for name, column in columns.items() if name not in _UNIQUE}
    none, options = Texts(np.full(lines.size, -1, dtype=np.int32), ()), intake.options
    reason = np.where(contains(columns["jobid"], "."), 1, -1).astype(np.int8)
    clusters = text.get("cluster", none)
    codes, rows = np.unique(clusters.codes, return_index=True)
    for code, row in sorted(zip(codes.tolist(), rows.tolist(), strict=True), key=itemgetter(1)):
        intake.line = int(lines[row])
        if code >= 0 and intake.is_other_cluster(clusters.texts[code]):
            reason[clusters.codes == code] = 0
    nodes = without(columns["nodelist"], NO_NODES) if "nodelist" in columns else pa.nulls(lines.size, pa.string())
    named, states = numpy_of(nodes.is_valid()), job_states_of(text.get("state", none))
    start, end = _times(columns, reason < 0, lines, intake)
    written_end = end.copy()
    runs_until_end = apply_job_states(states, start, end, named)
    # sacct --truncate writes the end of the selected period as the end of running jobs
    intake.observed(float(written_end[runs_until_end & (reason < 0)].max(initial=-np.inf)))
    count = by_text(text.get("nnodes", none), count_of, np.int64)
    if not (layout.tells_nodes or options.counts):
        count[named] = 0
    units: list[Units] | None = None
    if options.unit != NODE:
        cells = (text.get(name, none).cells() for name in ("alloctres", "alloccpus"))
        units = [_units_in(tres, cpus, options.unit) for tres, cpus in zip(*cells, strict=True)]
    return JobTable(
        lines=lines,
        job=keys_of(columns["jobid"]),
        start=start,
        end=end,
        count=count,
        nodes=nodes,
        queue=text.get("partition"),
        user=text.get("user"),
        submit=_submissions(columns["submit"], intake) if "submit" in columns else None,
        preempted=states == JobState.PREEMPTED,
        node_failed=states == JobState.NODE_FAILED,
        reason=reason,
        reasons=("not_selected", "other_record"),
        units=units,
    )


def _units_in(tres: str, cpus: str, unit: str) -> int:
    """Return a job's number of GPUs or cores, from Slurm's trackable resources or its number of CPUs.

    >>> _units_in("billing=8,cpu=8,gres/gpu:a100=2,gres/gpu=2,node=1", "8", "gpu")
    2
    """
    numbers = {name: count_of(number) for name, number in _TRES.findall(tres)}
    if unit == GPU:
        typed = (number for name, number in numbers.items() if name.startswith("gres/gpu:"))
        return numbers.get("gres/gpu") or sum(typed)
    return numbers.get("cpu") or numbers.get("1") or count_of(cpus)


def _times(
    columns: Mapping[str, Column], wanted: NDArray[np.bool_], lines: NDArray[np.int64], intake: RecordIntake
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return start and end times in seconds UTC; only ``wanted`` rows are complete and have local times counted."""
    start, start_read, start_local = times_of(columns["start"], intake.clock)
    end, end_read, end_local = times_of(columns["end"], intake.clock)
    usual, local = start_read & end_read, start_local.astype(np.int64) + end_local
    local[~(wanted & usual)] = 0
    first = int(np.argmax(local > 0)) if local.any() else -1
    # Visit the rows in order
    for row in np.flatnonzero((wanted & ~usual) | (np.arange(local.size) == first)).tolist():
        intake.line = int(lines[row])
        if row == first:
            intake.clock.count_local(int(local.sum()))
        else:
            cells = (columns[name][row].as_py() if name in columns else "" for name in _TIMES)
            start[row], end[row] = map(time_cell, _odd_times(*cells, intake=intake))
    return start, end


def _odd_times(
    start: str, end: str, elapsed_raw: str, elapsed: str, *, intake: RecordIntake
) -> tuple[float | None, float | None]:
    """Return start and end, NaN if unreadable; the run time resolves ambiguous local times."""
    twice = intake.clock.twice
    start_s, end_s = moments(partial(moment_of, seconds=intake.clock.seconds), start, end)
    if intake.clock.twice != twice and start_s is not None and end_s is not None and start_s + end_s > 0:
        # Run times exclude suspended time
        length_s = float(elapsed_raw) if elapsed_raw.isdecimal() else span_s(elapsed)
        if length_s is not None:
            return _by_length(start, end, length_s, twice, intake)
    return start_s, end_s


def _submissions(column: Column, intake: RecordIntake) -> NDArray[np.float64]:
    submit, read, _ = times_of(column, intake.clock)
    for row in np.flatnonzero(~read).tolist():
        submit[row] = intake.clock.uncounted(column[row].as_py()) or np.nan
    return submit


def _layout_for(columns: Sequence[str] | None, head: bytes) -> _Layout | None:
    """Return the layout for the columns in the options; the first line determines the separator."""
    if not columns:
        return None
    first = head.decode(errors="replace").lstrip().partition("\n")[0]
    separator = next((mark for mark in SEPARATORS if mark in first), SEPARATORS[0])
    layout = _Layout(columns, separator, closed=_is_closed(first.rstrip("\r"), separator, len(columns)))
    if not layout.complete():
        raise BadInput(f"not enough columns: {', '.join(columns)}", where="--columns", fix=f"list {WANTED}")
    return layout


def _is_rule(line: str) -> bool:
    """Return whether this is the dashed line below a sacct header without --parsable."""
    return line.startswith("---") and not line.strip("- ")


def _by_length(start: str, end: str, length_s: float, twice: int, intake: RecordIntake) -> tuple[float, float]:
    """Resolve ambiguous or nonexistent local times to match the job's recorded length as closely as possible.

    If two readings are equally close, as for a job within the repeated hour, use the earlier one and count a doubt.
    ``twice`` is the number of ambiguous times before this one.
    """
    pairs = [(first, last) for first in intake.clock.readings(start) for last in intake.clock.readings(end)]
    off = [abs(last - first - length_s) for first, last in pairs]
    if off.count(min(off)) == 1:
        intake.clock.reset_twice(twice)
        intake.note("notation")
    return pairs[off.index(min(off))]
