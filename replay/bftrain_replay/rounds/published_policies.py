"""Policies of other systems: Tiresias, Optimus and Pollux for rounds, Gandiva for sharing; and ``goodput``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from random import Random
from typing import Any, Final

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from bftrain.assembly import solve
from bftrain.errors import BadInput
from bftrain.values.problem import AllocationProblem, CompetingTask
from bftrain.values.sharing import PairShare, PairSpeeds, Shares, SharingProblem, SharingTask
from bftrain.values.task import TaskSpec
from bftrain_replay.rounds.round_inputs import CompetingTasks, Floats, Ints

_HOUR_S: Final = 3600.0
_LEAST_SPEEDUP: Final = 1e-3  # assumed speedup of a task without nodes


def ranked(*keys: NDArray[np.generic]) -> Floats:
    """Return priorities that sort tasks by the first key, then by the second, and so on."""
    order = np.lexsort(keys[::-1])
    priorities = np.empty(order.size)
    priorities[order] = -np.arange(order.size, dtype=np.float64)
    return priorities


def setting(name: str, given: float | str, *, above: float = -math.inf) -> float:
    """Return a policy parameter as a number; raise unless it is at least 0 and larger than ``above``."""
    if isinstance(given, str) or not (0.0 <= given < math.inf and given > above):
        limit = "above 0" if above == 0.0 else "of at least 0"
        raise BadInput(f"{name} must be a number {limit}, not {given!r}", fix="see docs/how-to/rounds.md")
    return given


def _competing(task: TaskSpec, left_samples: float, **more: Any) -> CompetingTask:  # noqa: ANN401 - its other fields
    return CompetingTask(
        name=task.name,
        min_nodes=task.min_nodes,
        max_nodes=task.max_nodes,
        curve=task.curve,
        work_left_samples=left_samples if math.isfinite(left_samples) else None,
        **more,
    )


class Tiresias:
    """Two FIFO queues, divided by node-seconds received (Gu et al., NSDI 2019).

    With ``promote``, a task returns to the first queue, with its service reset to zero, once its uninterrupted wait
    reaches ``promote`` times its run time.
    """

    name = "tiresias"

    def __init__(self, threshold_node_s: float = _HOUR_S, promote: float = 0.0) -> None:
        self._threshold_node_s = setting("threshold_node_s", threshold_node_s)
        self._promote = setting("promote", promote)
        self._forgiven: Floats = np.zeros(0)  # node-seconds that no longer count
        self._ran_s: Floats = np.zeros(0)  # time when each task last ran, or was submitted

    def priorities(self, contenders: CompetingTasks) -> Floats:
        """Rank the first queue before the second."""
        if not self._forgiven.size:
            self._forgiven, self._ran_s = np.zeros(len(contenders.gangs)), contenders.gangs.submit_s.copy()
        here = contenders.place
        self._ran_s[here] = np.where(contenders.kind >= 0, contenders.time_s, self._ran_s[here])
        received = contenders.received_node_s - self._forgiven[here]
        waited_node_s = (contenders.time_s - self._ran_s[here]) * contenders.nodes
        starved = (received > 0.0) & (waited_node_s >= self._promote * received) & (self._promote > 0.0)
        self._forgiven[here] += np.where(starved, received, 0.0)
        return ranked(np.where(starved, 0.0, received) >= self._threshold_node_s, contenders.submit_s)


class Optimus:
    """All tasks run, shortest first; each extra node goes where it saves most time (Peng et al., EuroSys 2018).

    Sizes are computed by the allocator ``marginal-gain``.
    """

    name = "optimus"

    def __init__(self) -> None:
        self._wanted: NDArray[np.bool_] = np.zeros((0, 0), dtype=bool)

    def sizes(self, contenders: CompetingTasks) -> Floats:
        """Return each task's size; a task without nodes keeps its smallest size."""
        kinds = dict(zip(contenders.kinds, contenders.free.tolist(), strict=True))
        pairs = zip(contenders.tasks, contenders.left_samples.tolist(), strict=True)
        tasks = tuple(_competing(task, left, curves=task.curves) for task, left in pairs)
        pools = {} if "" in kinds else kinds
        found = solve(
            AllocationProblem(pool=sum(kinds.values()), pools=pools, horizon_s=1.0, tasks=tasks), "marginal-gain"
        )
        kind_of = {task.name: found.kinds.get(task.name, "") if found.sizes[task.name] else None for task in tasks}
        self._wanted = np.array([[kind == kind_of[task.name] for kind in contenders.kinds] for task in tasks])
        return np.array([found.sizes[task.name] or task.min_nodes for task in tasks], dtype=np.float64)

    def priorities(self, contenders: CompetingTasks) -> Floats:
        """Return the kind of nodes that was chosen with the size; all fit."""
        del contenders
        return np.where(self._wanted, 0.0, -math.inf)


