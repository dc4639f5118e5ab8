"""Gangs of tasks in columns, and speeds of pairs. A gang runs on all its nodes, of one kind, or waits."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from bftrain.deciding.goodput import batches_by_size, by_progress
from bftrain.errors import BadInput
from bftrain.values.curve import SpeedCurve
from bftrain.values.sharing import PairSpeeds
from bftrain.values.task import TaskSpec
from bftrain_datasets.workloads.speed_table import load_pair_speeds
from bftrain_replay.rounds.round_settings import LARGEST, SMALLEST, RoundSettings
from bftrain_replay.simulation.replay_settings import LONGEST_S

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]
Column = TypeVar("Column", bound=NDArray[Any])
PHASE_COLUMNS: Final = ("model", "from", "nodes", "rate")
Phases = tuple[tuple[float, SpeedCurve], ...]  # (fraction of the work done, curve valid from there), ascending


def model_of(name: str) -> str:
    """Return the model of a task named MODEL-NUMBER, the naming of imported and generated tasks."""
    model, _, number = name.rpartition("-")
    return model if number.isdigit() else name


class PairTable:
    """The pairs of a throughput table; empty without a file."""

    def __init__(self, file: str) -> None:
        self._pairs = load_pair_speeds(Path(file)) if file else ()
        self._last: tuple[set[tuple[str, int]], tuple[PairSpeeds, ...]] = set(), ()  # gangs and their pairs

    def between(self, names: Sequence[str], nodes: Sequence[int]) -> tuple[list[str], tuple[PairSpeeds, ...]]:
        """Return a model for each of these tasks, and the pairs whose models both have gangs of the pair's size."""
        models = [model_of(name) for name in names]
        gangs = set(zip(models, nodes, strict=True))
        if gangs != self._last[0]:
            found = (pair for pair in self._pairs if all((model, pair.nodes) in gangs for model in pair.models))
            self._last = gangs, tuple(found)
        return models, self._last[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskGangs:
    """Tasks in arrival order. ``speeds`` are samples/s by task and kind, 0 where a task cannot run.

    ``work`` is infinite for an endless task; ``fastest`` lists each task's kinds, the fastest first; ``most`` is the
    largest number of nodes of each kind, and ``best`` a task's speed on its fastest kind at its best size. A policy
    that chooses sizes changes ``nodes``, and with them ``speeds`` and ``fastest``. For tasks that set batches,
    ``speeds`` are progress at the best batch of the current size, which ``batches`` lists (0 for other tasks).
    ``pairs`` are speeds of two tasks on the same nodes. Where policies misjudge speeds, these are the tasks as policies
    see them, and ``actual`` has the true ones.
    """

    specs: list[TaskSpec]
    kinds: tuple[str, ...]
    submit_s: Floats
    nodes: Ints
    weight: Floats
    work: Floats
    start_cost_s: Floats
    speeds: Floats
    fastest: Ints
    best: Floats
    most: Mapping[str, int]
    stated: list[TaskSpec]  # inputs before batches were chosen
    batches: Floats
    pairs: PairTable
    actual: TaskGangs | None = None

    def __len__(self) -> int:
        return len(self.specs)

    def put(self, place: int, task: TaskSpec) -> None:
        """Replace the task in a row; its size is its smallest."""
        self.stated[place], self.specs[place] = task, by_progress(task)
        self.submit_s[place], self.weight[place] = task.submit_s, task.weight
        self.start_cost_s[place] = task.start_cost_s
        self.work[place] = np.inf if task.work_samples is None else task.work_samples
        self.nodes[place] = task.min_nodes
        self.batches[place] = _batches_on(task, task.min_nodes, self.most)
        self.look_again(place)

    def resize(self, places: Ints, nodes: Ints) -> None:
        """Set the number of nodes of these tasks."""
        if self.actual is not None:
            self.actual.resize(places, nodes)
        for place, count in zip(places.tolist(), nodes.tolist(), strict=True):
            if count != self.nodes[place]:
                self.nodes[place] = count
                self.batches[place] = _batches_on(self.stated[place], count, self.most)
                self._set_speeds(place)

    def set_curve(self, place: int, curve: SpeedCurve) -> None:
        """Replace the curve of a task without ``curves`` by kind."""
        self.specs[place] = msgspec.structs.replace(self.specs[place], curve=curve)
        self.look_again(place)

    def look_again(self, place: int) -> None:
        """Compute the speeds of a task again, after a change of its curves or of ``most``."""
        self._set_speeds(place)
        self.best[place] = _best(self.specs[place], self.speeds[place].tolist(), self.most)

    def _set_speeds(self, place: int) -> None:
        self.speeds[place] = _speeds_on(self.specs[place], int(self.nodes[place]), self.most)
        self.fastest[place] = np.argsort(-self.speeds[place], kind="stable")


def gangs_of(
    tasks: Sequence[TaskSpec], most: dict[str, int], settings: RoundSettings, *, sizes: bool = False
) -> TaskGangs:
    """Return tasks as gangs on kinds with at ``most`` that many nodes at a time.

    Raise for a task that can never run. With ``sizes`` the policy chooses each task's size.
    """
    chosen = "" if sizes else settings.gang
    stated = [task if sizes else _gang(task, chosen) for task in sorted(tasks, key=lambda task: task.submit_s)]
    specs = [by_progress(task) for task in stated]
    kinds, nodes = tuple(most), [task.min_nodes for task in specs]
    speeds = np.array([_usable_speeds(task, count, most) for task, count in zip(specs, nodes, strict=True)])
    speeds = speeds.reshape(len(specs), len(kinds))
    return TaskGangs(
        specs=specs,
        kinds=kinds,
        submit_s=np.array([task.submit_s for task in specs]),
        nodes=np.array(nodes, dtype=np.intp),
        weight=np.array([task.weight for task in specs]),
        work=np.array([np.inf if task.work_samples is None else task.work_samples for task in specs]),
        start_cost_s=np.array([_start_cost_s(task, settings) for task in specs]),
        speeds=speeds,
        fastest=np.argsort(-speeds, axis=1, kind="stable"),
        best=np.array([_best(task, row, most) for task, row in zip(specs, speeds.tolist(), strict=True)]),
        most=most,
        stated=stated,
        batches=np.array(
            [_batches_on(task, count, most) for task, count in zip(stated, nodes, strict=True)], dtype=np.float64
        ).reshape(len(specs), len(kinds)),
        pairs=PairTable(settings.pairs),
    )


def _start_cost_s(task: TaskSpec, settings: RoundSettings) -> float:
    own_s = task.start_cost_s if settings.start_cost_s is None else settings.start_cost_s
    cost_s = own_s * settings.cost_factor
    if cost_s > LONGEST_S:
        what = f"takes {cost_s:g} s to start, more than {LONGEST_S:g} s"
        raise BadInput(
            what, where=f"task '{task.name}'", fix="see start_cost_s, --set start-cost and --set cost-factor"
        )
    return cost_s


def _gang(task: TaskSpec, chosen: str) -> TaskSpec:
    """Return the task with its one size in rounds."""
    if task.min_nodes == task.max_nodes:
        return task
    if not chosen:
        raise BadInput(
            f"runs on {task.min_nodes} to {task.max_nodes} nodes, and in rounds a task has one size",
            where=f"task '{task.name}'",
            fix=f"choose it for all tasks: --set gang={SMALLEST} or --set gang={LARGEST}",
        )
    size = task.max_nodes if chosen == LARGEST else task.min_nodes
    return msgspec.structs.replace(task, min_nodes=size, max_nodes=size)


def _best(task: TaskSpec, speeds: Sequence[float], most: Mapping[str, int]) -> float:
    """Return the speed on the kind and at the size that are fastest."""
    if task.min_nodes == task.max_nodes:
        return max(speeds)
    sizes = range(task.min_nodes, min(task.max_nodes, max(most.values())) + 1)
    return max((speed for nodes in sizes for speed in _speeds_on(task, nodes, most)), default=0.0)


def _speeds_on(task: TaskSpec, nodes: int, most: Mapping[str, int]) -> list[float]:
    """Return a task's speed on this many nodes of each kind; 0 where it cannot run."""
    speeds = []
    for kind, count in most.items():
        curve = task.curve_on(kind) if nodes <= count else None
        if curve is None:
            speeds.append(0.0)
        else:  # measured curves need no scaling and are quicker
            speeds.append(curve.rate[curve.nodes.index(nodes)] if nodes in curve.nodes else curve.speed(nodes))
    return speeds


def _batches_on(task: TaskSpec, nodes: int, most: Mapping[str, int]) -> list[int]:
    """Return the best batch on this many nodes of each kind; 0 if no batch fits."""
    found = [batches_by_size(task, kind) if nodes <= count else () for kind, count in most.items()]
    return [batches[nodes] if batches else 0 for batches in found]


def _usable_speeds(task: TaskSpec, nodes: int, most: Mapping[str, int]) -> list[float]:
    """Return the speeds as :func:`_speeds_on`; raise if all are 0."""
    speeds = _speeds_on(task, nodes, most)
    if any(speeds):
        return speeds
    there = ", ".join(f"{count} of '{kind}'" if kind else f"{count}" for kind, count in most.items())
    what = f"can never run: it needs {nodes} nodes of a kind for which it has a speed, and there are {there or 'none'}"
    raise BadInput(what, where=f"task '{task.name}'", fix="omit it, or give more nodes of a suitable kind")


class TrainingPhases:
    """Switches each task to the curve of its current phase. Tasks of models that the table lacks keep their curve.

    With a growing gradient noise scale, larger batches pay off later in training, so a task gains more from many nodes
    then. A row ``model,from,nodes,rate`` of the table is the model's speed on that many nodes after the fraction
    ``from`` of its work.
    """

    def __init__(self, file: str, gangs: TaskGangs) -> None:
        table = _table(Path(file)) if file else {}
        self.any = bool(table)
        self._gangs = gangs
        self._phases = [table.get(model_of(spec.name), ()) for spec in gangs.specs]
        for spec, phases in zip(gangs.specs, self._phases, strict=True):
            if phases and spec.curves and any(gangs.kinds):
                what, fix = "has speeds by kind of nodes, and phases have none", "give it one curve, or omit phases"
                raise BadInput(what, where=f"task '{spec.name}'", fix=fix)
        self._number = np.full(len(gangs), -1, dtype=np.intp)
        self._ends: Floats = np.full(len(gangs), -np.inf)  # remaining work at which the phase is complete
        for place in range(len(gangs)):
            self._enter(place, gangs.work[place])

    def advance(self, places: Ints, left: Floats) -> bool:
        """Switch the tasks that have reached their next phase; return whether any did."""
        due = places[(left[places] <= self._ends[places]) & (left[places] > 0.0)]
        for place in due.tolist():
            self._enter(place, left[place])
        return bool(due.size)

    def _enter(self, place: int, left: float) -> None:
        phases, work, number = self._phases[place], self._gangs.work[place], self._number[place] + 1
        if number >= len(phases):
            return
        while number + 1 < len(phases) and left <= (1.0 - phases[number + 1][0]) * work:
            number += 1
        self._number[place] = number
        self._ends[place] = (1.0 - phases[number + 1][0]) * work if number + 1 < len(phases) else -np.inf
        self._gangs.set_curve(place, phases[number][1])


def _table(path: Path) -> Mapping[str, Phases]:
    points: dict[str, dict[float, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    try:
        with path.open(encoding="utf-8", newline="") as lines:
            for row in csv.DictReader(lines):
                points[row["model"]][float(row["from"])][int(row["nodes"])] = float(row["rate"])
        found = {
            model: tuple((share, _curve(curves[share])) for share in sorted(curves)) for model, curves in points.items()
        }
    except OSError as error:
        raise BadInput(str(error.strerror), where=str(path), fix="name a table of phases") from error
    except (KeyError, ValueError, TypeError) as error:
        fix = f"write a CSV table with the columns {','.join(PHASE_COLUMNS)}"
        raise BadInput(f"is not a table of phases: {error}", where=str(path), fix=fix) from error
    for model, phases in found.items():
        if phases[0][0] != 0.0 or phases[-1][0] >= 1.0:
            what = f"phases of '{model}' start at {phases[0][0]:g} and end with {phases[-1][0]:g}"
            raise BadInput(what, where=str(path), fix="write shares from 0 to below 1, the first 0")
    return found


def _curve(points: Mapping[int, float]) -> SpeedCurve:
    nodes = tuple(sorted(points))
    return SpeedCurve(nodes=nodes, rate=tuple(points[size] for size in nodes))


def round_at(time_s: float, round_s: float) -> str:
    """Format a round and its start for messages."""
    return f"round {round(time_s / round_s):,} at {time_s:g} s"


class PairTimes:
    """Joint times of pairs of tasks by kind, in columns; the first ``count`` rows are used.

    ``joint_s`` is the total of a pair, ``read_s`` its latest reading by the policy, and ``before_s`` the reading at the
    last reset, for pairs ``counted`` since then.
    """

    def __init__(self, kinds: int) -> None:
        self.count = 0
        self._row: dict[tuple[int, int], int] = {}
        self._allocate(1, kinds)

    def _allocate(self, rows: int, kinds: int) -> None:
        self.tasks, self.counted = np.zeros((rows, 2), dtype=np.intp), np.zeros(rows, dtype=np.intp)
        self.joint_s, self.read_s, self.before_s = np.zeros((3, rows, kinds))

    def make_room(self, more: int) -> bool:
        """Make room for this many more pairs; return whether the columns are new arrays."""
        if self.count + more <= len(self.tasks):
            return False
        before = self.tasks, self.counted, self.joint_s, self.read_s, self.before_s
        self._allocate(2 * (self.count + more), self.joint_s.shape[1])
        for old, new in zip(before, (self.tasks, self.counted, self.joint_s, self.read_s, self.before_s), strict=True):
            new[: len(old)] = old
        return True

    def row(self, one: int, other: int) -> int:
        """Return the row of a pair, the smaller task first; -1 if the pair never ran."""
        return self._row.get((one, other), -1)

    def add(self, one: int, other: int) -> int:
        """Return the row of a pair; a new one where it never ran."""
        if (one, other) not in self._row:
            self.make_room(1)
            self.tasks[self.count] = one, other
            self.take_new(self.count + 1)
        return self._row[one, other]

    def take_new(self, count: int) -> None:
        """Take in pairs that compiled code has added to ``tasks``."""
        for row, (one, other) in enumerate(self.tasks[self.count : count].tolist(), self.count):
            self._row[one, other] = row
        self.count = count

    def forget_readings(self) -> None:
        """Restart the count of received time."""
        self.counted[:] = 0


class TaskProgressColumns:
    """Progress of all tasks, in columns. ``left`` is the remaining work, ``service_s`` the time by task and kind.

    ``kind`` is the kind number of the previous round (-1: did not run) and ``nodes`` the latest size. ``overhead_s`` is
    the remaining start-up time, ``node_s`` the node-seconds received. ``partner`` is the task that shared its nodes
    last (-1: no partner), ``paired_s`` the shared part of ``service_s``, ``pairs`` the joint times of two tasks.
    """

    __slots__ = ("kind", "left", "node_s", "nodes", "overhead_s", "paired_s", "pairs", "partner", "service_s")

    def __init__(self, gangs: TaskGangs) -> None:
        self.left = gangs.work.copy()
        self.service_s = np.zeros(gangs.speeds.shape)
        self.partner = np.full(len(gangs), -1, dtype=np.intp)
        self.paired_s = np.zeros(gangs.speeds.shape)
        self.pairs = PairTimes(gangs.speeds.shape[1])
        self.overhead_s = np.zeros(len(gangs))
        self.node_s = np.zeros(len(gangs))
        self.nodes = gangs.nodes.copy()
        self.kind = np.full(len(gangs), -1, dtype=np.intp)


class _Column(Generic[Column]):
    """A column of the gangs or of their progress, for the competing tasks."""

    def __init__(self, table: str, name: str) -> None:
        self._table, self._name = table, name

    def __get__(self, contenders: CompetingTasks, owner: type) -> Column:
        column: Column = getattr(getattr(contenders, self._table), self._name)[contenders.place]
        return column


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CompetingTasks:
    """The unfinished tasks, in arrival order; every column has one row for each.

    ``place`` is a task's index in the run. ``free`` are the nodes of each kind in this round. ``version`` changes
    whenever tasks or nodes arrive or leave.
    """

    gangs: TaskGangs
    progress: TaskProgressColumns
    place: Ints
    free: Ints
    time_s: float
    round_s: float
    version: int

    submit_s = _Column[Floats]("gangs", "submit_s")
    nodes = _Column[Ints]("gangs", "nodes")
    weight = _Column[Floats]("gangs", "weight")
    speeds = _Column[Floats]("gangs", "speeds")  # samples/s by task and kind; 0 where a task cannot run
    left_samples = _Column[Floats]("progress", "left")  # infinite for an endless task
    service_s = _Column[Floats]("progress", "service_s")  # run time by task and kind
    received_node_s = _Column[Floats]("progress", "node_s")
    kind = _Column[Ints]("progress", "kind")  # number of the kind in the previous round; -1 if it did not run

    def __len__(self) -> int:
        return self.place.size

    @property
    def when(self) -> str:
        """The round and its start, for messages."""
        return round_at(self.time_s, self.round_s)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The node kinds; all columns by kind use this order."""
        return self.gangs.kinds

    @property
    def tasks(self) -> list[TaskSpec]:
        """The tasks themselves: names, users, curves, deadlines."""
        return [self.gangs.specs[place] for place in self.place.tolist()]

    @property
    def left_s(self) -> Floats:
        """Seconds of each task's remaining work on its fastest kind."""
        left_s: Floats = self.left_samples / self.speeds.max(axis=1)
        return left_s
