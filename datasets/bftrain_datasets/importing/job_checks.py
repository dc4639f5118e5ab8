"""RecordIntake: what readers tell of their rows. Every job is judged here, the same way for all formats."""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass
from datetime import UTC
from typing import TYPE_CHECKING, Final

import numpy as np

from bftrain.errors import BadInput
from bftrain.nodesets import MOST_NODES
from bftrain.nodesets import expand as expand_set
from bftrain_datasets.importing.findings import FindingsTally
from bftrain_datasets.importing.import_options import ImportOptions
from bftrain_datasets.importing.job_columns import JobStays, file_and_line, place_of
from bftrain_datasets.importing.open_jobs import OpenJobTable
from bftrain_datasets.importing.outages import NodeOutages
from bftrain_datasets.log import time_formats
from bftrain_datasets.log.builder import LogBuilder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from bftrain_datasets.log.eventlog import NodeState
    from bftrain_datasets.log.provenance import DoubtfulTime

MOST_KNOWN: Final = 1 << 25  # letters and nodes of the node sets that are remembered, so that memory stays bounded
MOST_COUNTS: Final = 1 << 25  # of busy nodes; sixty years of one a minute
RUNNING: Final = math.inf  # the end of a job that still runs


@dataclass(slots=True)
class _NodeSet:
    """A node set: how many nodes of the machine it has, how many others, how many were written again.

    It has a ``number`` as soon as a job that held it is used; until then ``nodes`` are kept here.
    """

    size: int
    unknown: int = 0
    repeated: int = 0
    nodes: Sequence[int] = ()
    number: int = -1


