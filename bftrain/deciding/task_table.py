"""TaskTable: the unfinished tasks and the nodes that each of them holds."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, KeysView, Mapping
from copy import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import force_setattr, replace

from bftrain.deciding.goodput import by_progress
from bftrain.deciding.node_stay import CostFit, costs_of
from bftrain.node_units import host_of
from bftrain.values.curve import ANY_KIND
from bftrain.values.events import TaskMeasured
from bftrain.values.problem import CompetingTask
from bftrain.values.task import TaskSpec

if TYPE_CHECKING:
    from bftrain.values.curve import SpeedCurve


_MOST_FITS: Final = 8  # ways to fit costs for which descriptions are kept


class TaskHistory(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When it was submitted, and what it had until ``since_s``: node-seconds, and samples according to its curve.

    Times are on the clock of the events. What rescaling costs is not taken off.
    """

    submitted_s: float
    since_s: float
    held_node_s: float = 0.0
    done_samples: float = 0.0

    def until(self, now_s: float, size: int, speed: float) -> TaskHistory:
        """Give what it had until ``now_s``, holding ``size`` nodes and running at ``speed`` samples/s all the time."""
        passed_s = now_s - self.since_s
        if passed_s <= 0.0:
            return self
        return TaskHistory(
            submitted_s=self.submitted_s,
            since_s=now_s,
            held_node_s=self.held_node_s + passed_s * size,
            done_samples=self.done_samples + passed_s * speed,
        )


def speed_at(curve: SpeedCurve, size: int) -> float:
    """Give the curve's speed. For one size this is several times as fast as numpy, and it is asked at every change."""
    place = bisect_left(curve.nodes, size)
    if place == len(curve.nodes):
        return curve.rate[-1]
    above, fastest = curve.nodes[place], curve.rate[place]
    below, slowest = (curve.nodes[place - 1], curve.rate[place - 1]) if place else (0, 0.0)
    return slowest + (fastest - slowest) * (size - below) / (above - below)


@dataclass(slots=True)
class TaskEntry:
    """An unfinished task with its nodes (node -> group), all of one ``kind``, and what it had so far."""

    spec: TaskSpec
    past: TaskHistory
    held: dict[str, int] = field(default_factory=dict)
    kind: str = ANY_KIND
    failures: int = 0
    work_left_samples: float | None = None
    paused: bool = False
    chooses_batch: bool = False  # whether decisions choose its batch: its speed is then its progress at the best one
    place_of: Callable[[str], str] = host_of
    changes: int = 0  # rises whenever its size, its kind or what is known of it changes
    # By how costs are fitted, which changes to and fro; both until then
    _seen: dict[CostFit | None, CompetingTask] = field(default_factory=dict)
    _checked: CompetingTask | None = None  # one built from ``spec``, of which later ones are changed copies
    _speed: float | None = None
    _by_progress: TaskSpec | None = None

    @property
    def decided(self) -> TaskSpec:
        """What decisions see of it."""
        if not self.chooses_batch or self.spec.batch is None:
            return self.spec
        if self._by_progress is None:
            self._by_progress = by_progress(self.spec)
        return self._by_progress

    @property
    def size(self) -> int:
        """The number of nodes it holds."""
        return len(self.held)

    @property
    def speed(self) -> float:
        """Samples/s at the nodes it holds now."""
        if self._speed is None:
            curve = self.decided.curve_on(self.kind) if self.held else None
            self._speed = 0.0 if curve is None else speed_at(curve, len(self.held))
            if self.decided.spread is not None:
                places = len(set(map(self.place_of, self.held)))
                self._speed = self.decided.spread.speed(len(self.held), places, self._speed, self.kind)
        return self._speed

    def come_to(self, now_s: float) -> None:
        """Book what it had until now; to be called before its nodes or its speed change."""
        if now_s > self.past.since_s:
            self.past = self.past.until(now_s, len(self.held), self.speed)
        self._seen.clear()
        self._speed = None
        self.changes += 1

    def measured(self, event: TaskMeasured) -> None:
        """Take over what was measured."""
        self.come_to(event.time_s)
        known = {
            name: value
            for name in ("curve", "curves", "grow_cost_s", "shrink_cost_s", "start_cost_s")
            if (value := getattr(event, name)) is not None
        }
        self._checked = self._by_progress = None
        if known:
            self.spec = replace(self.spec, **known)
        if event.work_left_samples is not None:
            self.work_left_samples = event.work_left_samples

    def competing(self, time_s: float, *, history: bool = False, fit: CostFit | None = None) -> CompetingTask:
        """Describe it for a decision at ``time_s``; rebuilt only if something changed since the last one.

        With ``history`` it tells what the task had so far; with ``fit`` its costs are fitted to how long nodes stay.
        """
        spec = self.spec
        if spec.deadline_s is None and not history and (seen := self._seen.get(fit)) is not None:
            return seen
        size = len(self.held)
        had = self.past.until(time_s, size, self.speed) if history else None
        grow_cost_s, shrink_cost_s, start_cost_s = fit.costs_of(spec) if fit is not None else costs_of(spec)
        changing: dict[str, object] = {
            "size": size,
            "kind": self.kind if size else ANY_KIND,
            "grow_cost_s": grow_cost_s,
            "shrink_cost_s": shrink_cost_s,
            "start_cost_s": start_cost_s,
            "deadline_in_s": None if spec.deadline_s is None else spec.deadline_s - time_s,
            "age_s": max(0.0, time_s - had.submitted_s) if had else 0.0,
            "held_node_s": had.held_node_s if had else 0.0,
            "done_samples": had.done_samples if had else 0.0,
        }
        if self._checked is None:
            seen_spec = self.decided
            self._checked = CompetingTask(
                name=spec.name,
                min_nodes=spec.min_nodes,
                max_nodes=spec.max_nodes,
                curve=seen_spec.curve,
                curves=seen_spec.curves,
                user=spec.user,
                weight=spec.weight,
                batch=seen_spec.batch,
                work_left_samples=self.work_left_samples,
                **changing,  # type: ignore[arg-type]  # each is of its field's type
            )
        seen = copy(self._checked)  # msgspec checks no copy: what changes below was computed here, in bounds
        for name, value in changing.items():
            force_setattr(seen, name, value)
        self._seen[fit] = seen
        return seen


