"""Findings: the kinds of doubtful data in a scheduler's records, their counts, and the totals over all rows.

Each kind has a text, a treatment, and an option that changes it. Everything that a reader rejects or assumes
is counted under one of these names. There is no other way to drop a row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

import msgspec

from bftrain.errors import Fault
from bftrain_datasets.log.provenance import LogFinding
from bftrain_datasets.log.time_formats import RecordClock


@dataclass(frozen=True, slots=True)
class RecordHazard:
    """One kind of finding: the text ``says``, the treatment ``done``, the ``option`` that changes it.

    A ``doubt`` may make the log wrong, and ``--strict`` rejects it; other kinds are normal, and only counted.
    ``aside`` kinds are reasons to reject a whole row.
    """

    says: str
    done: str = "row set aside"
    option: str = ""
    doubt: bool = False
    aside: bool = False


_doubt: Final = partial(RecordHazard, doubt=True)
_aside: Final = partial(RecordHazard, aside=True)
_doubtful_row: Final = partial(RecordHazard, doubt=True, aside=True)

HAZARDS: Final[dict[str, RecordHazard]] = {
    # rejected rows, as expected
    "never_started": _aside("jobs that never started", "row set aside: it held no node"),
    "zero_length": _aside("jobs that ended in the second they started", "row set aside: it held its nodes for no time"),
    "preemptible": _aside("jobs that may be preempted", "row set aside: their nodes count as idle", "--preemptible"),
    "outside_window": _aside("rows outside the window", option="--window"),
    "other_cluster": _aside("jobs of clusters that --cluster does not name", option="--cluster"),
    "step": _aside("steps of jobs", "row set aside: the job itself counts"),
    "superseded": _aside("rows with the time of a later one", "row set aside: the later one holds"),
    "told_before": _aside("jobs that another row or file reports too, or in more detail"),
    "other_record": _aside("records without times at which a node is held"),
    "no_units": _aside("jobs without any of the GPUs or cores that are counted", "row set aside: it held none"),
    # rejected rows that may be missing in the log
    "duplicate": _doubtful_row("the same job again with the same times and nodes"),
    "backwards": _doubtful_row("jobs that end before they start"),
    "no_nodes": _doubtful_row(
        "jobs that ran and name no node", option="--counts, which reads how many instead of which"
    ),
    "nodes_differ": _doubtful_row(
        "jobs that name another number of nodes than they say they held", "row set aside: its nodes count as idle"
    ),
    "other_nodes": _doubtful_row("jobs on nodes that --nodes does not name", option="--nodes"),
    "no_end": _doubtful_row("jobs that neither ended nor still run"),
    "no_start": _doubtful_row(
        "jobs that ended and whose start is not recorded", "row set aside: until then their nodes count as idle"
    ),
    "reserved": _doubtful_row(
        "reservations that are not for maintenance",
        "row set aside: their nodes count as idle while no job holds them",
        "--down NODES@A..B",
    ),
    "bad_time": _doubtful_row("times that are neither epochs nor such as 2020-09-13T12:26:40"),
    "bad_nodes": _doubtful_row("node sets that cannot be read"),
    "bad_count": _doubtful_row("numbers of nodes that no machine can have"),
    "bad_state": _doubtful_row("states that are not known"),
    "malformed": _doubtful_row("rows that are not of this format"),
    "overlong": _doubtful_row("lines longer than a megabyte"),
    # assumptions and repairs
    "not_utf8": _doubt("lines that are not UTF-8", "used, with the letters in question replaced"),
    "truncated": _doubt("a file that is cut off or damaged", "used as far as it goes"),
    "unended_line": _doubt(
        "files that end within a line: they may be cut off", "used as it is", "a line end, if it is whole"
    ),
    "more_members": _doubt("archives with more than one file", "only the first is read", "give the files themselves"),
    "local_times": _doubt("times without a zone", "taken as UTC", "--timezone"),
    "twice_times": _doubt(
        "local times that a clock shows twice or never", "taken as the earlier one", "epochs in the records"
    ),
    "length_known": RecordHazard(
        "jobs with a local time that a clock shows twice or never, and with their length", "taken so that it fits"
    ),
    "number_ranges": RecordHazard("node sets of bare numbers, such as 0-127", "read as all numbers of the range"),
    "epoch_ms": RecordHazard("times in milliseconds", "divided by 1,000"),
    "relative_times": _doubt("times that count from zero, not from 1970", "used as they are"),
    "odd_layout": RecordHazard("tabs or fractions where spaces and whole numbers belong", "read all the same"),
    "delimiter_in_text": RecordHazard("rows with the separator inside a name or a node set", "read all the same"),
    "node_spellings": RecordHazard("names that differ in capitals or by a domain", "taken for one node"),
    "listed_nodes": RecordHazard("node sets as lists, or with blanks round names", "read without these signs"),
    "repeated_hosts": RecordHazard("nodes that a job lists several times", "counted once each"),
    "unsorted": RecordHazard("rows that are out of order", "sorted"),
    "clock_step": _doubt("a clock that went backwards", "sorted by time"),
    "still_running": RecordHazard(
        "jobs that still run where the records end", "hold their nodes to the end of the log"
    ),
    "restarted": _doubt(
        "jobs that start again without a record of their end", "hold their nodes until they start again"
    ),
    "earlier_runs": _doubt(
        "jobs that ran before their last run, on nodes that are not recorded", "the nodes of earlier runs count as idle"
    ),
    "node_down": RecordHazard("times in which a node is reported down or drained", "down while no job holds it"),
    "no_node_states": _doubt(
        "sacct does not record when nodes were drained or down",
        "such time counts as idle",
        "a second FILE, the output of sacctmgr show event -P all_time, or --down",
    ),
    "node_failed": _doubt(
        "idle time after a NODE_FAIL: the node may have been down until its next job",
        "counts as idle",
        "a second FILE, the output of sacctmgr show event -P all_time, or --down NODES@A..B",
    ),
    "strange_outages": RecordHazard("nodes reported down that no other record mentions", "left out", "--nodes"),
    "preempted_jobs": _doubt(
        "jobs that were preempted, in a partition that is not named as preemptible",
        "their nodes count as busy",
        "--preemptible",
    ),
    "unknown_partitions": _doubt(
        "partitions that --preemptible names, and no job was in", "no job counts as idle for it", "--preemptible"
    ),
    "hosts_incomplete": _doubt("jobs on several hosts of which only the first is named", "the others count as idle"),
    "unknown_nodes": _doubt("nodes that --nodes does not name", "left out", "--nodes"),
    "nodes_inferred": RecordHazard("no list of nodes was given", "those that a row names are the machine", "--nodes"),
    "units_numbered": RecordHazard(
        "jobs of which is known how many GPUs or cores of a node they had, not which", "the lowest free ones are taken"
    ),
    "units_divided": _doubt(
        "jobs on several nodes of which only the sum of their GPUs or cores is known", "divided evenly among the nodes"
    ),
    "units_inferred": RecordHazard(
        "the number of GPUs or cores of each node was not given",
        "the largest number in use at once is taken",
        "--node-gpus or --node-cores",
    ),
    "node_overfull": _doubt(
        "GPUs or cores in use that their node does not have", "left out", "--node-gpus or --node-cores"
    ),
    "shared": RecordHazard("jobs that share a node", "the node is idle when none holds it"),
    "held_twice": _doubt("a job that holds a node twice at once", "counted once"),
    "back_to_back": RecordHazard("gaps of no length, where one job ends as the next starts", "closed: no idle time"),
    "short_gaps": RecordHazard("idle gaps shorter than --min-gap", "closed: busy", "--min-gap"),
    "no_wait": _doubt("jobs whose waiting time is not known", "taken to start when they were submitted"),
    "requested_size": RecordHazard("jobs of which only the size asked for is known", "taken to have got it"),
    "procs_as_nodes": _doubt(
        "jobs whose size is given in processors, on a machine with several a node",
        "as many whole nodes as they fit on",
        "--sharing cores",
    ),
    "over_capacity": _doubt(
        "more nodes in use than there are",
        "cut off at the number of nodes",
        "--sharing cores, where jobs share nodes, or --nodes N",
    ),
    "names_unused": _doubt(
        "jobs that name their nodes, which --counts does not read",
        "a node that jobs share counts once for each: machine and idle time look too large",
        "--counts, which can be left out",
    ),
    "which_unknown": RecordHazard(
        "only how many nodes are busy is known, not which",
        "nodes numbered; the fewest changes that fit the counts are assumed",
    ),
    "poll_gap": _doubt("gaps of more than three intervals between polls", "the last seen state goes on"),
    "missing_nodes": _doubt("nodes that a poll does not list though others do", "down until they are listed again"),
    "censored_start": _doubt(
        "time before the first job ended: jobs that ended earlier may be missing, as in a dump of ended jobs",
        "left out: the log begins when the first job ends",
        "--window A..B",
    ),
    "cut_end": _doubt(
        "time after the last job started: jobs that ended later may be missing, as in a dump of ended jobs",
        "left out: the log ends when the last job starts",
        "--keep-end",
    ),
    "censored_end": _doubt(
        "idle after a node's last job, and no row still runs: jobs that ended later may be missing",
        "counts as idle",
        "--window A..B",
    ),
    "suspected_downtime": _doubt(
        "all nodes idle at once for long: was the machine down?", "counts as idle", "--down suspected, or --down A..B"
    ),
    "marked_down": RecordHazard("idle time that --down declares", "down", "--down"),
    "always_idle": _doubt("nodes that are idle from beginning to end", "count as idle", "--nodes"),
    "late_nodes": _doubt(
        "nodes whose first job comes after more than a week and a tenth of the log: were they there before?",
        "count as idle until then",
        "--down NODES@..B",
    ),
    # assumptions of bftrain schedule
    "derived": _doubt(
        "no record of which nodes were idle: a simulated main scheduler left them so", "the log is labelled derived"
    ),
    "refused_jobs": _doubt("jobs larger than the machine", "refused: they are not in the schedule", "--nodes N"),
    "no_users": _doubt("no job names its user", "all count as one user's"),
    "no_limit": RecordHazard("jobs that asked for no time", "their run time is planned with", "--estimates last2"),
    "over_limit": RecordHazard("jobs that ran longer than they asked for", "run as long as they did"),
    "drained": _doubt(
        "idle after the last job was submitted: on a real machine more would have come",
        "counts as idle",
        "--until last-submit",
    ),
    # rows that bftrain tasks import cannot use
    "no_work": _aside("jobs without any work: no time, or no step", "row set aside: there is nothing to do"),
    "no_gpus": _aside("jobs that use no GPU", "row set aside: it wants no node"),
    "no_duration": _doubtful_row("jobs whose start or end is not recorded"),
    "unknown_speed": _doubtful_row("jobs of whose model and gang no speed was measured", option="--node-kind"),
    "does_not_fit": _doubtful_row("jobs whose model does not fit on so few nodes of this kind", option="--node-kind"),
    "too_large": _doubtful_row("jobs that so many nodes can never hold", "row set aside: refused", option="--nodes"),
    "same_name": _doubtful_row("jobs with the name of another one"),
    "gang_changed": RecordHazard("jobs that had another number of GPUs in a later attempt", "the first number counts"),
}


def option_for(name: str) -> str:
    """Return the import option that changes the treatment of this kind, or an empty text."""
    known = HAZARDS.get(name)
    return known.option if known is not None else ""


READ: Final = "rows_read"
USED: Final = "rows_used"
ASIDE: Final = "rows_aside_"  # prefix of the reason


class RowCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of rows: ``read`` = ``used`` + those set ``aside``, by reason."""

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
class _Running:
    count: int
    node_s: float
    first: str
    done: str


