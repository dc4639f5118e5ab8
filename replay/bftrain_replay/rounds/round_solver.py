"""RoundSolver: a policy of rounds as the solver of a live run, so that simulations and live runs choose alike.

A Harvester whose settings name a policy asks it at the start of each round (``bftrain.assembly``). Tasks have one size,
their smallest, unless the policy chooses sizes.
"""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter
from typing import Final

import numpy as np

from bftrain.config import LiveSettings
from bftrain.errors import BftrainError
from bftrain.ports import Availability, SolverCapabilities
from bftrain.values.curve import SpeedCurve
from bftrain.values.problem import AllocationProblem, CompetingTask
from bftrain.values.solution import Limits, Quality, Solution, Termination
from bftrain.values.table import ValueTable
from bftrain.values.task import TaskSpec
from bftrain_replay.rounds.round_choice import RoundChoice
from bftrain_replay.rounds.round_inputs import CompetingTasks, Places, TaskGangs, TaskProgressColumns, gangs_of
from bftrain_replay.rounds.round_policy import SizingPolicy, find_policy
from bftrain_replay.rounds.round_settings import SMALLEST, RoundSettings

_FEWEST_ROWS: Final = 64
_NEVER_S: Final = 1e15  # submission time of rows that no task uses yet
_ANY: Final = SpeedCurve(nodes=(1,), rate=(1.0,))


def make(settings: LiveSettings) -> RoundSolver:
    """Return the solver for these settings; raise for an unknown policy."""
    return RoundSolver(
        RoundSettings(
            policy=settings.policy,
            round_s=settings.round_s,
            gang=SMALLEST,
            entities=settings.entities,
            prices=settings.prices,
        )
    )


class RoundSolver:
    """Asks a policy for the tasks of the next round.

    It learns the time and the tasks' service from their histories, since policies rank tasks by what they received.
    """

    name = "rounds"
    capabilities = SolverCapabilities(node_kinds=True, uses_history=True, uses_work_left=True, stateful=True)

    def __init__(self, settings: RoundSettings) -> None:
        self._settings = settings
        find_policy(settings)
        self._columns: _Columns | None = None

    def available(self) -> Availability:
        """Return that it is available."""
        return Availability(ok=True)

    def solve(self, table: ValueTable, limits: Limits) -> Solution:
        """Choose the tasks that run in the next round; ``limits`` have no effect, as policies are fast."""
        del limits
        begun = perf_counter()
        problem = table.problem
        columns = self._columns
        if columns is None or not columns.fit(problem):
            columns = self._columns = _Columns(self._settings, problem, columns)
        try:
            sizes, kinds = columns.choose(problem)
        except BftrainError as error:
            return Solution.failed(self.name, str(error), wall_s=perf_counter() - begun)
        return Solution(
            sizes=sizes,
            kinds=kinds,
            value=table.value_of(sizes, kinds),
            bound=None,
            termination=Termination.HEURISTIC,
            quality=Quality.FEASIBLE,
            solver=self.name,
            wall_s=perf_counter() - begun,
        )


