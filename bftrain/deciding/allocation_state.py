"""AllocationState: idle nodes, unfinished tasks and their allocations; each change returns the actions it requires."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Final

import msgspec

from bftrain.deciding.admission_control import AdmissionSnapshot
from bftrain.deciding.node_stay import NodeStay
from bftrain.deciding.pool import NodePool
from bftrain.deciding.task_table import TaskEntry, TaskHistory, TaskTable
from bftrain.errors import BadInput
from bftrain.node_units import host_of
from bftrain.ports import Placement
from bftrain.values import events as happened
from bftrain.values.actions import Action, Cause, Grow, Release, Shrink, Start, Stop
from bftrain.values.curve import ANY_KIND
from bftrain.values.events import Event, NodesJoined, NodesLeft
from bftrain.values.task import TaskSpec
from bftrain.values.wire import NOTHING, unchecked

# Templates: actions with already validated names are modified copies of these
_START: Final = Start(task="task", nodes=("node",))
_GROW: Final = Grow(task="task", nodes=("node",))
_SHRINK: Final = Shrink(task="task", nodes=("node",))
_PREEMPTED: Final = Shrink(task="task", nodes=("node",), cause=Cause.PREEMPTED)
_STOP: Final = Stop(task="task", nodes=("node",))
_RELEASE: Final = Release(nodes=("node",))
_SAVED: Final = ("failures", "work_left_samples", "paused")  # fields of tasks that snapshots store as they are


class NodeGroup(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Nodes of one group and kind, in sequence."""

    number: int
    nodes: tuple[str, ...]
    kind: str = ANY_KIND


