"""Pairs of tasks that have a share of time on the same nodes, in columns, and the time that they received."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bftrain.values.sharing import PairSpeeds
from bftrain_replay.rounds.round_inputs import CompetingTasks, Floats, Ints, PairTimes, TaskProgressColumns


class PairWish(NamedTuple):
    """A wish of two tasks, by number, to share the nodes of one gang of a kind, at these speeds."""

    priority: float
    one: int
    other: int
    kind: int
    speeds: tuple[float, float]


class PairWishes(NamedTuple):
    """Wishes in columns; ``speeds`` has one row for each wish."""

    priority: Floats
    one: Ints
    other: Ints
    kind: Ints
    speeds: Floats

    @classmethod
    def of(cls, wishes: Sequence[PairWish]) -> PairWishes:
        """Return the wishes of pairs that can run, in columns."""
        wishes = [wish for wish in wishes if min(wish.speeds) > 0.0]
        one, other, kind = (np.array([wish[place] for wish in wishes], dtype=np.intp) for place in (1, 2, 3))
        speeds = np.array([wish.speeds for wish in wishes], dtype=np.float64).reshape(-1, 2)
        return cls(np.array([wish.priority for wish in wishes], dtype=np.float64), one, other, kind, speeds)


_NO_WISHES: Final = PairWishes.of(())


class PairModels(NamedTuple):
    """Each task's model number, and the speeds of two models by kind; 0 if they cannot share nodes."""

    model: Ints
    speeds: Floats

    @classmethod
    def of(cls, models: Sequence[str], nodes: Ints, pairs: Sequence[PairSpeeds], kinds: Sequence[str]) -> PairModels:
        """Number the models; tasks of one model with different gangs count as different models."""
        gangs = list(zip(models, nodes.tolist(), strict=True))
        number = {gang: place for place, gang in enumerate(dict.fromkeys(gangs))}
        speeds = np.zeros((len(number), len(number), len(kinds), 2))
        for pair in pairs:
            one, other = (number.get((model, pair.nodes)) for model in pair.models)
            if one is not None and other is not None:
                both = [pair.speeds.get(kind, (0.0, 0.0)) for kind in kinds]
                speeds[other, one], speeds[one, other] = [two[::-1] for two in both], both
        return cls(np.array([number[gang] for gang in gangs], dtype=np.intp), speeds)


class PairShares:
    """The shares of pairs of tasks, by place; the smaller place is first. Columns have a row for each pair and kind."""

    def __init__(self, tasks: int, kinds: int) -> None:
        self._tasks, self._kinds = tasks, kinds
        self._one = self._other = self._kind = self._key = np.zeros(0, dtype=np.intp)
        self._shares = self._received_s = self._deficit_s = np.zeros(0)
        self._speeds = np.zeros((0, 2))
        self._time_row = self._one  # row of the pair in the joint times; -1: the pair never ran

    @property
    def columns(self) -> dict[str, NDArray[Any]]:
        """The columns for compiled code, which changes the received times and the rows of joint times."""
        whole = {"row_one": self._one, "row_other": self._other, "row_kind": self._kind, "row_pair": self._time_row}
        numbers = {"row_shares": self._shares, "row_received_s": self._received_s, "row_deficit_s": self._deficit_s}
        return {**whole, **numbers, "row_speeds": self._speeds}

    def replace(self, places: Ints, shares: Floats, speeds: Floats, here: Ints, times: PairTimes) -> None:
        """Replace all shares, by pair and kind. Pairs keep their deficits if both tasks were ``here``."""
        row, kind = map(np.ascontiguousarray, np.nonzero((shares > 0.0) & (speeds > 0.0).all(axis=2)))
        one, other = np.ascontiguousarray(places[row].T)
        key = (one * self._tasks + other) * self._kinds + kind
        shares, speeds = shares[row, kind], np.ascontiguousarray(speeds[row, kind])
        if (key[1:] < key[:-1]).any():
            order = np.argsort(key, kind="stable")
            one, other, kind, key = one[order], other[order], kind[order], key[order]
            shares, speeds = shares[order], speeds[order]
        present, deficit_s = np.zeros(self._tasks, dtype=bool), np.zeros(key.size)
        present[here] = True
        old = np.flatnonzero(present[self._one] & present[self._other]) if key.size else np.zeros(0, dtype=np.intp)
        place = np.searchsorted(key, self._key[old])
        same = key[np.minimum(place, key.size - 1)] == self._key[old]
        deficit_s[place[same]] = self._deficit_s[old[same]]
        self._one, self._other, self._kind, self._key = one, other, kind, key
        self._shares, self._speeds, self._deficit_s = shares, speeds, deficit_s
        self._received_s, self._time_row = np.zeros(key.size), np.full(key.size, -1)
        ran = times.tasks[: times.count]
        time_row = np.flatnonzero(present[ran].all(axis=1))
        pair = (ran[time_row, 0] * self._tasks + ran[time_row, 1]) * self._kinds
        first, after = np.searchsorted(key, pair), np.searchsorted(key, pair + self._kinds)
        for offset in range(self._kinds):
            there = first + offset < after
            self._time_row[first[there] + offset] = time_row[there]
        rows = np.flatnonzero(self._time_row >= 0)
        rows = rows[times.counted[self._time_row[rows]] > 0]
        cells = self._time_row[rows], kind[rows]
        self._received_s[rows] = times.read_s[cells] - times.before_s[cells]

    def count_received(self, progress: TaskProgressColumns, here: Ints) -> None:
        """Read the time of pairs that ran in the previous round."""
        times = progress.pairs
        if not times.count:
            return
        for one in here[progress.partner[here] > here].tolist():
            other = int(progress.partner[one])
            if (row := times.row(one, other)) >= 0:
                if not times.counted[row]:
                    times.counted[row], times.before_s[row] = 1, times.read_s[row]
                times.read_s[row] = times.joint_s[row]
                first = (one * self._tasks + other) * self._kinds
                rows = slice(*np.searchsorted(self._key, (first, first + self._kinds)).tolist())
                self._received_s[rows] = (times.read_s[row] - times.before_s[row])[self._kind[rows]]

    def count_deficits(self, passed_s: float) -> None:
        """Add the time promised by the shares in this period, and subtract the time received."""
        self._deficit_s += self._shares * passed_s - self._received_s

    def wishes(self, contenders: CompetingTasks, deficit_weight: float) -> PairWishes:
        """Return a wish for each current pair and kind with a share: share over time received."""
        if not self._key.size:
            return _NO_WISHES
        priority = self._shares / (self._received_s + contenders.round_s / 2.0)
        priority *= 1.0 + deficit_weight * self._deficit_s
        number = np.full(self._tasks, -1)
        number[contenders.place] = np.arange(len(contenders))
        one, other, kind, speeds = number[self._one], number[self._other], self._kind, self._speeds
        here = (one >= 0) & (other >= 0)
        if not here.all():
            priority, one, other, kind, speeds = priority[here], one[here], other[here], kind[here], speeds[here]
        return PairWishes(priority, one, other, kind, speeds)
