"""TaskTable: the unfinished tasks and their nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, KeysView, Mapping

import msgspec
from msgspec.structs import replace

from bftrain.deciding.node_stay import CostFit
from bftrain.deciding.task_entry import MOST_FITS, TaskEntry, TaskHistory
from bftrain.node_units import host_of
from bftrain.values.curve import ANY_KIND
from bftrain.values.problem import CompetingTask
from bftrain.values.task import TaskSpec


class CompetingTasks(msgspec.Struct, frozen=True, eq=False):
    """Descriptions of tasks for a decision. ``spread``: whether the speed of any depends on the places of its nodes."""

    names: tuple[str, ...]
    tasks: list[CompetingTask]
    spread: bool
    entries: list[TaskEntry]
    changes: list[int]  # change counters of the entries at the time of description

    def now(self, time_s: float, fit: CostFit | None) -> CompetingTasks:
        """Return the present descriptions: this object if unchanged, otherwise a modified copy."""
        changes = [entry.changes for entry in self.entries]
        if changes == self.changes:
            return self
        tasks = self.tasks.copy()
        for place, (is_now, was) in enumerate(zip(changes, self.changes, strict=True)):
            if is_now != was:
                tasks[place] = self.entries[place].competing(time_s, fit=fit)
        return CompetingTasks(self.names, tasks, self.spread, self.entries, changes)


class TaskTable:
    """Unfinished tasks by submission, and the owner of every allocated node.

    ``now_s`` is the present time, set by the caller.
    """

    __slots__ = (
        "_described",
        "_members",
        "_owner",
        "_place_of",
        "_spread",
        "_timed",
        "chooses_batches",
        "now_s",
        "turn_s",
    )

    def __init__(self, place_of: Callable[[str], str] = host_of) -> None:
        self._place_of = place_of
        self._described: dict[CostFit | None, CompetingTasks] = {}  # cost fit -> descriptions
        self._spread: set[str] = set()  # tasks whose speed depends on the places of their nodes
        self._timed: set[str] = set()  # tasks with a deadline
        self.now_s = 0.0
        self.chooses_batches = False
        self.turn_s = 0.0  # time that a task keeps its nodes after its start
        self._members: dict[str, TaskEntry] = {}
        self._owner: dict[str, str] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __getitem__(self, task: str) -> TaskEntry:
        return self._members[task]

    def __contains__(self, task: str) -> bool:
        return task in self._members

    def get(self, task: str) -> TaskEntry | None:
        """Return the entry of ``task``, or ``None``."""
        return self._members.get(task)

    @property
    def used(self) -> int:
        """The number of nodes that all tasks hold together."""
        return len(self._owner)

    @property
    def names(self) -> KeysView[str]:
        """All task names."""
        return self._members.keys()

    def competing(
        self, names: tuple[str, ...], time_s: float, *, history: bool = False, fit: CostFit | None = None
    ) -> CompetingTasks:
        """Return the descriptions of tasks for a decision at ``time_s``, each by :meth:`TaskEntry.competing`.

        Unchanged descriptions are reused.
        """
        before = self._described.get(fit)
        if before is not None and before.names == names and not history:
            found = before.now(time_s, fit)
        else:
            entries = [self._members[name] for name in names]
            tasks = [entry.competing(time_s, history=history, turn_s=self.turn_s, fit=fit) for entry in entries]
            spread = not self._spread.isdisjoint(names)
            found = CompetingTasks(names, tasks, spread, entries, [entry.changes for entry in entries])
            if history or not self._timed.isdisjoint(names):
                return found  # these change with time
        if len(self._described) >= MOST_FITS:
            self._described.clear()
        self._described[fit] = found
        return found

    def holdings(self) -> dict[str, tuple[str, ...]]:
        """Return the nodes of each task that has any."""
        return {name: member.nodes for name, member in self._members.items() if member.held}

    def unpaused(self) -> Iterator[str]:
        """Yield the tasks that want nodes: all except those paused by their owners."""
        return (name for name, member in self._members.items() if not member.paused)

    def add_entry(self, member: TaskEntry, held: Mapping[str, int], kind: str = ANY_KIND) -> None:
        """Add a task with its present nodes (node -> group) of a single kind, keeping its history."""
        name = member.spec.name
        self._enter(member)
        member.chooses_batch = self.chooses_batches
        member.place_of = self._place_of
        member.held.update(held)
        member.kind = kind
        self._owner.update(dict.fromkeys(held, name))

    def add(self, spec: TaskSpec) -> None:
        """Add a newly submitted task."""
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

    def set_paused(self, task: str, *, paused: bool) -> None:
        """Set whether the owner has paused a task."""
        self._members[task].paused = paused

    def _enter(self, member: TaskEntry) -> None:
        name = member.spec.name
        self._members[name] = member
        if member.spec.spread is not None:
            self._spread.add(name)
        if member.spec.deadline_s is not None:
            self._timed.add(name)

    def edit(self, spec: TaskSpec, name: str, now_s: float) -> None:
        """Apply the changes of its owner to a task, which is called ``name`` from now on and keeps its place."""
        before = spec.name
        if name != before:
            spec = replace(spec, name=name)
            self._members = {name if key == before else key: entry for key, entry in self._members.items()}
            self._owner.update(dict.fromkeys(self._members[name].held, name))
            self._described.clear()
        self._members[name].edited(spec, now_s)
        for names, given in ((self._spread, spec.spread), (self._timed, spec.deadline_s)):
            names.discard(before)
            if given is not None:
                names.add(name)

    def remove(self, task: str) -> tuple[str, ...]:
        """Remove a task; return its nodes."""
        nodes = self.release_all(task)
        del self._members[task]
        self._described.clear()  # a new task may have this name
        self._spread.discard(task)
        self._timed.discard(task)
        return nodes

    def changes(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """Return the change in nodes of each task to reach ``sizes``, negative for losses, without unchanged tasks."""
        members = self._members
        return {task: change for task, size in sizes.items() if (change := size - len(members[task].held))}

    def changing_kind(self, sizes: Mapping[str, int], kinds: Mapping[str, str]) -> list[str]:
        """Return the tasks that hold nodes of a kind other than the planned one; tasks of size 0 are left out."""
        members = self._members
        return [
            task
            for task, size in sizes.items()
            if size and members[task].held and members[task].kind != kinds.get(task, ANY_KIND)
        ]

    def assign(self, task: str, nodes: Mapping[str, int], kind: str = ANY_KIND) -> None:
        """Assign nodes (node -> group) to a task without nodes of another kind."""
        member = self._members[task]
        member.advance_to(self.now_s)
        if self.turn_s and not member.held:
            member.past = replace(member.past, started_s=self.now_s)
        member.held.update(nodes)
        member.kind = kind
        self._owner.update(dict.fromkeys(nodes, task))

    def withdraw(self, task: str, nodes: Iterable[str]) -> None:
        """Remove nodes from a task."""
        self._members[task].advance_to(self.now_s)
        held = self._members[task].held
        for node in nodes:
            del held[node], self._owner[node]

    def release_all(self, task: str) -> tuple[str, ...]:
        """Remove all nodes from a task and return them."""
        nodes = self._members[task].nodes
        self.withdraw(task, nodes)
        return nodes

    def lose(self, nodes: Iterable[str]) -> dict[str, list[str]]:
        """Remove departed nodes from their tasks; return task -> its losses."""
        losses: dict[str, list[str]] = {}
        owner = self._owner
        for node in nodes:
            if (task := owner.pop(node, None)) is not None:
                losses.setdefault(task, []).append(node)
        for task, lost in losses.items():
            member = self._members[task]
            member.advance_to(self.now_s)
            held = member.held
            for node in lost:
                del held[node]
        return losses