class UnfinishedTask(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An unfinished task; ``held`` maps its nodes, in the sequence of their assignment, to their groups.

    All of them have the same ``kind``. The task's history (``past``) is missing in journals of earlier versions.
    """

    spec: TaskSpec
    held: tuple[tuple[str, int], ...] = ()
    failures: int = 0
    work_left_samples: float | None = None
    paused: bool = False
    kind: str = ANY_KIND
    past: TaskHistory | None = None


class HarvesterSnapshot(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The complete state of a Harvester, from which a new one continues identically.

    Sequences matter: they break ties in the choice of nodes and tasks. Free nodes are sorted by group, within a group
    by the time at which they became free.
    """

    time_s: float | None  # time of the last event or decision; None before the first
    decisions: int
    next_group: int
    free: tuple[NodeGroup, ...]
    tasks: tuple[UnfinishedTask, ...]
    competed: tuple[str, ...]
    owed: tuple[Action, ...]
    notes: tuple[str, ...]
    admission: AdmissionSnapshot | None = None  # state of a stateful admission
    node_stay: NodeStay = NodeStay()  # missing in journals of earlier versions
    # Whether all events since the last decision were measurements; None: no events, or only reports of remaining work
    only_measured: bool | None = None


class AllocationState:
    """The state of a Harvester: pool and task table, changed together. ``notes`` collects remarks on odd events."""

    def __init__(self, placement: Placement, max_failures: int, place_of: Callable[[str], str] = host_of) -> None:
        self._placement = placement
        self._max_failures = max_failures
        self.pool = NodePool()
        self.task_table = TaskTable(place_of)
        self.notes: list[str] = []

    def knows(self, task: str) -> bool:
        """Return whether a task is unfinished; add a note if not."""
        if task in self.task_table:
            return True
        self.notes.append(f"task '{task}' is unknown or over")
        return False

    def free_groups(self) -> tuple[NodeGroup, ...]:
        """Return the free nodes for a snapshot."""
        return tuple(
            NodeGroup(number=number, nodes=tuple(nodes), kind=self.pool.kind_of(next(iter(nodes))))
            for number, nodes in self.pool.free.items()
        )

    def unfinished_tasks(self) -> tuple[UnfinishedTask, ...]:
        """Return the unfinished tasks for a snapshot."""
        return tuple(
            UnfinishedTask(
                spec=member.spec,
                held=tuple(member.held.items()),
                kind=member.kind if member.held else ANY_KIND,
                past=member.past,
                **{name: getattr(member, name) for name in _SAVED},
            )
            for member in self.task_table.values()
        )

    def restore(self, snapshot: HarvesterSnapshot) -> None:
        """Initialise an empty state from a snapshot."""
        now_s = snapshot.time_s or 0.0
        for task in snapshot.tasks:
            past = task.past or TaskHistory(submitted_s=task.spec.submit_s, since_s=now_s)
            same = {name: getattr(task, name) for name in _SAVED}
            self.task_table.add(TaskEntry(task.spec, past, held=dict(task.held), kind=task.kind, **same))
        held = {node: group for task in snapshot.tasks for node, group in task.held}
        free = {group.number: group.nodes for group in snapshot.free}
        kinds = {node: task.kind for task in snapshot.tasks if task.kind for node, _ in task.held}
        kinds.update({node: group.kind for group in snapshot.free if group.kind for node in group.nodes})
        self.pool.restore(free, held, snapshot.next_group, kinds)
        self.task_table.now_s = now_s
        self.notes.extend(snapshot.notes)

    def process_events(self, events: tuple[Event, ...]) -> tuple[Action, ...]:
        """Process simultaneous events, departures first; return the actions required immediately."""
        left_last: dict[str, int] = {}  # node -> the last event with which it left
        for number, event in enumerate(events):
            if isinstance(event, NodesLeft):
                left_last.update(dict.fromkeys(event.nodes, number))
        actions = self._depart(left_last) if left_last else []
        for number, event in enumerate(events):
            if isinstance(event, NodesJoined):
                # A node that joined and then left is gone; a node that left and then joined is usable again
                fresh = event.nodes
                if left_last:
                    fresh = tuple([node for node in fresh if left_last.get(node, -1) < number])
                if known := self.pool.join(fresh, event.kind):
                    self._add_node_note(known, "joined but was in the pool already")
                    others = [node for node in known if self.pool.kind_of(node) != event.kind]
                    self._add_node_note(others, f"is in the pool as another kind than {event.kind!r}")
            else:
                actions.extend(self._process_event(event))
        return tuple(actions)

    def _depart(self, named: Collection[str]) -> list[Action]:
        """Release every departed node, then shrink or stop the affected tasks."""
        gone = self.pool.leave(named)
        if len(gone) < len(named):
            self._add_node_note([node for node in named if node not in gone], "left but was not in the pool")
        if not gone:
            return []
        actions: list[Action] = [unchecked(_RELEASE, nodes=tuple(gone))]
        for task, lost in self.task_table.lose(gone).items():
            member = self.task_table[task]
            if member.size >= member.spec.min_nodes:
                actions.append(unchecked(_PREEMPTED, task=task, nodes=tuple(lost)))
                continue
            rest = self.task_table.release_all(task)
            self.pool.give_back(rest)
            cause = Cause.BELOW_MINIMUM if rest else Cause.PREEMPTED
            actions.append(unchecked(_STOP, task=task, nodes=(*lost, *rest), cause=cause))
        return actions

    def _process_event(self, event: Event) -> Iterable[Action]:
        tasks = self.task_table
        match event:
            case happened.TaskSubmitted(spec=spec) if spec.name in tasks:
                self.notes.append(f"task '{spec.name}' was submitted again while it is unfinished")
            case happened.TaskSubmitted(spec=spec):
                past = TaskHistory(submitted_s=tasks.now_s, since_s=tasks.now_s)
                tasks.add(TaskEntry(spec, past, work_left_samples=spec.work_samples))
                self.notes.extend(f"task '{spec.name}': {note}" for note in self._warnings_about(spec))
            case happened.TaskMeasured() if self.knows(event.task):
                tasks[event.task].measured(event, recount=tasks.turn_s > 0.0)
            case happened.TaskEdited() if self.knows(event.task):
                return self._edit(event)
            case happened.TaskFinished() if self.knows(event.task):
                self.pool.give_back(tasks.remove(event.task))
            case happened.TaskCancelled() if self.knows(event.task):
                return self._stop(event.task, Cause.CANCELLED, is_over=True)
            case happened.TaskFailed() if self.knows(event.task):
                member = tasks[event.task]
                member.failures += 1
                given_up = member.failures >= self._max_failures
                if given_up:
                    what = f"given up after {member.failures} failures: {event.reason}"
                    self.notes.append(f"task '{event.task}' {what}")
                return self._stop(event.task, Cause.FAILED, is_over=given_up)
            case happened.TaskPaused() | happened.TaskResumed() if self.knows(event.task):
                paused = isinstance(event, happened.TaskPaused)
                tasks[event.task].paused = paused
                return self._stop(event.task, Cause.PAUSED) if paused else ()
            case _:
                pass  # departures are already processed; an unknown task was noted
        return ()

    def _edit(self, event: happened.TaskEdited) -> Iterable[Action]:
        """Apply the changes of a task's owner; the task stops if they exclude its size or its kind of nodes."""
        spec, name = event.spec, event.renamed or event.task
        if event.renamed in self.task_table:
            self.notes.append(f"task '{event.task}' keeps its name: there is a task '{event.renamed}'")
            name = event.task
        task = self.task_table[spec.name]
        fits = spec.min_nodes <= task.size <= spec.max_nodes and spec.curve_on(task.kind) is not None
        stopped = () if fits else self._stop(spec.name)
        self.task_table.edit(spec, name, event.time_s)
        return stopped

    def _warnings_about(self, spec: TaskSpec) -> Iterator[str]:
        """Yield warnings about a new task: sizes without measurements, and a lack of nodes of its kinds."""
        for kind, curve in spec.curves.items() if spec.curves else ((ANY_KIND, spec.curve),):
            note = curve.note(spec.max_nodes)
            if note:
                yield f"on {kind}: {note}" if kind else note
        if spec.curves and len(self.pool) and not any(spec.curve_on(kind) for kind in self.pool.counts or (ANY_KIND,)):
            yield f"runs on {', '.join(spec.curves)} only, and no such node is idle now: it waits"

    def _stop(self, task: str, cause: Cause = Cause.DECIDED, *, is_over: bool = False) -> Iterable[Action]:
        nodes = self.task_table.remove(task) if is_over else self.task_table.release_all(task)
        self.pool.give_back(nodes)
        return (unchecked(_STOP, task=task, nodes=nodes, cause=cause),) if nodes else ()

    def _add_node_note(self, nodes: list[str], what: str) -> None:
        if nodes:
            others = f" and {len(nodes) - 1} others" if len(nodes) > 1 else ""
            self.notes.append(f"node '{nodes[0]}'{others} {what}")

    def carry_out(self, sizes: Mapping[str, int], kinds: Mapping[str, str] = NOTHING) -> Iterator[Action]:
        """Change to the new sizes: a task either loses or gains nodes, and all losses precede all gains.

        A task that moves to nodes of another kind releases all its nodes and starts again.
        """
        tasks, pool = self.task_table, self.pool
        if pool.counts:
            for name, size in sizes.items():
                if size and tasks[name].held and tasks[name].kind != kinds.get(name, ANY_KIND):
                    yield from self._stop(name)
        change = {name: more for name, size in sizes.items() if (more := size - len(tasks[name].held))}
        for name, difference in change.items():
            held = tasks[name].held
            if difference == -len(held):
                yield from self._stop(name)
            elif difference < 0:
                nodes = tuple(self._placement.give_up(held, -difference))
                tasks.withdraw(name, nodes)
                pool.give_back(nodes)
                yield unchecked(_SHRINK, task=name, nodes=nodes)
        growing = (name for name in change if change[name] > 0)
        # The task with the largest need chooses first, so small needs do not split large groups
        for name in sorted(growing, key=lambda name: -change[name]):
            yield self._grow(name, change[name], kinds.get(name, ANY_KIND))

    def _grow(self, task: str, count: int, kind: str) -> Action:
        held, pool = self.task_table[task].held, self.pool
        nodes = tuple(self._placement.take(held, pool.free_of(kind), count))
        template = _GROW if held else _START
        self.task_table.assign(task, pool.take(nodes), kind)
        return unchecked(template, task=task, nodes=nodes)

    def follow(self, actions: Iterable[Action]) -> None:
        """Apply the actions of an earlier decision, node by node."""
        tasks, pool = self.task_table, self.pool
        for action in actions:
            match action:
                case Start() | Grow() if action.task in tasks and all(map(pool.is_free, action.nodes)):
                    tasks.assign(action.task, pool.take(action.nodes), pool.kind_of(action.nodes[0]))
                case Shrink(task=task) | Stop(task=task) if task in tasks and tasks[task].held.keys() >= {
                    *action.nodes
                }:
                    tasks.withdraw(task, action.nodes)
                    pool.give_back(action.nodes)
                case _:
                    raise BadInput(f"does not follow from the events before: {action}", where="decision")
