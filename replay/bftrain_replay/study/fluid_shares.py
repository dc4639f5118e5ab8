"""Fluid model: tasks on shares of time. At each arrival and completion the shares with the best objective are chosen.

A share is the fraction of a task's time at one size on one kind. A task's shares sum to 1 or less; all shares, each
times its size, sum to the nodes of a kind or less. An elastic task may therefore lie between two sizes (on the least
concave curve over its speeds), and a rigid task may run half of the time. The linear programme maximises the sum of the
objective over the shares. Coupled objectives use separate programmes for rigid tasks: the policies of shared time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bftrain import registry
from bftrain.deciding.value_table_builder import ValueTableBuilder
from bftrain.errors import BadInput
from bftrain.ports import Objective, SharingPolicy
from bftrain.values.problem import AllocationProblem, CompetingTask
from bftrain.values.sharing import SharingProblem, SharingTask
from bftrain.values.table import ValueTable
from bftrain.values.task import TaskSpec
from bftrain_solvers.sharing.linear import LinearRows, maximise

Floats = NDArray[np.float64]
KeepGoing = Callable[[float, int], bool]

_NEAR: Final = 1e-9  # relative: rounding error in a task's remaining work
# Objectives that couple tasks, and the equivalent policies for shares of time
_TIED: Final = {name: name for name in ("max-min", "water-filling", "makespan")} | {"max-min-now": "max-min"}


class FluidShares:
    """Tasks that all have an end, on nodes that never leave. Times are seconds since the start."""

    def __init__(
        self, tasks: Sequence[TaskSpec], nodes: Mapping[str, int], objective: Objective, horizon_s: float
    ) -> None:
        self._coming = sorted(tasks, key=lambda spec: max(spec.submit_s, 0.0))
        self._nodes = dict(nodes)
        self._objective = objective
        self._horizon_s = horizon_s
        self._tabulator = ValueTableBuilder(objective)
        self._looks_at_work = bool(getattr(objective, "uses_work_left", True))
        self._hulls: dict[bytes, list[int]] = {}
        self._policy: SharingPolicy | None = None
        if hasattr(objective, "couple") or objective.name in _TIED:
            self._policy = _policy(objective.name, tasks)
        elif tasks and self._table({tasks[0].name: tasks[0]}, {tasks[0].name: 1.0}, 0.0).coupled:
            raise _unknown(objective.name)

    @property
    def objective(self) -> str:
        """The maximised objective."""
        return self._objective.name

    def run(self, keep_going: KeepGoing | None = None) -> dict[str, float]:
        """Run until all tasks finish; return their completion times, without tasks that are never served.

        ``keep_going(seconds, how often shares were chosen)`` is called at each step and may stop the run.
        """
        chosen = 0
        finish: dict[str, float] = {}
        left: dict[str, float] = {}
        specs: dict[str, TaskSpec] = {}
        now_s, following = 0.0, 0
        while left or following < len(self._coming):
            while following < len(self._coming) and max(self._coming[following].submit_s, 0.0) <= now_s:
                spec = self._coming[following]
                specs[spec.name], left[spec.name] = spec, float(spec.work_samples or 0.0)
                following += 1
            if keep_going is not None and not keep_going(now_s, chosen):
                break
            chosen += 1
            speeds = self.speeds(specs, left, now_s) if left else {}
            until = max(self._coming[following].submit_s, 0.0) if following < len(self._coming) else math.inf
            ends = {name: now_s + left[name] / speed for name, speed in speeds.items() if speed > 0.0}
            then = min(until, min(ends.values(), default=math.inf))
            if then == math.inf:
                break  # the tasks left never get anything
            for name, speed in speeds.items():
                left[name] -= speed * (then - now_s)
                if name in ends and (
                    ends[name] <= then or left[name] <= _NEAR * float(specs[name].work_samples or 0.0)
                ):
                    finish[name] = then
                    del left[name], specs[name]
            now_s = then
        return finish

    def speeds(self, specs: Mapping[str, TaskSpec], left: Mapping[str, float], now_s: float) -> Mapping[str, float]:
        """Choose shares for tasks with this much work left; return the resulting speeds."""
        if self._policy is not None:
            tasks = tuple(_shared(spec, left[name], now_s, self._nodes) for name, spec in specs.items())
            return self._policy.share(SharingProblem(nodes=self._nodes, policy=self._policy.name, tasks=tasks)).speeds
        return self._largest(self._table(specs, left, now_s))

    def _table(self, specs: Mapping[str, TaskSpec], left: Mapping[str, float], now_s: float) -> ValueTable:
        has_kinds = set(self._nodes) != {""}
        problem = AllocationProblem(
            pool=sum(self._nodes.values()),
            pools=self._nodes if has_kinds else {},
            horizon_s=self._horizon_s,
            objective=self._objective.name,
            tasks=tuple(self._competing(spec, left[name], now_s) for name, spec in specs.items()),
        )
        return self._tabulator.table(problem)

    def _competing(self, spec: TaskSpec, left: float, now_s: float) -> CompetingTask:
        """Return a task without nodes and costs."""
        return CompetingTask(
            name=spec.name,
            min_nodes=spec.min_nodes,
            max_nodes=spec.max_nodes,
            curve=spec.curve,
            curves=spec.curves,
            weight=spec.weight,
            batch=spec.batch,
            user=spec.user,
            work_left_samples=max(left, 0.0) if self._looks_at_work else spec.work_samples,
            deadline_in_s=None if spec.deadline_s is None else spec.deadline_s - now_s,
            age_s=max(now_s - max(spec.submit_s, 0.0), 0.0),
        )

    def _largest(self, table: ValueTable) -> dict[str, float]:
        """Maximise the sum of all values; identical tasks are merged and served in order."""
        alike: dict[bytes, list[int]] = {}
        for place, row in enumerate(table.values):
            alike.setdefault(row.tobytes(), []).append(place)
        groups = list(alike.values())
        pairs = [
            (number, column)
            for number, group in enumerate(groups)
            for column in self._vertices(table, table.values[group[0]])
        ]
        names = [task.name for task in table.problem.tasks]
        speeds = dict.fromkeys(names, 0.0)
        if not pairs:
            return speeds
        shares = self._solve(table, groups, pairs)
        for number, group in enumerate(groups):
            mine = [(column, share) for (who, column), share in zip(pairs, shares, strict=True) if who == number]
            for place, speed in _dealt(group, mine, table.speeds(group[0])):
                speeds[names[place]] = speed
        return speeds

    def _vertices(self, table: ValueTable, row: Floats) -> list[int]:
        """Return the useful columns: on each kind the corners of the least concave curve over the values."""
        key = row.tobytes()
        if key not in self._hulls:
            self._hulls[key] = [
                column
                for kind in range(len(table.kinds))
                for column in _corners(np.flatnonzero(table.kind_of == kind), table.nodes, row - row[0])
            ]
        return self._hulls[key]

    def _solve(
        self, table: ValueTable, groups: Sequence[Sequence[int]], pairs: Sequence[tuple[int, int]]
    ) -> list[float]:
        group, column = (np.array(each) for each in zip(*pairs, strict=True))
        first = np.array([each[0] for each in groups])[group]
        worth = table.values[first, column] - table.values[first, 0]
        places = np.arange(len(pairs))
        counts = np.array([float(table.problem.by_kind[kind]) for kind in table.kinds])
        rows = LinearRows(
            data=(np.ones(len(pairs)), table.nodes[column].astype(np.float64)),
            row=(group, len(groups) + table.kind_of[column]),
            column=(places, places),
            limits=np.concatenate(([float(len(each)) for each in groups], counts)),
        )
        found = maximise(worth / worth.max(), rows)
        if found.columns is None:
            raise BadInput(f"the fluid was not found: {found.words}", where="ideal")
        shares: list[float] = np.maximum(found.columns, 0.0).tolist()
        return shares


def _dealt(group: Sequence[int], mine: Sequence[tuple[int, float]], speeds: Floats) -> Iterator[tuple[int, float]]:
    """Distribute the shares of identical tasks, best first: the first task gets a whole one before the second any."""
    parts = sorted(([column, share] for column, share in mine if share > 0.0), key=lambda part: -speeds[int(part[0])])
    for place in group:
        room, speed = 1.0, 0.0
        while parts and room > 0.0:
            column, share = parts[0]
            taken = min(room, share)
            speed += taken * float(speeds[int(column)])
            room -= taken
            parts[0][1] = share - taken
            if parts[0][1] <= 0.0:
                parts.pop(0)
        yield place, speed


def _corners(columns: NDArray[np.intp], nodes: NDArray[np.int64], worth: Floats) -> list[int]:
    """Return the corners of the least concave curve over the values of columns, from no node on, while it rises."""
    hull: list[tuple[float, float, int]] = [(0.0, 0.0, -1)]
    for column in columns.tolist():
        size, value = float(nodes[column]), float(worth[column])
        if not value > hull[-1][1]:
            continue  # more nodes without more speed
        while len(hull) > 1 and _below(hull[-2], hull[-1], (size, value)):
            hull.pop()
        hull.append((size, value, column))
    return [column for _, _, column in hull[1:]]


def _below(first: tuple[float, ...], middle: tuple[float, ...], last: tuple[float, float]) -> bool:
    return (middle[1] - first[1]) * (last[0] - first[0]) <= (last[1] - first[1]) * (middle[0] - first[0])


def _policy(name: str, tasks: Sequence[TaskSpec]) -> SharingPolicy:
    if name not in _TIED:
        raise _unknown(name)
    elastic = next((spec.name for spec in tasks if spec.min_nodes != spec.max_nodes), None)
    if elastic is not None:
        what = f"its fluid under '{name}' is known for tasks of one size only, and '{elastic}' has several"
        raise BadInput(what, where="ideal", fix="choose an objective that is a sum over tasks, or omit --ideal")
    policy: SharingPolicy = registry.load("sharing", _TIED[name])
    return policy


def _unknown(name: str) -> BadInput:
    known = ", ".join(sorted(_TIED))
    fix = f"choose an objective that is a sum over tasks, such as throughput, or one of: {known}"
    return BadInput(f"the fluid of the objective '{name}' is not known", where="ideal", fix=fix)


def _shared(spec: TaskSpec, left: float, now_s: float, nodes: Mapping[str, int]) -> SharingTask:
    curves = {kind: spec.curve_on(kind) for kind in nodes}
    size = spec.min_nodes
    return SharingTask(
        name=spec.name,
        nodes=size,
        speeds={kind: curve.speed(size) for kind, curve in curves.items() if curve is not None},
        weight=spec.weight,
        entity=spec.user,
        work_left_samples=max(left, math.ulp(0.0)),
        age_s=max(now_s - max(spec.submit_s, 0.0), 0.0),
    )
