"""JobStays: which job held which nodes from when to when, in columns; many millions of them fit into memory."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bftrain.errors import BadInput

MOST_PAIRS: Final = 1 << 27  # of a job and a node it held; half a gigabyte of memory
_LINE_BITS: Final = 40


@dataclass(frozen=True, slots=True)
class StayColumns:
    """One row a job. ``end`` is infinite while it runs, ``sets`` tells its nodes, ``place`` its file and line.

    The nodes of set ``i`` are ``set_nodes[set_offsets[i]:set_offsets[i + 1]]``; without names, ``count`` says how many.
    Where GPUs or cores are counted, ``set_units`` tells for each of these how many of the node's, or if it is negative
    which one: -1 is the first. ``queue`` is a place in ``queue_names``, or -1 where the partition is not known.
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
        """How many nodes each job holds."""
        return np.diff(self.set_offsets)[self.sets]

    def set_keys(self) -> NDArray[np.uint64]:
        """Give a number for each job that is the same for the same nodes, or where none are named the same count.

        A set may have been added twice, by two files or in another order. Each node has a number that looks random;
        those of a set are added, so that their order does not matter.
        """
        # Scatter numbers over all of 64 bits (the last steps of SplitMix64)
        members = self.set_nodes.astype(np.uint64)
        if self.set_units.size:
            members += self.set_units.astype(np.int64).astype(np.uint64) << np.uint64(32)
        mixed = (members + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed = mixed ^ (mixed >> np.uint64(31))
        sums = np.concatenate((np.zeros(1, dtype=np.uint64), np.cumsum(mixed, dtype=np.uint64)))
        keys = np.append(np.diff(sums[self.set_offsets]), np.uint64(0))  # the last is for those without a set
        nameless = self.sets < 0
        return np.where(nameless, self.count.astype(np.uint64), keys[self.sets])


class JobStays:
    """Collects them. A node set is kept once, and each job that held it has its number."""

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
        """Return key, start and end of every job, to recognise one that two files contain."""
        return set(zip(self._job, self._start, self._end, strict=True))

    def add_outside(self, job: str, start_s: float) -> None:
        """Say that a job ended outside the window; another row may tell of it when it still ran."""
        self._outside_job.append(hash(job))
        self._outside_start.append(start_s)

    def outside(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Give hash of the name and start of jobs that ended outside the window."""
        return np.array(self._outside_job, dtype=np.int64), np.array(self._outside_start, dtype=np.float64)

    def add_set(self, nodes: Sequence[int], units: Sequence[int] = ()) -> int:
        """Give a set of nodes its number; ``units`` are what is held of each, where that is counted."""
        self._set_nodes.extend(nodes)
        self._set_units.extend(units)
        self._set_offsets.append(len(self._set_nodes))
        return len(self._set_offsets) - 2

    def rename_nodes(self, places: Sequence[int]) -> None:
        """Give the node at each place the new one in ``places``."""
        self._set_nodes = array(
            "i", np.array(places, dtype=np.int32)[np.array(self._set_nodes, dtype=np.int64)].tolist()
        )

    def queue_number(self, queue: str) -> int:
        """Return the number of a partition, which it gets at its first use; -1 for none."""
        return self._queues.setdefault(queue, len(self._queues)) if queue else -1

    def add(
        self, *, start_s: float, end_s: float, node_set: int, count: int, job: str, place: int, queue: str = ""
    ) -> None:
        """Add a job; ``end_s`` is infinite while it runs."""
        self._pairs += count if node_set >= 0 else 1  # a job without names takes memory once
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
        """Add jobs as columns; those without a node set have -1, and memory for one pair each."""
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
        """Give all that was added, without a copy: nothing can be added any more."""
        columns: tuple[array[Any], ...] = (self._start, self._end, self._sets, self._job, self._place, self._count)
        columns = (*columns, self._set_offsets, self._set_nodes, self._set_units, self._queue)
        return StayColumns(*map(_shared, columns), queue_names=tuple(self._queues))


def _shared(column: array[Any]) -> NDArray[Any]:
    return np.frombuffer(column, dtype=column.typecode) if column else np.array(column)


def key_of(job: str) -> int:
    """Give a number for a job's name, which takes less memory; its times or nodes tell it from others with the same."""
    return hash(job)


def place_of(file: int, line: int) -> int:
    """Put the number of a file, and a line in it, into one number."""
    return file << _LINE_BITS | line


def file_and_line(place: int) -> tuple[int, int]:
    """Split the place of a job into the number of its file and its line."""
    return place >> _LINE_BITS, place & ((1 << _LINE_BITS) - 1)


def files_of(places: NDArray[np.int64]) -> NDArray[np.int64]:
    """Give the numbers of the files in which these places are."""
    return places >> _LINE_BITS
