"""Packed policies: two tasks with the same number of nodes may share them, each at its speed in the table of pairs.

The total time of a task over all combinations that contain it is limited to 1. The number of pairs is quadratic in the
number of tasks, and few pairs are used. Column generation therefore starts with single tasks and adds combinations with
a positive reduced cost until there are no more. With many tasks, equal tasks form a class: the programme
computes the total times of classes and pairs of classes, and each time is then divided equally over the class's tasks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from time import perf_counter
from typing import Final

import msgspec
import numpy as np

from bftrain.values.sharing import PairShare, Shares, SharingProblem
from bftrain_solvers.arrays import Floats, Integers
from bftrain_solvers.sharing.linear import LinearRows, maximise
from bftrain_solvers.sharing.policies import (
    LEVEL_IS,
    ShareColumns,
    checked_weights,
    price_of,
    readable_errors,
    work_left,
)
from bftrain_solvers.sharing.published import MISSED, ShareEntries, fewest_missed, missed, needed_speeds
from bftrain_solvers.sharing.rising import ProgramNotSolved

_WORTH: Final = 1e-9  # relative: combinations with a smaller gain are not added
_COMBINATIONS_PER_STEP: Final = 3  # combinations added at a time, per task
_CLOSE: Final = 1e-10  # relative precision of the search for the smallest rho
_SLACK: Final = (1e-9, 1e-8, 1e-7, 1e-6)  # relative: allowed errors of levels from programmes
_MOST_STEPS: Final = 60  # steps of Newton's method
_STAYS: Final = 1e-7  # lower prices of speed count as 0: prices are about 1
_TWO: Final = 2
_ONE_BY_ONE: Final = 400  # fewer tasks are solved without classes


class TaskClasses:
    """Classes of tasks that a policy does not distinguish: the first task of each, and the class of each task."""

    def __init__(self, columns: ShareColumns, properties: Sequence[str]) -> None:
        self.of_task = np.arange(len(columns.tasks))
        if self.of_task.size >= _ONE_BY_ONE:
            number: dict[object, int] = {}
            self.of_task = np.array([number.setdefault(key, len(number)) for key in _keys(columns, properties)])
        _, self.first, self.many = np.unique(self.of_task, return_index=True, return_counts=True)
        self._members = np.split(np.argsort(self.of_task, kind="stable"), np.cumsum(self.many)[:-1])

    def __len__(self) -> int:
        return self.first.size

    def parts(self, one: int, other: int, time: float) -> Iterator[tuple[int, int, float]]:
        """Divide the time of a class, or of a pair of classes, over its tasks in equal parts; ``other`` may be -1."""
        ones = self._members[one].tolist()
        if other < 0:
            yield from ((task, -1, time / len(ones)) for task in ones)
        elif one == other:  # each task in a ring has two partners
            pairs = min(len(ones), len(ones) * (len(ones) - 1) // 2)
            yield from ((ones[place], ones[(place + 1) % len(ones)], time / pairs) for place in range(pairs))
        else:
            # Each task takes the next, equal part of its class's time
            others = self._members[other].tolist()
            ends = sorted(
                {k / len(ones) for k in range(1, len(ones))} | {k / len(others) for k in range(1, len(others))}
            )
            for begin, end in pairwise((0.0, *ends, 1.0)):
                middle = (begin + end) / 2.0
                part = ones[int(middle * len(ones))], others[int(middle * len(others))]
                yield *part, time * (end - begin)


def _keys(columns: ShareColumns, properties: Sequence[str]) -> list[object]:
    """Return the properties of each task that the policy depends on."""
    keys: list[object] = [
        (task.model, task.nodes, task.weight, tuple(row), *(getattr(task, name) for name in properties))
        for task, row in zip(columns.tasks, columns.market.speeds.tolist(), strict=True)
    ]
    # If two tasks of a model have different speeds together, a task may be the first or the second of a pair. Only in a
    # ring of three or more tasks of one class does each task have both roles equally often
    differ = {
        (pair.models[0], pair.nodes)
        for pair in columns.problem.pairs
        if pair.models[0] == pair.models[1] and any(first != second for first, second in pair.speeds.values())
    }
    of_model = Counter((task.model, task.nodes) for task in columns.tasks)
    count = Counter(keys)
    return [
        (key, task.name)
        if (task.model, task.nodes) in differ and not _TWO < count[key] == of_model[task.model, task.nodes]
        else key
        for key, task in zip(keys, columns.tasks, strict=True)
    ]


class Combinations:
    """Single classes and pairs of classes, by kind: ``one`` and ``other`` (-1: none), speeds, nodes and kind."""

    def __init__(self, columns: ShareColumns, classes: TaskClasses) -> None:
        self.columns, self.classes, market = columns, classes, columns.market
        speeds = market.speeds[classes.first]
        self.largest = speeds.max(axis=1, initial=0.0)
        one, kind = np.nonzero(speeds > 0.0)
        self.singles = one.size
        parts = [(one, np.full(one.size, -1), kind, speeds[one, kind], np.zeros(one.size))]
        parts += self._pairs()
        self.one, self.other, self.kind, speed, other_speed = (
            np.concatenate(each) for each in zip(*parts, strict=True)
        )
        self.nodes = market.nodes[classes.first][self.one]
        # As fractions of the largest speed of each task
        self.speed = speed / self.largest[self.one]
        self.other_speed = np.where(self.other >= 0, other_speed / self.largest[self.other], 0.0)
        self.used: Integers = np.arange(self.singles)
        self.speed_prices: Floats = np.zeros(self.largest.size)  # prices of the last programme with levels

    def _pairs(self) -> list[tuple[Integers, Integers, Integers, Floats, Floats]]:
        tasks, kinds, counts = self.columns.tasks, self.columns.kinds, self.columns.market.counts
        of_model: dict[tuple[str, int], list[int]] = {}
        for place, first in enumerate(self.classes.first.tolist()):
            of_model.setdefault((tasks[first].model, tasks[first].nodes), []).append(place)
        parts = []
        for pair in self.columns.problem.pairs:
            ones, others = (np.array(of_model.get((name, pair.nodes), [])) for name in pair.models)
            if not ones.size or not others.size:
                continue
            one, other = (each.ravel() for each in np.meshgrid(ones, others, indexing="ij"))
            keep = one != other
            if pair.models[0] == pair.models[1]:
                keep = (one < other) | ((one == other) & (self.classes.many[one.astype(np.intp)] > 1))
            for number, kind in enumerate(kinds):
                first_speed, second_speed = pair.speeds.get(kind, (0.0, 0.0))
                if first_speed > 0.0 and second_speed > 0.0 and pair.nodes <= counts[number]:
                    ones_, others_ = one[keep].astype(np.intp), other[keep].astype(np.intp)
                    columns = (number, first_speed, second_speed)
                    parts.append((ones_, others_, *(np.full(ones_.size, value) for value in columns)))
        return parts

    def best(
        self, worth: Floats, levels: Floats | None = None, height: float | None = None, floors: Floats | None = None
    ) -> tuple[Floats, float]:
        """Return times of all combinations, and the largest height with speeds of ``levels`` times the height.

        With ``floors``, they are added. Without levels, or at a given ``height``, the sum of ``worth`` (by combination)
        is maximised. All are relative to the largest speeds.
        """
        while True:
            found, prices = self._solve(worth, levels, height, floors)
            tasks, kinds = self.largest.size, self.columns.market.counts.size
            time, node, speed = np.split(prices, [tasks, tasks + kinds])
            self.speed_prices = speed = speed if levels is not None else np.zeros(tasks)
            gain = worth + speed[self.one] * self.speed - time[self.one] - self.nodes * node[self.kind]
            gain += np.where(self.other >= 0, speed[self.other] * self.other_speed - time[self.other], 0.0)
            gain[self.used] = 0.0
            scale = max(float(np.abs(worth).max(initial=0.0)), float(prices.max(initial=0.0)))
            more = np.flatnonzero(gain > _WORTH * scale)
            if not more.size:
                times = np.zeros(self.one.size)
                times[self.used] = found[: self.used.size]
                return times, float(found[-1]) if levels is not None else float(worth @ times)
            most = _COMBINATIONS_PER_STEP * tasks
            if more.size > most:
                more = more[np.argpartition(-gain[more], most)[:most]]
            self.used = np.concatenate((self.used, more))

    def _solve(
        self, worth: Floats, levels: Floats | None, height: float | None, floors: Floats | None
    ) -> tuple[Floats, Floats]:
        tasks, counts, used = self.largest.size, self.columns.market.counts, self.used
        entry, one, other = np.arange(used.size), self.one[used], self.other[used]
        paired = np.flatnonzero(other >= 0)
        rows = [(np.ones(used.size), one, entry), (np.ones(paired.size), other[paired], paired)]
        rows += [(self.nodes[used], tasks + self.kind[used], entry)]
        many = self.classes.many
        limits, objective, first = [many.astype(np.float64), counts], worth[used], tasks + counts.size
        if levels is not None:
            rise_of = np.full(tasks, used.size)
            rows += [(levels * many, first + np.arange(tasks), rise_of), (-self.speed[used], first + one, entry)]
            rows += [(-self.other_speed[used][paired], first + other[paired], paired)]
            limits += [np.zeros(tasks) if floors is None else -floors * many]
            objective = np.append(worth[used], 0.0 if height else 1.0)
        last = None if height is None else (height, height)
        data, row, column = zip(*rows, strict=True)
        result = maximise(objective, LinearRows(data, row, column, np.concatenate(limits)), last=last)
        if result.columns is None:
            raise ProgramNotSolved(result.words)
        return result.columns, result.prices

    def rise(self, rate: Floats) -> tuple[Floats, float]:
        """Raise all speeds as far as possible in proportion to ``rate``; return times and height."""
        levels = rate / self.largest
        times, height = self.best(np.zeros(self.one.size), levels / levels.max())
        return times, height / float(levels.max())

    def rise_and_spare(self, rate: Floats) -> tuple[Floats, float]:
        """Raise all speeds like :meth:`rise`, then maximise the sum of relative speeds in the remaining time."""
        levels = rate / self.largest
        times, height = self.best(np.zeros(self.one.size), levels / levels.max())
        return self.at_least(levels / levels.max() * height, times)[0], height / float(levels.max())

    def at_least(self, levels: Floats, times: Floats | None = None) -> tuple[Floats, float]:
        """Return the times that reach ``levels`` with the largest sum of relative speeds (fallback: ``times``)."""
        most, words = float(levels.max()), ""
        for slack in _SLACK:
            try:
                return self.best(self.speed + self.other_speed, levels / most, most * (1.0 - slack))
            except ProgramNotSolved as error:  # levels may be off by the tolerance of the programme that found them
                words = str(error)
        if times is None:
            raise ProgramNotSolved(words)
        return times, 0.0

    def speeds(self, times: Floats) -> Floats:
        """Return the speed of each class of tasks for given times."""
        pair = self.other >= 0
        parts = np.bincount(self.one, self.speed * times, self.largest.size)
        parts += np.bincount(self.other[pair], (self.other_speed * times)[pair], self.largest.size)
        speeds: Floats = parts / self.classes.many * self.largest
        return speeds

    def of_classes(self, values: Floats) -> Floats:
        """Return the values of the first task of each class."""
        return values[self.classes.first]

    @property
    def fair(self) -> Floats:
        """The reference for fairness of each class."""
        return self.of_classes(self.columns.fair)

    @property
    def weights(self) -> Floats:
        """The weight of each class; raises if all are 0."""
        return self.of_classes(checked_weights(self.columns))

    def worth_of(self, worth: Floats) -> Floats:
        """Return the worth of a second of each combination.

        ``worth`` is per sample: a row for each class, and a column for each kind or a single one.
        """
        shape = self.largest.size, self.columns.market.counts.size
        of_task = np.broadcast_to(worth * self.largest[:, None], shape)
        other = np.where(self.other >= 0, of_task[self.other, self.kind] * self.other_speed, 0.0)
        each: Floats = of_task[self.one, self.kind] * self.speed + other
        return each

    def sum_of(self, worth: Floats) -> tuple[Floats, float]:
        """Maximise the sum of ``worth`` times speeds; see :meth:`worth_of`."""
        each = self.worth_of(worth)
        scale = float(each.max(initial=0.0)) or 1.0
        times, value = self.best(each / scale)
        return times, value * scale


@dataclass(frozen=True, slots=True)
class PackedRule:
    """A packed policy; ``choose`` returns the times of combinations and the value of the objective.

    ``properties`` lists the task properties it depends on, in addition to speeds and weight.
    """

    name: str
    value_is: str
    choose: Callable[[Combinations], tuple[Floats, float]]
    needs_work: bool = False
    properties: tuple[str, ...] = ()

    def share(self, problem: SharingProblem) -> Shares:
        """Divide the time of all nodes over tasks and pairs."""
        begun = perf_counter()
        columns = ShareColumns.of(problem)
        by_name: dict[str, dict[str, float]] = {task.name: {} for task in problem.tasks}
        pairs: dict[tuple[str, str], dict[str, float]] = {}
        speeds, value = np.zeros(0), 0.0
        if problem.tasks:
            classes = TaskClasses(columns, self.properties)
            combinations = Combinations(columns, classes)
            with readable_errors(self.name):
                times, value = self.choose(combinations)
            speeds = combinations.speeds(times)[classes.of_task]
            names = [task.name for task in problem.tasks]
            for place in np.flatnonzero(times > 0.0).tolist():
                kind = columns.kinds[combinations.kind[place]]
                both = int(combinations.one[place]), int(combinations.other[place])
                for one, other, time in classes.parts(*both, float(times[place])):
                    of = by_name[names[one]] if other < 0 else pairs.setdefault((names[one], names[other]), {})
                    of[kind] = of.get(kind, 0.0) + time
        return Shares(
            policy=self.name,
            value=float(value),
            value_is=self.value_is,
            shares=by_name,
            speeds=dict(zip(by_name, speeds.tolist(), strict=True)),
            wall_s=perf_counter() - begun,
            notes=tuple(columns.notes) or msgspec.UNSET,
            pairs=tuple(PairShare(tasks=tasks, shares=shares) for tasks, shares in pairs.items()) or msgspec.UNSET,
        )


def _max_min(combinations: Combinations) -> tuple[Floats, float]:
    return combinations.rise(combinations.fair * combinations.weights)


def _water_filling(combinations: Combinations) -> tuple[Floats, float]:
    """Raise all tasks by weight; tasks whose speed has a price stop, the remaining tasks continue."""
    rate = combinations.fair * combinations.weights / combinations.largest
    fastest = float(rate.max())
    rate /= fastest
    level, rising, lowest = np.zeros(rate.size), rate > 0.0, 0.0
    nothing = np.zeros(combinations.one.size)
    while rising.any():
        _, height = combinations.best(nothing, np.where(rising, rate, 0.0), floors=level * (1.0 - _SLACK[0]))
        level = np.where(rising, level + rate * height, level)
        lowest = lowest or height
        dear = np.where(rising, combinations.speed_prices * rate, 0.0)
        rising &= dear < min(_STAYS, float(dear.max()))
    times, _ = combinations.at_least(level)
    return times, lowest / fastest


def _makespan(combinations: Combinations) -> tuple[Floats, float]:
    work = combinations.of_classes(work_left(combinations.columns))
    times, _ = combinations.rise_and_spare(work)
    return times, float((work / combinations.speeds(times)).max())


def _finish_time(combinations: Combinations) -> tuple[Floats, float]:
    """Minimise the largest rho by Newton's method, starting from equal shares."""
    columns = combinations.columns
    work, age_s = work_left(columns), np.array([task.age_s for task in columns.tasks])
    alone_speeds = columns.speeds(columns.alone)
    alone_s = np.array([task.alone_s for task in columns.tasks]) + work / alone_speeds
    work, age_s, alone_s, alone_speeds = map(combinations.of_classes, (work, age_s, alone_s, alone_speeds))
    times, worst = np.zeros(0), float(((age_s + work / alone_speeds) / alone_s).max())
    for _ in range(_MOST_STEPS):
        times, _ = combinations.rise(work / (worst * alone_s - age_s))
        before, worst = worst, float(((age_s + work / combinations.speeds(times)) / alone_s).max())
        if before - worst <= _CLOSE * before:
            break
    return combinations.rise_and_spare(work / (worst * alone_s - age_s))[0], worst


