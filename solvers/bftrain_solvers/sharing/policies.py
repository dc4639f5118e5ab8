"""Sharing policies, each with its objective. docs/reference/policies.md has the formulas."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final

import msgspec
import numpy as np

from bftrain.errors import BadInput
from bftrain.values.sharing import Entity, Inside, Shares, SharingProblem, SharingTask
from bftrain_solvers.arrays import Floats, Mask
from bftrain_solvers.scaling import NumbersTooFarApart
from bftrain_solvers.sharing.filling import fill, with_spare_time
from bftrain_solvers.sharing.linear import LinearRows, maximise
from bftrain_solvers.sharing.rising import ProgramNotSolved, RaisedLevels, ShareDemands, rise
from bftrain_solvers.sharing.sum_of_logs import largest_sum_of_logs

_CLOSE: Final = 1e-10  # relative: precision of the search for the smallest unfairness
_MOST_STEPS: Final = 100  # steps of Newton's method
_FARTHEST: Final = 1e6  # ratio of two relative speeds: solvers overlook 1e-9 of the largest
_MISSING: Final = 1e-6  # relative: by how much a speed may miss its level
LEVEL_IS: Final = "speed of the slowest task, over its weight and its speed on an equal part of every kind"


@dataclass(frozen=True, slots=True)
class ShareColumns:
    """A problem as arrays. A kind with fewer nodes than a task cannot run it; a kind without nodes has no column."""

    problem: SharingProblem
    kinds: tuple[str, ...]
    market: ShareDemands
    weights: Floats
    notes: list[str] = field(default_factory=list)  # a policy's remarks on its answer

    def fill(self, rates: Callable[[Mask], Floats]) -> Floats:
        """Raise all tasks at these rates by :func:`fill`; return the shares."""
        shares, note = fill(self.market, rates)
        self.notes.extend(filter(None, [note]))
        return shares

    @classmethod
    def of(cls, problem: SharingProblem) -> ShareColumns:
        """Return the columns of a problem."""
        # In a log all nodes of a kind may be busy for a while
        kinds, tasks = tuple(kind for kind, count in problem.nodes.items() if count), problem.tasks
        counts = np.array([float(problem.nodes[kind]) for kind in kinds])
        nodes = np.array([float(task.nodes) for task in tasks])
        speeds = np.array([[task.speeds.get(kind, 0.0) for kind in kinds] for task in tasks]).reshape(
            len(tasks), len(kinds)
        )
        speeds[nodes[:, None] > counts] = 0.0
        weights = np.array([task.weight for task in tasks])
        return cls(problem=problem, kinds=kinds, market=ShareDemands(speeds, nodes, counts), weights=weights)

    @property
    def tasks(self) -> tuple[SharingTask, ...]:
        """The tasks themselves."""
        return self.problem.tasks

    def alike(self) -> ShareColumns:
        """Return the columns with a task's speed on the first kind wherever it runs."""
        speeds = self.market.speeds
        first = speeds[:, :1]
        alike = np.where((speeds > 0.0) & (first > 0.0), first, speeds)
        return replace(self, market=ShareDemands(alike, self.market.nodes, self.market.counts))

    @property
    def fair(self) -> Floats:
        """The reference for fairness: a task's mean speed over all nodes, per node that it needs."""
        market = self.market
        fair: Floats = (market.speeds @ market.counts) / market.counts.sum() / market.nodes
        return fair

    @property
    def alone(self) -> Floats:
        """The shares of each of n tasks on an n-th part of every kind."""
        market = self.market
        shares = np.where(market.speeds > 0.0, market.counts / market.nodes[:, None] / len(market.nodes), 0.0)
        alone: Floats = shares / np.maximum(1.0, shares.sum(axis=1, keepdims=True))
        return alone

    def speeds(self, shares: Floats) -> Floats:
        """Return the speed of each task with these shares."""
        speeds: Floats = (self.market.speeds * shares).sum(axis=1)
        return speeds


