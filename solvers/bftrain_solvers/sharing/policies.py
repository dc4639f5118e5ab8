"""The policies: what is made best. docs/policies.md has their formulas."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from bftrain.errors import BadInput
from bftrain.values.sharing import Entity, Inside
from bftrain_solvers.sharing.arrays import ShareColumns
from bftrain_solvers.sharing.filling import fill
from bftrain_solvers.sharing.rising import ProgramNotSolved, rise
from bftrain_solvers.sharing.sums import largest_sum, largest_sum_of_logs
from bftrain_solvers.sharing.ways import ShareDemands

if TYPE_CHECKING:
    from collections.abc import Callable

    from bftrain.values.sharing import Shares, SharingProblem
    from bftrain_solvers.sharing.rising import Floats, Mask

_CLOSE: Final = 1e-10  # relative: how near the search for the smallest unfairness comes
_MOST_STEPS: Final = 100
_LEVEL_IS: Final = "speed of the slowest, as a multiple of its weight and of its speed on a part of every kind"


class SharingRule:
    """A policy by its name; ``choose`` gives shares and what they are worth.

    ``needs_work`` says that it divides by the work left.
    """

    def __init__(
        self,
        name: str,
        value_is: str,
        choose: Callable[[ShareColumns], tuple[Floats, float]],
        *,
        needs_work: bool = False,
    ) -> None:
        self.name = name
        self.needs_work = needs_work
        self.value_is = value_is
        self._choose = choose

    def share(self, problem: SharingProblem) -> Shares:
        """Divide the time of all nodes."""
        columns = ShareColumns.of(problem)
        if not problem.tasks:
            return columns.answer(self.name, np.zeros((0, len(columns.kinds))), 0.0, self.value_is)
        try:
            shares, value = self._choose(columns)
        except ProgramNotSolved as error:
            raise BadInput(f"was not solved: {error}", where=f"policy '{self.name}'") from error
        return columns.answer(self.name, shares, float(value), self.value_is)


def _max_min(columns: ShareColumns) -> tuple[Floats, float]:
    rate = _weighty(columns) * columns.fair
    risen = rise(columns.market, np.zeros(len(rate)), rate)
    return risen.shares, risen.height


def _blind(columns: ShareColumns) -> tuple[Floats, float]:
    """As max-min, without knowing that kinds differ: only time counts."""
    market = columns.market
    alike = ShareDemands(np.where(market.speeds > 0.0, 1.0, 0.0), market.nodes, market.counts)
    return _max_min(replace(columns, market=alike))


def _water_filling(columns: ShareColumns) -> tuple[Floats, float]:
    rate = columns.weights * columns.fair
    shares = fill(columns.market, lambda rising: np.where(rising, rate, 0.0))
    return shares, _slowest(columns, shares)


def _hierarchical(columns: ShareColumns) -> tuple[Floats, float]:
    owners = [task.entity for task in columns.problem.tasks]
    names = list(dict.fromkeys(owners))
    entities = [columns.problem.entities.get(name, Entity()) for name in names]
    owner = np.array([names.index(name) for name in owners])
    fair = columns.fair

    def rates(rising: Mask) -> Floats:
        part = np.zeros(len(owner))
        for place, entity in enumerate(entities):
            own = np.flatnonzero(rising & (owner == place) & (columns.weights > 0.0))
            if entity.inside is Inside.FIFO:
                own = own[:1]
            part[own] = entity.weight * columns.weights[own] / columns.weights[own].sum()
        return part * fair

    shares = fill(columns.market, rates)
    got = np.bincount(owner, columns.speeds(shares) / fair, len(names))
    return shares, float((got / [entity.weight for entity in entities]).min())


def _slowest(columns: ShareColumns, shares: Floats) -> float:
    """Give the level of the slowest, of those that have a weight."""
    counted = columns.weights > 0.0
    levels = (columns.speeds(shares) / columns.fair)[counted] / columns.weights[counted]
    return float(levels.min()) if levels.size else 0.0


def _makespan(columns: ShareColumns) -> tuple[Floats, float]:
    work = _work(columns)
    risen = rise(columns.market, np.zeros(len(work)), work)
    return risen.shares, 1.0 / risen.height


def _finish_time(columns: ShareColumns) -> tuple[Floats, float]:
    """Newton on the unfairness: from shares that reach it, raise all in its proportion and look what it came to."""
    work = _work(columns)
    age = np.array([task.age_s for task in columns.problem.tasks])
    alone_s = np.array([task.alone_s for task in columns.problem.tasks]) + work / columns.speeds(columns.alone)
    shares, hint = columns.alone, None

    def unfairness(shares: Floats) -> float:
        return float(((age + work / columns.speeds(shares)) / alone_s).max())

    worst = unfairness(shares)
    for _ in range(_MOST_STEPS):
        risen = rise(columns.market, np.zeros(len(work)), work / (worst * alone_s - age), hint)
        shares, hint, before = risen.shares, risen.hint, worst
        worst = min(before, unfairness(shares))
        if before - worst <= _CLOSE * before:
            break
    return shares, worst


def _isolated(columns: ShareColumns) -> tuple[Floats, float]:
    return columns.alone, _slowest(columns, columns.alone)


def _throughput(columns: ShareColumns) -> tuple[Floats, float]:
    return largest_sum(columns.market, columns.weights[:, None] * columns.market.speeds)


def _cost(columns: ShareColumns) -> tuple[Floats, float]:
    given = columns.problem.prices
    prices = np.array([given.get(kind, 1.0) for kind in columns.kinds])
    return largest_sum(columns.market, columns.weights[:, None] * columns.market.speeds / prices)


def _proportional(columns: ShareColumns) -> tuple[Floats, float]:
    shares = largest_sum_of_logs(columns.market, _weighty(columns))
    counted = columns.weights > 0.0
    levels = (columns.speeds(shares) / columns.fair)[counted]
    return shares, float(columns.weights[counted] @ np.log(levels))


def _weighty(columns: ShareColumns) -> Floats:
    if not columns.weights.any():
        raise BadInput("no task has a weight", where="tasks", fix="give one a weight above 0")
    return columns.weights


def _work(columns: ShareColumns) -> Floats:
    work = []
    for task in columns.problem.tasks:
        if task.work_left_samples is None:
            where, fix = f"task '{task.name}'", "say work_left_samples, or choose a policy that asks for none"
            raise BadInput("how much work is left is not said", where=where, fix=fix)
        work.append(task.work_left_samples)
    return np.array(work)


max_min: Final = SharingRule("max-min", _LEVEL_IS, _max_min)
max_min_blind: Final = SharingRule(
    "max-min-blind", "share of time of the one that has least, by node and weight", _blind
)
water_filling: Final = SharingRule("water-filling", _LEVEL_IS, _water_filling)
hierarchical: Final = SharingRule("hierarchical", "what the entity that got least got, by weight", _hierarchical)
makespan: Final = SharingRule("makespan", "seconds until all are done", _makespan, needs_work=True)
finish_time: Final = SharingRule(
    "finish-time", "the largest rho: time to the end, over that on an own n-th part", _finish_time, needs_work=True
)
throughput: Final = SharingRule("throughput", "samples/s of all, by weight", _throughput)
cost: Final = SharingRule("cost", "samples/s of all, by weight, over the price of the nodes they come from", _cost)
proportional: Final = SharingRule(
    "proportional", "sum of the logarithms of speeds on a part of every kind, by weight", _proportional
)
isolated: Final = SharingRule("isolated", _LEVEL_IS, _isolated)
