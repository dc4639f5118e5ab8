"""Reasons for unused nodes (docs/explanation/semantics.md), by kind if nodes have kinds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from bftrain.values.task import TaskSpec
from bftrain_datasets.log.eventlog import EventLog
from bftrain_replay.simulation.node_time_ledger import UnusedReason
from bftrain_replay.simulation.task_progress import TaskProgress


class NodesByKind:
    """The idle nodes by kind, and their tasks. A task uses nodes of one kind at a time."""

    __slots__ = ("_free", "_holding", "_kind_of")

    def __init__(self, log: EventLog) -> None:
        self._kind_of = log.kind_of
        self._free = dict.fromkeys(log.kind_names, 0)
        self._holding: dict[str, dict[str, TaskProgress]] = {kind: {} for kind in log.kind_names}

    @classmethod
    def counted(cls, log: EventLog, pool: Iterable[str], holding: Iterable[tuple[TaskProgress, str]]) -> NodesByKind:
        """Count the nodes of ``pool``, and those of tasks on a kind, instead of following each change."""
        made = cls(log)
        for node in pool:
            made.join(made._kind_of[node], 1)
        for task, kind in holding:
            made.changed(task, kind, 0)
        return made

    def leave(self, nodes: Iterable[str]) -> None:
        """Record departed nodes; their task releases them next."""
        for node in nodes:
            self._free[self._kind_of[node]] -= 1

    def join(self, kind: str, count: int) -> None:
        """Record that ``count`` nodes joined the pool."""
        self._free[kind] += count

    def changed(self, task: TaskProgress, kind: str, before: int) -> None:
        """Record that a task on nodes of ``kind`` has another size than ``before``."""
        self._free[kind] += before - task.size
        if task.size:
            self._holding[kind][task.spec.name] = task
        else:
            self._holding[kind].pop(task.spec.name, None)

    def why_unused(
        self, sizes: Mapping[str, int], *, unfinished: int, task_of: Callable[[str], TaskProgress]
    ) -> dict[UnusedReason, int]:
        """Return the reasons for unused nodes, as :func:`why_unused` does, separately by kind.

        The reason is ``other_kind`` where the tasks on nodes of the kind are full, and tasks that want more nodes run
        on other kinds only or have nodes of another kind.
        """
        found: dict[UnusedReason, int] = {}
        waiting = [task_of(name) for name, size in sizes.items() if size == 0]
        wanting = bool(waiting) or any(
            task.size < task.spec.max_nodes for tasks in self._holding.values() for task in tasks.values()
        )
        for kind, left in self._free.items():
            if left == 0:
                continue
            room = sum(task.spec.max_nodes - task.size for task in self._holding[kind].values())
            able = (task.spec for task in waiting if task.spec.curve_on(kind) is not None)
            room, too_small = _room_of(able, left, room)
            reasons = _reasons(left, room, sizes, unfinished, too_small=too_small, wanting=wanting)
            for reason, count in reasons.items():
                found[reason] = found.get(reason, 0) + count
        return found


def _room_of(waiting: Iterable[TaskSpec], left: int, room: int) -> tuple[int, bool]:
    """Add the room of waiting tasks that ``left`` nodes suffice for; return also whether they are too few for one."""
    too_small = False
    for spec in waiting:
        if spec.min_nodes <= left:
            room += spec.max_nodes
        else:
            too_small = True
    return room, too_small


def _reasons(
    left: int, room: int, sizes: Mapping[str, int], unfinished: int, *, too_small: bool, wanting: bool = False
) -> dict[UnusedReason, int]:
    """Divide ``left`` nodes: those with ``room`` in tasks are not worth a change, the rest has one other reason."""
    wanted = min(left, room)
    if too_small:
        reason = UnusedReason.BELOW_MINIMUM
    elif unfinished > len(sizes):
        reason = UnusedReason.TASK_CAP
    elif wanting:
        reason = UnusedReason.OTHER_KIND
    else:
        reason = UnusedReason.AT_MAXIMUM if sizes else UnusedReason.NO_TASK
    return {UnusedReason.NOT_WORTH: wanted, reason: left - wanted}


def why_unused(
    left: int, *, room: int, sizes: Mapping[str, int], running: int, unfinished: int, spec_of: Callable[[str], TaskSpec]
) -> dict[UnusedReason, int]:
    """Return the reasons why ``left`` nodes do not work.

    ``room`` is the number of nodes that running tasks could still use, ``sizes`` are the sizes of all competing tasks,
    ``running`` of which are above 0; ``unfinished`` also counts tasks that may not compete.
    """
    if left == 0:
        return {}
    too_small = False
    if room < left and len(sizes) > running:
        room, too_small = _room_of((spec_of(name) for name, size in sizes.items() if size == 0), left, room)
    return _reasons(left, room, sizes, unfinished, too_small=too_small)