class Gandiva:
    """Random pairs on the same nodes, kept while they do more together than alone (Xiao et al., OSDI 2018).

    Tasks are paired only while demand exceeds the number of nodes; a task without a partner is drawn again next time. A
    pair stays while it runs on every kind and its relative speeds, added up over the node kinds, reach at least 1, as
    in Gavel's simulator.
    """

    name = "gandiva"

    def __init__(self, seed: int | str = 0) -> None:
        if not isinstance(seed, int) or seed < 0:
            raise BadInput(f"seed must be a whole number of at least 0, not {seed!r}", fix="such as seed=1")
        self._random = Random(seed)  # noqa: S311 - Gavel's generator, so that the same pairs are drawn
        self._with: dict[str, str] = {}  # each task's partner; the task itself if alone
        self._pairs: tuple[PairSpeeds, ...] = ()
        self._table: dict[tuple[str, str, int], Mapping[str, tuple[float, float]]] = {}  # pair speeds, both ways

    def share(self, problem: SharingProblem) -> Shares:
        """Divide all time equally over pairs and single tasks."""
        tasks = {task.name: task for task in problem.tasks}
        if problem.pairs is not self._pairs:
            self._pairs, self._table = problem.pairs, {}
            for pair in problem.pairs:
                self._table[*pair.models, pair.nodes] = pair.speeds
                turned = {kind: two[::-1] for kind, two in pair.speeds.items()}
                self._table[pair.models[1], pair.models[0], pair.nodes] = turned

        def gain(one: SharingTask, other: SharingTask) -> float:
            two = self._table.get((one.model, other.model, one.nodes), {})
            both = [(one.speeds.get(k, 0.0), other.speeds.get(k, 0.0), *two.get(k, (0.0, 0.0))) for k in problem.nodes]
            if not all(map(all, both)):
                return 0.0  # pairs that cannot run on every kind are dissolved
            return sum(a / alone_a + b / alone_b for alone_a, alone_b, a, b in both)

        for name, other in list(self._with.items()):
            gone = name not in tasks or other not in tasks
            if gone or name == other or gain(tasks[name], tasks[other]) < 1.0:
                self._with.pop(name, None)
        combinations = {(name, name) for name in tasks}
        if sum(task.nodes for task in problem.tasks) > sum(problem.nodes.values()):
            self._pair([task for task in problem.tasks if task.name not in self._with])
            combinations = {(name, other) for name, other in self._with.items() if name <= other}
        shares: dict[str, dict[str, float]] = {name: {} for name in tasks}
        pairs = []
        for name, other in sorted(combinations):
            parts = {kind: count / len(combinations) / tasks[name].nodes for kind, count in problem.nodes.items()}
            whole = max(1.0, sum(parts.values()))
            part = {kind: each / whole for kind, each in parts.items() if each}
            if name == other:
                shares[name] = part
            else:
                pairs.append(PairShare(tasks=(name, other), shares=part))
        value, speeds = float(len(pairs)), dict.fromkeys(tasks, 0.0)  # objective value; rounds do not use it
        return Shares(policy=self.name, value=value, value_is="pairs", shares=shares, speeds=speeds, pairs=tuple(pairs))

    def _pair(self, alone: list[SharingTask]) -> None:
        """Draw two of these tasks, repeated once per task; two of the same gang size become a pair."""
        for _ in range(len(alone)):
            if len(alone) > 1:
                one, other = self._random.sample(alone, 2)
                if one.nodes == other.nodes:
                    self._with |= {one.name: other.name, other.name: one.name}
                    alone = [task for task in alone if task not in (one, other)]
        self._with |= {task.name: task.name for task in alone}


class _ChosenSizes:
    """A sizing policy by one method, ``chosen``: the sizes of all tasks, 0 for those that wait."""

    def __init__(self) -> None:
        self._runs: NDArray[np.bool_] = np.zeros(0, dtype=bool)

    def chosen(self, contenders: CompetingTasks) -> Ints:
        """Return each task's size, 0 for waiting tasks."""
        raise NotImplementedError

    def sizes(self, contenders: CompetingTasks) -> Floats:
        """Return each task's size; waiting tasks keep their smallest size."""
        if len(contenders.kinds) > 1:
            fix = "choose a policy that knows kinds, such as optimus"
            raise BadInput("divides nodes of a single kind only", where=contenders.when, fix=fix)
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
    is multiplied by ``(age - restarts * delay_s) / (age + delay_s)``. A task gets no more than twice its largest size
    so far. A dynamic programme finds the best sizes; Pollux searches with a genetic algorithm.
    """

    name = "pollux"

    def __init__(self, delay_s: float = 30.0) -> None:
        super().__init__()
        self._delay_s = setting("delay_s", delay_s)
        self._most: Ints = np.zeros(0, dtype=np.intp)  # each task's largest size so far
        self._starts: Ints = np.zeros(0, dtype=np.intp)
        self._size: Ints = np.zeros(0, dtype=np.intp)  # size in the previous round

    def chosen(self, contenders: CompetingTasks) -> Ints:
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
        restarts = np.maximum(self._starts[here] - 1, 0)
        moved = np.maximum(age_s - restarts * self._delay_s, 0.0) / (age_s + self._delay_s)
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

    def chosen(self, contenders: CompetingTasks) -> Ints:
        """Return the allocator's sizes; a new size costs the same as a start."""
        cost_s, left = contenders.gangs.start_cost_s[contenders.place].tolist(), contenders.left_samples.tolist()
        size = np.where(contenders.kind >= 0, contenders.progress.nodes[contenders.place], 0).tolist()
        tasks = tuple(
            _competing(
                task,
                left[number],
                size=size[number],
                weight=task.weight,
                grow_cost_s=cost_s[number],
                shrink_cost_s=cost_s[number],
                start_cost_s=cost_s[number],
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

    def chosen(self, contenders: CompetingTasks) -> Ints:
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
