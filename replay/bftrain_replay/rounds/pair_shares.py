"""Pairs of tasks that have a share of time on the same nodes, in columns, and the time that they received."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bftrain.values.sharing import PairSpeeds
from bftrain_replay.rounds.round_inputs import CompetingTasks, Floats, Places, TaskProgressColumns


class PairWish(NamedTuple):
    """Two tasks, by number, would share the nodes of one gang of a kind, at these speeds."""

    priority: float
    one: int
    other: int
    kind: int
    speeds: tuple[float, float]


class PairWishes(NamedTuple):
    """Wishes in columns; ``speeds`` has one row for each wish."""

    priority: Floats
    one: Places
    other: Places
    kind: Places
    speeds: Floats

    @classmethod
    def of(cls, wishes: Sequence[PairWish]) -> PairWishes:
        """Return these wishes in columns."""
        priority, one, other, kind, speeds = zip(*wishes, strict=True)
        places = (np.array(column, dtype=np.intp) for column in (one, other, kind))
        return cls(np.array(priority, dtype=np.float64), *places, np.array(speeds, dtype=np.float64))


class PairModels(NamedTuple):
    """The model of each task, by number, and the speeds of two models by kind; 0 where they do not share nodes."""

    model: Places
    speeds: Floats

    @classmethod
    def of(cls, models: Sequence[str], nodes: Places, pairs: Sequence[PairSpeeds], kinds: Sequence[str]) -> PairModels:
        """Number the models; tasks of one model and another gang are another model."""
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
    """The shares of pairs of tasks, by place; the smaller place is first. All columns have one row for each pair."""

    def __init__(self, tasks: int, kinds: int) -> None:
        self._tasks = tasks
        self._one = self._other = self._key = np.zeros(0, dtype=np.intp)
        self._shares, self._speeds = np.zeros((0, kinds)), np.zeros((0, kinds, 2))
        self._received_s, self._deficit_s = np.zeros((2, 0, kinds))
        self._total_s: dict[tuple[int, int], Floats] = {}  # all time received together, when it was read last
        self._before_s: dict[tuple[int, int], Floats] = {}  # the same before tasks came or went last

    def replace(self, one: Places, other: Places, shares: Floats, speeds: Floats, here: Places) -> None:
        """Replace all shares. Pairs keep their deficits if both tasks were ``here``."""
        order = np.argsort(one * self._tasks + other, kind="stable")
        key, deficit_s = (one * self._tasks + other)[order], np.zeros_like(shares)
        old = np.isin(self._key, key) & np.isin(self._one, here) & np.isin(self._other, here)
        deficit_s[np.searchsorted(key, self._key[old])] = self._deficit_s[old]
        self._one, self._other, self._key = one[order], other[order], key
        self._shares, self._speeds, self._deficit_s = shares[order], speeds[order], deficit_s
        self._received_s = np.zeros_like(shares)
        for pair in self._before_s:
            self._set_received(pair)

    def forget_received(self) -> None:
        """Begin to count received time again."""
        self._before_s.clear()

    def count_received(self, progress: TaskProgressColumns, here: Places) -> None:
        """Read the time of pairs that ran in the previous round."""
        if not progress.pair_s:
            return
        for one in here[progress.partner[here] > here].tolist():
            pair = one, int(progress.partner[one])
            if pair in progress.pair_s:
                self._before_s.setdefault(pair, self._total_s.get(pair, np.zeros(self._shares.shape[1])))
                self._total_s[pair] = progress.pair_s[pair].copy()
                self._set_received(pair)

    def count_deficits(self, passed_s: float) -> None:
        """Add what the shares promised in this time, and subtract the time received."""
        self._deficit_s += self._shares * passed_s - self._received_s

    def _set_received(self, pair: tuple[int, int]) -> None:
        row = int(np.searchsorted(self._key, pair[0] * self._tasks + pair[1]))
        if row < self._key.size and (self._one[row], self._other[row]) == pair:
            self._received_s[row] = self._total_s[pair] - self._before_s[pair]

    def wishes(self, contenders: CompetingTasks, deficit_weight: float) -> PairWishes:
        """Return a wish for each present pair and kind with a share: share over time received."""
        if not self._key.size:
            return PairWishes(np.zeros(0), self._key, self._key, self._key, self._speeds[:, 0])
        number = np.full(self._tasks, -1)
        number[contenders.place] = np.arange(len(contenders))
        here = (number[self._one] >= 0) & (number[self._other] >= 0)
        row, kind = np.nonzero((self._shares > 0.0) & here[:, None])
        priority = self._shares[row, kind] / (self._received_s[row, kind] + contenders.round_s / 2.0)
        priority *= 1.0 + deficit_weight * self._deficit_s[row, kind]
        return PairWishes(priority, number[self._one[row]], number[self._other[row]], kind, self._speeds[row, kind])
