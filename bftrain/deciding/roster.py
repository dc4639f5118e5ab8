"""Roster: the unfinished tasks, and which nodes each of them holds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from bftrain.values.events import TaskMeasured
from bftrain.values.problem import CompetingTask
from bftrain.values.task import TaskSpec


@dataclass(slots=True)
class Member:
    """An unfinished task with its nodes (node -> group)."""

    spec: TaskSpec
    held: dict[str, int] = field(default_factory=dict)
    failures: int = 0
    work_left_samples: float | None = None
    _seen: CompetingTask | None = None

    @property
    def size(self) -> int:
        """The number of nodes it holds."""
        return len(self.held)

    def measured(self, event: TaskMeasured) -> None:
        """Take over what was measured."""
        known = {
            name: value
            for name in ("curve", "grow_cost_s", "shrink_cost_s", "start_cost_s")
            if (value := getattr(event, name)) is not None
        }
        if known:
            self.spec = replace(self.spec, **known)
        if event.work_left_samples is not None:
            self.work_left_samples = event.work_left_samples
        self._seen = None

    def competing(self, time_s: float) -> CompetingTask:
        """Describe it for a decision at ``time_s``; built anew only if something changed since the last one."""
        spec, size = self.spec, len(self.held)
        if self._seen is not None and self._seen.size == size and spec.deadline_s is None:
            return self._seen
        self._seen = CompetingTask(
            name=spec.name,
            size=size,
            min_nodes=spec.min_nodes,
            max_nodes=spec.max_nodes,
            curve=spec.curve,
            grow_cost_s=spec.grow_cost_s,
            shrink_cost_s=spec.shrink_cost_s,
            start_cost_s=spec.start_cost_s,
            weight=spec.weight,
            work_left_samples=self.work_left_samples,
            deadline_in_s=None if spec.deadline_s is None else spec.deadline_s - time_s,
        )
        return self._seen


class Roster:
    """Unfinished tasks in the order they were submitted, and the owner of every held node."""

    __slots__ = ("_members", "_owner")

    def __init__(self) -> None:
        self._members: dict[str, Member] = {}
        self._owner: dict[str, str] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __getitem__(self, task: str) -> Member:
        return self._members[task]

    def __contains__(self, task: str) -> bool:
        return task in self._members

    def get(self, task: str) -> Member | None:
        """Give the member called ``task``, if there is one."""
        return self._members.get(task)

    def add(self, spec: TaskSpec) -> None:
        """Append a task that was just submitted."""
        self._members[spec.name] = Member(spec, work_left_samples=spec.work_samples)

    def remove(self, task: str) -> tuple[str, ...]:
        """Strike a task off; gives the nodes it held."""
        nodes = tuple(self._members.pop(task).held)
        self._disown(nodes)
        return nodes

    def changes(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """Give how many nodes each task must take, or give up if less than 0, to come to ``sizes``; not who stays."""
        members = self._members
        return {task: change for task, size in sizes.items() if (change := size - len(members[task].held))}

    def assign(self, task: str, nodes: Mapping[str, int]) -> None:
        """Give nodes (node -> group) to a task."""
        self._members[task].held.update(nodes)
        self._owner.update(dict.fromkeys(nodes, task))

    def withdraw(self, task: str, nodes: Iterable[str]) -> None:
        """Take nodes from a task."""
        held = self._members[task].held
        for node in nodes:
            del held[node]
            del self._owner[node]

    def vacate(self, task: str) -> tuple[str, ...]:
        """Take all nodes from a task; gives them."""
        held = self._members[task].held
        nodes = tuple(held)
        held.clear()
        self._disown(nodes)
        return nodes

    def lose(self, nodes: Iterable[str]) -> dict[str, list[str]]:
        """Take departed nodes from whoever holds them; gives task -> its losses."""
        losses: dict[str, list[str]] = {}
        owner = self._owner
        for node in nodes:
            task = owner.pop(node, None)
            if task is not None:
                del self._members[task].held[node]
                losses.setdefault(task, []).append(node)
        return losses

    def _disown(self, nodes: Iterable[str]) -> None:
        for node in nodes:
            del self._owner[node]
