"""Findings: the kinds of doubtful data in a scheduler's records, their counts, and the row totals.

Each kind has a text, a treatment, and an option to change it. Everything that a reader rejects or assumes is counted
under one of these names. Rows are never dropped silently.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

import msgspec

from bftrain.errors import Fault
from bftrain_datasets.log.provenance import LogFinding
from bftrain_datasets.log.time_formats import RecordClock

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RecordHazard:
    """A kind of finding: the text ``says``, the treatment ``done``, and the ``option`` to change it.

    A ``doubt`` may make the log wrong, and ``--strict`` rejects it; other kinds are normal, and only counted. ``aside``
    kinds are reasons to reject a whole row.
    """

    says: str
    done: str = "row skipped"
    option: str = ""
    doubt: bool = False
    aside: bool = False


_doubt: Final = partial(RecordHazard, doubt=True)
_aside: Final = partial(RecordHazard, aside=True)
_doubtful_row: Final = partial(RecordHazard, doubt=True, aside=True)

HAZARDS: Final[dict[str, RecordHazard]] = {
    # skipped rows, as expected
    "no_usage": _aside(
        "jobs without usage: never started, finished in the same second, or without any of the counted GPUs or cores"
    ),
    "preemptible": _aside("preemptible jobs", "row skipped: their nodes count as idle", "--preemptible"),
    "not_selected": _aside("rows outside the selected window or cluster", option="--window or --cluster"),
    "other_record": _aside("records that are not a whole job with its times, such as steps of jobs"),
    "repeated": _aside("rows replaced by a later row, or repeated in another file"),
    # skipped rows that may be missing in the log
    "duplicate": _doubtful_row("jobs listed twice, or with another job's name"),
    "no_nodes": _doubtful_row("jobs that ran, but have no node name", option="--counts"),
    "bad_nodes": _doubtful_row(
        "jobs with a node set that is unreadable or contradicts the number of nodes",
        "row skipped: its nodes count as idle",
    ),
    "bad_time": _doubtful_row(
        "jobs or polls without a readable time or duration (write epochs, or 2020-09-13T12:26:40)",
        "row skipped: its nodes count as idle",
    ),
    "bad_value": _doubtful_row("impossible values: an end before the start, a number of nodes, an unknown state"),
    "malformed": _doubtful_row("rows that are not of this format, or longer than a megabyte"),
    "does_not_fit": _doubtful_row(
        "jobs that do not fit these nodes, or have no measured speed there",
        option="--nodes (generate from-trace: also --kinds)",
    ),
    # assumptions and repairs
    "truncated": _doubt(
        "perhaps incomplete: the last line has no line end, or the file is damaged or not UTF-8",
        "the readable part is used, with unreadable characters replaced",
        "a line end after the last line if the file is complete",
    ),
    "local_times": _doubt(
        "local times with no zone, or skipped or repeated by a clock change",
        "without a zone read as UTC, otherwise as the earlier of two",
        "--timezone, or epochs in the records",
    ),
    "notation": RecordHazard(
        "times, node sets or separators in an unusual notation, or rows out of order", "converted and sorted"
    ),
    "relative_times": _doubt("times that count from zero, not from 1970", "used as they are"),
    "still_running": RecordHazard(
        "jobs still running when the records stop", "occupy their nodes until the end of the log"
    ),
    "restarted": _doubt(
        "jobs that ran several times, without the end or the nodes of each run",
        "occupy their nodes until the next start; unrecorded nodes count as idle",
    ),
    "node_down": RecordHazard(
        "nodes down or drained, according to the records or --down",
        "down while no job runs there; unknown nodes are skipped",
        "--down or --nodes",
    ),
    "no_node_states": _doubt(
        "sacct does not record when nodes were drained or down",
        "such time counts as idle",
        "a second FILE, the output of sacctmgr show event -P all_time, or --down",
    ),
    "node_failed": _doubt(
        "idle time after a NODE_FAIL: the node may have been down until its next job",
        "counts as idle",
        "a second FILE with node events, or --down NODES@A:B",
    ),
    "preemption": _doubt(
        "preempted jobs in partitions missing in --preemptible, or partitions there without any job",
        "preempted jobs count as busy",
        "--preemptible",
    ),
    "hosts_incomplete": _doubt(
        "jobs on several hosts, recorded with the first host or a sum of GPUs or cores only",
        "the other hosts count as idle; a sum is divided evenly",
    ),
    "unknown_nodes": _doubt("nodes that --nodes does not name", "left out", "--nodes"),
    "nodes_inferred": RecordHazard("no node list given", "the machine has the nodes that rows name", "--nodes"),
    "units_assumed": RecordHazard(
        "not recorded: GPUs or cores per node, or which ones a job had",
        "assumed: the largest number in use together, and the lowest free ones",
        "--node-gpus or --node-cores",
    ),
    "shared": RecordHazard("jobs that share a node", "the node is idle while no job runs there"),
    "held_twice": _doubt("a job that lists a node twice for the same time", "counted once"),
    "short_gaps": RecordHazard("idle gaps of zero length, or shorter than --min-gap", "closed: busy", "--min-gap"),
    "request_differs": RecordHazard(
        "jobs with only a requested or changing size, no time limit, or a run beyond it",
        "the first size and the actual time count",
    ),
    "missing_field": _doubt(
        "jobs with no recorded wait or user", "assumed to start at submission, and to belong to one user"
    ),
    "procs_as_nodes": _doubt(
        "jobs sized in processors, on a machine with several processors per node",
        "they take the whole nodes that they fit on",
        "--sharing cores",
    ),
    "over_capacity": _doubt(
        "more nodes in use than the machine has",
        "capped at the size of the machine",
        "--nodes, --node-gpus or --node-cores, or --sharing cores",
    ),
    "names_unused": _doubt(
        "jobs with node names, which --counts ignores",
        "a shared node counts once for each job, which overstates the machine and its idle time",
        "an import without --counts",
    ),
    "which_unknown": RecordHazard(
        "only the number of busy nodes is known", "nodes numbered; the fewest changes that fit the counts are assumed"
    ),
    "poll_gap": _doubt(
        "polls more than three intervals apart, out of order, or without some nodes",
        "the last state continues; unlisted nodes are down",
    ),
    "log_trimmed": _doubt(
        "time before the first end or after the last start: jobs may be missing, as in a dump of finished jobs",
        "left out",
        "--window A:B or --keep-end",
    ),
    "censored_end": _doubt(
        "idle after a node's last job, and no job still runs: later jobs may be missing",
        "counts as idle",
        "--window A:B",
    ),
    "suspected_downtime": _doubt(
        "all nodes idle for a long time: was the machine down?", "counts as idle", "--down suspected, or --down A:B"
    ),
    "always_idle": _doubt("nodes that are always idle", "count as idle", "--nodes"),
    "late_nodes": _doubt(
        "nodes with a first job after more than a week and a tenth of the log: were they installed later?",
        "count as idle until then",
        "--down NODES@:B",
    ),
    # Findings of bftrain schedule and bftrain generate from-trace
    "derived": _doubt(
        "no record of idle nodes: a simulated main scheduler supplied them", "the log is labelled derived"
    ),
    "drained": _doubt(
        "idle after the last job was submitted: a real machine would have received more",
        "counts as idle",
        "--until last-submit",
    ),
}


def option_for(name: str) -> str:
    """Return the import option that changes this kind's treatment, or an empty text."""
    known = HAZARDS.get(name)
    return known.option if known is not None else ""


