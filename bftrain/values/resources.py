"""ResourceSpeeds: the speed of a task by CPU cores and memory per node."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import numpy as np

from bftrain.values import checks


class ResourceSpeeds(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, cache_hash=True):
    """Fractions of the speed in a task's curve, by the host resources per node or GPU.

    ``speed`` has a row for each number of ``cpus``, with a value for each ``memory_gb``. If either list is missing,
    the speed does not depend on that resource, and ``speed`` has one row, or rows of one value. Between the points it
    is linear in both, below the first proportional, beyond the last constant.
    """

    cpus: tuple[float, ...] = ()
    memory_gb: tuple[float, ...] = ()
    speed: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        for name in ("cpus", "memory_gb"):
            amounts = checks.numbers(self, name)
            if amounts and amounts[0] <= 0.0:
                checks.reject(self, name, f"starts at {amounts[0]:g}, and must be above 0")
            if any(after <= before for before, after in pairwise(amounts)):
                checks.reject(self, name, "must rise strictly", "sort the amounts and drop repeated ones")
        if not self.cpus and not self.memory_gb:
            checks.reject(self, "cpus", "and memory_gb are both missing", "give one or both")
        speed = checks.rows(self, "speed")
        fix = "give a row for each of cpus, with a value for each of memory_gb; a single one for a missing list"
        if len(speed) != max(1, len(self.cpus)):
            checks.reject(self, "speed", f"has {len(speed)} rows for {len(self.cpus)} numbers of cpus", fix)
        for row in speed:
            if len(row) != max(1, len(self.memory_gb)):
                checks.reject(self, "speed", f"has {len(row)} values in a row for {len(self.memory_gb)} memory_gb", fix)
        if min(map(min, speed)) <= 0.0:
            checks.reject(self, "speed", f"must be above 0, not {min(map(min, speed)):g}")

    def part(self, cpus: float, memory_gb: float) -> float:
        """Return the fraction of the speed with these CPU cores and this memory per node."""
        rows = [_between(memory_gb, self.memory_gb, row) for row in self.speed]
        return _between(cpus, self.cpus, rows)


def _between(amount: float, amounts: tuple[float, ...], values: tuple[float, ...] | list[float]) -> float:
    return float(np.interp(amount, (0.0, *amounts), (0.0, *values))) if amounts else values[0]
