"""RecordIntake: receives the rows of all readers and checks every job by the same rules."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bftrain.errors import BadInput, suggestion
from bftrain.node_units import NODE
from bftrain.nodesets import MOST_NODES
from bftrain.nodesets import expand as expand_set
from bftrain_datasets.importing import unit_sets
from bftrain_datasets.importing.findings import FindingsTally
from bftrain_datasets.importing.import_options import ALL_CLUSTERS, ImportOptions
from bftrain_datasets.importing.job_columns import JobStays, file_and_line, place_of
from bftrain_datasets.importing.known_texts import KnownTexts
from bftrain_datasets.importing.machine_nodes import HeldNodes, MachineNodes, is_range_of
from bftrain_datasets.importing.open_jobs import NodeOutages, OpenJobTable
from bftrain_datasets.log import time_formats
from bftrain_datasets.log.builder import LogBuilder
from bftrain_datasets.log.eventlog import NodeState
from bftrain_datasets.log.idle_doubts import ROWS_ASIDE, DoubtfulStays
from bftrain_datasets.log.provenance import DoubtfulTime

MOST_COUNTS: Final = 1 << 25  # of busy nodes; sixty years at one a minute
READ_ALL: Final = "--cluster all or --cluster '*' reads all as one machine"
_MOST_CLUSTERS: Final = 8  # listed in a message
# Reasons to reject rows whose jobs may have held nodes
MAY_HAVE_RUN: Final = frozenset({"bad_time", "missing_time", "bad_nodes", "no_nodes"})
RUNNING: Final = math.inf  # the end of a job that still runs


class RecordIntake(FindingsTally):
    """Receives rows. A reader calls ``row`` for each, and then exactly one of ``job``, ``use`` and ``set_aside``.

    - ``job``: the row describes a job that held nodes. The checks here decide whether it counts.
    - ``use`` after any number of ``state`` or ``counted``: the row has states of nodes, or the number of busy ones.
    - ``set_aside``: the row is not used, for one of the reasons in ``HAZARDS``.

    ``note`` counts all other assumptions and repairs of a reader.
    """

    def __init__(self, options: ImportOptions | None = None) -> None:
        super().__init__()
        self.options = options or ImportOptions()
        self.doubtful: list[DoubtfulTime] = []  # idle nodes that the records make doubtful
        self.doubtful_stays = DoubtfulStays()
        zone = time_formats.zone(self.options.timezone) if self.options.timezone else UTC
        self.clock = time_formats.RecordClock(zone, lambda: self.where)
        self.stays = JobStays()
        self.open_jobs = OpenJobTable()
        self.outages = NodeOutages()
        self.reports_outages: bool | None = None  # False if only another file could report them
        self.failed_places = array("q")  # rows of jobs killed by a node failure
        self.failed_nodes: list[tuple[NDArray[np.int32], NDArray[np.float64]]] = []  # the log's nodes, and when
        self.states = LogBuilder(self.options.nodes or ())
        self.has_states = False
        self.count_times = array("d")
        self.count_active = array("q")
        self.count_total = array("q")
        self.capacity: int | None = None  # of the machine, if recorded
        self.unit_count = 0  # GPUs or cores of the machine, if counted and known
        self.cores_per_node = 1.0  # if job sizes are counted in cores
        self.last_s = -math.inf  # latest time in any record
        self.file_names: list[str] = []
        self.file_number = 0  # of the file being read, from 1 on
        self.preemptible_seen: set[str] = set()  # partitions from the options in which jobs ran
        self._preemptible = frozenset(self.options.preemptible)
        self.machine = MachineNodes(self.options.nodes, self)
        self.known_texts = KnownTexts()
        self._clusters: dict[str, str] = {}  # cluster -> its first place

    @property
    def size(self) -> int:
        """The number of nodes as far as known, or of GPUs or cores if these are counted."""
        return self.unit_count or len(self.machine.places) or self.options.node_count or self.capacity or 0

    @property
    def node_names(self) -> tuple[str, ...]:
        """The nodes that jobs held, or those in the options."""
        return tuple(self.machine.places)

    def begin_file(self, name: str) -> None:
        """Begin a file; later rows come from it."""
        self.file_names.append(name)
        self.file_number = len(self.file_names)
        self.file, self.line = name, 0

    def reopen_place(self, place: int) -> None:
        """Return to a used row, to use it or set it aside again."""
        self.file_number, line = file_and_line(place)
        self.again(self.file_names[self.file_number - 1], line)

    def place(self) -> int:
        """The present place as a number: file and line."""
        return place_of(self.file_number, self.line)

    def place_name(self, place: int) -> str:
        """Return a place as text: file and line."""
        file, line = file_and_line(place)
        return f"{self.file_names[file - 1]}:{line}"

    def close(self) -> None:
        """Process the jobs without a recorded end, after all files."""
        self._check_clusters()
        self.machine.known_sets.clear()
        closed = self.open_jobs.close()
        for job, end_s, restarted in closed.jobs:
            if restarted:
                self.note("restarted", where=self.place_name(job.place))
            self.reopen_place(job.place)
            self.job(job.job, job.start_s, end_s, job.nodes, queue=job.queue, expand=job.expand, units=job.units)
        if closed.lost_ends_s:
            self.unuse("missing_time", self.place_name(closed.place), len(closed.lost_ends_s), 0.0)
            for end_s in closed.lost_ends_s:
                self._doubt(None, end_s, 1)
        same = self.machine.spellings()
        if same:
            first = next(iter(same))
            self.note("notation", count=len(same), where=f"{first} = {same[first]}")
            self.stays.rename_nodes(self.machine.join(same))
            self.outages.rename(same)
        self.outages.rename(self.machine.known_as(self.outages.names))
        options = self.options
        declared = options.down or options.down_nodes or options.down_suspected
        if self.reports_outages is False and len(self.stays) and not (declared or options.counts):
            self.note("no_node_states", where="")

    def seconds(self, text: str) -> float:
        """Return a written time in seconds UTC; raise ``ValueError`` if invalid."""
        return self.clock.seconds(text)

    def is_other_cluster(self, cluster: str) -> bool:
        """Return whether a row belongs to a cluster not in the options; ``close`` rejects several."""
        self._clusters.setdefault(cluster, self.where)
        return self.options.cluster not in {None, *ALL_CLUSTERS, cluster}

    def _check_clusters(self) -> None:
        names, wanted = sorted(self._clusters), self.options.cluster
        if wanted is None and len(names) > 1:
            shown = ", ".join(names[:_MOST_CLUSTERS]) + (", ..." if len(names) > _MOST_CLUSTERS else "")
            first = self._clusters[names[-1]]
            raise BadInput(
                f"records of {len(names)} clusters: {shown}", where=first, fix=f"choose one with --cluster; {READ_ALL}"
            )
        if wanted in ALL_CLUSTERS and wanted in names and len(names) > 1:
            raise BadInput(f"one of the clusters is called '{wanted}'", where="--cluster", fix=READ_ALL)
        if wanted and wanted not in ALL_CLUSTERS and wanted not in self._clusters:
            fix = suggestion(wanted, names[:_MOST_CLUSTERS])
            raise BadInput(f"no row is of the cluster '{wanted}'", where="--cluster", fix=fix)

    def observed(self, time_s: float) -> None:
        """Record that the records reach at least to this time."""
        self.last_s = max(self.last_s, time_s)

    def name_node(self, name: str) -> None:
        """Record that the machine has this node, whether or not a job ever holds it."""
        self.machine.name(name)

    def job(  # noqa: PLR0913 - all but four are options by name
        self,
        job: str,
        start_s: float | None,
        end_s: float | None,
        nodes: str,
        *,
        count: int = 0,
        queue: str = "",
        preempted: bool = False,
        node_failed: bool = False,
        expand: Callable[[str], Sequence[str]] = expand_set,
        units: str = "",
    ) -> None:
        """Check the row's job, and use the row or set it aside.

        ``start_s`` is None if the job never started, ``end_s`` is ``RUNNING``, or None if not recorded.
        ``nodes`` is its node set as written, which ``expand`` turns into names; ``count`` is the number of nodes,
        instead of names or as a check of them; 0 if not recorded. ``units`` are its GPUs or cores,
        if these are counted (``unit_sets.shares_of``). ``node_failed`` means that a node failure killed the job.
        """
        if start_s is None or end_s is None or not -math.inf < start_s < end_s:
            reason = _no_stay_reason(start_s, end_s, named=bool(nodes))
            if reason in MAY_HAVE_RUN:
                self._doubt(start_s, end_s, count or size_of(nodes, expand))
            self.set_aside(reason)
            return
        held_s = end_s - start_s
        held, reason = self.held_by(nodes, count, expand, units=units)
        reason = reason or self._rejection_reason(held, start_s, end_s, queue, named=bool(nodes))
        if reason:
            size = held.size or (0 if reason == "bad_value" else min(count, MOST_NODES))
            if reason == "not_selected" and held_s != RUNNING:
                self.stays.add_outside(job, start_s)
            if reason in MAY_HAVE_RUN:
                self._doubt(start_s, end_s, max(size, held.unknown))
            self.set_aside(reason, 0.0 if held_s == RUNNING else held_s * size)
            return
        self._note_job(held, held_s, preempted=preempted)
        if node_failed:
            self.failed_places.append(self.place())
        self.use()
        self.observed(start_s if held_s == RUNNING else end_s)
        number = self.number_of(held)
        self.stays.add(
            start_s=start_s, end_s=end_s, node_set=number, count=held.size, job=job, place=self.place(), queue=queue
        )

    def _doubt(self, start_s: float | None, end_s: float | None, nodes: int) -> None:
        """Record that a job may have held at least one node, from or to an unknown time."""
        begin_s = start_s if start_s is not None and math.isfinite(start_s) else -math.inf
        self.doubtful_stays.add(
            ROWS_ASIDE, begin_s, RUNNING if end_s is None or math.isnan(end_s) else end_s, max(1, nodes)
        )

    def state(self, time_s: float, nodes: Iterable[str], state: NodeState) -> None:
        """Set the state of nodes from ``time_s`` on; complete the row by ``use``."""
        self.has_states = True
        self.observed(time_s)
        for name in nodes:
            if self.machine.is_fixed and name not in self.machine.places:
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
        """Add a whole table of node states as columns and use all of its rows.

        At ``times`` the ``nodes``, which are indices in ``node_names``, change to ``states``.
        """
        self.has_states = True
        self.use_many(rows)
        wanted = [name for name in node_names if not self.machine.is_fixed or name in self.machine.places]
        if len(wanted) < len(node_names):
            self.note("unknown_nodes", count=len(node_names) - len(wanted))
        place_of = {name: self.states.place(name) for name in wanted}
        places = np.array([place_of.get(name, -1) for name in node_names], dtype=np.int32)[nodes]
        kept = slice(None) if len(wanted) == len(node_names) else places >= 0
        self.states.add_columns(times[kept], places[kept], states[kept])

    def counted(self, time_s: float, active: int, total: int) -> None:
        """Record that ``active`` of ``total`` nodes are busy from ``time_s`` on; complete the row by ``use``.

        Neither may exceed ``MOST_NODES``; a ``total`` of -1 is unknown.
        """
        if len(self.count_times) >= MOST_COUNTS:
            what = f"more than {MOST_COUNTS:,} counts"
            raise BadInput(what, where=self.where, fix="import a part of them, or fewer: one a minute is enough")
        self.observed(time_s)
        self.count_times.append(time_s)
        self.count_active.append(active)
        self.count_total.append(total)

    def is_preemptible(self, queue: str) -> bool:
        """Return whether the options list this partition, and record that it exists."""
        if not queue or queue not in self._preemptible:
            return False
        self.preemptible_seen.add(queue)
        return True

    def number_of(self, held: HeldNodes) -> int:
        """Return the number of a node set, assigned at its first use."""
        if held.nodes:
            held.number, held.nodes = self.stays.add_set(held.nodes, held.units), ()
        return held.number

    def _rejection_reason(self, held: HeldNodes, start_s: float, end_s: float, queue: str, *, named: bool) -> str:
        if self.is_preemptible(queue):
            return "preemptible"
        if held.size == 0 or not (named or self.options.counts):
            return "other_nodes" if held.unknown else "no_nodes"
        begin_s, until_s = self.options.window
        if (begin_s is not None and end_s <= begin_s) or (until_s is not None and start_s >= until_s):
            return "not_selected"
        return ""

    def _note_job(self, held: HeldNodes, held_s: float, *, preempted: bool) -> None:
        known_s = 0.0 if held_s == RUNNING else held_s
        if preempted:
            self.note("preemption", node_s=held.size * known_s)
        if held.unknown:
            self.note("unknown_nodes", count=held.unknown, node_s=held.unknown * known_s)
        if held.repeated:
            self.note("notation", count=held.repeated)

    @property
    def known_sets(self) -> Mapping[str, HeldNodes]:
        """Cached node sets, if every job holds all nodes of its set."""
        return self.machine.known_sets if self.options.unit == NODE and not self.options.counts else {}

    def held_by(
        self,
        nodes: str,
        count: int,
        expand: Callable[[str], Sequence[str]] = expand_set,
        rows: int = 1,
        units: str = "",
    ) -> tuple[HeldNodes, str]:
        """Return the nodes of rows with this node set and count, and the reason to reject them, in which case none."""
        if self.options.unit != NODE:
            return self._units_held(nodes, count, expand, rows, units)
        if not nodes or self.options.counts:
            if nodes:
                self.note("names_unused", count=rows)
            return (HeldNodes(count), "") if 0 <= count <= MOST_NODES else (HeldNodes(0), "bad_value")
        if count and is_range_of(count, nodes):
            self.note("notation", count=rows)
            nodes, expand = f"[{nodes}]", expand_set
        held = self.machine.set_of(nodes, expand, count)
        if held is None:
            return HeldNodes(0), "bad_nodes"
        if count and held.size + held.unknown != count:
            return HeldNodes(0, held.size + held.unknown), "bad_nodes"
        return held, ""

    def _units_held(
        self, nodes: str, count: int, expand: Callable[[str], Sequence[str]], rows: int, units: str
    ) -> tuple[HeldNodes, str]:
        """Return the GPUs or cores that rows hold, by node, in the form of ``held_by``."""
        try:
            total = unit_sets.total_of(units)
            named = total and nodes and not self.options.counts
            held = self.machine.shares_of(nodes, units, expand) if named else HeldNodes(total)
        except ValueError:
            return HeldNodes(0), "bad_nodes"
        if not held.size + held.unknown:
            return held, "no_usage"
        if held.size > MOST_NODES:
            return HeldNodes(0), "bad_value"
        if count and held.of_nodes and held.of_nodes != count:
            return HeldNodes(0), "bad_nodes"
        if held.assumed:
            self.note(held.assumed, count=rows)
        return held, ""


def _no_stay_reason(start_s: float | None, end_s: float | None, *, named: bool) -> str:
    """Return why times (NaN if unreadable) describe no stay on nodes, or an empty text."""
    if any(each is not None and math.isnan(each) for each in (start_s, end_s)):
        return "bad_time"
    if start_s is None:
        return "missing_time" if end_s and end_s != RUNNING and named else "no_usage"
    if end_s is None:
        return "missing_time"
    if not math.isfinite(start_s):
        return "bad_time"
    return "bad_value" if end_s < start_s else "no_usage" if end_s == start_s else ""


def size_of(nodes: str, expand: Callable[[str], Sequence[str]]) -> int:
    """Return the size of a node set, or 0 if unreadable."""
    try:
        return len(set(expand(nodes))) if nodes else 0
    except ValueError:
        return 0