@contextmanager
def readable_errors(policy: str) -> Iterator[None]:
    """Raise ``BadInput`` that names the policy if its numbers overflow or its programme is not solved."""
    try:
        with np.errstate(over="raise", divide="raise", invalid="raise"):
            yield
    except ProgramNotSolved as error:
        raise BadInput(f"was not solved: {error}", where=f"policy '{policy}'") from error
    except (FloatingPointError, NumbersTooFarApart) as error:
        what = f"the numbers differ by too many orders of magnitude to be computed: {error}"
        raise BadInput(what, where=f"policy '{policy}'", fix="check speeds, weights and work") from error


@dataclass(frozen=True, slots=True)
class SharingRule:
    """A policy; ``choose`` returns shares and the value of the objective.

    With ``needs_work`` every task must have its remaining work. A ``blind`` policy regards all kinds as alike.
    """

    name: str
    value_is: str
    choose: Callable[[ShareColumns], tuple[Floats, float]]
    needs_work: bool = False
    blind: bool = False

    def share(self, problem: SharingProblem) -> Shares:
        """Divide the time of all nodes."""
        columns = ShareColumns.of(problem)
        shares, value = np.zeros((0, len(columns.kinds))), 0.0
        if problem.tasks:
            with readable_errors(self.name):
                shares, value = self.choose(columns.alike() if self.blind else columns)
        by_name = {}
        for task, row in zip(problem.tasks, shares.tolist(), strict=True):
            by_name[task.name] = {kind: share for kind, share in zip(columns.kinds, row, strict=True) if share > 0.0}
        speeds = dict(zip(by_name, columns.speeds(shares).tolist(), strict=True))
        return Shares(
            policy=self.name,
            value=float(value),
            value_is=self.value_is,
            shares=by_name,
            speeds=speeds,
            notes=tuple(columns.notes) or msgspec.UNSET,
        )


def _rates(columns: ShareColumns, *weights: Floats) -> Floats:
    """Return the products of weights and fair speeds; raise if one rounds to 0 and would count as weight 0."""
    rates, counted = columns.fair, columns.market.speeds.max(axis=1) > 0.0
    for each in weights:
        rates, counted = rates * each, counted & (each > 0.0)
    if (rates[counted] == 0.0).any():
        raise NumbersTooFarApart("a weight times a speed underflows to 0")
    return rates


def _rise_from_zero(market: ShareDemands, rate: Floats) -> RaisedLevels:
    """Raise all tasks from speed 0, and check the reached speeds: solvers have absolute tolerances."""
    risen = rise(market, np.zeros(len(rate)), _checked_rate(market, rate))
    reached = (market.speeds * risen.shares).sum(axis=1)[rate > 0.0] / rate[rate > 0.0]
    if reached.min() < risen.height * (1.0 - _MISSING):
        raise NumbersTooFarApart(f"a task reaches only {reached.min():g} of the level {risen.height:g}")
    return risen


def _checked_rate(market: ShareDemands, rate: Floats) -> Floats:
    """Return ``rate``; raise if relative speeds in this proportion span more than a solver resolves."""
    steep = (rate / market.speeds.max(axis=1))[rate > 0.0]
    if steep.size and steep.max() / _FARTHEST > steep.min():
        span = f"from {steep.min():.1g} to {steep.max():.1g}"
        raise NumbersTooFarApart(f"relative speeds of tasks would range {span}")
    return rate


def _raised_to_precision(market: ShareDemands, work: Floats) -> Floats:
    """Return the work, raised where it is below a solver's precision: such tasks end in a millionth of the time."""
    largest = market.speeds.max(axis=1)
    steep = work / largest
    if steep.max() < _FARTHEST * np.finfo(np.float64).tiny:
        raise NumbersTooFarApart("work over a speed underflows to 0")
    lifted: Floats = np.maximum(steep, steep.max() / _FARTHEST) * largest
    return lifted


def _max_min(columns: ShareColumns) -> tuple[Floats, float]:
    risen = _rise_from_zero(columns.market, _rates(columns, checked_weights(columns)))
    return risen.shares, risen.height


