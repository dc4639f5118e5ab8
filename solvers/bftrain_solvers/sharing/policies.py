"""The policies: what is made best. docs/policies.md has their formulas."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
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

_CLOSE: Final = 1e-10  # relative: how near the search for the smallest unfairness comes
_MOST_STEPS: Final = 100
_FARTHEST: Final = 1e6  # between what tasks are to do: solvers overlook 1e-9 of the largest speed
_MISSING: Final = 1e-6  # relative: what a level that was found may lack
_LEVEL_IS: Final = "speed of the slowest, as a multiple of its weight and of its speed on a part of every kind"


@dataclass(frozen=True, slots=True)
class ShareColumns:
    """A problem in columns. Kinds that are too few for a task cannot run it; those without nodes are no column."""

    problem: SharingProblem
    kinds: tuple[str, ...]
    market: ShareDemands
    weights: Floats
    notes: list[str] = field(default_factory=list)  # what a policy says of its answer

    def fill(self, rates: Callable[[Mask], Floats]) -> Floats:
        """Raise all, as fast as ``rates`` says; see :func:`fill`."""
        shares, note = fill(self.market, rates)
        self.notes.extend(filter(None, [note]))
        return shares

    @classmethod
    def of(cls, problem: SharingProblem) -> ShareColumns:
        """Return the columns of a problem."""
        # On a log a kind may be away for a while; time on none of its nodes has no price
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

    @property
    def fair(self) -> Floats:
        """The common measure of fairness: the speed on a part of every kind, by node used."""
        market = self.market
        fair: Floats = (market.speeds @ market.counts) / market.counts.sum() / market.nodes
        return fair

    @property
    def alone(self) -> Floats:
        """The shares of each task if it had the n-th part of every kind for itself."""
        market = self.market
        shares = np.where(market.speeds > 0.0, market.counts / market.nodes[:, None] / len(market.nodes), 0.0)
        alone: Floats = shares / np.maximum(1.0, shares.sum(axis=1, keepdims=True))
        return alone

    def speeds(self, shares: Floats) -> Floats:
        """Return the speeds that shares come to."""
        speeds: Floats = (self.market.speeds * shares).sum(axis=1)
        return speeds


@dataclass(frozen=True, slots=True)
class SharingRule:
    """A policy by its name; ``choose`` gives shares and what they are worth.

    ``needs_work`` says that it divides by the work left.
    """

    name: str
    value_is: str
    choose: Callable[[ShareColumns], tuple[Floats, float]]
    needs_work: bool = False

    def share(self, problem: SharingProblem) -> Shares:
        """Divide the time of all nodes."""
        columns = ShareColumns.of(problem)
        shares, value = np.zeros((0, len(columns.kinds))), 0.0
        if problem.tasks:
            try:
                with np.errstate(over="raise", divide="raise", invalid="raise"):
                    shares, value = self.choose(columns)
            except ProgramNotSolved as error:
                raise BadInput(f"was not solved: {error}", where=f"policy '{self.name}'") from error
            except (FloatingPointError, NumbersTooFarApart) as error:
                what, fix = f"the numbers lie too far apart to be computed: {error}", "check speeds, weights and work"
                raise BadInput(what, where=f"policy '{self.name}'", fix=fix) from error
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
    """Return the products of weights and fair speeds, refused where one is too small: it would count as no weight."""
    rates, counted = columns.fair, columns.market.speeds.max(axis=1) > 0.0
    for each in weights:
        rates, counted = rates * each, counted & (each > 0.0)
    if (rates[counted] == 0.0).any():
        raise NumbersTooFarApart("a weight times a speed is too small to differ from 0")
    return rates


def _rise_from_nothing(market: ShareDemands, rate: Floats) -> RaisedLevels:
    """Raise all from no speed, and make sure of it that they are there: solvers compute to absolute tolerances."""
    risen = rise(market, np.zeros(len(rate)), _near(market, rate))
    reached = (market.speeds * risen.shares).sum(axis=1)[rate > 0.0] / rate[rate > 0.0]
    if reached.min() < risen.height * (1.0 - _MISSING):
        raise NumbersTooFarApart(f"a speed is {reached.min():g} of its level where {risen.height:g} was found")
    return risen


def _near(market: ShareDemands, rate: Floats) -> Floats:
    """Return ``rate`` if one solution can hold all speeds that are in this proportion, as parts of the largest ones."""
    steep = (rate / market.speeds.max(axis=1))[rate > 0.0]
    if steep.size and steep.max() / _FARTHEST > steep.min():
        span = f"from {steep.min():.1g} to {steep.max():.1g}"
        raise NumbersTooFarApart(f"speeds are to be {span} times the largest one of each task")
    return rate


def _lifted(market: ShareDemands, work: Floats) -> Floats:
    """Raise what is too small for a solver to see: so little work may be done sooner, in a millionth of the time."""
    largest = market.speeds.max(axis=1)
    steep = work / largest
    if steep.max() < _FARTHEST * np.finfo(np.float64).tiny:
        raise NumbersTooFarApart("work over a speed is too small to differ from 0")
    lifted: Floats = np.maximum(steep, steep.max() / _FARTHEST) * largest
    return lifted


def _max_min(columns: ShareColumns) -> tuple[Floats, float]:
    risen = _rise_from_nothing(columns.market, _rates(columns, weighty(columns)))
    return risen.shares, risen.height


def _blind(columns: ShareColumns) -> tuple[Floats, float]:
    """As max-min, without knowing that kinds differ: only time counts, also for tasks that do not run on every kind.

    A task that runs on every kind has its time on all of them, by the nodes that are left for such tasks there.
    """
    market = columns.market
    alike = ShareDemands(np.where(market.speeds > 0.0, 1.0, 0.0), market.nodes, market.counts)
    risen = _rise_from_nothing(alike, weighty(columns) / market.nodes)
    shares = risen.shares.copy()
    anywhere = (market.speeds > 0.0).all(axis=1)
    free = np.maximum(0.0, market.counts - market.nodes[~anywhere] @ shares[~anywhere])
    shares[anywhere] = np.outer(shares[anywhere].sum(axis=1), free / max(float(free.sum()), _CLOSE))
    return shares, risen.height


def _water_filling(columns: ShareColumns) -> tuple[Floats, float]:
    rate = _near(columns.market, _rates(columns, columns.weights))
    shares = columns.fill(lambda rising: np.where(rising, rate, 0.0))
    return shares, _slowest(columns, shares)


def _hierarchical(columns: ShareColumns) -> tuple[Floats, float]:
    owners = [task.entity for task in columns.tasks]
    names = list(dict.fromkeys(owners))
    entities = [columns.problem.entities.get(name, Entity()) for name in names]
    owner = np.array([names.index(name) for name in owners])
    fair, weighty = columns.fair, columns.weights > 0.0
    of_entity = [np.flatnonzero((owner == place) & weighty) for place in range(len(entities))]

    def rates(rising: Mask) -> Floats:
        part = np.zeros(len(owner))
        for entity, those in zip(entities, of_entity, strict=True):
            own = those[rising[those]]
            if entity.inside is Inside.FIFO:
                own = own[:1]
            part[own] = entity.weight * columns.weights[own] / columns.weights[own].sum()
        return part * fair

    _near(columns.market, _rates(columns, np.array([entities[place].weight for place in owner]), columns.weights))
    shares = columns.fill(rates)
    got = np.bincount(owner, columns.speeds(shares) / fair, len(names))
    return shares, float((got / [entity.weight for entity in entities]).min())


def _slowest(columns: ShareColumns, shares: Floats) -> float:
    """Return the level of the slowest, of those that have a weight."""
    counted = columns.weights > 0.0
    levels = (columns.speeds(shares) / columns.fair)[counted] / columns.weights[counted]
    return float(levels.min()) if levels.size else 0.0


def _makespan(columns: ShareColumns) -> tuple[Floats, float]:
    work, market = work_left(columns), columns.market
    rate = _lifted(market, work)
    risen = rise(market, np.zeros(len(work)), rate)
    shares = with_spare_time(market, rate * risen.height, risen)
    return shares, float((work / columns.speeds(shares)).max())


def _finish_time(columns: ShareColumns) -> tuple[Floats, float]:
    """Newton on the unfairness: from shares that reach it, raise all in its proportion and look what it came to."""
    work, age = work_left(columns), np.array([task.age_s for task in columns.tasks])
    alone_s = np.array([task.alone_s for task in columns.tasks]) + work / columns.speeds(columns.alone)
    least_s, market = work / columns.market.speeds.max(axis=1), columns.market

    def rate_at(worst: float) -> Floats:  # of an old task, rounding leaves less time than it takes at least
        return _lifted(market, work / np.maximum(worst * alone_s - age, least_s))

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


def _throughput(columns: ShareColumns) -> tuple[Floats, float]:
    return _largest_sum(columns.market, columns.weights[:, None] * columns.market.speeds)


def price_of(columns: ShareColumns) -> Floats:
    """Return the price of a node of each kind."""
    return np.array([columns.problem.prices.get(kind, 1.0) for kind in columns.kinds])


def _cost(columns: ShareColumns) -> tuple[Floats, float]:
    return _largest_sum(columns.market, columns.weights[:, None] * columns.market.speeds / price_of(columns))


def _proportional(columns: ShareColumns) -> tuple[Floats, float]:
    shares = largest_sum_of_logs(columns.market, weighty(columns))
    counted = columns.weights > 0.0
    return shares, float(columns.weights[counted] @ np.log((columns.speeds(shares) / columns.fair)[counted]))


def weighty(columns: ShareColumns) -> Floats:
    """Return the weights, of which one at least is above 0."""
    if not columns.weights.any():
        raise BadInput("no task has a weight", where="tasks", fix="give one a weight above 0")
    return columns.weights


def work_left(columns: ShareColumns) -> Floats:
    """Return the work left of every task, which all have to say."""
    work = []
    for task in columns.tasks:
        if task.work_left_samples is None:
            where, fix = f"task '{task.name}'", "say work_left_samples, or choose a policy that asks for none"
            raise BadInput("how much work is left is not said", where=where, fix=fix)
        work.append(task.work_left_samples)
    return np.array(work)


def _largest_sum(market: ShareDemands, worth: Floats) -> tuple[Floats, float]:
    """Make the sum of ``worth`` (of all of a task's time, by kind) times shares largest; gives shares and the sum."""
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
isolated: Final = SharingRule("isolated", _LEVEL_IS, lambda columns: (columns.alone, _slowest(columns, columns.alone)))