READ: Final = "rows_read"
USED: Final = "rows_used"
ASIDE: Final = "rows_aside_"  # prefix of the reason


class RowCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Row counts: ``read`` = ``used`` + the sum of ``aside``, by reason."""

    read: int
    used: int
    aside: dict[str, int]

    def to_dict(self) -> dict[str, int]:
        """Return the counts under their names in a log's provenance."""
        aside = {f"{ASIDE}{reason}": count for reason, count in sorted(self.aside.items())}
        return {READ: self.read, USED: self.used, **aside}

    @classmethod
    def from_dict(cls, counts: Mapping[str, int]) -> RowCounts:
        """Return the counts in a log's provenance."""
        aside = {name.removeprefix(ASIDE): count for name, count in counts.items() if name.startswith(ASIDE)}
        return cls(read=counts.get(READ, 0), used=counts.get(USED, 0), aside=aside)


@dataclass(slots=True)
class _Found:
    count: int
    node_s: float
    first: str
    done: str
    turn: int


_CLOCK_FINDINGS: Final = (
    ("local_times", "without_zone", "read as UTC"),
    ("local_times", "twice", "read as the earlier one"),
    ("notation", "in_ms", "divided by 1,000"),
)


class SkippedRow(Exception):
    """Raised for a row that cannot be used; ``reason`` is a name in ``HAZARDS``."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class FindingsTally:
    """Counts rows and findings while a log is read. Every row is used or skipped exactly once."""

    def __init__(self) -> None:
        self.read = 0
        self.used = 0
        self.aside: Counter[str] = Counter()
        self._found: dict[str, _Found] = {}
        self.file = ""  # the file being read
        self.line = 0
        self.turn = 0  # row counter; the first place of a finding has the lowest turn
        self.is_cut_off = False  # whether rows at the end of a file are missing
        self._open = False  # whether the current row is still undecided
        self._unended = ""  # place of an incomplete last line

    @property
    def where(self) -> str:
        """The file and line being read."""
        return f"{self.file}:{self.line}" if self.line else self.file

    def row(self, line: int) -> None:
        """Start a row."""
        if self._open:
            raise Fault("a reader neither used nor skipped a row", where=self.where)
        self.read += 1
        self.line = line
        self.turn += 1
        self._open = True

    def take_rows(self, rows: Iterable[tuple[int, T]], take: Callable[[T], object]) -> None:
        """Start a row for each line; ``take`` uses it. Rows with ``SkippedRow`` or an unreadable time are skipped."""
        for line, row in rows:
            self.row(line)
            try:
                take(row)
            except SkippedRow as skipped:
                self.set_aside(skipped.reason)
            except (ValueError, OverflowError):
                self.set_aside("bad_time")

    def use(self) -> None:
        """Use the row."""
        self._close_row()
        self.used += 1

    def use_later(self) -> None:
        """Complete the row; ``use_many`` or ``set_many_aside`` decides on it later."""
        self._close_row()

    def begin_many(self, rows: int) -> int:
        """Start several rows, to be completed by ``use_many`` and ``set_many_aside``; return the first turn."""
        self.read += rows
        self.turn += rows
        return self.turn - rows + 1

    def use_many(self, rows: int) -> None:
        """Use several rows."""
        self.used += rows

    def set_aside(self, reason: str) -> None:
        """Skip the row."""
        self._close_row()
        if not HAZARDS[reason].aside:
            raise Fault(f"'{reason}' is no reason to skip a row", where=self.where)
        self.aside[reason] += 1
        self.note(reason)
        self.is_cut_off |= reason == "malformed" and self.where == self._unended

    def set_many_aside(self, reason: str, rows: int, node_s: float) -> None:
        """Skip several rows; the first is at the current line."""
        self.aside[reason] += rows
        self.note(reason, count=rows, node_s=node_s)

    def again(self, file: str, line: int) -> None:
        """Reopen a used row after later records have changed its meaning."""
        if self._open:
            raise Fault("a reader neither used nor skipped a row", where=self.where)
        self.used -= 1
        self.file, self.line = file, line
        self.turn += 1
        self._open = True

    def unuse(self, reason: str, where: str, count: int, node_s: float) -> None:
        """Skip rows that were already counted as used."""
        self.used -= count
        self.aside[reason] += count
        self.note(reason, where=where, count=count, node_s=node_s)

    def note(self, name: str, *, count: int = 1, node_s: float = 0.0, where: str | None = None, done: str = "") -> None:
        """Count an occurrence under a hazard. The first place is kept; ``where`` defaults to the current place."""
        known = self._found.get(name)
        done = done or HAZARDS[name].done
        if known is None:
            known = self._found[name] = _Found(0, 0.0, "", done, self.turn + 1)
        elif done not in known.done:  # a kind with several treatments
            known.done += f"; {done}"
        known.count += count
        known.node_s += node_s
        if self.turn < known.turn or not known.first:
            known.turn, known.first = self.turn, self.where if where is None else where

    def has(self, name: str) -> bool:
        """Return whether something was counted under a hazard."""
        return name in self._found

    def note_unended(self, where: str) -> None:
        """Count an incomplete last line; if its row turns out to be malformed, the file is cut off."""
        self._unended = where
        self.note("truncated", where=where)

    def note_clock(self, clock: RecordClock, *, zone_is_known: bool = False) -> None:
        """Count the assumptions about times."""
        for name, what, done in _CLOCK_FINDINGS:
            count: int = getattr(clock, what)
            if count and not (zone_is_known and what == "without_zone"):
                self.note(name, count=count, where=clock.first[what], done=done)

    def rows(self) -> RowCounts:
        """Return the counts, after checking that they add up."""
        if self._open:
            raise Fault("a reader neither used nor skipped its last row", where=self.where)
        if self.read != self.used + self.aside.total():
            raise Fault(f"of {self.read} rows {self.used} were used and {self.aside.total()} skipped")
        return RowCounts(read=self.read, used=self.used, aside=dict(self.aside))

    def findings(self) -> tuple[LogFinding, ...]:
        """Return the findings: doubts first, then in ``HAZARDS`` order.

        A node-time computed as a difference may be slightly negative by rounding.
        """
        return ordered(
            LogFinding(name=name, count=each.count, node_s=max(0.0, each.node_s), first=each.first, done=each.done)
            for name, each in self._found.items()
        )

    def _close_row(self) -> None:
        if not self._open:
            raise Fault("a reader used or skipped a row that it had not started, or did so twice", where=self.where)
        self._open = False


def ordered(findings: Iterable[LogFinding]) -> tuple[LogFinding, ...]:
    """Sort findings: doubts first, then in ``HAZARDS`` order."""
    places = {name: place for place, name in enumerate(HAZARDS)}
    return tuple(sorted(findings, key=lambda each: (not is_doubt(each), places.get(each.name, len(places)))))


def is_doubt(finding: LogFinding) -> bool:
    """Return whether ``--strict`` rejects the finding; true for unknown kinds."""
    known = HAZARDS.get(finding.name)
    return known is None or known.doubt
