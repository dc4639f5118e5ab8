"""Round policies that choose sizes by task progress: Pollux's rule, and the objective ``goodput``."""

from __future__ import annotations

import math

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from bftrain.assembly import solve
from bftrain.errors import BadInput
from bftrain.values.problem import AllocationProblem, CompetingTask
from bftrain_replay.rounds.published_policies import setting
from bftrain_replay.rounds.round_inputs import CompetingTasks, Floats, Places

_LEAST_SPEEDUP = 1e-3  # assumed speedup of a task without nodes


class _ChosenSizes:
    """Turns chosen sizes into sizes and priorities; a task with size 0 waits."""

    def __init__(self) -> None:
        self._runs: NDArray[np.bool_] = np.zeros(0, dtype=bool)

    def chosen(self, contenders: CompetingTasks) -> Places:
        """Return each task's size, 0 for waiting tasks."""
        raise NotImplementedError

    def sizes(self, contenders: CompetingTasks) -> Floats:
        """Return each task's size; waiting tasks keep their smallest size."""
        if len(contenders.kinds) > 1:
            fix = "choose a policy that knows kinds, such as optimus"
            raise BadInput("divides nodes of one kind only", where=contenders.when, fix=fix)
        found = self.chosen(contenders)
        self._runs = found > 0
        least = [task.min_nodes for task in contenders.tasks]
        return np.where(self._runs, found, least).astype(np.float64)

    def priorities(self, contenders: CompetingTasks) -> Floats:
        """Return 0 for running tasks, minus infinity for waiting ones; all running tasks fit."""
        del contenders
        return np.where(self._runs, 0.0, -math.inf)


class Pollux(_ChosenSizes):
    """Maximises the power mean, with exponent -1, of all speedups (Qiao et al., OSDI 2021).

    A speedup is the progress on a number of nodes over the progress on an equal share. Where a task's size changes, it
    is multiplied by ``(age - starts * delay_s) / (age + delay_s)``. A task gets no more than twice its largest size so
    far. A dynamic programme finds the best sizes; Pollux searches with a genetic algorithm.
    """

    name = "pollux"

    def __init__(self, delay_s: float = 30.0) -> None:
        super().__init__()
        self._delay_s = setting("delay_s", delay_s)
        self._most: Places = np.zeros(0, dtype=np.intp)  # each task's largest size so far
        self._starts: Places = np.zeros(0, dtype=np.intp)
        self._size: Places = np.zeros(0, dtype=np.intp)  # size in the previous round

    def chosen(self, contenders: CompetingTasks) -> Places:
        """Return the sizes with the least sum of ``1 / speedup``."""
        if not self._most.size:
            self._most, self._starts, self._size = np.zeros((3, len(contenders.gangs)), dtype=np.intp)
        here, pool = contenders.place, int(contenders.free[0])
        self._size[here] = np.where(contenders.kind >= 0, self._size[here], 0)  # nodes may have left
        cost = self._costs(contenders, pool)
        best, choices = np.zeros(pool + 1), np.empty((len(here), pool + 1), dtype=np.intp)
        for number, row in enumerate(cost):
            sizes = int(np.flatnonzero(np.isfinite(row))[-1]) + 1
            before = np.concatenate((np.full(sizes - 1, np.inf), best))
            # Row n, column s: the best of the earlier tasks on n - s nodes, and this task on s
            sums = sliding_window_view(before, sizes)[:, ::-1] + row[:sizes]
            choices[number] = sums.argmin(axis=1)
            best = sums.min(axis=1)
        found, free = np.zeros(len(here), dtype=np.intp), int(best.argmin())
        for number in range(len(here) - 1, -1, -1):
            found[number] = choices[number, free]
            free -= found[number]
        self._starts[here] += (found != self._size[here]) & (found > 0)
        self._size[here], self._most[here] = found, np.maximum(self._most[here], found)
        return found

    def _costs(self, contenders: CompetingTasks, pool: int) -> Floats:
        here, tasks = contenders.place, contenders.tasks
        age_s = contenders.time_s - contenders.submit_s
        first = self._starts[here] - 1  # the first start is no restart
        moved = np.maximum(age_s - np.maximum(first, 0) * self._delay_s, 0.0) / (age_s + self._delay_s)
        sizes, cost = np.arange(pool + 1), np.empty((len(tasks), pool + 1))
        for number, (task, place) in enumerate(zip(tasks, here.tolist(), strict=True)):
            share = min(max(math.ceil(pool / len(tasks)), task.min_nodes), task.max_nodes)
            speedup = task.curve.speeds(pool) / task.curve.speed(share)
            speedup *= np.where(sizes == self._size[place], 1.0, moved[number])
            most = min(task.max_nodes, max(2 * int(self._most[place]), task.min_nodes))
            able = (sizes == 0) | ((sizes >= task.min_nodes) & (sizes <= most))
            cost[number] = np.where(able, 1.0 / (speedup + _LEAST_SPEEDUP), np.inf)
        return cost