def _fifo(combinations: Combinations) -> tuple[Floats, float]:
    """Maximise relative speeds, weighted by arrival: the first task has the largest weight."""
    ages = np.array([task.age_s for task in combinations.columns.tasks])
    turn = np.empty(ages.size)
    turn[np.argsort(-ages, kind="stable")] = np.arange(ages.size, 0, -1)
    return combinations.sum_of((turn / combinations.largest)[:, None])


def _throughput(combinations: Combinations, price: Floats | float = 1.0) -> tuple[Floats, float]:
    """Maximise the weighted samples/s over the ``price`` of their nodes."""
    return combinations.sum_of(combinations.of_classes(combinations.columns.weights)[:, None] / price)


def _cost_deadlines(combinations: Combinations) -> tuple[Floats, float]:
    """Minimise the missed deadlines over all pairs, then maximise samples per price of the nodes."""
    columns, needed = combinations.columns, needed_speeds(combinations.columns)
    entries = ShareEntries(
        combinations.one,
        combinations.other,
        combinations.kind,
        combinations.nodes,
        combinations.speed * combinations.largest[combinations.one],
        combinations.other_speed * combinations.largest[combinations.other],
        combinations.worth_of(columns.weights[:, None] / price_of(columns)),
    )
    times = fewest_missed(entries, needed, columns.market.counts, columns.notes)
    return times, missed(combinations.speeds(times), needed)


_WORK: Final = ("work_left_samples", "age_s", "alone_s")
_NAME: Final = ("name",)  # each task has its own queue position or deadline
max_min: Final = PackedRule("max-min-packed", LEVEL_IS, _max_min)
finish_time: Final = PackedRule(
    "finish-time-packed", "the largest rho", _finish_time, needs_work=True, properties=_WORK
)
water_filling: Final = PackedRule("water-filling-packed", LEVEL_IS, _water_filling)
makespan: Final = PackedRule(
    "makespan-packed", "seconds until all are done", _makespan, needs_work=True, properties=_WORK
)
fifo: Final = PackedRule(
    "fifo-packed", "speeds as parts of the largest, times places in the queue", _fifo, properties=_NAME
)
throughput: Final = PackedRule("throughput-packed", "samples/s of all, by weight", _throughput)
cost_deadlines: Final = PackedRule("cost-deadlines-packed", MISSED, _cost_deadlines, properties=_NAME)
cost: Final = PackedRule(
    "cost-packed",
    "samples/s of all, by weight, over the price of their nodes",
    lambda combinations: _throughput(combinations, price_of(combinations.columns)),
)
