"""HarvesterSnapshot: the complete state of a Harvester as a value, from which a new Harvester continues identically."""

from __future__ import annotations

import msgspec

from bftrain.deciding.admission_control import AdmissionSnapshot
from bftrain.deciding.allocation_state import AllocationState
from bftrain.deciding.node_stay import NodeStay
from bftrain.deciding.task_history import TaskHistory
from bftrain.deciding.task_table import TaskEntry
from bftrain.values.actions import Action
from bftrain.values.kinds import ANY_KIND
from bftrain.values.task import TaskSpec


class NodeGroup(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Nodes of one group, in their order, all of one kind."""

    number: int
    nodes: tuple[str, ...]
    kind: str = ANY_KIND


class UnfinishedTask(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An unfinished task; ``held`` are its nodes in the order in which it got them, each with its group.

    All of them are of one ``kind``. What a task had so far (``past``) is missing in journals of earlier versions.
    """

    spec: TaskSpec
    held: tuple[tuple[str, int], ...] = ()
    failures: int = 0
    work_left_samples: float | None = None
    paused: bool = False
    kind: str = ANY_KIND
    past: TaskHistory | None = None


class HarvesterSnapshot(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where things stand. Orders matter: they break ties when nodes and tasks are chosen."""

    time_s: float | None  # of the last event or decision; None: nothing happened yet
    decisions: int
    next_group: int
    free: tuple[NodeGroup, ...]
    tasks: tuple[UnfinishedTask, ...]
    competed: tuple[str, ...]
    owed: tuple[Action, ...]
    notes: tuple[str, ...]
    admission: AdmissionSnapshot | None = None  # of one that keeps books
    node_stay: NodeStay = NodeStay()  # not in journals of earlier versions


def free_of(holdings: AllocationState) -> tuple[NodeGroup, ...]:
    """Return the free nodes."""
    pool = holdings.pool
    return tuple(
        NodeGroup(number=number, nodes=tuple(nodes), kind=pool.kind_of(next(iter(nodes))))
        for number, nodes in pool.free.items()
    )


def tasks_of(holdings: AllocationState) -> tuple[UnfinishedTask, ...]:
    """Give the unfinished tasks."""
    return tuple(
        UnfinishedTask(
            spec=member.spec,
            held=tuple(member.held.items()),
            failures=member.failures,
            work_left_samples=member.work_left_samples,
            paused=member.paused,
            kind=member.kind if member.held else ANY_KIND,
            past=member.past,
        )
        for member in map(holdings.roster.__getitem__, holdings.roster)
    )


def take_up(standing: HarvesterSnapshot, holdings: AllocationState) -> None:
    """Bring new holdings to where things stood."""
    now_s = standing.time_s or 0.0
    for task in standing.tasks:
        member = TaskEntry(
            task.spec,
            task.past or TaskHistory(submitted_s=task.spec.submit_s, since_s=now_s),
            failures=task.failures,
            work_left_samples=task.work_left_samples,
            paused=task.paused,
        )
        holdings.roster.enrol(member, dict(task.held), task.kind)
    held = {node: group for task in standing.tasks for node, group in task.held}
    free = {group.number: group.nodes for group in standing.free}
    kinds = {node: task.kind for task in standing.tasks if task.kind for node, _ in task.held}
    kinds.update({node: group.kind for group in standing.free if group.kind for node in group.nodes})
    holdings.pool.take_up(free, held, standing.next_group, kinds)
    holdings.roster.now_s = now_s
    holdings.notes.extend(standing.notes)
