"""The GPUs or cores of nodes as slots: the number of slots per node, and which of them each job held.

If only their number is recorded, a job gets the lowest free ones of its node when it starts. A job that gets too few,
because more are in use than the node has, gets those that others free. So the number of busy slots is right.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bftrain.errors import BadInput
from bftrain.node_units import slot_name
from bftrain.nodesets import expand
from bftrain_datasets.importing.job_checks import RecordIntake
from bftrain_datasets.importing.job_columns import HeldSpans, StayColumns, latest_ends, spans_by_node
from bftrain_datasets.log import time_formats
from bftrain_datasets.log.idle_doubts import OVER_CAPACITY, curve_of

MOST_SLOTS: Final = 1 << 24


@dataclass(frozen=True, slots=True)
class NodeSlots:
    """All slots of a machine by name, in node order; the slots of a node begin at its ``first``."""

    names: list[str]
    first: NDArray[np.int64]
    capacity: NDArray[np.int64]
    jobs: StayColumns
    keep: NDArray[np.bool_]

    @classmethod
    def of(cls, jobs: StayColumns, keep: NDArray[np.bool_], order: Sequence[int], intake: RecordIntake) -> NodeSlots:
        """Determine the slots of each node: from the options, or the largest number in use at once."""
        options, nodes = intake.options, intake.node_names
        capacity = np.full(len(nodes), options.node_units or 0, dtype=np.int64)
        places = {name: place for place, name in enumerate(nodes)}
        for text, count in options.node_units_of:
            capacity[[places[name] for name in expand(text) if name in places]] = count
        unknown = capacity == 0
        if unknown.any():
            most = np.zeros(len(nodes), dtype=np.int64)
            for held in spans_by_node(jobs, keep, -np.inf, np.inf, len(nodes)):
                use = _Use.of(held, np.full(len(nodes), np.iinfo(np.int64).max))
                np.maximum.at(most, use.node, use.level)
                numbered = _units(held) < 0
                np.maximum.at(most, held.node[numbered], -_units(held)[numbered])
            capacity[unknown] = most[unknown]
            intake.note("units_assumed", count=int(unknown.sum()), where="")
        intake.unit_count = int(capacity.sum())
        if intake.unit_count > MOST_SLOTS:
            what = f"{intake.unit_count:,} of them are more than the limit of {MOST_SLOTS:,}"
            raise BadInput(what, where=f"--unit {options.unit}", fix="select nodes by --nodes")
        first = np.zeros(len(nodes), dtype=np.int64)
        first[order] = np.concatenate(([0], np.cumsum(capacity[order])[:-1]))
        names = [slot_name(nodes[place], options.unit, slot) for place in order for slot in range(capacity[place])]
        return cls(names, first, capacity, jobs, keep)

    def spans(self, begin_s: float, end_s: float, intake: RecordIntake) -> Iterator[HeldSpans]:
        """Yield every (job, slot) pair within the observed time; count and omit slots that a node does not have."""
        over: list[tuple[NDArray[np.float64], NDArray[np.int64]]] = []
        for held in spans_by_node(self.jobs, self.keep, begin_s, end_s, self.capacity.size):
            use = _Use.of(held, self.capacity)
            if (use.over > 0).any():
                self._note_overfull(use, intake)
                over.append((use.time, use.over_change()))
            yield self._laid_out(held)
        if over:
            times, place = np.unique(np.concatenate([time for time, _ in over]), return_inverse=True)
            change = np.zeros(times.size, dtype=np.int64)
            np.add.at(change, place, np.concatenate([change for _, change in over]))
            intake.doubtful.append(curve_of(OVER_CAPACITY, times, np.cumsum(change), len(self.names)))

    def _note_overfull(self, use: _Use, intake: RecordIntake) -> None:
        lasting_s = np.diff(use.time, append=0.0)
        begins = np.flatnonzero(use.over > np.concatenate(([0], use.over[:-1])))
        node_s = float((use.over * lasting_s)[use.over > 0].sum())
        first = int(begins[np.argmin(use.time[begins])])
        where = f"{intake.node_names[use.node[first]]} at {time_formats.time_text(float(use.time[first]))}"
        intake.note("over_capacity", count=int(begins.size), node_s=node_s, where=where)

    def _laid_out(self, held: HeldSpans) -> HeldSpans:
        units = _units(held)
        summed = np.zeros(self.capacity.size, dtype=np.bool_)
        summed[held.node[units >= 0]] = True
        plain = np.flatnonzero(~summed[held.node] & (-1 - units < self.capacity[held.node]))
        found = [(self.first[held.node[plain]] - 1 - units[plain], held.start[plain], held.end[plain], held.row[plain])]
        bounds = np.flatnonzero(np.diff(held.node, prepend=-1, append=-1))
        for low, high in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            node = int(held.node[low])
            if summed[node]:
                columns = (held.start[low:high], held.end[low:high], units[low:high])
                sweep = SlotSweep(int(self.capacity[node]), *(column.tolist() for column in columns))
                entry = np.array(sweep.entry, dtype=np.int64) + low
                slot = np.array(sweep.slot, dtype=np.int64) + self.first[node]
                found.append((slot, np.array(sweep.begin_s), np.array(sweep.end_s), held.row[entry]))
        slot, start, end, row = (np.concatenate(parts) for parts in zip(*found, strict=True))
        order = np.lexsort((start, slot))
        return HeldSpans(slot[order].astype(np.int32), start[order], end[order], row[order])


def _units(held: HeldSpans) -> NDArray[np.int64]:
    return np.zeros(0, dtype=np.int64) if held.units is None else held.units.astype(np.int64)


@dataclass(frozen=True, slots=True)
class _Use:
    """From ``time[i]`` on jobs hold ``level[i]`` slots of a ``node``, ``over[i]`` more than exist; ordered by node."""

    node: NDArray[np.int32]
    time: NDArray[np.float64]
    level: NDArray[np.int64]
    over: NDArray[np.int64]

    @classmethod
    def of(cls, held: HeldSpans, capacity: NDArray[np.int64]) -> _Use:
        """Add up the slots of jobs; a slot held by several at once counts once."""
        units = _units(held)
        if not held.node.size:
            return cls(held.node, held.start, units, units)
        order = np.lexsort((held.start, units, held.node))
        node, start, end, unit = held.node[order], held.start[order], held.end[order], units[order]
        numbered = unit < 0
        first = np.concatenate(([True], (node[1:] != node[:-1]) | (unit[1:] != unit[:-1])))
        reach = latest_ends(first, end)
        gap = np.concatenate(([True], start[1:] > reach[:-1])) | first | ~numbered
        begins = np.flatnonzero(gap)
        lasts = np.append(begins[1:], node.size) - 1
        ends = np.where(numbered[begins], reach[lasts], end[begins])
        size = np.where(numbered, 1, unit)[begins]
        there = np.where(numbered & (-1 - unit >= capacity[node]), 0, np.where(numbered, 1, unit))[begins]
        time = np.concatenate((start[begins], ends))
        nodes = np.concatenate((node[begins], node[begins]))
        change, change_there = np.concatenate((size, -size)), np.concatenate((there, -there))
        order = np.lexsort((change > 0, time, nodes))
        level, level_there = np.cumsum(change[order]), np.cumsum(change_there[order])
        nodes = nodes[order]
        return cls(nodes, time[order], level, level - np.minimum(level_there, capacity[nodes]))

    def over_change(self) -> NDArray[np.int64]:
        """Return the change of the excess at each time."""
        return np.diff(self.over, prepend=0)  # 0 again at the end of each node


class SlotSweep:
    """The stays of jobs on the slots of one node: ``entry`` held ``slot`` from ``begin_s`` to ``end_s``.

    ``units`` are the number of slots of an entry, or if negative a specific slot, which it gets in any case, while
    its other user gets another one.
    """

    def __init__(self, capacity: int, starts: Sequence[float], ends: Sequence[float], units: Sequence[int]) -> None:
        self.entry: list[int] = []
        self.slot: list[int] = []
        self.begin_s: list[float] = []
        self.end_s: list[float] = []
        self._free = list(range(capacity))  # a heap; slots taken since are skipped
        self._is_free = [True] * capacity
        self._users = [0] * capacity  # jobs that hold this specific slot
        self._owner: dict[int, tuple[int, float]] = {}  # of the other slots in use: entry and start
        self._held: dict[int, list[int]] = {}
        self._lacking: dict[int, int] = {}
        events = [(time_s, 0, entry) for entry, time_s in enumerate(ends)]
        events += [(time_s, 2 if units[entry] >= 0 else 1, entry) for entry, time_s in enumerate(starts)]
        for time_s, begins, entry in sorted(events):
            count = units[entry]
            if count < 0:
                if -1 - count < capacity:
                    self._numbered(-1 - count, time_s, begins=bool(begins))
                    if begins:
                        self._add(entry, -1 - count, time_s, ends[entry])
            elif begins:
                self._request_slots(entry, count, time_s)
            else:
                self._end(entry, time_s)

    def _add(self, entry: int, slot: int, begin_s: float, end_s: float) -> None:
        if end_s > begin_s:
            self.entry.append(entry)
            self.slot.append(slot)
            self.begin_s.append(begin_s)
            self.end_s.append(end_s)

    def _assign_slot(self, slot: int, entry: int, time_s: float) -> None:
        self._is_free[slot] = False
        self._owner[slot] = entry, time_s
        self._held.setdefault(entry, []).append(slot)

    def _request_slots(self, entry: int, count: int, time_s: float) -> None:
        while count and self._free:
            slot = heappop(self._free)
            if self._is_free[slot]:
                self._assign_slot(slot, entry, time_s)
                count -= 1
        if count:
            self._lacking[entry] = self._lacking.get(entry, 0) + count

    def _release(self, slot: int, time_s: float) -> None:
        for entry in self._lacking:
            self._lacking[entry] -= 1
            if not self._lacking[entry]:
                del self._lacking[entry]
            self._assign_slot(slot, entry, time_s)
            return
        self._is_free[slot] = True
        heappush(self._free, slot)

    def _end(self, entry: int, time_s: float) -> None:
        self._lacking.pop(entry, None)
        for slot in self._held.pop(entry, ()):
            _, begin_s = self._owner.pop(slot)
            self._add(entry, slot, begin_s, time_s)
            self._release(slot, time_s)

    def _numbered(self, slot: int, time_s: float, *, begins: bool) -> None:
        self._users[slot] += 1 if begins else -1
        if not begins:
            if not self._users[slot]:
                self._release(slot, time_s)
        elif self._is_free[slot]:
            self._is_free[slot] = False
        elif slot in self._owner:
            entry, begin_s = self._owner.pop(slot)
            self._held[entry].remove(slot)
            self._add(entry, slot, begin_s, time_s)
            self._request_slots(entry, 1, time_s)