class _Columns:
    """The tasks since the start, in the columns of a simulation; rows for tasks to come are reserved.

    When they run out, or nodes of a new kind join, new columns replace these and the policy starts afresh.
    """

    def __init__(self, settings: RoundSettings, problem: AllocationProblem, before: _Columns | None) -> None:
        self._settings = settings
        known: Mapping[str, int] = before.gangs.most if before is not None else {}
        most = {**known, **{kind: max(count, known.get(kind, 0)) for kind, count in problem.by_kind.items()}}
        self._now_s = before.now_s(problem.tasks) if before is not None else 0.0
        self._places: dict[str, int] = {}
        self._used = 0
        rows = max(_FEWEST_ROWS, 2 * len(problem.tasks))
        policy = find_policy(settings)
        empty = [TaskSpec(name=f"row {number}", curve=_ANY, max_nodes=1, submit_s=_NEVER_S) for number in range(rows)]
        self.gangs: TaskGangs = gangs_of(empty, most, settings)
        self._progress = TaskProgressColumns(self.gangs)
        self._sizing = isinstance(policy, SizingPolicy)
        self._choice = RoundChoice(policy, settings, rows, len(most))
        self._version = 0
        self._free: Places = np.zeros(0, dtype=np.intp)

    def fit(self, problem: AllocationProblem) -> bool:
        """Return whether the columns have room for all tasks, and know all kinds with as many nodes."""
        fresh = sum(task.name not in self._places for task in problem.tasks)
        known = all(count <= self.gangs.most.get(kind, 0) for kind, count in problem.by_kind.items())
        return known and self._used + fresh <= len(self.gangs)

    def now_s(self, tasks: tuple[CompetingTask, ...]) -> float:
        """Return the time, counted from the first task, by the age of a known task."""
        known = (task for task in tasks if task.name in self._places)
        ages_s = (float(self.gangs.submit_s[self._places[task.name]]) + task.age_s for task in known)
        return max(ages_s, default=self._now_s)

    def choose(self, problem: AllocationProblem) -> tuple[dict[str, int], dict[str, str]]:
        """Return the sizes of all tasks and the kinds of those that run."""
        gangs, tasks = self.gangs, problem.tasks
        self._now_s = self.now_s(tasks)
        before = self._places
        self._places = {task.name: before.get(task.name, -1) for task in tasks}
        for task in tasks:
            self._update(task)
        free = np.array([problem.by_kind.get(kind, 0) for kind in gangs.kinds], dtype=np.intp)
        if before.keys() != self._places.keys() or not np.array_equal(free, self._free):
            self._version += 1
        self._free = free
        here = np.array(sorted(self._places.values()), dtype=np.intp)
        contenders = CompetingTasks(
            gangs=gangs,
            progress=self._progress,
            place=here,
            free=free,
            time_s=self._now_s,
            round_s=self._settings.round_s,
            version=self._version,
        )
        run, kind = self._choice.choose(contenders)
        self._progress.kind[here] = -1
        self._progress.kind[run], self._progress.nodes[run] = kind, gangs.nodes[run]
        sizes = dict.fromkeys(self._places, 0)
        sizes.update((gangs.specs[place].name, int(gangs.nodes[place])) for place in run.tolist())
        names = zip(run.tolist(), kind.tolist(), strict=True)
        return sizes, {gangs.specs[place].name: gangs.kinds[each] for place, each in names if gangs.kinds[each]}

    def _update(self, task: CompetingTask) -> None:
        """Add a new task in the next row, or replace a changed description; count the service since the last round."""
        place = self._places[task.name]
        fresh = place < 0
        if fresh:
            place, self._used = self._used, self._used + 1
            self._places[task.name] = place
        submit_s = self._now_s - task.age_s if fresh else float(self.gangs.submit_s[place])
        spec = _spec(task, submit_s, self._now_s, sizes=self._sizing)
        if fresh or spec != self.gangs.stated[place]:
            self.gangs.put(place, spec)
        if fresh:
            self._progress.nodes[place] = self.gangs.nodes[place]
        self._observe(place, task)

    def _observe(self, place: int, task: CompetingTask) -> None:
        """Count a task's service since the last round on the kind it had then."""
        progress = self._progress
        received_s = task.held_node_s - float(progress.node_s[place])
        kind = int(progress.kind[place])
        if kind < 0 and received_s > 0.0:  # service before these columns were made
            kind = int(self.gangs.fastest[place, 0])
        if kind >= 0:
            progress.service_s[place, kind] += received_s / progress.nodes[place]
        progress.node_s[place] = task.held_node_s
        progress.left[place] = np.inf if task.work_left_samples is None else task.work_left_samples
        if task.size == 0:
            progress.kind[place] = -1


def _spec(task: CompetingTask, submit_s: float, now_s: float, *, sizes: bool) -> TaskSpec:
    """Return a task as rounds describe it; with ``sizes`` it keeps its range of sizes."""
    return TaskSpec(
        name=task.name,
        min_nodes=task.min_nodes,
        max_nodes=task.max_nodes if sizes else task.min_nodes,
        curve=task.curve,
        curves=task.curves,
        user=task.user,
        weight=task.weight,
        batch=task.batch if sizes else None,
        start_cost_s=task.start_cost_s,
        submit_s=submit_s,
        deadline_s=None if task.deadline_in_s is None else round(now_s + task.deadline_in_s, 3),
    )