def _blind(columns: ShareColumns) -> tuple[Floats, float]:
    """Max-min over time, as if all kinds had the same speed.

    The time of a task that runs on every kind is divided over the kinds in proportion to the nodes left there.
    """
    market = columns.market
    alike = ShareDemands(np.where(market.speeds > 0.0, 1.0, 0.0), market.nodes, market.counts)
    risen = _rise_from_zero(alike, checked_weights(columns) / market.nodes)
    shares = risen.shares.copy()
    anywhere = (market.speeds > 0.0).all(axis=1)
    free = np.maximum(0.0, market.counts - market.nodes[~anywhere] @ shares[~anywhere])
    shares[anywhere] = np.outer(shares[anywhere].sum(axis=1), free / max(float(free.sum()), _CLOSE))
    return shares, risen.height


def _water_filling(columns: ShareColumns) -> tuple[Floats, float]:
    rate = _checked_rate(columns.market, _rates(columns, columns.weights))
    shares = columns.fill(lambda rising: np.where(rising, rate, 0.0))
    return shares, _slowest(columns, shares)


def water_filling_shares(market: ShareDemands, weights: Floats, *, blind: bool) -> Floats:
    """Return the shares of water filling, or of its blind form, without a problem."""
    rule, none = water_filling_blind if blind else water_filling, SharingProblem(nodes={}, tasks=())
    columns = ShareColumns(problem=none, kinds=(), market=market, weights=weights)
    with readable_errors(rule.name):
        return rule.choose(columns.alike() if blind else columns)[0]


def _hierarchical(columns: ShareColumns) -> tuple[Floats, float]:
    owners = [task.entity for task in columns.tasks]
    names = list(dict.fromkeys(owners))
    entities = [columns.problem.entities.get(name, Entity()) for name in names]
    owner = np.array([names.index(name) for name in owners])
    fair, counted = columns.fair, columns.weights > 0.0
    of_entity = [np.flatnonzero((owner == place) & counted) for place in range(len(entities))]

    def rates(rising: Mask) -> Floats:
        part = np.zeros(len(owner))
        for entity, those in zip(entities, of_entity, strict=True):
            own = those[rising[those]]
            if entity.inside is Inside.FIFO:
                own = own[:1]
            part[own] = entity.weight * columns.weights[own] / columns.weights[own].sum()
        return part * fair

    _checked_rate(
        columns.market, _rates(columns, np.array([entities[place].weight for place in owner]), columns.weights)
    )
    shares = columns.fill(rates)
    got = np.bincount(owner, columns.speeds(shares) / fair, len(names))
    return shares, float((got / [entity.weight for entity in entities]).min())


def _slowest(columns: ShareColumns, shares: Floats) -> float:
    """Return the lowest level of the tasks with a weight."""
    counted = columns.weights > 0.0
    levels = (columns.speeds(shares) / columns.fair)[counted] / columns.weights[counted]
    return float(levels.min()) if levels.size else 0.0


def _makespan(columns: ShareColumns) -> tuple[Floats, float]:
    work, market = work_left(columns), columns.market
    rate = _raised_to_precision(market, work)
    risen = rise(market, np.zeros(len(work)), rate)
    shares = with_spare_time(market, rate * risen.height, risen)
    return shares, float((work / columns.speeds(shares)).max())


def _finish_time(columns: ShareColumns) -> tuple[Floats, float]:
    """Minimise the largest rho by Newton's method: raise all tasks in proportion to the last rho, and recompute it."""
    work, age = work_left(columns), np.array([task.age_s for task in columns.tasks])
    alone_s = np.array([task.alone_s for task in columns.tasks]) + work / columns.speeds(columns.alone)
    least_s, market = work / columns.market.speeds.max(axis=1), columns.market

    def rate_at(worst: float) -> Floats:  # rounding may leave an old task less than its minimum time
        return _raised_to_precision(market, work / np.maximum(worst * alone_s - age, least_s))

    def unfairness(shares: Floats) -> float:
        return float(((age + work / columns.speeds(shares)) / alone_s).max())

    worst = unfairness(columns.alone)
    rate, level = rate_at(worst), np.zeros(len(work))
    risen = rise(market, level, rate)
    for _ in range(_MOST_STEPS):
        before, worst = worst, min(worst, unfairness(risen.shares))
        if before - worst <= _CLOSE * before:
            break
        rate = rate_at(worst)
        risen = rise(market, level, rate, risen.hint)
    return with_spare_time(market, rate * risen.height, risen), worst


