"""Slurm's accounting: one job per line, as ``sacct`` prints it with ``--parsable2``.

Get it with ``SLURM_TIME_FORMAT=%s sacct -a -D -X -P -o JobID,Partition,Start,End,NNodes,NodeList,State``. Columns may
have any order. Files without a header have the columns of Open XDMoD, or of ``--columns``.

| column | required | meaning |
|---|---|---|
| ``JobID`` | yes | steps such as ``12.batch`` are skipped |
| ``Start``, ``End`` | yes | epochs or local times; ``Unknown`` while the job waits or runs |
| ``NodeList`` | yes | node set, such as ``n[1-4]`` |
| ``State`` | | tells running, waiting, preempted and failed jobs |
| ``Partition`` | | partition |
| ``NNodes`` | | checked against ``NodeList``; the size with ``--counts`` |
| ``ElapsedRaw``, ``Elapsed`` | | resolves local times that a clock shows twice |
| ``Cluster`` | | cluster |
| ``AllocTRES``, ``AllocCPUS`` | | GPUs and cores |
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from operator import itemgetter
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bftrain.errors import BadInput
from bftrain.node_units import CORE, GPU, NODE, in_words_of
from bftrain_datasets.importing.job_checks import RUNNING, RecordIntake
from bftrain_datasets.importing.job_columns import JobTable, Texts
from bftrain_datasets.importing.machine_nodes import Units
from bftrain_datasets.importing.raw_file import RawFile
from bftrain_datasets.importing.text_cells import (
    NO_NODES,
    NO_TIME,
    count_of,
    first_lines,
    moment_of,
    moments,
    names_slurm_jobs,
    nodes_of,
    units_in,
    unquoted,
)
from bftrain_datasets.importing.text_columns import (
    Column,
    by_text,
    coded,
    columns_of,
    contains,
    lengths_of,
    listed,
    times_of,
)
from bftrain_datasets.log.time_formats import span_s

name: Final = "sacct"
about: Final = "Slurm: sacct --parsable2, with a header or in the order of Open XDMoD"

# The columns of Open XDMoD: the most common dump without a header
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
    "tres_alloc": "alloctres",
    "ncpus": "alloccpus",
    "cpus_alloc": "alloccpus",
    "user_name": "user",
    "submit_time": "submit",
    "submittime": "submit",
}
ASKED: Final = frozenset({"reqnodes", "nodes_req"})  # a requested number may differ from that of NodeList
JOB_COLUMNS: Final = (
    "jobid", "start", "end", "nodelist", "state", "partition", "nnodes", "elapsedraw", "elapsed", "cluster",
    "alloctres", "alloccpus", "user", "submit",
)  # fmt: skip
tells_units: Final = True
HEADER_WITHIN: Final = 5  # lines
NEEDED: Final = ("start", "end")
WANTED: Final = "JobID, Start, End, NodeList and, if available, State, Partition and NNodes"
SEPARATORS: Final = "|\t;,"
MARKDOWN_RULE: Final = ("|--", "| --", "|:-", "| :-")  # below a header
_CLOSING: Final = ""  # the cell behind the last separator of a closed line
_UNIQUE: Final = frozenset({"jobid", "start", "end", "submit", "elapsed", "elapsedraw", "nodelist"})
_MOST_UNUSUAL: Final = 0.01  # of the lines of a block; with more of them all are read one by one
_COMMA: Final = re.compile(r",(?![^\[]*\])")
# A configuring job waits for nodes that it already holds
UNFINISHED: Final = ("RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING", "STOPPED", "SIGNALING", "STAGE_OUT")
COMPLETING: Final = "COMPLETING"  # with an end, the job is over: only its epilog still runs
PENDING: Final = ("PENDING", "REQUEUE_", "SPECIAL_EXIT", "RESV_DEL_HOLD")
NODE_FAILED: Final = ("NODE_FAIL", "BOOT_FAIL")
RESIZING: Final = "RESIZING"  # one record per size: all except the last have an end


class _Layout:
    """The index of each column. Free text may contain the separator; it is located from both sides.

    ``closed`` means that each line ends with a separator, as with ``--parsable``.
    """

    def __init__(self, columns: Sequence[str], separator: str, *, closed: bool = False) -> None:
        plain = [column.strip().lower().partition("%")[0] for column in columns]
        self.names = [ALIASES.get(column, column) for column in plain]
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
        self.pick = itemgetter(*(self.places.get(column, self.width) for column in JOB_COLUMNS))

    def complete(self) -> bool:
        return "jobid" in self.places and all(column in self.places for column in NEEDED)

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
        """Return the cells of a line whose node set, or only column of free text, contains separators."""
        cells = line.split(self.separator)
        if self.closed and not cells[-1]:
            cells.pop()
        if self.separator == ",":  # outside of brackets, as in n[1,3]
            cells = _COMMA.split(line)
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
    """Return the layout of the most common dump without a header, or None."""
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
    """Return whether one of the first lines is a sacct header, or the first one a row without header."""
    lines = first_lines(head)[:HEADER_WITHIN]
    headers = [header for header in map(_header_of, lines) if header and names_slurm_jobs(header.written)]
    if headers or any(_headless(line) for line in lines[:1]):
        return True
    return any(_is_rule(rule) and "jobid" in words.lower().split() for words, rule in pairwise(lines))


def read(file: RawFile, intake: RecordIntake) -> None:
    """Read every job."""
    layout = _layout_for(intake.options.columns, file.head)
    intake.reports_outages = bool(intake.reports_outages)
    for first, block in file.blocks():
        number, rest = first, block
        while layout is None and rest:
            line, _, rest = rest.partition(b"\n")
            layout = _read_line(number, line, layout, file, intake)
            number += 1
        if layout is not None and rest:
            layout = _read_block(number, rest, layout, file, intake)
    if layout is None:
        raise BadInput("no header, and unknown columns", where=file.name, fix=f"list {WANTED} by --columns")


def _read_line(number: int, raw: bytes, layout: _Layout | None, file: RawFile, intake: RecordIntake) -> _Layout | None:
    """Read any line; return the layout of those that follow."""
    line, unit = file.text(raw, number), intake.options.unit
    if not line.strip() or line.startswith(MARKDOWN_RULE):
        return layout
    header = _header_of(line) if "tart" in line or "TART" in line else None  # of Start or start_time
    if header is not None:
        return header
    intake.row(number)
    layout = layout or _headless(line)
    cells = layout.cells(line) if layout else None
    if layout is not None and cells is None:
        cells = layout.torn(line)
        if cells is not None:
            intake.note("notation")
    if layout is None or cells is None:
        if layout is None and _is_rule(line):
            raise BadInput("columns cut to a width", where=file.name, fix="use sacct with --parsable2")
        intake.set_aside("malformed")
        return layout
    if not layout.units.get(unit, True):
        needed = "AllocTRES" if unit == GPU else "AllocTRES or AllocCPUS"
        what = f"no column has the {in_words_of(unit, 'nodes')} of a job"
        raise BadInput(what, where=file.name, fix=f"add {needed} to the columns of sacct")
    _add_job(layout.pick([*cells, ""]), intake, tells_nodes=layout.tells_nodes)
    return layout


def _read_block(first: int, block: bytes, layout: _Layout, file: RawFile, intake: RecordIntake) -> _Layout | None:
    """Read the usual lines of a block in columns, and the others one by one."""
    found = _columns_of_block(block, layout, intake)
    if found is not None:
        rows, columns = found
        times = _job_times(columns, intake)
        usual = np.zeros(block.count(b"\n") + 1, dtype=np.bool_)
        usual[rows[times.usual]] = True
        others = np.flatnonzero(~usual)
        if others.size <= _MOST_UNUSUAL * usual.size:
            table = _table_of(rows, columns, times, first, layout, intake).rows(times.usual)
            return _read_mixed(first, block, table, others, layout, file, intake)
    next_layout: _Layout | None = layout
    for number, line in enumerate(block.split(b"\n"), first):
        next_layout = _read_line(number, line, next_layout, file, intake)
    return next_layout


def _read_mixed(
    first: int,
    block: bytes,
    table: JobTable,
    others: NDArray[np.int64],
    layout: _Layout,
    file: RawFile,
    intake: RecordIntake,
) -> _Layout | None:
    begin, next_layout = 0, layout
    lines = block.split(b"\n") if others.size else []
    for place in others.tolist():
        end = int(np.searchsorted(table.lines, first + place))
        intake.take(table.rows(slice(begin, end)))
        begin = end
        next_layout = _read_line(first + place, lines[place], layout, file, intake) or layout
    intake.take(table.rows(slice(begin, None)))
    return next_layout


def _columns_of_block(
    block: bytes, layout: _Layout, intake: RecordIntake
) -> tuple[NDArray[np.int64], dict[str, Column]] | None:
    """Return the usual lines and their columns; None if the block has a header, or cells that need a closer look."""
    if layout.padded or not layout.units.get(intake.options.unit, True) or _has_header(block):
        return None
    names = [name for name in JOB_COLUMNS if name in layout.places]
    places = [layout.places[name] for name in names]
    if layout.closed:
        places.append(layout.width)
    found = columns_of(block, layout.separator, layout.width + layout.closed, places)
    if found is None:
        return None
    rows, columns = found
    return rows, dict(zip((*names, _CLOSING) if layout.closed else names, columns, strict=True))


def _has_header(block: bytes) -> bool:
    """Return whether a line of the block may be a header."""
    for mark in (b"tart", b"TART"):
        place = block.find(mark)
        while place >= 0:
            begin, end = block.rfind(b"\n", 0, place) + 1, block.find(b"\n", place)
            end = len(block) if end < 0 else end
            if _header_of(block[begin:end].decode(errors="replace").rstrip("\r")) is not None:
                return True
            place = block.find(mark, end)
    return False


class _JobTimes(NamedTuple):
    """Starts and ends in seconds UTC, how many of the two are local times, and which lines are usual."""

    start: NDArray[np.float64]
    end: NDArray[np.float64]
    local: NDArray[np.int64]
    usual: NDArray[np.bool_]


def _job_times(columns: Mapping[str, Column], intake: RecordIntake) -> _JobTimes:
    start, start_read, start_local = times_of(columns["start"], intake.clock)
    end, end_read, end_local = times_of(columns["end"], intake.clock)
    usual = start_read & end_read & (lengths_of(columns["jobid"]) > 0)
    if _CLOSING in columns:
        usual &= lengths_of(columns[_CLOSING]) == 0
    return _JobTimes(start, end, start_local.astype(np.int64) + end_local, usual)


def _table_of(
    rows: NDArray[np.int64],
    columns: Mapping[str, Column],
    times: _JobTimes,
    first: int,
    layout: _Layout,
    intake: RecordIntake,
) -> JobTable:
    """Return the jobs of lines in columns, by the rules of ``_add_job``."""
    lines, options = rows + first, intake.options
    text = {name: coded(column) for name, column in columns.items() if name not in _UNIQUE and name != _CLOSING}
    start, end, local, plain = times
    reason = np.where(contains(columns["jobid"], "."), 1, -1).astype(np.int8)
    clusters = text.get("cluster")
    if clusters is not None:
        codes, places = np.unique(np.where(plain, clusters.codes, -1), return_index=True)
        for code, place in sorted(zip(codes.tolist(), places.tolist(), strict=True), key=itemgetter(1)):
            intake.line = int(lines[place])
            if code >= 0 and intake.is_other_cluster(clusters.texts[code]):
                reason[clusters.codes == code] = 0
    counted = plain & (reason < 0)
    if local[counted].any():
        intake.line = int(lines[np.flatnonzero(counted & (local > 0))[0]])
        intake.clock.count_local(int(local[counted].sum()))
    none = Texts(np.full(rows.size, -1, dtype=np.int32), ())
    nodes = listed(columns["nodelist"], NO_NODES) if "nodelist" in columns else none
    known, state = nodes.codes >= 0, text.get("state", none)
    start, end, observed_s = _by_states(state, start, end, known)
    if (seen := observed_s[counted & ~np.isnan(observed_s)]).size:
        intake.observed(float(seen.max()))
    count = by_text(text["nnodes"], count_of, np.int64) if "nnodes" in text else np.zeros(rows.size, dtype=np.int64)
    if not (layout.tells_nodes or options.counts):
        count[known] = 0
    units: list[Units] | None = None
    if options.unit != NODE:
        cells = (text[name].cells() if name in text else [""] * rows.size for name in ("alloctres", "alloccpus"))
        units = [int(units_in(tres, cpus, options.unit) or 0) for tres, cpus in zip(*cells, strict=True)]
    return JobTable(
        lines=lines,
        job=columns["jobid"].to_pylist(),
        start=start,
        end=end,
        count=count,
        nodes=nodes,
        queue=text.get("partition"),
        user=text.get("user"),
        submit=_submissions(columns["submit"], intake) if "submit" in columns else None,
        preempted=by_text(state, lambda word: word.startswith("PREEMPTED"), np.bool_),
        node_failed=by_text(state, lambda word: word.startswith(NODE_FAILED), np.bool_),
        reason=reason,
        reasons=("not_selected", "other_record"),
        units=units,
    )


def _submissions(column: Column, intake: RecordIntake) -> NDArray[np.float64]:
    submit, read, _ = times_of(column, intake.clock)
    for row in np.flatnonzero(~read).tolist():
        submit[row] = intake.clock.uncounted(column[row].as_py()) or np.nan
    return submit


def _by_states(
    state: Texts, start: NDArray[np.float64], end: NDArray[np.float64], named: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return starts and ends by the jobs' states, as ``_by_state``, and the times that the records reach."""
    kinds = [state.texts[code] if code >= 0 else "" for code in range(len(state.texts))]
    held = end > start
    observed_s = np.full(start.size, np.nan)
    for code, word in enumerate(kinds):
        rows = state.codes == code
        if word.startswith(PENDING):
            rows &= ~(held & named) if not word.startswith("PENDING") else True
            start[rows] = end[rows] = np.nan
        elif word.startswith(UNFINISHED):
            if word.startswith(COMPLETING):
                rows &= ~held
            observed_s[rows & held] = end[rows & held]
            end[rows] = RUNNING
        elif word.startswith(RESIZING):
            end[rows & np.isnan(end)] = RUNNING
    return start, end, observed_s


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
    """Return whether this is the line of dashes that sacct prints below its header without --parsable."""
    return line.startswith("---") and not line.strip("- ")


