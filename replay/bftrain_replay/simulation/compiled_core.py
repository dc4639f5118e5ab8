"""CompiledCore: the default decisions of a Harvester, made by compiled code on numbers instead of names.

Replays use it where all parts of the Harvester are the default ones and nothing else affects a decision than the nodes,
the sizes and the speeds of tasks. Its decisions are those of the Harvester, to the last node and bit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from math import fsum
from time import perf_counter
from typing import Final, NamedTuple

import numpy as np

from bftrain.deciding.harvester import DecisionRequest, DefaultParts, Harvester
from bftrain.deciding.node_stay import CostFit, NodeStay, costs_of
from bftrain.deciding.placement import position
from bftrain.deciding.solve_with_fallback import ChosenSizes
from bftrain.deciding.value_table_builder import value_row
from bftrain.node_units import is_slot
from bftrain.values.problem import AllocationProblem, CompetingTask
from bftrain.values.task import TaskSpec
from bftrain_datasets.log.eventlog import EventLog, NodeRun
from bftrain_solvers.exact import ExactSolver
from bftrain_solvers.knapsack.compiled_allocation import DECLINED, MISSING, CompiledAllocation
from bftrain_solvers.knapsack.compiled_knapsack import compiled_library

_LARGEST_TABLE: Final = 2**20  # numbers; larger ones are the Harvester's
_ROWS: Final = 2**22  # numbers in all rows
_FEWEST: Final = 4  # times the tasks that compete: rows, and classes of tasks, that are kept at least
_LEAST_CLASSES: Final = 64
_FITS: Final = 32  # cost fits with their rows


class Step(NamedTuple):
    """A decision: actions as kind, task, nodes, kind, ...; and the sizes that changed as task, size, task, ..."""

    actions: list[int]
    size_changes: list[int]
    competing: int
    value: float
    solve_s: float
    choice: ChosenSizes | None  # where the compiled knapsack declined
    notes: list[str]


def compiled_core(decider: object, log: EventLog, tasks: Sequence[TaskSpec], *, records: bool) -> CompiledCore | None:
    """Return a compiled core that decides as ``decider``, or ``None`` if no compiled core can.

    With ``records`` it records the allocations of nodes.
    """
    if not isinstance(decider, Harvester):
        return None
    parts = decider.default_parts
    if parts is None or not tasks or type(parts.solver) is not ExactSolver or compiled_library() is None:
        return None
    nodes = len(log.node_names)
    stride = 1 + max(min(spec.max_nodes, nodes) for spec in tasks)
    several = log.kind_names or any(spec.curves or spec.spread or spec.batch for spec in tasks)
    if several or min(parts.max_tasks, len(tasks)) * stride > _LARGEST_TABLE:
        return None
    return CompiledCore(decider, parts, log.node_names, len(tasks), stride, records=records)


class CompiledCore:
    """The unfinished tasks, numbered in the sequence of their arrival, with their nodes and their value rows."""

    def __init__(
        self, harvester: Harvester, parts: DefaultParts, names: Sequence[str], tasks: int, stride: int, *, records: bool
    ) -> None:
        self._harvester, self._parts = harvester, parts
        most = min(parts.max_tasks, tasks)
        self.allocation = CompiledAllocation(
            names,
            list(map(position, names)),
            list(map(is_slot, names)),
            tasks=tasks,
            competing=most,
            stride=stride,
            records=records,
        )
        self._specs: dict[int, TaskSpec] = {}
        self._competing: list[int] = []
        self._waiting: deque[int] = deque()
        self._requeued = False  # whether other tasks compete than in the last decision
        self._notes: list[str] = []  # on events since the last decision
        self._dropped: list[int] = []  # finished tasks to which the last decision gave nodes
        self._stay = NodeStay()
        self._time_s = float("-inf")
        self._rows = _ValueRows(self._competing_task, parts, most, stride)
        self._rows.install(self.allocation, None)

    @property
    def competing(self) -> Sequence[int]:
        """The tasks that compete."""
        return self._competing

    # -- events, in the sequence in which the Harvester processes those of a moment: ends of tasks may come first

    def pass_time(self, now_s: float | None, pool: int, departures: int) -> None:
        """Observe that ``pool`` nodes were idle until now; without any event (``None``), until the last time."""
        if now_s is not None:
            self._time_s = now_s
        self._stay = self._stay.after(self._time_s, pool, departures)

    def leave(self, nodes: NodeRun, now_s: float) -> list[int]:
        """Remove nodes from the pool; return the actions that must happen immediately."""
        block, first, end = nodes
        return self.allocation.leave(block.address + 8 * first, end - first, now_s)

    def join(self, nodes: NodeRun, now_s: float) -> None:
        """Add nodes to the pool."""
        block, first, end = nodes
        self.allocation.join(block.address + 8 * first, end - first, now_s)

    def submit(self, task: int, spec: TaskSpec) -> None:
        """Add a task as decisions believe it to be."""
        self._specs[task] = spec
        if note := spec.curve.note(spec.max_nodes):
            self._notes.append(f"task '{spec.name}': {note}")
        if len(self._competing) < self._parts.max_tasks:
            self._enter(task)
        else:
            self._waiting.append(task)

    def finish(self, task: int, now_s: float) -> None:
        """Remove a finished task."""
        if self.allocation.release(task, now_s):
            self._dropped.append(task)
        del self._specs[task]
        self._competing.remove(task)
        self._requeued = True
        if self._waiting:
            self._enter(self._waiting.popleft())

    def _enter(self, task: int) -> None:
        self._requeued = True
        self._competing.append(task)
        entered = [task]
        if self._rows.full:
            self._rows.clear()
            entered = self._competing
        for each in entered:
            spec = self._specs[each]
            self.allocation.add_task(each, spec.min_nodes, self._rows.class_of(spec))

    # -- decisions

    def decide(self, now_s: float) -> Step:
        """Divide the pool among the competing tasks."""
        allocation, tasks, choice = self.allocation, self._competing, None
        self._time_s = max(self._time_s, now_s)
        if self._requeued:
            allocation.compete(tasks)
            self._requeued = False
        value = solve_s = 0.0
        if tasks:
            fit = self._stay.fit(allocation.pool / len(tasks)) if self._parts.fits_costs else None
            self._rows.install(allocation, fit)
            begun = perf_counter()
            while (outcome := allocation.choose()) == MISSING:
                task, size = allocation.missing
                self._rows.add(allocation, self._specs[task], size, fit)
                begun = perf_counter()
            solve_s = perf_counter() - begun
            if outcome == DECLINED:
                choice = self._ask_harvester(now_s, fit)
                value, solve_s = choice.value, choice.solution.wall_s
            else:
                value = fsum(allocation.entries())
        actions = allocation.carry_out(now_s)
        changes = allocation.size_changes()
        if self._dropped:
            changes = [number for task in sorted(self._dropped) for number in (task, 0)] + changes
            self._dropped = []
        notes = self._notes
        if notes:
            self._notes = []
        return Step(actions, changes, len(tasks), value, solve_s, choice, notes)

    def _ask_harvester(self, now_s: float, fit: CostFit | None) -> ChosenSizes:
        """Let the Harvester choose the sizes of the present problem."""
        allocation = self.allocation
        tasks = tuple(self._competing_task(self._specs[task], allocation.size(task), fit) for task in self._competing)
        problem = AllocationProblem(
            pool=allocation.pool, horizon_s=self._parts.horizon_s, objective=self._parts.objective.name, tasks=tasks
        )
        names = tuple(task.name for task in tasks)
        request = DecisionRequest(time_s=now_s, asked_after=0, named=names, admitted=names, problem=problem)
        choice = self._harvester.answer(request)
        allocation.set_sizes([choice.sizes.get(name, 0) for name in names])
        return choice

    @staticmethod
    def _competing_task(spec: TaskSpec, size: int, fit: CostFit | None) -> CompetingTask:
        grow_cost_s, shrink_cost_s, start_cost_s = fit.costs_of(spec) if fit is not None else costs_of(spec)
        return CompetingTask(
            name=spec.name,
            size=size,
            min_nodes=spec.min_nodes,
            max_nodes=spec.max_nodes,
            curve=spec.curve,
            weight=spec.weight,
            user=spec.user,
            grow_cost_s=grow_cost_s,
            shrink_cost_s=shrink_cost_s,
            start_cost_s=start_cost_s,
        )


class _ValueRows:
    """Value rows by cost fit, class of tasks and size; tasks of a class have equal rows."""

    def __init__(
        self,
        describe: Callable[[TaskSpec, int, CostFit | None], CompetingTask],
        parts: DefaultParts,
        competing: int,
        stride: int,
    ) -> None:
        self._describe, self._parts, self._stride = describe, parts, stride
        self._most_classes = max(_LEAST_CLASSES, _FEWEST * competing)
        self._most_rows = max(_ROWS // stride, _FEWEST * competing)
        self.clear()

    def clear(self) -> None:
        """Forget all rows and classes."""
        self._rows = np.empty((64, self._stride))
        self._classes: dict[object, int] = {}
        self._largest = np.zeros(self._most_classes, dtype=np.int64)
        self._clear_rows()

    def _clear_rows(self) -> None:
        self._by_content: dict[bytes, int] = {}
        self._row_of: dict[CostFit | None, np.ndarray[tuple[int, int], np.dtype[np.int64]]] = {}
        self._installed: object = self  # no fit

    @property
    def full(self) -> bool:
        """Whether there is no room for another class."""
        return len(self._classes) == self._most_classes

    def class_of(self, spec: TaskSpec) -> int:
        """Return the class of a task."""
        costs = (spec.grow_cost_s, spec.shrink_cost_s, spec.start_cost_s)
        key = spec.curve, spec.min_nodes, spec.max_nodes, spec.weight, costs
        known = self._classes.get(key)
        if known is None:
            known = self._classes[key] = len(self._classes)
            self._largest[known] = spec.max_nodes
        return known

    def install(self, allocation: CompiledAllocation, fit: CostFit | None) -> None:
        """Let an allocation use the rows of a cost fit."""
        if fit is self._installed:
            return
        row_of = self._row_of.get(fit)
        if row_of is None:
            if len(self._row_of) >= _FITS:
                self._row_of.clear()
            row_of = self._row_of[fit] = np.full((self._most_classes, self._stride), -1)
        self._installed = fit
        allocation.set_rows(self._rows, row_of, self._largest)

    def add(self, allocation: CompiledAllocation, spec: TaskSpec, size: int, fit: CostFit | None) -> None:
        """Compute the row of tasks like ``spec`` that have ``size`` nodes."""
        objective, most = self._parts.objective, min(spec.max_nodes, self._stride - 1)
        found = value_row(self._describe(spec, size, fit), self._parts.horizon_s, objective, most)
        row = np.full(self._stride, -np.inf)
        row[: found.size] = found
        number = self._by_content.get(content := row.tobytes())
        if number is None:
            number = len(self._by_content)
            if number >= self._most_rows:
                self._clear_rows()
                number = 0
            elif number == len(self._rows):
                self._rows = np.concatenate((self._rows, np.empty_like(self._rows)))
                self._installed = self
            self._by_content[content] = number
            self._rows[number] = row
        self.install(allocation, fit)
        row_class = self.class_of(spec)
        self._row_of[fit][row_class, size] = number
