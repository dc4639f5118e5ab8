"""RecordIntake: receives rows from all readers and checks jobs by the same rules, column by column."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bftrain.errors import BadInput, suggestion
from bftrain.node_units import NODE
from bftrain.nodesets import MOST_NODES
from bftrain.nodesets import expand as expand_set
from bftrain_datasets.importing.findings import FindingsTally
from bftrain_datasets.importing.import_options import ALL_CLUSTERS, ImportOptions
from bftrain_datasets.importing.job_columns import (
    BAD_TIME,
    JobStays,
    JobTable,
    NodeOutages,
    OpenJob,
    OpenJobTable,
    file_and_line,
    key_of,
    place_of,
    time_cell,
)
from bftrain_datasets.importing.machine_nodes import (
    OF_NODES,
    REASON,
    REPEATED,
    SIZE,
    STORED,
    SURE,
    UNKNOWN,
    Expand,
    NodeSets,
    Units,
)
from bftrain_datasets.importing.text_columns import Texts
from bftrain_datasets.log import time_formats
from bftrain_datasets.log.arrow_arrays import EMPTY
from bftrain_datasets.log.eventlog import LogBuilder, NodeState
from bftrain_datasets.log.idle_doubts import PROCS_AS_NODES, ROWS_ASIDE, DoubtfulStays
from bftrain_datasets.log.provenance import DoubtfulTime

MOST_COUNTS: Final = 1 << 25  # busy-node counts; sixty years at one per minute
_MOST_CLUSTERS: Final = 8  # maximum number of clusters listed in a message
# Rejection reasons of jobs that may have used nodes
MAY_HAVE_RUN: Final = frozenset({"bad_time", "bad_nodes", "no_nodes"})
RUNNING: Final = math.inf  # the end time of a running job
_ROWS_AT_ONCE: Final = 1 << 13  # number of buffered jobs that readers pass one by one

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Places = NDArray[np.int64]


class ClusterNames:
    """The clusters of all rows with the place of their first row, and the selected cluster."""

    def __init__(self, wanted: str | None) -> None:
        self._wanted = wanted
        self._first: dict[str, str] = {}

    def is_other(self, cluster: str, where: str) -> bool:
        """Return whether a row at ``where`` belongs to a cluster other than the selected one."""
        self._first.setdefault(cluster, where)
        return self._wanted not in {None, *ALL_CLUSTERS, cluster}

    def check(self) -> None:
        """Raise ``BadInput`` if there are several clusters but none is selected, or if the selected one has no row."""
        names, wanted = sorted(self._first), self._wanted
        shown = ", ".join(names[:_MOST_CLUSTERS]) + (", ..." if len(names) > _MOST_CLUSTERS else "")
        if wanted is None and len(names) > 1:
            fix = "choose one with --cluster; --cluster all or --cluster '*' reads all as one machine"
            raise BadInput(f"records of {len(names)} clusters: {shown}", where=self._first[names[-1]], fix=fix)
        if wanted in ALL_CLUSTERS and wanted in names and len(names) > 1:
            other = "all" if wanted == "*" else "'*'"
            fix = f"--cluster {other} reads all as one machine"
            raise BadInput(f"one of the clusters is called '{wanted}'", where="--cluster", fix=fix)
        if wanted and wanted not in ALL_CLUSTERS and wanted not in names:
            fix = suggestion(wanted, names[:_MOST_CLUSTERS])
            raise BadInput(f"no row is of the cluster '{wanted}'", where="--cluster", fix=fix)


class RecordIntake(FindingsTally):
    """Receives rows from a reader, and decides which of them count.

    A reader calls ``take`` with many jobs, or ``row`` for each, followed by one of these:

    - ``job``: the row describes a job that used nodes. The checks here decide whether it counts.
    - ``use`` after any ``state`` or ``counted`` calls: the row has node states, or the number of busy nodes.
    - ``set_aside``: the row is skipped, with a reason from ``HAZARDS``.

    ``note`` counts a reader's other assumptions and repairs.
    """

    def __init__(self, options: ImportOptions | None = None) -> None:
        super().__init__()
        self.options = options or ImportOptions()
        self.doubtful: list[DoubtfulTime] = []  # doubtfully idle nodes, by cause
        self.doubtful_stays = DoubtfulStays()
        zone = time_formats.zone(self.options.timezone) if self.options.timezone else UTC
        self.clock = time_formats.RecordClock(zone, lambda: self.where)
        self.stays = JobStays()  # jobs in used rows
        self._rows: list[tuple[Any, ...]] = []  # jobs waiting for their checks
        self.sets = NodeSets(self.options, self, self.stays.add_sets)
        self.open_jobs = OpenJobTable()
        self.outages = NodeOutages()
        self.reports_outages: bool | None = None  # False if only another file could report them
        self.failed_nodes: list[tuple[NDArray[np.int32], NDArray[np.float64]]] = []  # the log's nodes, and when
        self.states = LogBuilder(self.options.nodes or ())
        self.has_states = False
        self.is_unsorted = False  # whether jobs were sorted neither by start nor by end
        self.count_times = array("d")
        self.count_active = array("q")
        self.count_total = array("q")
        self.capacity: int | None = None  # the machine size, if recorded
        self.unit_count = 0  # GPUs or cores of the machine, if counted and known
        self.cores_per_node = 1.0  # used if job sizes are counted in cores
        self.last_s = -math.inf  # latest time in any record
        self.file_names: list[str] = []
        self.file_number = 0  # number of the current file, from 1
        self.preemptible_seen: set[str] = set()  # partitions listed in the options and seen in the records
        self._clusters = ClusterNames(self.options.cluster)

    @property
    def size(self) -> int:
        """The known number of nodes, or of GPUs or cores if these are counted."""
        return self.unit_count or len(self.sets.places) or self.options.node_count or self.capacity or 0

    @property
    def node_names(self) -> tuple[str, ...]:
        """The nodes named in the records, or in the options."""
        return tuple(self.sets.places)

    def begin_file(self, name: str) -> None:
        """Start a file; the following rows belong to it."""
        self.file_names.append(name)
        self.file_number = len(self.file_names)
        self.file, self.line = name, 0

    def place(self) -> int:
        """The current place as a number: file and line."""
        return place_of(self.file_number, self.line)

    def place_name(self, place: int) -> str:
        """Return a place as text: file and line."""
        file, line = file_and_line(place)
        return f"{self.file_names[file - 1]}:{line}"

    def close(self) -> None:
        """Finish the jobs without a recorded end, and join the spellings of nodes. Call it after all files.

        Raises ``BadInput`` if the cluster to read is unclear.
        """
        self._clusters.check()
        for job, end_s, restarted in self.open_jobs.close():
            if restarted:
                self.note("restarted", where=self.place_name(job.place))
            self.file_number, line = file_and_line(job.place)
            self.again(self.file_names[self.file_number - 1], line)
            self.open_job(job, end_s)
        self.settle()
        self.sets.clear()
        same = self.sets.spellings()
        if same:
            first = next(iter(same))
            self.note("notation", count=len(same), where=f"{first} = {same[first]}")
            self.stays.rename_nodes(self.sets.join(same))
            self.outages.rename(same)
        self.outages.rename(self.sets.known_as(self.outages.names))
        options = self.options
        declared = options.down or options.down_nodes or options.down_suspected
        if self.reports_outages is False and len(self.stays) and not (declared or options.counts):
            self.note("no_node_states", where="")

    def seconds(self, text: str) -> float:
        """Return a written time in seconds UTC; raise ``ValueError`` if invalid."""
        return self.clock.seconds(text)

    def is_other_cluster(self, cluster: str) -> bool:
        """Return whether a row belongs to a cluster not in the options; ``close`` rejects several."""
        return self._clusters.is_other(cluster, self.where)

    def observed(self, time_s: float) -> None:
        """Record that the records cover the time up to ``time_s``."""
        self.last_s = max(self.last_s, time_s)

    def within_window(self, first_s: float, last_s: float) -> tuple[float, float]:
        """Return the part of the records' period in the window of the options; raise ``BadInput`` if it is empty."""
        begin_s, end_s = self.options.window
        low = first_s if begin_s is None else max(begin_s, first_s)
        high = last_s if end_s is None else min(end_s, last_s)
        if low > high:
            period = f"{time_formats.time_text(first_s)} to {time_formats.time_text(last_s)}"
            raise BadInput(f"the records go from {period}, all outside of --window", where=self.file_names[0])
        return low, high

    def name_node(self, name: str) -> None:
        """Record that the machine has this node, even if no job uses it."""
        self.sets.name(name)

    def job(  # noqa: PLR0913 - all but four are options by name
        self,
        job: str,
        start_s: float | None,
        end_s: float | None,
        nodes: str,
        *,
        count: int = 0,
        queue: str = "",
        expand: Expand = expand_set,
        units: Units = 0,
        user: str = "",
        submit_s: float | None = None,
        on_use: Callable[[], object] | None = None,
    ) -> None:
        """Complete the row with a job; the checks later use or skip it.

        ``start_s`` is None if the job never started; ``end_s`` is ``RUNNING``, or None if not recorded. ``nodes`` is
        the node set as written, which ``expand`` turns into names. ``count`` is the number of nodes, to replace or
        check the names; 0 if not recorded. ``units`` are its GPUs or cores, if these are counted. ``on_use`` is called
        if the row is used.
        """
        self.use_later()
        if self.options.unit != NODE:
            number = self.sets.number(nodes, expand, units)
        else:
            number = self.sets.number(nodes, expand) if nodes else -1
        times = time_cell(start_s), time_cell(end_s), math.nan if submit_s is None else submit_s
        self._rows.append((job, *times, count, queue, user, number, self.place(), self.turn, on_use))
        if len(self._rows) == _ROWS_AT_ONCE:
            self.settle()

    def open_job(self, job: OpenJob, end_s: float) -> None:
        """Complete the row with the end time of an already started job."""
        self.job(
            *(job.job, job.start_s, end_s, job.nodes),
            queue=job.queue,
            expand=job.expand,
            units=job.units,
            user=job.user,
            submit_s=job.submit_s,
        )

    def settle(self) -> None:
        """Check the jobs that were passed one by one."""
        if not self._rows:
            return
        columns = list(zip(*self._rows, strict=True))
        self._rows.clear()
        job, start, end, submit, count, queue, user, sets, places, turns, calls = columns
        table = JobTable(
            lines=np.array(places, dtype=np.int64),
            job=np.array(list(map(key_of, job)), dtype=np.int64),
            start=np.array(start, dtype=np.float64),
            end=np.array(end, dtype=np.float64),
            count=np.array([max(-1, min(size, MOST_NODES + 1)) for size in count], dtype=np.int64),
            queue=Texts.of(queue) if any(queue) else None,
            user=Texts.of(user) if any(user) else None,
            submit=np.array(submit, dtype=np.float64),
        )
        self._check(table, table.lines, np.array(turns, dtype=np.int64), np.array(sets, dtype=np.int64), calls)

    def take(self, table: JobTable, expand: Expand = expand_set, *, begun: bool = False) -> None:
        """Check the rows of a job table, and use or skip each.

        ``begun`` means that ``row`` and ``use_later`` were already called for each row.
        """
        if not len(table):
            return
        self.settle()
        turn = self.turn - len(table) + 1 if begun else self.begin_many(len(table))
        turns = turn + np.arange(len(table))
        self._check(table, place_of(self.file_number, 0) | table.lines, turns, self._numbers(table, expand))

    def _numbers(self, table: JobTable, expand: Expand) -> Places:
        """Return the numbers of the node sets in a table, -1 for none."""
        nodes = table.nodes
        if self.options.unit != NODE:
            texts = [""] * len(table) if nodes is None else nodes.fill_null(EMPTY).to_pylist()
            units: Sequence[Units] = np.maximum(table.count, 0).tolist() if table.units is None else table.units
            pairs = zip(texts, units, strict=True)
            return np.fromiter((self.sets.number(text, expand, held) for text, held in pairs), np.int64, len(table))
        return np.full(len(table), -1, dtype=np.int64) if nodes is None else self.sets.numbers(nodes, expand)

    def _check(
        self,
        table: JobTable,
        places: Places,
        turns: Places,
        sets: Places,
        calls: Sequence[Callable[[], object] | None] = (),
    ) -> None:
        here = self.file, self.file_number, self.line, self.turn
        _Check(self, table, places, turns, sets).run(calls)
        if self.sets.is_large:
            self.sets.clear()
        self.file, self.file_number, self.line, self.turn = here

    def go_to(self, place: int, turn: int) -> None:
        """Return to a row, so later notes refer to it."""
        self.file_number, self.line = file_and_line(place)
        self.file, self.turn = self.file_names[self.file_number - 1], turn

    def state(self, time_s: float, nodes: Iterable[str], state: NodeState) -> None:
        """Set the state of nodes from ``time_s``; complete the row with ``use``."""
        self.has_states = True
        self.observed(time_s)
        for name in nodes:
            if self.sets.is_fixed and name not in self.sets.places:
                self.note("unknown_nodes")
                continue
            self.states.add(time_s, name, state)

    def table(
        self,
        rows: int,
        node_names: Sequence[str],
        times: NDArray[np.float64],
        nodes: NDArray[np.int32],
        states: NDArray[np.int8],
    ) -> None:
        """Add a whole table of node states as columns, and use all of its rows.

        At ``times`` the ``nodes`` (indices in ``node_names``) change to ``states``.
        """
        self.has_states = True
        self.begin_many(rows)
        self.use_many(rows)
        wanted = [name for name in node_names if not self.sets.is_fixed or name in self.sets.places]
        if len(wanted) < len(node_names):
            self.note("unknown_nodes", count=len(node_names) - len(wanted))
        place_of = {name: self.states.place(name) for name in wanted}
        places = np.array([place_of.get(name, -1) for name in node_names], dtype=np.int32)[nodes]
        kept = slice(None) if len(wanted) == len(node_names) else places >= 0
        self.states.add_columns(times[kept], places[kept], states[kept])

    def counted(self, time_s: float, active: int, total: int) -> None:
        """Record that ``active`` of ``total`` nodes are busy from ``time_s``; complete the row with ``use``.

        Neither may exceed ``MOST_NODES``; a ``total`` of -1 is unknown.
        """
        if len(self.count_times) >= MOST_COUNTS:
            what = f"more than {MOST_COUNTS:,} counts"
            raise BadInput(what, where=self.where, fix="import a part, or fewer samples: one per minute is enough")
        self.observed(time_s)
        self.count_times.append(time_s)
        self.count_active.append(active)
        self.count_total.append(total)