@dataclass(frozen=True, slots=True)
class CompetingTasks:
    """Tasks as described for a decision. ``spread`` says whether the speed of some depends on where their nodes lie."""

    names: tuple[str, ...]
    tasks: list[CompetingTask]
    spread: bool
    _entries: list[TaskEntry]
    _changes: list[int]

    def now(self, time_s: float, fit: CostFit | None) -> CompetingTasks:
        """Return what is right now: the same if nothing changed, else with new descriptions of what did."""
        changes = [entry.changes for entry in self._entries]
        if changes == self._changes:
            return self
        tasks = self.tasks.copy()
        for place, (is_now, was) in enumerate(zip(changes, self._changes, strict=True)):
            if is_now != was:
                tasks[place] = self._entries[place].competing(time_s, fit=fit)
        return CompetingTasks(self.names, tasks, self.spread, self._entries, changes)


class TaskTable:
    """Unfinished tasks in the order they were submitted, and the owner of every held node.

    ``now_s`` is the time of what happens to them, to be kept up to date from outside.
    """

    __slots__ = ("_described", "_members", "_owner", "_place_of", "_spread", "_timed", "chooses_batches", "now_s")

    def __init__(self, place_of: Callable[[str], str] = host_of) -> None:
        self._place_of = place_of
        self._described: dict[CostFit | None, CompetingTasks] = {}  # by how costs are fitted
        self._spread: set[str] = set()  # tasks whose speed depends on where their nodes lie
        self._timed: set[str] = set()  # tasks with a deadline
        self.now_s = 0.0
        self.chooses_batches = False
        self._members: dict[str, TaskEntry] = {}
        self._owner: dict[str, str] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __getitem__(self, task: str) -> TaskEntry:
        return self._members[task]

    def __contains__(self, task: str) -> bool:
        return task in self._members

    def get(self, task: str) -> TaskEntry | None:
        """Give the member called ``task``, if there is one."""
        return self._members.get(task)

    @property
    def used(self) -> int:
        """How many nodes all tasks hold together."""
        return len(self._owner)

    @property
    def names(self) -> KeysView[str]:
        """The names of all tasks."""
        return self._members.keys()

    def competing(
        self, names: tuple[str, ...], time_s: float, *, history: bool = False, fit: CostFit | None = None
    ) -> CompetingTasks:
        """Describe tasks for a decision at ``time_s``, as :meth:`TaskEntry.competing` does each of them.

        What was described before and has not changed since is not looked at again.
        """
        before = self._described.get(fit)
        if before is not None and before.names == names and not history:
            found = before.now(time_s, fit)
        else:
            entries = [self._members[name] for name in names]
            tasks = [entry.competing(time_s, history=history, fit=fit) for entry in entries]
            spread = not self._spread.isdisjoint(names)
            found = CompetingTasks(names, tasks, spread, entries, [entry.changes for entry in entries])
            if history or not self._timed.isdisjoint(names):
                return found  # these change as time goes by
        if len(self._described) >= _MOST_FITS:
            self._described.clear()
        self._described[fit] = found
        return found

    def willing(self) -> Iterator[str]:
        """Name the tasks that want nodes: all but those that their owners have paused."""
        return (name for name, member in self._members.items() if not member.paused)

    def enrol(self, member: TaskEntry, held: Mapping[str, int], kind: str = ANY_KIND) -> None:
        """Append a task that holds nodes (node -> group) of one kind already, and has had what it says."""
        name = member.spec.name
        self._enter(member)
        member.chooses_batch = self.chooses_batches
        member.place_of = self._place_of
        member.held.update(held)
        member.kind = kind
        self._owner.update(dict.fromkeys(held, name))

    def add(self, spec: TaskSpec) -> None:
        """Append a task that was just submitted."""
        past = TaskHistory(submitted_s=self.now_s, since_s=self.now_s)
        self._enter(
            TaskEntry(
                spec,
                past,
                work_left_samples=spec.work_samples,
                chooses_batch=self.chooses_batches,
                place_of=self._place_of,
            )
        )

    def _enter(self, member: TaskEntry) -> None:
        name = member.spec.name
        self._members[name] = member
        if member.spec.spread is not None:
            self._spread.add(name)
        if member.spec.deadline_s is not None:
            self._timed.add(name)

    def remove(self, task: str) -> tuple[str, ...]:
        """Strike a task off; gives the nodes it held."""
        nodes = self.vacate(task)
        del self._members[task]
        self._described.clear()  # another task may come by its name
        self._spread.discard(task)
        self._timed.discard(task)
        return nodes

    def changes(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """Give how many nodes each task must take, or give up if less than 0, to come to ``sizes``; not who stays."""
        members = self._members
        return {task: change for task, size in sizes.items() if (change := size - len(members[task].held))}

    def moved(self, sizes: Mapping[str, int], kinds: Mapping[str, str]) -> list[str]:
        """Name the tasks that hold nodes of another kind than they are to have; who is to have none is not one."""
        members = self._members
        return [
            task
            for task, size in sizes.items()
            if size and members[task].held and members[task].kind != kinds.get(task, ANY_KIND)
        ]

    def assign(self, task: str, nodes: Mapping[str, int], kind: str = ANY_KIND) -> None:
        """Give nodes (node -> group) of one kind to a task; it holds none of another one."""
        member = self._members[task]
        member.come_to(self.now_s)
        member.held.update(nodes)
        member.kind = kind
        self._owner.update(dict.fromkeys(nodes, task))

    def withdraw(self, task: str, nodes: Iterable[str]) -> None:
        """Take nodes from a task."""
        self._members[task].come_to(self.now_s)
        held = self._members[task].held
        for node in nodes:
            del held[node]
            del self._owner[node]

    def vacate(self, task: str) -> tuple[str, ...]:
        """Take all nodes from a task; gives them."""
        nodes = tuple(self._members[task].held)
        self.withdraw(task, nodes)
        return nodes

    def lose(self, nodes: Iterable[str]) -> dict[str, list[str]]:
        """Take departed nodes from their tasks; returns task -> its losses."""
        losses: dict[str, list[str]] = {}
        owner = self._owner
        for node in nodes:
            task = owner.pop(node, None)
            if task is not None:
                if task not in losses:
                    self._members[task].come_to(self.now_s)
                del self._members[task].held[node]
                losses.setdefault(task, []).append(node)
        return losses