def _add_job(cells: Iterable[str], intake: RecordIntake, *, tells_nodes: bool) -> None:
    job, start, end, nodes, state, queue, count, elapsed_raw, elapsed, cluster, tres, cpus, user, submit = cells
    if cluster and intake.is_other_cluster(cluster):
        intake.set_aside("not_selected")
        return
    if "." in job:
        intake.set_aside("other_record")
        return
    clock = intake.clock
    twice = clock.twice
    try:
        start_s, end_s = moment_of(start, clock.seconds), moment_of(end, clock.seconds)
    except ValueError:
        start_s, end_s = moments(partial(moment_of, seconds=clock.seconds), start, end)
        intake.job(job, start_s, end_s, nodes_of(nodes), count=count_of(count))
        return
    if clock.twice != twice and start_s is not None and end_s is not None:
        length_s = _length_of(elapsed_raw, elapsed)
        if length_s is not None:
            start_s, end_s = _by_length(start, end, length_s, twice, intake)
    start_s, end_s = _by_state(state, start_s, end_s, nodes_of(nodes), intake)
    counts = tells_nodes or not nodes_of(nodes) or intake.options.counts
    intake.job(
        job,
        start_s,
        end_s,
        nodes_of(nodes),
        count=count_of(count) if counts else 0,
        queue=queue,
        preempted=state.startswith("PREEMPTED"),
        node_failed=state.startswith(NODE_FAILED),
        units=int(units_in(tres, cpus, intake.options.unit) or 0) if intake.options.unit != NODE else 0,
        user=user,
        submit_s=clock.uncounted(submit) or None,
    )


