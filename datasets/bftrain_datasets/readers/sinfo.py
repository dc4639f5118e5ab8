"""Polled node states of Slurm: the output of ``sinfo`` with a date line before each poll.

Get it with ``while date +%s; do sinfo -h -o '%T %N'; sleep 60; done >> nodes.log``. Changes are seen
up to one poll late.

| column | required | meaning |
|---|---|---|
| a date line | yes | epoch, ISO time, or the output of ``date`` |
| ``STATE`` | yes | idle, planned or powered down: idle; allocated, mixed or draining: busy; others: down |
| ``NODELIST``, ``HOSTNAMES`` | yes | node set; a node that a poll does not list is down |
| ``PARTITION`` | | partition |
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from statistics import median
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bftrain.errors import BadInput
from bftrain.nodesets import ONE_BRACKET, expand
from bftrain_datasets.importing.job_checks import RecordIntake
from bftrain_datasets.importing.raw_file import RawFile
from bftrain_datasets.importing.states import node_state_of
from bftrain_datasets.importing.text_columns import first_lines
from bftrain_datasets.log.eventlog import NodeState
from bftrain_datasets.log.idle_doubts import POLL_GAP
from bftrain_datasets.log.time_formats import SMALLEST_EPOCH_S, RecordClock

name: Final = "sinfo"
about: Final = "Slurm: sinfo polled again and again, with a date line before each poll"

NEEDED: Final = ("state", "nodelist")
ALIASES: Final = {"statecompact": "state", "statelong": "state", "statecomplete": "state", "hostnames": "nodelist"}
# Columns of headerless sinfo output, by their number: %T %N or %N %T, sinfo -N, sinfo
DEFAULT_COLUMNS: Final = ("partition", "avail", "timelimit", "nodes", "state", "nodelist")
BY_NODE_COLUMNS: Final = ("nodelist", "nodes", "partition", "state")
AVAILABLE: Final = frozenset({"up", "down", "drain", "inact"})
RULES: Final = "#=-* \t"  # characters of a line between two polls
MOST_KNOWN_PARTS: Final = 1 << 16
WIDE_GAP: Final = 3  # a gap of this many intervals means missing polls
MISSING: Final = -1  # a state: the poll does not list the node; an index: unknown so far
STRANGER: Final = -2  # an index: the options do not list the node
# If several partitions list a node, the least idle state wins
RANK: Final = (NodeState.IDLE, NodeState.DOWN, NodeState.BUSY)

LONGEST_DATE_LINE: Final = 100  # letters
MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
UNIVERSAL: Final = frozenset({"UTC", "GMT", "Z"})  # zones in a line of the program date
AROUND: Final = "#=-*<> \t[]"  # decoration around a date

_CLOCK: Final = re.compile(r"\d{1,2}:\d\d(:\d\d)?")
_NUMBER: Final = re.compile(r"\d{9,13}(\.\d{1,9})?\Z")
_ISO: Final = re.compile(r"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?) ?(Z|UTC|GMT|[+-]\d\d:?\d\d|)\Z")
_OFFSET: Final = re.compile(r"[+-]\d{4}\Z")
_LABEL: Final = re.compile(r"[A-Za-z_ ]{1,30}[:=]\s*")


def looks_like_time(line: str) -> bool:
    """Return whether a line contains a time of day, and may therefore be a date."""
    return bool(_CLOCK.search(line[:LONGEST_DATE_LINE]))


def date_line(line: str, clock: RecordClock) -> float | None:
    """Return seconds UTC of a line with only a date and time, or None for any other line."""
    if len(line) > LONGEST_DATE_LINE:
        return None
    text = line.strip(AROUND)
    label = _LABEL.match(text)
    if label:
        text = text[label.end() :].strip(AROUND)
    try:
        if _NUMBER.match(text):
            number = float(text)
            return clock.epoch(number) if number >= SMALLEST_EPOCH_S else None
        if iso := _ISO.match(text):
            return clock.seconds(iso[1] + iso[2])
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


class _Layout:
    """The index of each column."""

    def __init__(self, columns: Sequence[str], separator: str | None = None) -> None:
        plain = [column.strip().lower() for column in columns]
        names = [ALIASES.get(column, column) for column in plain]
        self.separator = separator
        self.width = len(names)
        self.places = {column: place for place, column in reversed(list(enumerate(names)))}
        self.free_end = names[-1] == "reason"  # may contain blanks

    def complete(self) -> bool:
        return all(column in self.places for column in NEEDED)

    def cells(self, line: str) -> list[str] | None:
        """Return the cells of a line; a nodelist at the end may be empty. None if they do not fit."""
        cells = line.split(self.separator, self.width - 1 if self.free_end else -1)
        if len(cells) == self.width - 1 and self.places["nodelist"] == self.width - 1:
            cells.append("")
        return [cell.strip() for cell in cells] if len(cells) == self.width else None


def _header_of(line: str) -> _Layout | None:
    if "STATE" not in line.upper():
        return None
    separator = "|" if "|" in line else None
    layout = _Layout(line.split(separator), separator)
    return layout if layout.complete() else None


def _headless(line: str) -> _Layout | None:
    """Return the layout of a headerless row, or None."""
    cells = line.split()
    if len(cells) == 2:  # noqa: PLR2004 - a state and nodes
        if node_state_of(cells[0]) is not None:
            return _Layout(("state", "nodelist"))
        return _Layout(("nodelist", "state")) if node_state_of(cells[1]) is not None else None
    if len(cells) == len(BY_NODE_COLUMNS) and cells[1].isdecimal() and node_state_of(cells[3]) is not None:
        return _Layout(BY_NODE_COLUMNS)
    if len(cells) == len(DEFAULT_COLUMNS) and cells[1] in AVAILABLE and node_state_of(cells[4]) is not None:
        return _Layout(DEFAULT_COLUMNS)
    return None


def recognises(head: bytes) -> bool:
    """Return whether a date line is followed by a sinfo header, or by a node set and its state."""
    clock, after_time = RecordClock(), False
    for line in first_lines(head):
        if not line.strip(RULES):
            continue
        if after_time and (_header_of(line) or _headless(line)):
            return True
        after_time = date_line(line, clock) is not None
    return False


class _Polls:
    """The polls in one file. A poll's changes are passed on when the next poll starts."""

    def __init__(self, intake: RecordIntake) -> None:
        self.intake = intake
        self.time_s: float | None = None
        self.times = array("d")
        self.lines = array("q")
        self._line = 0
        self._latest_s = -float("inf")
        self._names: list[str] = []
        self._places: dict[str, int] = {}
        self._parts: dict[tuple[str, str], dict[str, NDArray[np.int32]]] = {}
        self._reported = np.empty(0, dtype=np.int8)  # the last reported state of each node
        self._rows: list[tuple[NodeState, NDArray[np.int32]]] = []
        self._fixed = frozenset(intake.options.nodes or ())
        # Nodes from the options or an earlier file, also expected in this one
        self._set_of(intake.node_names)

    def begin(self, time_s: float, line: int) -> None:
        self.finish()
        self.time_s, self._line = time_s, line

    def forget(self) -> None:
        """Finish the poll; rows before the next date line belong to no poll."""
        self.finish()
        self.time_s = None

    def add(self, state: NodeState, nodes: str) -> bool:
        """Add the state of nodes to the poll; return False if the node set is unreadable."""
        try:
            # Look up the nodes of a set, by range, because most ranges are known
            match = ONE_BRACKET.match(nodes)
            if match is None:
                places = self._set_of(expand(nodes))
            else:
                before, numbers, after = match.groups()
                known = self._parts.setdefault((before, after), {})
                if len(known) >= MOST_KNOWN_PARTS:
                    known.clear()
                for part in numbers.split(","):
                    if part not in known:
                        known[part] = self._set_of(expand(f"{before}[{part}]{after}"))
                places = np.concatenate([known[part] for part in numbers.split(",")])
        except ValueError:
            return False
        self._rows.append((state, places[places >= 0] if self._fixed else places))
        return True

    def finish(self) -> None:
        """Report the changes of a poll. A poll without rows is ignored, and the previous poll continues."""
        time_s = self.time_s
        if time_s is None or not self._rows:
            return
        seen = np.full(len(self._names), MISSING, dtype=np.int8)
        for state, places in sorted(self._rows, key=lambda row: RANK.index(row[0])):
            seen[places] = state
        self._rows.clear()
        # Nodes listed in other polls but not in this one are down
        missing = seen == MISSING
        if missing.any():
            self._note("poll_gap", self._line, count=int(missing.sum()))
            seen[missing] = NodeState.DOWN
        unseen = np.flatnonzero(self._reported == MISSING)
        if self.times and unseen.size:  # missing in the first poll
            names = [self._names[place] for place in unseen.tolist()]
            self._note("poll_gap", self._line, count=len(names))
            self.intake.state(self.times[0], names, NodeState.DOWN)
        if time_s < self._latest_s:
            self._note("poll_gap", self._line)
        # The log sorts polls by time: if this poll or the previous one is out of order, report every node
        out_of_order = time_s <= self._latest_s or (len(self.times) > 0 and self.times[-1] < self._latest_s)
        self._report(time_s, np.arange(seen.size) if out_of_order else np.flatnonzero(seen != self._reported), seen)
        self._reported = seen
        self._latest_s = max(self._latest_s, time_s)
        self.intake.observed(time_s)
        self.times.append(time_s)
        self.lines.append(self._line)

    def close(self) -> None:
        """Report the last poll, and missing polls."""
        self.finish()
        if len(self.times) <= WIDE_GAP:
            return
        steps = np.diff(np.array(self.times))
        usual = median(steps[steps > 0].tolist() or [0.0])
        wide = np.flatnonzero(steps > WIDE_GAP * usual)
        if usual > 0 and wide.size:
            node_s = float(steps[wide].sum()) * len(self._names)
            for place in wide.tolist():
                self.intake.doubtful_stays.add(POLL_GAP, self.times[place], self.times[place + 1], len(self._names))
            self._note("poll_gap", self.lines[int(wide[0])], count=int(wide.size), node_s=node_s)

    def _set_of(self, names: Sequence[str]) -> NDArray[np.int32]:
        for each in names:
            if each not in self._places:
                stranger = bool(self._fixed) and each not in self._fixed
                self._places[each] = STRANGER if stranger else len(self._names)
                if stranger:
                    self.intake.note("unknown_nodes")
                else:
                    self._names.append(each)
                    self.intake.name_node(each)
        if self._reported.size < len(self._names):
            more = np.full(len(self._names) - self._reported.size, MISSING, dtype=np.int8)
            self._reported = np.concatenate((self._reported, more))
        return np.array([self._places[each] for each in names], dtype=np.int32)

    def _report(self, time_s: float, places: NDArray[np.intp], seen: NDArray[np.int8]) -> None:
        for state in NodeState:
            names = [self._names[place] for place in places[seen[places] == state].tolist()]
            if names:
                self.intake.state(time_s, names, state)

    def _note(self, hazard: str, line: int, *, count: int = 1, node_s: float = 0.0) -> None:
        """Count a finding at the date line; the rows of its poll have already been read."""
        where = f"{self.intake.file}:{line}"
        self.intake.note(hazard, count=count, node_s=node_s, where=where)