class RecordIntake:
    """Takes in rows. A reader calls ``row`` for each, and then exactly one of ``job``, ``use`` and ``set_aside``.

    - ``job``: the row tells of a job that held nodes. Whether it counts is decided here.
    - ``use`` after any number of ``state`` or ``counted``: the row tells what nodes are, or how many are busy.
    - ``set_aside``: the row is not used, for one of the reasons in ``hazards.py``.

    ``note`` counts all else that a reader had to assume or mend.
    """

    def __init__(self, options: ImportOptions | None = None) -> None:
        self.options = options or ImportOptions()
        self.tally = FindingsTally()
        self.doubtful: list[DoubtfulTime] = []  # idle nodes about which the records themselves leave doubts
        zone = time_formats.zone(self.options.timezone) if self.options.timezone else UTC
        self.clock = time_formats.RecordClock(zone, lambda: self.tally.where)
        self.stays = JobStays()
        self.open_jobs = OpenJobTable()
        self.outages = NodeOutages()
        self.states = LogBuilder(self.options.nodes or ())
        self.has_states = False
        self.count_times = array("d")
        self.count_active = array("q")
        self.count_total = array("q")
        self.capacity: int | None = None  # of the machine, where the records say it
        self.last_s = -math.inf  # latest time that any record shows
        self.file_names: list[str] = []
        self.file_number = 0  # of the file that is being read, from 1 on
        self.preemptible_seen: set[str] = set()  # of the partitions that the options name, those that jobs were in
        self._preemptible = frozenset(self.options.preemptible)
        self._places = {name: place for place, name in enumerate(self.options.nodes or ())}
        self._fixed = self.options.nodes is not None
        self._known_sets: dict[str, _NodeSet] = {}
        self._known = 0

    @property
    def node_names(self) -> tuple[str, ...]:
        """Nodes that jobs held, or that the options name."""
        return tuple(self._places)

    def begin_file(self, name: str) -> None:
        """Say that what follows comes from this file."""
        self.file_names.append(name)
        self.file_number = len(self.file_names)
        self.tally.file, self.tally.line = name, 0

    def row(self, line: int) -> None:
        """Begin a row."""
        self.tally.row(line)

    def again(self, place: int) -> None:
        """Return to a row that was used, to settle it again."""
        self.file_number, line = file_and_line(place)
        self.tally.again(self.file_names[self.file_number - 1], line)

    def place(self) -> int:
        """Give the number of the place that is being read: file and line."""
        return place_of(self.file_number, self.tally.line)

    def where(self, place: int) -> str:
        """Name a place: file and line."""
        file, line = file_and_line(place)
        return f"{self.file_names[file - 1]}:{line}"

    def close(self) -> None:
        """Settle the jobs whose end was not read, when all files are."""
        self._known_sets.clear()
        self.open_jobs.close(self)

    def use(self) -> None:
        """Use the row."""
        self.tally.use()

    def set_aside(self, reason: str, node_s: float = 0.0) -> None:
        """Leave the row unused."""
        self.tally.set_aside(reason, node_s)

    def note(self, name: str, *, count: int = 1, node_s: float = 0.0) -> None:
        """Count something at the present place."""
        self.tally.note(name, count=count, node_s=node_s)

    def seconds(self, text: str) -> float:
        """Seconds UTC of a time as written; ``ValueError`` if it is none."""
        return self.clock.seconds(text)

    def observed(self, time_s: float) -> None:
        """Say that the records reach at least to this time."""
        self.last_s = max(self.last_s, time_s)

    def name_node(self, name: str) -> None:
        """Say that the machine has this node, whether or not a job ever holds it."""
        if not self._fixed:
            self._places.setdefault(name, len(self._places))

    def job(
        self,
        job: str,
        start_s: float | None,
        end_s: float | None,
        nodes: str,
        *,
        count: int = 0,
        queue: str = "",
        preempted: bool = False,
        expand: Callable[[str], Sequence[str]] = expand_set,
    ) -> None:
        """Judge the row's job and settle the row.

        ``start_s`` is None if it never started, ``end_s`` is ``RUNNING`` or None if nothing is said of its end.
        ``nodes`` is its node set as written, which ``expand`` turns into names; ``count`` says how many nodes where
        no names are given.
        """
        if start_s is None or end_s is None:
            self.set_aside("never_started" if start_s is None else "no_end")
            return
        held_s = end_s - start_s
        if not (held_s > 0 and math.isfinite(start_s)):
            self.set_aside(_why_no_time(start_s, held_s))
            return
        held = self._set_of(nodes, expand) if nodes and not self.options.counts else _NodeSet(count)
        if held is None or not 0 <= held.size <= MOST_NODES:
            self.set_aside("bad_nodes" if held is None else "bad_count")
            return
        reason = self._why_not(held, start_s, end_s, queue, named=bool(nodes))
        if reason:
            if reason == "outside_window" and held_s != RUNNING:
                self.stays.add_outside(job, start_s)
            self.set_aside(reason, 0.0 if held_s == RUNNING else held_s * (held.size or min(count, MOST_NODES)))
            return
        self._note_job(held, held_s, preempted=preempted)
        self.use()
        self.observed(start_s if held_s == RUNNING else end_s)
        self.stays.add(
            start_s=start_s,
            end_s=end_s,
            node_set=self._number_of(held),
            count=held.size,
            job=job,
            place=self.place(),
        )

    def state(self, time_s: float, nodes: Iterable[str], state: NodeState) -> None:
        """Say what these nodes are from ``time_s`` on; ``use`` settles the row."""
        self.has_states = True
        self.observed(time_s)
        for name in nodes:
            if self._fixed and name not in self._places:
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
        """Take in a whole table of node states, with so many rows, as columns; it settles all of them.

        At ``times`` the ``nodes``, which are places in ``node_names``, go to ``states``.
        """
        self.has_states = True
        self.tally.use_many(rows)
        wanted = [name for name in node_names if not self._fixed or name in self._places]
        if len(wanted) < len(node_names):
            self.note("unknown_nodes", count=len(node_names) - len(wanted))
        place_of = {name: self.states.place(name) for name in wanted}
        places = np.array([place_of.get(name, -1) for name in node_names], dtype=np.int32)[nodes]
        kept = slice(None) if len(wanted) == len(node_names) else places >= 0
        self.states.add_columns(times[kept], places[kept], states[kept])

    def counted(self, time_s: float, active: int, total: int) -> None:
        """Say that ``active`` of ``total`` nodes are busy from ``time_s`` on; ``use`` settles the row.

        Neither may exceed ``MOST_NODES``; a ``total`` of -1 is not known.
        """
        if len(self.count_times) >= MOST_COUNTS:
            what = f"more than {MOST_COUNTS:,} counts"
            raise BadInput(what, where=self.tally.where, fix="give a part of them, or fewer: one a minute will do")
        self.observed(time_s)
        self.count_times.append(time_s)
        self.count_active.append(active)
        self.count_total.append(total)

    def _why_not(self, held: _NodeSet, start_s: float, end_s: float, queue: str, *, named: bool) -> str:
        """Say why a job that held nodes for some time does not count; nothing if it does."""
        if queue and queue in self._preemptible:
            self.preemptible_seen.add(queue)
            return "preemptible"
        if held.size == 0 or not (named or self.options.counts):
            return "other_nodes" if held.unknown else "no_nodes"
        begin_s, until_s = self.options.window
        if (begin_s is not None and end_s <= begin_s) or (until_s is not None and start_s >= until_s):
            return "outside_window"
        return ""

    def _note_job(self, held: _NodeSet, held_s: float, *, preempted: bool) -> None:
        known_s = 0.0 if held_s == RUNNING else held_s
        if preempted:
            self.note("preempted_jobs", node_s=held.size * known_s)
        if held.unknown:
            self.note("unknown_nodes", count=held.unknown, node_s=held.unknown * known_s)
        if held.repeated:
            self.note("repeated_hosts", count=held.repeated)

    def _set_of(self, text: str, expand: Callable[[str], Sequence[str]]) -> _NodeSet | None:
        known = self._known_sets.get(text)
        if known is not None:
            return known
        try:
            names = expand(text)
        except ValueError:
            return None
        places = self._places
        written = list(dict.fromkeys(names))
        if self._fixed:
            nodes = [places[name] for name in written if name in places]
        else:
            nodes = [places.setdefault(name, len(places)) for name in written]
            if len(places) > MOST_NODES:
                raise BadInput(f"more than {MOST_NODES:,} different nodes", where=self.tally.where, fix="name --nodes")
        self._known += len(text) + len(nodes)
        if self._known > MOST_KNOWN:
            self._known_sets.clear()
            self._known = len(text) + len(nodes)
        known = _NodeSet(len(nodes), len(written) - len(nodes), len(names) - len(written), nodes)
        self._known_sets[text] = known
        return known

    def _number_of(self, held: _NodeSet) -> int:
        if held.nodes:
            held.number = self.stays.add_set(held.nodes)
            held.nodes = ()
        return held.number


def _why_no_time(start_s: float, held_s: float) -> str:
    """Say why nothing was held; what is not finite comes from a reader that let it pass."""
    if not math.isfinite(start_s) or math.isnan(held_s):
        return "bad_time"
    return "backwards" if held_s < 0 else "zero_length"
