"""CompiledCore: the default decisions of a Harvester, made by compiled code on numbers instead of names.

Replays use it where all parts of the Harvester are the default ones, and the objective, possibly the user's own, reads
no fields of tasks that change. Its decisions are those of the Harvester, to the last node and bit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from math import fsum
from operator import attrgetter
from time import perf_counter
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bftrain.deciding.harvester import DecisionRequest, DefaultParts, Harvester
from bftrain.deciding.node_stay import CostFit, NodeStay, costs_of
from bftrain.deciding.placement import position
from bftrain.deciding.solve_with_fallback import ChosenSizes
from bftrain.deciding.task_table import TaskEntry, TaskHistory
from bftrain.deciding.value_table_builder import RowValues
from bftrain.errors import BadObjective
from bftrain.node_units import is_slot
from bftrain.values.problem import AllocationProblem, CompetingTask
from bftrain.values.task import TaskSpec
from bftrain.values.wire import unchecked
from bftrain_datasets.log.eventlog import EventLog, NodeRun
from bftrain_solvers.exact import ExactSolver
from bftrain_solvers.knapsack.compiled_allocation import CompiledAllocation
from bftrain_solvers.knapsack.compiled_knapsack import compiled_library

_LARGEST_TABLE: Final = 2**20  # numbers in a value table; the Harvester decides if it would be larger
# There is room for 64 classes of tasks, and for four times as many as tasks may compete
_LEAST_CLASSES: Final = 64
_CLASSES_PER_TASK: Final = 4
_MOST_FITS: Final = 64  # number of cost fits kept in memory
_CLASS_FIELDS: Final = ("curve", "min_nodes", "max_nodes", "grow_cost_s", "shrink_cost_s", "start_cost_s")
# Fields of competing tasks that change between decisions; those of _TIMED only if the task has work or a deadline
_CHANGING: Final = {"size", "grow_cost_s", "shrink_cost_s", "start_cost_s"}
_TIMED: Final = {"work_left_samples": "work_samples", "deadline_in_s": "deadline_s"}


class Step(NamedTuple):
    """A decision: actions as kind, task, nodes, kind, ...; and the sizes that changed as task, size, task, ..."""

    actions: list[int]
    size_changes: list[int]
    competing: int
    value: float
    solve_s: float
    choice: ChosenSizes | None  # the Harvester's sizes, if the compiled knapsack declined
    notes: list[str]


def compiled_core(
    decider: object,
    log: EventLog,
    tasks: Sequence[TaskSpec],
    believed: Callable[[TaskSpec], TaskSpec] | None = None,
    *,
    records: bool,
) -> CompiledCore | None:
    """Return a compiled core that decides as ``decider``, or ``None`` if no compiled core can.

    ``believed`` returns a task as decisions see it. With ``records`` it records the allocations of nodes. ``decider``
    stays without events: after the run it has no nodes, tasks or time, so callers read the results of the run only.
    """
    if type(decider) is not Harvester:  # a subclass may decide otherwise
        return None
    parts = decider.default_parts
    if parts is None or not tasks or type(parts.solver) is not ExactSolver or compiled_library() is None:
        return None
    nodes = len(log.node_names)
    stride = 1 + max(min(spec.max_nodes, nodes) for spec in tasks)
    several = log.kind_names or any(spec.curves or spec.spread or spec.batch for spec in tasks)
    if several or min(parts.max_tasks, len(tasks)) * stride > _LARGEST_TABLE:
        return None
    values = RowValues(parts.objective)
    if not _reads_constants(values, map(believed, tasks) if believed else tasks, stride):
        return None
    return CompiledCore(decider, parts, values, log.node_names, len(tasks), stride, records=records)


def _reads_constants(values: RowValues, tasks: Iterable[TaskSpec], stride: int) -> bool:
    """Return whether the values of tasks depend on constants only; ``values`` learns on which fields they depend."""
    seen = set[object]()
    read, key_of = set[str](), _key_of_spec(values)
    for spec in tasks:
        key = key_of(spec)
        if key not in seen:
            seen.add(key)
            try:
                values.values(competing_task(spec, 0, None), _sizes(spec, stride))
            except BadObjective:  # the Harvester raises it only if this task ever competes
                return False
            if read != values.read:
                read, key_of = {*values.read}, _key_of_spec(values)
        if read & _CHANGING or any(getattr(spec, _TIMED[name]) is not None for name in read & _TIMED.keys()):
            return False
    return True


def _key_of_spec(values: RowValues) -> Callable[[TaskSpec], object]:
    """Return the function from a task to all that its values and costs depend on."""
    fields = values.read & {*TaskSpec.__struct_fields__} - {"curves"}  # no task has several curves here
    return attrgetter(*_CLASS_FIELDS, *fields)


def _sizes(spec: TaskSpec, stride: int) -> NDArray[np.int64]:
    return np.arange(min(spec.max_nodes, stride - 1) + 1)


class CompiledCore:
    """The unfinished tasks, numbered in the sequence of their arrival, with their nodes and their classes."""

    def __init__(
        self,
        harvester: Harvester,
        parts: DefaultParts,
        values: RowValues,
        names: Sequence[str],
        tasks: int,
        stride: int,
        *,
        records: bool,
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
            horizon_s=parts.horizon_s,
            records=records,
        )
        self._specs: dict[int, TaskSpec] = {}
        self._competing: list[int] = []
        self._waiting: deque[int] = deque()
        self._requeued = False  # whether other tasks compete than in the last decision
        self._notes: list[str] = []  # notes on events since the last decision
        self._dropped: list[int] = []  # finished tasks to which the last decision gave nodes
        self._stay = NodeStay()
        self._time_s = float("-inf")
        self._classes = _TaskClasses(self.allocation, values, most, stride)

    @property
    def competing(self) -> Sequence[int]:
        """The tasks that compete."""
        return self._competing

    # -- events, called in the Harvester's sequence for the events of a moment; finished tasks may come first

    def pass_time(self, now_s: float | None, pool: int, departures: int) -> None:
        """Observe that ``pool`` nodes were idle until now; with ``None``, until the last event or decision."""
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
        if self._classes.full:
            self._classes.clear()
            entered = self._competing
        for number in entered:
            spec = self._specs[number]
            self.allocation.arrays["minimum"][number] = spec.min_nodes
            self.allocation.arrays["row_class"][number] = self._classes.of(spec)

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
            fit = self._stay.fit(allocation.state.pool / len(tasks)) if self._parts.fits_costs else None
            self._classes.use(fit)
            begun = perf_counter()
            chosen = allocation.choose()
            solve_s = perf_counter() - begun
            if chosen:
                value = fsum(allocation.arrays["entries"][: len(tasks)].tolist())
            else:
                choice = self._ask_harvester(now_s, fit)
                value, solve_s = choice.value, choice.solution.wall_s
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
        """Let the Harvester choose the sizes of the current problem."""
        allocation = self.allocation
        sizes = allocation.arrays["size"][self._competing].tolist()
        pairs = zip(self._competing, sizes, strict=True)
        tasks = tuple(competing_task(self._specs[task], size, fit) for task, size in pairs)
        problem = AllocationProblem(
            pool=allocation.state.pool,
            horizon_s=self._parts.horizon_s,
            objective=self._parts.objective.name,
            tasks=tasks,
        )
        names = tuple(task.name for task in tasks)
        request = DecisionRequest(time_s=now_s, asked_after=0, named=names, admitted=names, problem=problem)
        choice = self._harvester.answer(request)
        allocation.arrays["sizes"][: len(names)] = [choice.sizes.get(name, 0) for name in names]
        return choice


class _TaskClasses:
    """Classes of tasks with equal values: what each size is worth per second, and what changes cost by cost fit."""

    def __init__(self, allocation: CompiledAllocation, values: RowValues, competing: int, stride: int) -> None:
        self._allocation, self._values, self._stride = allocation, values, stride
        self._key_of = _key_of_spec(values)
        self._most = max(_LEAST_CLASSES, _CLASSES_PER_TASK * competing)
        self._worth = np.zeros((self._most, stride))
        self._greatest = np.zeros(self._most)
        self._largest = np.zeros(self._most, dtype=np.int64)
        allocation.state.bind(worth=self._worth, greatest=self._greatest, largest=self._largest)
        self.clear()

    def clear(self) -> None:
        """Forget all classes."""
        self._number: dict[object, int] = {}
        self._examples: list[TaskSpec] = []
        self._costs_s: dict[CostFit | None, tuple[int, NDArray[np.float64]]] = {}  # costs of the first classes, by fit
        self._used: tuple[CostFit | None, int] | None = None  # the fit in use, and the number of classes with its costs

    @property
    def full(self) -> bool:
        """Whether there is no room for another class."""
        return len(self._number) == self._most

    def of(self, spec: TaskSpec) -> int:
        """Return the class of a task."""
        key = self._key_of(spec)
        number = self._number.get(key)
        if number is None:
            number = self._number[key] = len(self._number)
            self._examples.append(spec)
            worth = self._values.values(competing_task(spec, 0, None), _sizes(spec, self._stride))
            self._worth[number, : worth.size] = worth
            self._greatest[number] = np.abs(worth).max()
            self._largest[number] = worth.size - 1
        return number

    def use(self, fit: CostFit | None) -> None:
        """Let decisions count the costs of a fit."""
        now = fit, len(self._examples)
        if now == self._used:
            return
        if fit not in self._costs_s and len(self._costs_s) >= _MOST_FITS:
            self._costs_s.clear()
        done, costs_s = self._costs_s.get(fit) or (0, np.zeros((self._most, 3)))
        for number, spec in enumerate(self._examples[done:], done):
            costs_s[number] = costs_of(spec, fit)
        self._costs_s[fit] = len(self._examples), costs_s
        self._used = now
        self._allocation.state.bind(costs_s=costs_s)


def competing_task(spec: TaskSpec, size: int, fit: CostFit | None) -> CompetingTask:
    """Describe a task without kinds for a decision."""
    entry = TaskEntry(spec, TaskHistory(submitted_s=0.0, since_s=0.0))
    return unchecked(entry.competing(0.0, fit=fit), size=size)