class FindingsTally:
    """Counts rows and findings while a log is read. Every row is used or set aside, once."""

    def __init__(self) -> None:
        self.read = 0
        self.used = 0
        self.aside: Counter[str] = Counter()
        self._running: dict[str, _Running] = {}
        self.file = ""  # the file being read
        self.line = 0
        self._open = False  # whether the row is not yet used or set aside
        self._unended = ""  # the place of a last line without an end

    @property
    def where(self) -> str:
        """The file and line being read."""
        return f"{self.file}:{self.line}" if self.line else self.file

    def row(self, line: int) -> None:
        """Begin a row."""
        if self._open:
            raise Fault("a reader neither used a row nor set it aside", where=self.where)
        self.read += 1
        self.line = line
        self._open = True

    def use(self) -> None:
        """Use the row."""
        self._close_row()
        self.used += 1

    def use_many(self, rows: int) -> None:
        """Begin and use several rows at once."""
        self.read += rows
        self.used += rows

    def set_aside(self, reason: str, node_s: float = 0.0) -> None:
        """Set the row aside."""
        self._close_row()
        if not HAZARDS[reason].aside:
            raise Fault(f"'{reason}' is no reason to set a row aside", where=self.where)
        self.aside[reason] += 1
        self.note(reason, node_s=node_s)
        if reason == "malformed" and self.where == self._unended:
            self.note("truncated")

    def set_many_aside(self, reason: str, rows: int, node_s: float) -> None:
        """Begin several rows, the first at the present line, and set them aside."""
        self.read += rows
        self.aside[reason] += rows
        self.note(reason, count=rows, node_s=node_s)

    def again(self, file: str, line: int) -> None:
        """Reopen a row that was used, because more is known now."""
        if self._open:
            raise Fault("a reader neither used a row nor set it aside", where=self.where)
        self.used -= 1
        self.file, self.line = file, line
        self._open = True

    def unuse(self, reason: str, where: str, count: int, node_s: float) -> None:
        """Set rows aside that were used before more was known."""
        self.used -= count
        self.aside[reason] += count
        self.note(reason, where=where, count=count, node_s=node_s)

    def note(self, name: str, *, count: int = 1, node_s: float = 0.0, where: str | None = None, done: str = "") -> None:
        """Count something under a hazard; the first place is kept: the one being read, if none is given."""
        known = self._running.get(name)
        if known is None:
            place = self.where if where is None else where
            self._running[name] = _Running(count, node_s, place, done or HAZARDS[name].done)
        else:
            known.count += count
            known.node_s += node_s

    def has(self, name: str) -> bool:
        """Return whether something was counted under a hazard."""
        return name in self._running

    def note_unended(self, where: str) -> None:
        """Count a last line without an end; the file is cut off if the row in this line turns out to be malformed."""
        self._unended = where
        self.note("unended_line", where=where)

    def note_clock(self, clock: RecordClock, *, zone_is_known: bool = False) -> None:
        """Count what was assumed of times."""
        for name, what in (("local_times", "without_zone"), ("twice_times", "twice"), ("epoch_ms", "in_ms")):
            count: int = getattr(clock, what)
            if count and not (zone_is_known and what == "without_zone"):
                self.note(name, count=count, where=clock.first[what])

    def rows(self) -> RowCounts:
        """Return the counts, after checking that they add up."""
        if self._open:
            raise Fault("a reader neither used its last row nor set it aside", where=self.where)
        if self.read != self.used + self.aside.total():
            raise Fault(f"of {self.read} rows {self.used} were used and {self.aside.total()} set aside")
        return RowCounts(read=self.read, used=self.used, aside=dict(self.aside))

    def findings(self) -> tuple[LogFinding, ...]:
        """Return the findings: doubts first, then in the order of ``HAZARDS``.

        A node-time that is the difference of two sums may be slightly negative by rounding.
        """
        return ordered(
            LogFinding(name=name, count=each.count, node_s=max(0.0, each.node_s), first=each.first, done=each.done)
            for name, each in self._running.items()
        )

    def _close_row(self) -> None:
        if not self._open:
            raise Fault("a reader used or set aside a row that it had not begun, or did so twice", where=self.where)
        self._open = False


def ordered(findings: Iterable[LogFinding]) -> tuple[LogFinding, ...]:
    """Return findings in order: doubts first, then in the order of ``HAZARDS``."""
    places = {name: place for place, name in enumerate(HAZARDS)}
    return tuple(sorted(findings, key=lambda each: (not is_doubt(each), places.get(each.name, len(places)))))


def is_doubt(finding: LogFinding) -> bool:
    """Return whether ``--strict`` rejects the finding; true for unknown kinds."""
    known = HAZARDS.get(finding.name)
    return known is None or known.doubt
