"""SpeedCurve: how fast a task runs on how many nodes."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from bftrain.values import checks

if TYPE_CHECKING:
    from numpy.typing import NDArray


class SpeedCurve(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, cache_hash=True):
    """Speed in samples/s as a function of size, from measured points.

    Between points the curve is linear; size 0 has speed 0 and belongs to every curve, so below the first point
    the speed is proportional to the size. Beyond the last point nothing was measured: the speed stays flat there.
    Curves need be neither concave nor monotone; a rate of 0 says that the task does not run at that size.
    """

    nodes: tuple[int, ...]
    rate: tuple[float, ...]

    def __post_init__(self) -> None:
        """Check the points: sizes rise strictly from at least 1, rates are not negative."""
        nodes = checks.integers(self, "nodes")
        rate = checks.numbers(self, "rate")
        if not nodes:
            checks.reject(self, "nodes", "has no point", "give at least one measured size")
        if len(rate) != len(nodes):
            checks.reject(self, "rate", f"has {len(rate)} values for {len(nodes)} sizes")
        if nodes[0] < 1:
            checks.reject(self, "nodes", f"starts at {nodes[0]}, but the smallest size is 1")
        if any(b <= a for a, b in pairwise(nodes)):
            checks.reject(self, "nodes", "must rise strictly", "sort the points and drop repeated sizes")
        if min(rate) < 0:
            checks.reject(self, "rate", f"has the negative speed {min(rate):g}")

    @property
    def last_measured(self) -> int:
        """The largest size with a measured speed."""
        return self.nodes[-1]

    def speed(self, size: float) -> float:
        """Speed in samples/s at ``size`` nodes; between whole sizes it stands for having now the one, now the other."""
        return float(np.interp(size, (0, *self.nodes), (0.0, *self.rate)))

    def speeds(self, largest: int) -> NDArray[np.float64]:
        """Speeds at sizes 0, 1, ..., ``largest``."""
        return np.interp(np.arange(largest + 1), (0, *self.nodes), (0.0, *self.rate))

    def note(self, largest: int) -> str:
        """Say that sizes up to ``largest`` go beyond what was measured; nothing if they do not."""
        last = self.last_measured
        return f"nothing measured beyond {last} nodes, taken as flat there" if last < largest else ""