def price_of(columns: ShareColumns) -> Floats:
    """Return the price of a node of each kind."""
    return np.array([columns.problem.prices.get(kind, 1.0) for kind in columns.kinds])


def _proportional(columns: ShareColumns) -> tuple[Floats, float]:
    shares = largest_sum_of_logs(columns.market, checked_weights(columns))
    counted = columns.weights > 0.0
    return shares, float(columns.weights[counted] @ np.log((columns.speeds(shares) / columns.fair)[counted]))


def checked_weights(columns: ShareColumns) -> Floats:
    """Return the weights; raise if all are 0."""
    if not columns.weights.any():
        raise BadInput("no task has a weight", where="tasks", fix="give one a weight above 0")
    return columns.weights


def work_left(columns: ShareColumns) -> Floats:
    """Return the remaining work of every task; raise if one has none."""
    work = []
    for task in columns.tasks:
        if task.work_left_samples is None:
            where, fix = f"task '{task.name}'", "set work_left_samples, or choose a policy without remaining work"
            raise BadInput("does not state its remaining work", where=where, fix=fix)
        work.append(task.work_left_samples)
    return np.array(work)


def _throughput(columns: ShareColumns, price: Floats | float = 1.0) -> tuple[Floats, float]:
    """Maximise the weighted samples/s over the ``price`` of their nodes; return the shares and the sum."""
    market = columns.market
    worth = columns.weights[:, None] * market.speeds / price
    task, kind = np.nonzero(market.speeds > 0.0)
    tasks, entry = len(market.nodes), np.arange(task.size)
    rows = LinearRows(
        data=(np.ones(task.size), market.nodes[task]),
        row=(task, tasks + kind),
        column=(entry, entry),
        limits=np.concatenate((np.ones(tasks), market.counts)),
    )
    of_each = worth[task, kind]
    found = maximise(of_each / of_each.max(initial=1e-300), rows)
    if found.columns is None:
        raise ProgramNotSolved(found.words)
    shares = np.zeros(market.speeds.shape)
    shares[task, kind] = found.columns
    return shares, float(of_each @ found.columns)


max_min: Final = SharingRule("max-min", LEVEL_IS, _max_min)
max_min_blind: Final = SharingRule("max-min-blind", "smallest share of time, by node and weight", _blind)
water_filling: Final = SharingRule("water-filling", LEVEL_IS, _water_filling)
water_filling_blind: Final = replace(water_filling, name="water-filling-blind", blind=True)
hierarchical: Final = SharingRule("hierarchical", "smallest service of an entity, by weight", _hierarchical)
makespan: Final = SharingRule("makespan", "seconds until all are done", _makespan, needs_work=True)
makespan_blind: Final = replace(makespan, name="makespan-blind", blind=True)
finish_time: Final = SharingRule(
    "finish-time", "largest rho: completion time over the time on an equal share", _finish_time, needs_work=True
)
finish_time_blind: Final = replace(finish_time, name="finish-time-blind", blind=True)
throughput: Final = SharingRule("throughput", "samples/s of all, by weight", _throughput)
cost: Final = SharingRule(
    "cost", "weighted samples/s over the price of the nodes", lambda columns: _throughput(columns, price_of(columns))
)
proportional: Final = SharingRule(
    "proportional", "sum of the logarithms of speeds on a part of every kind, by weight", _proportional
)
isolated: Final = SharingRule("isolated", LEVEL_IS, lambda columns: (columns.alone, _slowest(columns, columns.alone)))