class _Check:
    """Checks the jobs of a table and uses or skips their rows; the first matching reason counts."""

    def __init__(self, intake: RecordIntake, table: JobTable, places: Places, turns: Places, sets: Places) -> None:
        self._intake = intake
        self._table = table
        self._places = places
        self._turns = turns
        self._sets = sets  # the number of each row's node set, or -1
        self._left = np.ones(len(table), dtype=np.bool_)
        self._named = sets >= 0
        if intake.options.unit != NODE:
            used, which = np.unique(sets, return_inverse=True)
            self._named = np.array([bool(intake.sets.texts[number]) for number in used.tolist()])[which]

    def run(self, calls: Sequence[Callable[[], object] | None]) -> None:
        """Skip or use every row, then call the ``calls`` of used rows."""
        table, intake = self._table, self._intake
        if table.reason is not None:
            for number, name in enumerate(table.reasons):
                self._set_aside(name, table.reason == number)
        start, end = table.start, table.end
        with np.errstate(invalid="ignore"):
            held_s = end - start
        lacks_start = np.isnan(start) & np.isfinite(end) & (end != 0) & self._named
        lacks_end = np.isnan(end) & ~np.isnan(start)
        bad = np.isinf(start) | (end == BAD_TIME) | lacks_start | lacks_end
        self._set_aside("bad_time", bad, size=self._sizes_of(bad))
        self._set_aside("no_usage", np.isnan(start) | (held_s == 0))
        self._set_aside("bad_value", held_s < 0)
        if not self._left.any():
            return
        held, unknown, repeated, reason = self._hold()
        size = np.where(held > 0, held, np.minimum(table.count, MOST_NODES))
        known_s = np.where(np.isinf(held_s), 0.0, held_s)
        weight = known_s * size
        for number, name in enumerate(OF_NODES):
            count = None if name == "bad_value" else weight
            self._set_aside(name, reason == number, count, np.maximum(size, unknown))
        self._set_aside("preemptible", self._preemptible(), weight)
        empty = (held == 0) | (~self._named & (not intake.options.counts))
        self._set_aside("does_not_fit", empty & (unknown > 0), weight)
        self._set_aside("no_nodes", empty, weight, size)
        self._set_outside_aside(weight)
        self._use(np.flatnonzero(self._left), size, known_s, unknown, repeated)
        for row, call in enumerate(calls):
            if call is not None and self._left[row]:
                self._go_to(row)
                call()

    def _set_outside_aside(self, weight: Floats) -> None:
        """Skip jobs outside the window, and record the finished ones."""
        begin_s, until_s = self._intake.options.window
        start, end = self._table.start, self._table.end
        outside = np.zeros(start.size, dtype=np.bool_)
        if begin_s is not None:
            outside |= end <= begin_s
        if until_s is not None:
            outside |= start >= until_s
        ended = outside & self._left & ~np.isinf(end)
        self._intake.stays.add_outside(self._table.job[ended], start[ended])
        self._set_aside("not_selected", outside, weight)

    def _go_to(self, row: int) -> None:
        self._intake.go_to(int(self._places[row]), int(self._turns[row]))

    def _note(self, finding: str, rows: Places, count: int | None = None, node_s: float = 0.0) -> None:
        if rows.size:
            self._go_to(int(rows[0]))
            self._intake.note(finding, count=rows.size if count is None else count, node_s=node_s)

    def _set_aside(self, reason: str, mask: Bools, node_s: Floats | None = None, size: Places | None = None) -> None:
        """Skip the rows in ``mask``; ``size`` is the number of nodes that they may have used."""
        rows = np.flatnonzero(mask & self._left)
        if not rows.size:
            return
        self._go_to(int(rows[0]))
        self._intake.set_many_aside(reason, rows.size, 0.0 if node_s is None else float(node_s[rows].sum()))
        self._left[rows] = False
        if size is not None and reason in MAY_HAVE_RUN:
            start, end = self._table.start[rows], self._table.end[rows]
            begin, until = np.where(np.isfinite(start), start, -np.inf), np.where(end > BAD_TIME, end, RUNNING)
            self._intake.doubtful_stays.add(ROWS_ASIDE, begin, until, np.maximum(size[rows], 1))

    def _sizes_of(self, mask: Bools) -> Places:
        """Return the node counts of rejected rows: as recorded, otherwise the size of their node set."""
        size = np.clip(self._table.count, 0, MOST_NODES)
        known: dict[int, int] = {}
        for row in np.flatnonzero(mask & self._left & (size == 0) & (self._sets >= 0)).tolist():
            number = int(self._sets[row])
            if number not in known:
                known[number] = self._intake.sets.size_of(number)
            size[row] = known[number]
        return size

    def _preemptible(self) -> Bools:
        queue, options = self._table.queue, self._intake.options
        if queue is None or not options.preemptible:
            return np.zeros(len(self._table), dtype=np.bool_)
        known = np.array([text in options.preemptible for text in queue.texts] + [False])[queue.codes]
        for code in np.unique(queue.codes[known & self._left]).tolist():
            self._intake.preemptible_seen.add(queue.texts[code])
        return known

    def _hold(self) -> tuple[Places, Places, Places, Places]:
        """Return for each row its known, unknown and repeated nodes, and the rejection reason or -1.

        Each pair of node set and count is looked up once, in row order.
        """
        intake, table, sets = self._intake, self._table, self._intake.sets
        count = np.clip(table.count, -1, MOST_NODES + 1)
        nameless = self._sets < 0
        if intake.options.counts and intake.options.unit == NODE:
            self._note("names_unused", np.flatnonzero(self._left & ~nameless))
            nameless = np.ones(len(table), dtype=np.bool_)
            self._sets = np.full(len(table), -1, dtype=np.int64)
        facts = sets.facts[:, self._sets]
        total = facts[SIZE] + facts[UNKNOWN]
        sure = (facts[SURE] == 1) & ((count == 0) | (count == total) | (facts[REASON] >= 0))
        rows = np.flatnonzero(self._left & ~nameless & ~sure)
        if rows.size:
            key = self._sets[rows] * (MOST_NODES + 3) + count[rows]
            _, first, kind, times = np.unique(key, return_index=True, return_inverse=True, return_counts=True)
            order = np.argsort(first)
            at, numbers = rows[first[order]], np.empty(first.size, dtype=np.int64)
            numbers[order] = sets.resolve(
                self._sets[at], count[at], times[order], lambda at_row: self._go_to(int(at[at_row]))
            )
            self._sets = self._sets.copy()
            self._sets[rows] = numbers[kind]
            facts[:, rows] = sets.facts[:, self._sets[rows]]
        held, unknown, repeated, reason = facts[SIZE], facts[UNKNOWN], facts[REPEATED], facts[REASON]
        fits = (count >= 0) & (count <= MOST_NODES)
        held[nameless], unknown[nameless], repeated[nameless] = np.where(fits, count, 0)[nameless], 0, 0
        reason[nameless] = np.where(fits, -1, OF_NODES.index("bad_value"))[nameless]
        return held, unknown, repeated, reason

    def _use(self, rows: Places, size: Places, known_s: Floats, unknown: Places, repeated: Places) -> None:
        if not rows.size:
            return
        table, intake = self._table, self._intake
        stays = intake.stays
        for name, number in (("unknown_nodes", unknown), ("notation", repeated)):
            some = rows[number[rows] > 0]
            node_s = float((number * known_s)[some].sum()) if name == "unknown_nodes" else 0.0
            self._note(name, some, int(number[some].sum()), node_s)
        if table.preempted is not None:
            preempted = rows[table.preempted[rows]]
            self._note("preemption", preempted, node_s=float((size * known_s)[preempted].sum()))
        start, end = table.start[rows], table.end[rows]
        if table.most is not None:
            further = table.most[rows] - size[rows]
            intake.doubtful_stays.add(PROCS_AS_NODES, start, end, further)
        intake.use_many(rows.size)
        intake.observed(float(np.where(np.isinf(end), start, end).max()))
        sets = self._sets[rows]
        stays.add_many(
            start=start,
            end=end,
            sets=np.where(sets < 0, -1, intake.sets.facts[STORED][sets]),
            count=size[rows],
            job=table.job[rows],
            place=self._places[rows],
            queue=stays.queues.codes_of(table.queue, rows),
            user=stays.users.codes_of(table.user, rows),
            submit=np.full(rows.size, np.nan) if table.submit is None else table.submit[rows],
            node_failed=np.zeros(rows.size) if table.node_failed is None else table.node_failed[rows],
        )