def _by_state(
    state: str, start_s: float | None, end_s: float | None, nodes: str, intake: RecordIntake
) -> tuple[float | None, float | None]:
    """Return start and end by the job's state: none if it never started, ``RUNNING`` if it still runs."""
    held = end_s is not None and start_s is not None and end_s > start_s
    if state.startswith(PENDING):
        return (start_s, end_s) if held and nodes and not state.startswith("PENDING") else (None, None)
    if state.startswith(UNFINISHED):
        if held and state.startswith(COMPLETING):
            return start_s, end_s
        if held and end_s is not None:
            intake.observed(end_s)  # where sacct truncated the job
        return start_s, RUNNING
    return start_s, RUNNING if end_s is None and state.startswith(RESIZING) else end_s


def _length_of(elapsed_raw: str, elapsed: str) -> float | None:
    """Return the run time, without suspended time."""
    try:
        return float(elapsed_raw) if elapsed_raw.isdecimal() else span_s(elapsed)
    except ValueError:
        return None


def _by_length(start: str, end: str, length_s: float, twice: int, intake: RecordIntake) -> tuple[float, float]:
    """Resolve ambiguous or nonexistent local times so that the job's length is closest to the recorded one.

    If two readings are equally close, as for a job within the repeated hour, use the earlier one
    and count a doubt; else ``twice`` is the number of such times before.
    """
    pairs = [(first, last) for first in intake.clock.readings(start) for last in intake.clock.readings(end)]
    off = [abs(last - first - length_s) for first, last in pairs]
    if off.count(min(off)) == 1:
        intake.clock.settle(twice)
        intake.note("notation")
    return pairs[off.index(min(off))]
