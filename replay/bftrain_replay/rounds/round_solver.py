"""RoundSolver: a policy of rounds as the solver of a live run, so that simulations and live runs choose alike.

A Harvester whose settings name a policy asks it at the start of each round (``bftrain.assembly``). Tasks have one size,
their smallest, unless the policy chooses sizes.
"""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock
from time import perf_counter
from typing import Final

import numpy as np
from msgspec.structs import replace

from bftrain.config import LiveSettings
from bftrain.errors import BftrainError
from bftrain.parts import name_of
from bftrain.ports import Availability, SolverCapabilities
from bftrain.values.curve import SpeedCurve
from bftrain.values.problem import AllocationProblem, CompetingTask
from bftrain.values.solution import Limits, Quality, Solution, Termination
from bftrain.values.table import ValueTable
from bftrain.values.task import TaskSpec
from bftrain_replay.rounds.policy_choice import AUTO, RECENT, PolicyChoice
from bftrain_replay.rounds.round_choice import RoundChoice
from bftrain_replay.rounds.round_inputs import CompetingTasks, Ints, TaskGangs, TaskProgressColumns, gangs_of
from bftrain_replay.rounds.round_policy import SizingPolicy, find_policy
from bftrain_replay.rounds.round_settings import SMALLEST, RoundSettings

_FEWEST_ROWS: Final = 64
_NEVER_S: Final = 1e15  # submission time of rows that no task uses yet
_ENDLESS: Final = 1e15  # samples left of a task without an end
_LEAST_WORK: Final = 1e-6  # samples left of a task that still runs although its work is done
_PARTS_OF_ROUND: Final = 100  # service counts in such parts: smaller differences are delays, which must not decide
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

    capabilities = SolverCapabilities(node_kinds=True, uses_history=True, uses_work_left=True, stateful=True)

    def __init__(self, settings: RoundSettings) -> None:
        self._choice = PolicyChoice(settings) if name_of(settings.policy) == AUTO else None
        self._settings = settings if self._choice is None else replace(settings, policy=self._choice.name)
        self.name = settings.policy
        find_policy(self._settings)
        self._columns: _Columns | None = None
        self._specs: dict[str, TaskSpec] = {}  # present and latest tasks as first seen, for ``auto``
        self._working = Lock()

    def available(self) -> Availability:
        """Return that it is available."""
        return Availability(ok=True)

    def solve(self, table: ValueTable, limits: Limits) -> Solution:
        """Choose the tasks that run in the next round; ``limits`` have no effect, as policies are fast."""
        del limits
        begun = perf_counter()
        if not self._working.acquire(blocking=False):  # the caller has abandoned an earlier call
            return Solution.failed(self.name, "the policy still works on an earlier round")
        try:
            sizes, kinds, words = self._choose(table.problem)
        except BftrainError as error:
            return Solution.failed(self.name, str(error), wall_s=perf_counter() - begun)
        finally:
            self._working.release()
        return Solution(
            sizes=sizes,
            kinds=kinds,
            value=table.value_of(sizes, kinds),
            bound=None,
            termination=Termination.HEURISTIC,
            quality=Quality.FEASIBLE,
            solver=self._settings.policy,
            solver_words=words,
            wall_s=perf_counter() - begun,
        )

    def _choose(self, problem: AllocationProblem) -> tuple[dict[str, int], dict[str, str], str]:
        if not problem.pool:
            return dict.fromkeys((task.name for task in problem.tasks), 0), {}, ""
        if self._columns is None or not self._columns.fit(problem):
            self._columns = _Columns(self._settings, problem, self._columns)
        reason = self._choose_policy(problem)
        sizes, kinds, words = self._columns.choose(problem)
        return sizes, kinds, "; ".join(filter(None, (reason, words)))

    def _choose_policy(self, problem: AllocationProblem) -> str:
        """Let the simulation of the recent tasks choose the policy; return why, if it was time to choose."""
        choice = self._choice
        if choice is None or self._columns is None:
            return ""
        now_s = self._columns.now_s(problem.tasks)
        for task in problem.tasks:
            if task.name not in self._specs:
                left = task.work_left_samples
                spec = _spec(task, now_s - task.age_s, now_s, sizes=False)
                self._specs[task.name] = replace(spec, work_samples=left if left and left > 0.0 else None)
        latest = [*self._specs][-RECENT:]
        kept = {*latest, *(task.name for task in problem.tasks)}
        self._specs = {name: spec for name, spec in self._specs.items() if name in kept}
        reason = choice.look(now_s, [self._specs[name] for name in latest], self._columns.most)
        if choice.name != self._settings.policy:
            self._settings = replace(self._settings, policy=choice.name)
            self._columns = _Columns(self._settings, problem, self._columns)
        return reason