class Goodput(_ChosenSizes):
    """Sizes that are best for the objective ``goodput`` over ``horizon_s``, found by the exact allocator."""

    name = "goodput"

    def __init__(self, horizon_s: float = 120.0) -> None:
        super().__init__()
        self._horizon_s = setting("horizon_s", horizon_s, above=0.0)

    def chosen(self, contenders: CompetingTasks) -> Places:
        """Return the allocator's sizes; a new size costs the same as a start."""
        cost_s, left = contenders.gangs.start_cost_s[contenders.place].tolist(), contenders.left_samples.tolist()
        size = np.where(contenders.kind >= 0, contenders.progress.nodes[contenders.place], 0).tolist()
        tasks = tuple(
            CompetingTask(
                name=task.name,
                size=size[number],
                min_nodes=task.min_nodes,
                max_nodes=task.max_nodes,
                curve=task.curve,
                weight=task.weight,
                grow_cost_s=cost_s[number],
                shrink_cost_s=cost_s[number],
                start_cost_s=cost_s[number],
                work_left_samples=left[number] if math.isfinite(left[number]) else None,
            )
            for number, task in enumerate(contenders.tasks)
        )
        pool = int(contenders.free[0])
        problem = AllocationProblem(pool=pool, horizon_s=self._horizon_s, objective="goodput", tasks=tasks)
        found = solve(problem, "exact").sizes
        return np.array([found[task.name] for task in tasks], dtype=np.intp)


class OptimusByOne(_ChosenSizes):
    """Optimus as Pollux's authors simulate it: nodes are given out one by one.

    All tasks get their smallest size in arrival order. Each further node goes to the task with the largest time saving,
    until another node saves no time. Unlike ``optimus``, steps of several nodes are not considered.
    """

    name = "optimus-by-one"

    def chosen(self, contenders: CompetingTasks) -> Places:
        """Return the sizes."""
        free, left = int(contenders.free[0]), contenders.left_samples
        found, saved, times = np.zeros(len(contenders), dtype=np.intp), np.zeros(len(contenders)), []
        for number, task in enumerate(contenders.tasks):
            with np.errstate(divide="ignore"):
                times.append(left[number] / task.curve.speeds(task.max_nodes))
            if task.min_nodes <= free:
                found[number] = task.min_nodes
                free -= task.min_nodes

        def look(number: int) -> None:
            size, time_s = found[number], times[number]
            # Extra nodes do not shorten an endless task
            grows = 0 < size < len(time_s) - 1 and math.isfinite(left[number])
            saved[number] = time_s[size] - time_s[size + 1] if grows else 0.0

        for number in range(len(contenders)):
            look(number)
        while free and (best := int(saved.argmax())) >= 0 and saved[best] > 0.0:
            found[best] += 1
            free -= 1
            look(best)
        return found
