"""Priorities: a policy that divides time, carried out in rounds.

Each task has a target, its share of the time of every kind, which is computed when tasks or nodes have come or gone.
In every round those go first, on that kind, whose share is largest over the time that they have received since tasks
came or went.
"""

from __future__ import annotations

import math
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from bftrain.solving import shares_of
from bftrain.values.sharing import SharingProblem, SharingTask

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from bftrain.ports import SharingPolicy
    from bftrain.values.sharing import Entity
    from bftrain_replay.rounds.contenders import CompetingTasks, Floats


class ByShares:
    """Carries out a sharing policy. At least ``interval_s`` lie between two computations of the shares.

    Who comes between them waits for the next, which is due at ``due_s`` (infinity: not before tasks or nodes come or
    go). ``needs_work`` says that the policy divides by the work left.
    """

    steady = False

    def __init__(
        self,
        policy: SharingPolicy,
        interval_s: float,
        entities: Mapping[str, Entity],
        prices: Mapping[str, float],
    ) -> None:
        self.name = policy.name
        self.needs_work = bool(getattr(policy, "needs_work", False))
        self.due_s = math.inf
        self.computed = 0  # how often
        self.wall_s = 0.0
        self._policy = policy
        self._interval_s = interval_s
        self._entities, self._prices = dict(entities), dict(prices)
        self._version = -1
        self._reset_s = -math.inf
        self._shares: Floats = np.zeros((0, 0))
        self._last: NDArray[np.bool_] = np.zeros(0, dtype=bool)  # tasks that have only what no other can use
        self._service_s: Floats = np.zeros((0, 0))  # of all tasks, when tasks came or went last
        self._there: NDArray[np.intp] = np.zeros(0, dtype=np.intp)  # who was there then
        self._alone_s: Floats = np.zeros(0)
        self._alone_speed: Floats = np.zeros(0)  # since the last reset
        self._left: Floats = np.zeros(0)  # at the last reset

    def priorities(self, contenders: CompetingTasks) -> Floats:
        """Give a number by task and kind: share over time received; none where there is no share.

        Half a round counts as received from the beginning, so that shares themselves are what counts at first. Who
        has no weight, and so no share, comes behind all others; of those, who has received least goes first.
        """
        if contenders.version != self._version:
            self.due_s = self._reset_s + self._interval_s
            if contenders.time_s >= self.due_s:
                self._reset(contenders)
        share, last = self._shares[contenders.place], self._last[contenders.place]
        received = contenders.service_s - self._service_s[contenders.place] + contenders.round_s / 2.0
        wishes = np.where(share > 0.0, share / received, -np.inf)
        if last.any():
            able = contenders.speeds[last] > 0.0
            wishes[last] = np.where(able, -received[last].sum(axis=1, keepdims=True), -np.inf)
        return wishes

    def _reset(self, contenders: CompetingTasks) -> None:
        self._version, self._reset_s, self.due_s = contenders.version, contenders.time_s, math.inf
        if not self._left.size:
            self._left = contenders.gangs.work.copy()
            self._alone_s, self._alone_speed = np.zeros_like(self._left), np.zeros_like(self._left)
        self._count_alone(contenders)
        if not np.array_equal(contenders.place, self._there):
            # Where only nodes came or went, what was received still counts: on a log that may be so in every round
            self._service_s = contenders.progress.service_s.copy()
            self._there = contenders.place
        self._shares = np.zeros_like(contenders.progress.service_s)
        self._last = np.zeros(len(self._shares), dtype=bool)
        able = np.flatnonzero(self._can_run(contenders))
        problem = self._problem(contenders, able)
        if problem is None:
            return
        begun_s = perf_counter()
        found = shares_of(self._policy, problem)
        self.wall_s += perf_counter() - begun_s
        self.computed += 1
        kinds = _names(contenders)
        rows = [[found.shares[task.name].get(kind, 0.0) for kind in kinds] for task in problem.tasks]
        place = contenders.place[able]
        self._shares[place] = rows
        self._last[place] = (contenders.weight[able] == 0.0) & ~self._shares[place].any(axis=1)

    def _count_alone(self, contenders: CompetingTasks) -> None:
        """Count how long what was done since the last reset would have taken on an own n-th part of everything."""
        left, own = contenders.progress.left, contenders.place
        with np.errstate(divide="ignore", invalid="ignore"):
            took_s = (self._left - left) / self._alone_speed
        self._alone_s += np.where((self._alone_speed > 0.0) & np.isfinite(took_s), took_s, 0.0)
        self._left = left.copy()
        self._alone_speed = np.zeros_like(left)
        speeds, count = contenders.speeds, max(1, len(contenders))
        part = np.where(speeds > 0.0, contenders.free / contenders.nodes[:, None] / count, 0.0)
        part /= np.maximum(1.0, part.sum(axis=1, keepdims=True))
        self._alone_speed[own] = (speeds * part).sum(axis=1)

    def _can_run(self, contenders: CompetingTasks) -> Any:  # noqa: ANN401 - a mask
        fits = contenders.nodes[:, None] <= contenders.free
        return ((contenders.speeds > 0.0) & fits).any(axis=1)

    def _problem(self, contenders: CompetingTasks, able: Any) -> SharingProblem | None:  # noqa: ANN401 - places
        if not able.size:
            return None
        kinds, place, weight = _names(contenders), contenders.place[able], contenders.weight[able]
        if not weight.any():  # no other can use anything: all are equals
            weight = np.ones_like(weight)
        age_s = (contenders.time_s - contenders.submit_s[able]).tolist()
        left, alone_s = contenders.left_samples[able].tolist(), self._alone_s[place].tolist()
        tasks = []
        for number, row in enumerate(contenders.speeds[able].tolist()):
            spec = contenders.gangs.specs[place[number]]
            tasks.append(
                SharingTask(
                    name=spec.name,
                    speeds=dict(zip(kinds, row, strict=True)),
                    nodes=int(contenders.gangs.nodes[place[number]]),
                    weight=float(weight[number]),
                    entity=spec.user,
                    work_left_samples=left[number] if math.isfinite(left[number]) else None,
                    age_s=max(0.0, age_s[number]),
                    alone_s=alone_s[number],
                )
            )
        nodes = dict(zip(kinds, contenders.free.tolist(), strict=True))
        prices = {name: self._prices.get(kind, 1.0) for name, kind in zip(kinds, contenders.kinds, strict=True)}
        return SharingProblem(nodes=nodes, policy=self.name, tasks=tuple(tasks), entities=self._entities, prices=prices)


def _names(contenders: CompetingTasks) -> tuple[str, ...]:
    """Name the kinds; nodes that are all alike have no kind of their own."""
    return tuple(kind or "node" for kind in contenders.kinds)
