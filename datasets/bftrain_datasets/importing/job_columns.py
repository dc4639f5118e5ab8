"""JobStays: which job held which nodes from when to when, as columns; many millions fit into memory."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bftrain.errors import BadInput

MOST_PAIRS: Final = 1 << 27  # of a job and a node; half a gigabyte of memory
_LINE_BITS: Final = 40


@dataclass(frozen=True, slots=True)
class StayColumns:
    """One row per job. ``end`` is infinite while it runs, ``sets`` are its nodes, ``place`` its file and line.

    The nodes of set ``i`` are ``set_nodes[set_offsets[i]:set_offsets[i + 1]]``; without names, ``count`` is the number.
    If GPUs or cores are counted, ``set_units`` is the number held of each node, or if negative
    a slot: -1 is the first. ``queue`` is an index in ``queue_names``, or -1 for an unknown partition.
    """

    start: NDArray[np.float64]
    end: NDArray[np.float64]
    sets: NDArray[np.int32]
    job: NDArray[np.int64]
    place: NDArray[np.int64]
    count: NDArray[np.int32]
    set_offsets: NDArray[np.int64]
    set_nodes: NDArray[np.int32]
    set_units: NDArray[np.int32]
    queue: NDArray[np.int32]
    queue_names: tuple[str, ...] = field(default=(), kw_only=True)

    @property
    def sizes(self) -> NDArray[np.int64]:
        """The number of nodes of each job."""
        return np.diff(self.set_offsets)[self.sets]

    def set_keys(self) -> NDArray[np.uint64]:
        """Return a number for each job that is equal for equal nodes, or for equal counts if no nodes are named.

        A set may have been added twice, by two files or in another order. Each node has a pseudo-random number;
        the numbers of a set are added, so that their order does not matter.
        """
        # Hash numbers to 64 bits (the last steps of SplitMix64)
        members = self.set_nodes.astype(np.uint64)
        if self.set_units.size:
            members += self.set_units.astype(np.int64).astype(np.uint64) << np.uint64(32)
        mixed = (members + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed = mixed ^ (mixed >> np.uint64(31))
        sums = np.concatenate((np.zeros(1, dtype=np.uint64), np.cumsum(mixed, dtype=np.uint64)))
        keys = np.append(np.diff(sums[self.set_offsets]), np.uint64(0))  # the last is for jobs without a set
        nameless = self.sets < 0
        return np.where(nameless, self.count.astype(np.uint64), keys[self.sets])


class JobStays:
    """Collects stays. A node set is stored once, and each job refers to it by number."""

    def __init__(self) -> None:
        self._start = array("d")
        self._end = array("d")
        self._sets = array("i")
        self._job = array("q")
        self._place = array("q")
        self._count = array("i")
        self._set_offsets = array("q", [0])
        self._set_nodes = array("i")
        self._set_units = array("i")
        self._queue = array("i")
        self._queues: dict[str, int] = {}
        self._pairs = 0
        self._outside_job = array("q")
        self._outside_start = array("d")

    def __len__(self) -> int:
        return len(self._start)

    def keys(self) -> set[tuple[int, float, float]]:
        """Return key, start and end of every job, to recognise a job contained in two files."""
        return set(zip(self._job, self._start, self._end, strict=True))

    def add_outside(self, job: str, start_s: float) -> None:
        """Record that a job ended outside the window; another row may list it as running."""
        self._outside_job.append(hash(job))
        self._outside_start.append(start_s)

    def outside(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return name hash and start of jobs that ended outside the window."""
        return np.array(self._outside_job, dtype=np.int64), np.array(self._outside_start, dtype=np.float64)

    def add_set(self, nodes: Sequence[int], units: Sequence[int] = ()) -> int:
        """Add a set of nodes and return its number; ``units`` are the number held of each, if counted."""
        self._set_nodes.extend(nodes)
        self._set_units.extend(units)
        self._set_offsets.append(len(self._set_nodes))
        return len(self._set_offsets) - 2

    def rename_nodes(self, places: Sequence[int]) -> None:
        """Replace the node at each index by the one in ``places``."""
        self._set_nodes = array(
            "i", np.array(places, dtype=np.int32)[np.array(self._set_nodes, dtype=np.int64)].tolist()
        )

    def queue_number(self, queue: str) -> int:
        """Return the number of a partition, assigned at its first use; -1 for none."""
        return self._queues.setdefault(queue, len(self._queues)) if queue else -1

    def add(
        self, *, start_s: float, end_s: float, node_set: int, count: int, job: str, place: int, queue: str = ""
    ) -> None:
        """Add a job; ``end_s`` is infinite while it runs."""
        self._pairs += count if node_set >= 0 else 1  # a job without node names takes memory once
        self._check_pairs()
        self._start.append(start_s)
        self._end.append(end_s)
        self._sets.append(node_set)
        self._count.append(count)
        self._job.append(key_of(job))
        self._place.append(place)
        self._queue.append(self.queue_number(queue))

    def add_many(
        self,
        *,
        start: NDArray[np.float64],
        end: NDArray[np.float64],
        sets: NDArray[np.int32],
        count: NDArray[np.int32],
        job: NDArray[np.int64],
        place: NDArray[np.int64],
        queue: NDArray[np.int32],
    ) -> None:
        """Add jobs as columns; jobs without a node set have -1, and take the memory of one pair each."""
        self._pairs += int(np.where(sets >= 0, count, 1).sum())
        self._check_pairs()
        for times, seconds in ((self._start, start), (self._end, end)):
            times.frombytes(seconds.tobytes())
        small = ((self._sets, sets), (self._count, count), (self._queue, queue))
        for numbers, more in (*small, (self._job, job), (self._place, place)):
            numbers.frombytes(more.tobytes())

    def _check_pairs(self) -> None:
        if self._pairs > MOST_PAIRS:
            raise BadInput(
                f"more than {MOST_PAIRS:,} pairs of a job and a node",
                fix="import it in parts: --window A..B reads only what falls into a part of the time",
            )

    def columns(self) -> StayColumns:
        """Return all stays without a copy; nothing can be added afterwards."""
        columns: tuple[array[Any], ...] = (self._start, self._end, self._sets, self._job, self._place, self._count)
        columns = (*columns, self._set_offsets, self._set_nodes, self._set_units, self._queue)
        return StayColumns(*map(_shared, columns), queue_names=tuple(self._queues))


def _shared(column: array[Any]) -> NDArray[Any]:
    return np.frombuffer(column, dtype=column.typecode) if column else np.array(column)


# A hash of a job's name, to save memory; times and nodes resolve collisions
key_of: Final[Callable[[str], int]] = hash


def place_of(file: int, line: int) -> int:
    """Combine the number of a file and a line in it into one number."""
    return file << _LINE_BITS | line


def file_and_line(place: int) -> tuple[int, int]:
    """Split the place of a job into the number of its file and its line."""
    return place >> _LINE_BITS, place & ((1 << _LINE_BITS) - 1)


def files_of(places: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the file numbers of these places."""
    return places >> _LINE_BITS
