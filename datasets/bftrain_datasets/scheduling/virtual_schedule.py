"""The virtual fair schedule with its history: when each level was reached, and who was active when."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import numpy as np

from bftrain.deciding import ostrich_schedule

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import ArrayLike, NDArray


class UserVirtualSchedule(ostrich_schedule.VirtualSchedule[int]):
    """Users and campaigns are numbers, all known from the begin; none is forgotten."""

    tag: array[float]  # in one piece of memory: all of them are put in order, again and again

    def __init__(self, shares: Sequence[float], campaigns: int) -> None:
        super().__init__(dict(enumerate(shares)))
        self.tag = array("d", bytes(8 * campaigns))
        self._times_s, self._levels = array("d", [0.0]), array("d", [0.0])
        self._share_times_s, self._share_sums = array("d", [0.0]), array("d", [0.0])

    def advance(self, to_s: float, busy: int) -> None:
        """Let time pass in which ``busy`` nodes were in use; one counts at least, so that all campaigns end."""
        super().advance(to_s, max(busy, 1))

    def times_of(self, levels: ArrayLike) -> NDArray[np.float64]:
        """Give when these levels were reached; NaN for those that were not."""
        wanted = np.asarray(levels, dtype=np.float64)
        reached, times_s = np.asarray(self._levels), np.asarray(self._times_s)
        after = np.minimum(np.searchsorted(reached, wanted), reached.size - 1)  # the level stands still at times
        before = np.maximum(after - 1, 0)
        rise = reached[after] - reached[before]
        part = np.divide(wanted - reached[before], rise, out=np.ones_like(wanted), where=rise > 0)
        found: NDArray[np.float64] = times_s[before] + part * (times_s[after] - times_s[before])
        return np.where(wanted > reached[-1], np.nan, found)

    def most_shares(self, begins_s: ArrayLike, ends_s: ArrayLike) -> NDArray[np.float64]:
        """Give the largest sum of the shares of all active users between these times."""
        return _largest_between(
            np.asarray(self._share_times_s),
            np.asarray(self._share_sums),
            np.asarray(begins_s, dtype=np.float64),
            np.asarray(ends_s, dtype=np.float64),
        )

    def _forget(self, campaigns: Iterable[int]) -> None:
        """Keep them: figures are drawn from their ends."""

    def _forget_if_at_rest(self, user: int, known: ostrich_schedule.UserAccount) -> None:
        """Keep the user, who may come back."""

    def _note_level(self) -> None:
        self._times_s.append(self.now_s)
        self._levels.append(self.level)

    def _note_shares(self) -> None:
        self._share_times_s.append(self.now_s)
        self._share_sums.append(self.active_shares)


def _largest_between(
    times: NDArray[np.float64], values: NDArray[np.float64], begins: NDArray[np.float64], ends: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Give the largest of the values that hold from each begin to its end; ``values[i]`` holds from ``times[i]`` on.

    Row ``k`` of the table has the largest of ``2 ** k`` values from each place on; two of them cover any range.
    """
    first = np.maximum(np.searchsorted(times, begins, side="right") - 1, 0)
    last = np.maximum(np.searchsorted(times, ends, side="right") - 1, first)
    rows = [values]
    while 2 * (width := 1 << (len(rows) - 1)) <= values.size:
        rows.append(np.maximum(rows[-1][:-width], rows[-1][width:]))
    row = np.frexp((last - first + 1).astype(np.float64))[1] - 1
    largest = np.empty(first.size)
    for number in np.unique(row).tolist():
        here = row == number
        table = rows[number]
        largest[here] = np.maximum(table[first[here]], table[last[here] + 1 - (1 << number)])
    return largest