def read(file: RawFile, intake: RecordIntake) -> None:
    """Read every poll."""
    columns = intake.options.columns
    layout = _Layout(columns) if columns else None
    if layout is not None and not layout.complete():
        raise BadInput("not enough columns", where="--columns", fix=f"list {' and '.join(NEEDED)}")
    polls = _Polls(intake)
    for number, line in file.lines():
        if not line.strip(RULES):
            continue
        time_s = date_line(line, intake.clock)
        if time_s is not None:
            polls.begin(time_s, number)
            continue
        header = _header_of(line)
        if header is not None:
            layout = header
            continue
        intake.row(number)
        layout = layout or _headless(line)
        cells = layout.cells(line) if layout is not None else None
        if layout is None or cells is None:
            # Skip a line if it is neither a row nor a date; if it looks like a date, the following rows have no time
            if looks_like_time(line):
                polls.forget()
                intake.set_aside("bad_time")
            else:
                intake.set_aside("malformed")
            continue
        _add_row(cells, layout, polls, intake)
    polls.close()


def _add_row(cells: Sequence[str], layout: _Layout, polls: _Polls, intake: RecordIntake) -> None:
    nodes = cells[layout.places["nodelist"]]
    state = node_state_of(cells[layout.places["state"]])
    place = layout.places.get("partition")
    partition = cells[place].rstrip("*") if place is not None else ""
    if polls.time_s is None:
        intake.set_aside("bad_time")
    elif not nodes:
        intake.set_aside("other_record")  # a partition without nodes in this state
    elif state is None:
        intake.set_aside("bad_value")
    else:
        if partition in intake.options.preemptible:
            intake.preemptible_seen.add(partition)
            if state == NodeState.BUSY:
                state = NodeState.IDLE  # idle unless another partition lists the node
        if polls.add(state, nodes):
            intake.use()
        else:
            intake.set_aside("bad_nodes")