class _Columns:
    """The tasks since the start, in the columns of a simulation; rows for tasks to come are reserved.

    When they run out, or nodes of a new kind join, new columns replace these and the policy starts afresh.
    """

    def __init__(self, settings: RoundSettings, problem: AllocationProblem, before: _Columns | None) -> None:
        self._settings = settings
        self.most: dict[str, int] = {} if before is None else before.most
        self.most |= {kind: max(count, self.most.get(kind, 0)) for kind, count in problem.by_kind.items()}
        self._now_s = before.now_s(problem.tasks) if before is not None else 0.0
        self._places: dict[str, int] = {}
        rows = max(_FEWEST_ROWS, 2 * len(problem.tasks))
        policy = find_policy(settings)
        empty = [TaskSpec(name=f"row {number}", curve=_ANY, max_nodes=1, submit_s=_NEVER_S) for number in range(rows)]
        self.gangs: TaskGangs = gangs_of(empty, self.most, settings)
        self._progress = TaskProgressColumns(self.gangs)
        self._held_s = np.zeros(rows)  # node-seconds of each task, to the last moment
        self._assigned = np.full(rows, -1, dtype=np.intp)  # kind of each task in the last round
        self._policy, self._sizing = policy.name, isinstance(policy, SizingPolicy)
        self._needs_work = bool(getattr(policy, "needs_work", False))
        self._choice = RoundChoice(policy, settings, rows, len(self.most))
        self._version = 0
        self._here: Ints = np.zeros(0, dtype=np.intp)
        self._free: Ints = np.zeros(0, dtype=np.intp)
        if before is not None:
            self._take_over(before, problem.tasks)

    def _take_over(self, before: _Columns, tasks: tuple[CompetingTask, ...]) -> None:
        """Copy what tasks received on each kind."""
        kinds = [self.gangs.kinds.index(kind) for kind in before.gangs.kinds]
        for task in tasks:
            if (old := before._places.get(task.name)) is not None:
                place = self._places[task.name] = len(self._places)
                self.gangs.put(place, before.gangs.stated[old])
                self._progress.service_s[place, kinds] = before._progress.service_s[old]
                self._progress.node_s[place], self._held_s[place] = before._progress.node_s[old], before._held_s[old]

    def fit(self, problem: AllocationProblem) -> bool:
        """Return whether the columns have room for all tasks, and know all kinds."""
        fresh = sum(task.name not in self._places for task in problem.tasks)
        return problem.by_kind.keys() <= self.most.keys() and len(self._places) + fresh <= len(self.gangs)

    def now_s(self, tasks: tuple[CompetingTask, ...]) -> float:
        """Return the time, counted from the first task, by the age of a known task."""
        known = (task for task in tasks if task.name in self._places)
        ages_s = (float(self.gangs.submit_s[self._places[task.name]]) + task.age_s for task in known)
        return max(ages_s, default=self._now_s)

    def choose(self, problem: AllocationProblem) -> tuple[dict[str, int], dict[str, str], str]:
        """Return the sizes of all tasks, the kinds of those that run, and a remark."""
        gangs, tasks = self.gangs, problem.tasks
        self._now_s = self.now_s(tasks)
        self._make_larger(problem.by_kind)
        for task in tasks:
            self._update(task)
        endless = [task.name for task in tasks if task.work_left_samples is None] if self._needs_work else []
        here = np.array(sorted(self._places[task.name] for task in tasks if task.name not in endless), dtype=np.intp)
        free = np.array([problem.by_kind.get(kind, 0) for kind in gangs.kinds], dtype=np.intp)
        if not (np.array_equal(here, self._here) and np.array_equal(free, self._free)):
            self._version += 1
        self._here, self._free = here, free
        contenders = CompetingTasks(
            gangs=gangs,
            progress=self._progress,
            place=here,
            free=free,
            time_s=self._now_s,
            round_s=self._settings.round_s,
            version=self._version,
        )
        run, kind = self._choice.choose(contenders) if here.size else (here, here)
        self._assigned[:] = -1
        self._assigned[run] = kind
        sizes = dict.fromkeys((task.name for task in tasks), 0)
        sizes.update((gangs.specs[place].name, int(gangs.nodes[place])) for place in run.tolist())
        names = zip(run.tolist(), kind.tolist(), strict=True)
        kinds = {gangs.specs[place].name: gangs.kinds[each] for place, each in names if gangs.kinds[each]}
        remark = f"without work_samples, which policy '{self._policy}' needs, wait: {', '.join(endless)}"
        return sizes, kinds, remark if endless else ""

    def _make_larger(self, counts: Mapping[str, int]) -> None:
        """Compute speeds again if there are more nodes of a kind than ever before."""
        if any(count > self.most[kind] for kind, count in counts.items()):
            self.most.update({kind: max(count, self.most[kind]) for kind, count in counts.items()})
            for place in self._places.values():
                self.gangs.look_again(place)

    def _update(self, task: CompetingTask) -> None:
        """Add a new task in the next row, or replace a changed description; count the service since the last round."""
        place = self._places.get(task.name, len(self._places))
        fresh = task.name not in self._places
        submit_s = self._now_s - task.age_s if fresh else float(self.gangs.submit_s[place])
        spec = _spec(task, submit_s, self._now_s, sizes=self._sizing)
        if fresh or spec != self.gangs.stated[place]:
            self._places[task.name] = place
            self.gangs.put(place, spec)
            self._version += 1
        progress, kinds = self._progress, self.gangs.kinds
        kind = kinds.index(task.kind) if task.size else -1
        nodes = task.size or int(self.gangs.nodes[place])
        if (received_s := task.held_node_s - float(self._held_s[place])) > 0.0:
            held = kind if kind >= 0 else int(self._assigned[place])
            held = held if held >= 0 else int(self.gangs.fastest[place, 0])
            part_s = self._settings.round_s / _PARTS_OF_ROUND
            ran_s = round(received_s / nodes / part_s) * part_s
            progress.service_s[place, held] += ran_s
            progress.node_s[place] += ran_s * nodes
        self._held_s[place] = task.held_node_s
        progress.kind[place], progress.nodes[place] = kind, nodes
        left = _ENDLESS if task.work_left_samples is None else task.work_left_samples
        progress.left[place] = max(left, _LEAST_WORK)


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
        deadline_s=None if task.deadline_in_s is None else round(now_s + task.deadline_in_s),
    )
